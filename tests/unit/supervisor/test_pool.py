"""Instances by driver and tenant: who gets which, when one is started, when it is refused, and what is left."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sandbox.errors import CallRefused, PlatformError, SandboxError, ServerFault, UsageError
from sandbox.events import Scope, Trace
from sandbox.limits import GIB, MIB
from sandbox.plan.model import Mount, SandboxPlan
from sandbox.spec.model import DriverSpec
from sandbox.supervisor.bounds import PoolBounds
from sandbox.supervisor.breaker import Patience
from sandbox.supervisor.headroom import HostFigures, Reserve
from sandbox.supervisor.held import Served
from sandbox.supervisor.leases import Lease
from sandbox.supervisor.opening import opening
from sandbox.supervisor.pool import Instances
from sandbox.tenant import TenantId
from sandbox.testing.backend import FakeBackend
from sandbox.testing.memory import MemoryRecorder
from sandbox.testing.plans import baseline_plan
from tests.fake_servers import Whoami
from tests.unit.serve.builders import contract_of, spec_of

pytestmark = pytest.mark.anyio
ACME, BETA = TenantId("acme"), TenantId("beta")
ROOMY = HostFigures(64 * GIB, 60 * GIB)
QUICK = Patience(first=0.01, longest=0.02, failures=3, window=5.0, open_for=0.3, open_longest=1.0, steady=30.0)
DRIVER = "test-mcp"


@dataclasses.dataclass
class Stage:
    """A pool over memory."""

    pool: Instances
    backend: FakeBackend
    server: Whoami
    recorder: MemoryRecorder

    def facts(self, name: str) -> list[Mapping[str, Any]]:
        """Return the attributes of facts of a name."""
        return [fact.attrs for fact in self.recorder.facts if fact.name == name]


def driver(**contract: Any) -> DriverSpec:
    """Return a driver of the fake server."""
    made = spec_of(contract_of(**contract), tool_name="whoami")
    return made.model_copy(update={"protocol_version": "2025-11-25"})


@asynccontextmanager
async def pool(
    server: Whoami | None = None,
    host: HostFigures = ROOMY,
    plan: Any = None,
    served: Mapping[str, Any] | None = None,
    **bounds: Any,
) -> AsyncIterator[Stage]:
    """Open a pool over the in-memory backend with one driver."""
    recorder, script = MemoryRecorder(), server or Whoami()
    backend = FakeBackend(script)
    scope = Scope(recorder, Trace.new())
    chosen = PoolBounds(**{"restarts": QUICK, "patience": 2.0, "idle_least": 0.01, **bounds})
    made = Instances(opening(backend, scope), scope, chosen, lambda: host)
    async with made:
        made.add(Served(driver(), plan or (lambda _tenant: baseline_plan()), **(served or {})))
        yield Stage(made, backend, script, recorder)
    assert [] == [one.id for one in backend.instances if not one._task.done()]


async def ask(lease: Lease, **more: Any) -> dict[str, Any]:
    """Call the tool and return what it says."""
    params = {"name": "whoami", "arguments": {"tenant": lease.tenant}}
    result = await lease.request("tools/call", params, timeout=5, **more)
    return dict(json.loads(result["content"][0]["text"]))


async def once(stage: Stage, tenant: TenantId = ACME, **more: Any) -> dict[str, Any]:
    """Lease, call, release."""
    async with stage.pool.lease(DRIVER, tenant, "alice") as lease:
        return await ask(lease, **more)


async def until(condition: Any, seconds: float = 5.0) -> None:
    """Wait for something to become true."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - conditions of the pool, which has no event for tests
            await asyncio.sleep(0.01)


async def test_nothing_is_started_before_the_first_use() -> None:
    """S0-37: spawned on first use, kept for the next."""
    async with pool() as stage:
        before = stage.server.starts
        said = [await once(stage) for _ in range(3)]

        assert 0 == before
        assert [1, 1, 1] == [one["pid"] for one in said]


@pytest.mark.claim("P-TENANT-03")
async def test_tenants_never_share_an_instance() -> None:
    """Each tenant has a process of its own, and the trail says whose each was."""
    async with pool() as stage:
        first, second, again = await once(stage, ACME), await once(stage, BETA), await once(stage, ACME)

        assert first["pid"] == again["pid"] != second["pid"]
        owners = [(fact.tenant, fact.instance) for fact in stage.recorder.facts if fact.name == "pool.bind"]
        assert [("acme", "fake-1"), ("beta", "fake-2")] == owners
        assert {(1, "acme"), (2, "beta")} == {(pid, given["tenant"]) for pid, given in stage.server.seen}


async def test_many_first_uses_share_one_start() -> None:
    """A hundred requests of one tenant at once begin one process."""
    async with pool() as stage:
        said = await asyncio.gather(*(once(stage) for _ in range(100)))

        assert {1} == {one["pid"] for one in said}
        assert 1 == stage.server.starts


async def test_an_idle_instance_is_ended() -> None:
    """After the idle time nothing is left of it, and the next use starts another one."""
    async with pool(idle=0.05) as stage:
        await once(stage)
        await until(lambda: not stage.pool.figures()["instances"])
        said = await once(stage)

        assert 2 == said["pid"]
        assert len(stage.facts("pool.idle")) >= 1


async def test_a_leased_instance_is_not_idle() -> None:
    """However long a call takes, its instance stays."""
    async with pool(idle=0.03) as stage:
        async with stage.pool.lease(DRIVER, ACME) as lease:
            await asyncio.sleep(0.3)
            said = await ask(lease)

        assert 1 == said["pid"]


async def test_a_warm_instance_is_handed_out_and_replaced() -> None:
    """A tenant gets a process that was started before; it was paused and nobody's; the shelf is filled again."""
    async with pool(warm=1) as stage:
        await until(lambda: stage.facts("pool.warm"))
        said = await once(stage)
        await until(lambda: len(stage.facts("pool.warm")) == 2)

        assert 1 == said["pid"]
        assert [True] == [one["warm"] for one in stage.facts("pool.bind")]
        assert [""] == [fact.tenant for fact in stage.recorder.facts if fact.name == "pool.warm"][:1]


async def test_nobody_gets_a_warm_instance_before_it_is_thawed() -> None:
    """Several first uses at once share the one that is handed out, and all of them see it running."""
    async with pool(warm=1) as stage:
        await until(lambda: stage.facts("pool.warm"))
        said = await asyncio.gather(*(once(stage) for _ in range(20)))

        assert {1} == {one["pid"] for one in said}
        assert 1 == len(stage.facts("pool.bind"))


@pytest.mark.claim("P-TENANT-03")
async def test_an_instance_that_served_a_tenant_never_becomes_warm() -> None:
    """When a tenant's instance ends, the next tenant's is a fresh process, also under load for room."""
    async with pool(instances=1, warm=1) as stage:
        pids: dict[str, list[int]] = {}
        for name in ("a", "b", "c", "a", "b"):
            pids.setdefault(name, []).append((await once(stage, TenantId(name)))["pid"])
            await asyncio.sleep(0.05)

        used = [pid for found in pids.values() for pid in found]
        assert len(used) == len(set(used))
        assert {(pid, given["tenant"]) for pid, given in stage.server.seen} == {
            (pid, name) for name, found in pids.items() for pid in found
        }


async def test_a_warm_instance_of_another_plan_or_secret_is_not_used() -> None:
    """A tenant whose plan or secrets differ gets a process made for it."""

    def secrets(tenant: TenantId | None) -> Mapping[str, str]:
        return {"token": "beta's"} if tenant == BETA else {}

    async with pool(warm=1, served={"secrets": secrets}) as stage:
        await until(lambda: stage.facts("pool.warm"))
        await once(stage, BETA)

        assert [False] == [one["warm"] for one in stage.facts("pool.bind")]


async def test_more_instances_of_a_tenant_than_allowed_are_refused() -> None:
    """One tenant cannot take all: with its servers in use, the next driver of it is refused."""
    async with pool(of_tenant=1) as stage:
        other = driver().model_copy(update={"id": "other-mcp"})
        stage.pool.add(Served(other, lambda _tenant: baseline_plan(driver_id="other-mcp")))
        async with stage.pool.lease(DRIVER, ACME):
            with pytest.raises(CallRefused) as refused:
                await stage.pool.acquire("other-mcp", ACME)
            async with stage.pool.lease("other-mcp", BETA):
                pass

        assert "CALL-070" == refused.value.id


async def test_at_the_bound_an_idle_instance_of_another_tenant_makes_room() -> None:
    """The one unused for longest ends; one in use never does."""
    async with pool(instances=2) as stage:
        await once(stage, TenantId("old"))
        async with stage.pool.lease(DRIVER, TenantId("busy")) as busy:
            await asyncio.sleep(0.03)
            await once(stage, TenantId("new"))
            said = await ask(busy)

        assert 2 == said["pid"]
        assert stage.pool.figures()["instances"] <= 2


async def test_with_every_instance_in_use_a_request_is_refused_in_time() -> None:
    """It waits for its patience and is told that all are in use; nothing was started for it."""
    async with pool(instances=1, patience=0.1) as stage:
        async with stage.pool.lease(DRIVER, ACME):
            with pytest.raises(CallRefused) as refused:
                await stage.pool.acquire(DRIVER, BETA)

        assert "CALL-071" == refused.value.id
        assert 1 == stage.server.starts


@pytest.mark.parametrize(
    ("host", "word"),
    [
        (HostFigures(8 * GIB, 600 * MIB), "stay reserved"),
        (HostFigures(30 * MIB, 8 * GIB), "all instances together"),
        (HostFigures(8 * GIB, 8 * GIB, 30.0), "waited for memory"),
    ],
)
async def test_a_host_without_room_refuses_before_it_swaps(host: HostFigures, word: str) -> None:
    """Memory, overcommitment and pressure each refuse; the client is not told the host's figures, the trail is."""
    async with pool(host=host) as stage:
        with pytest.raises(CallRefused) as refused:
            await once(stage)

        assert "CALL-072" == refused.value.id
        assert "MiB" not in refused.value.message
        assert word in stage.facts("pool.refuse")[0]["detail"]
        assert 0 == stage.server.starts


async def test_without_room_warm_instances_go_first() -> None:
    """A warm instance costs nobody anything: it ends before a request is refused."""
    plan = baseline_plan()
    reserve = Reserve(memory=0, overcommit=1.0)
    host = HostFigures(plan.limits.memory_bytes, 8 * GIB)
    odd = {"secrets": lambda tenant: {"k": str(tenant)} if tenant else {}}
    async with pool(host=host, warm=1, reserve=reserve, served=odd) as stage:
        await until(lambda: stage.facts("pool.warm"))
        said = await once(stage)

        assert 2 == said["pid"]


@pytest.mark.claim("P-TENANT-04")
async def test_two_tenants_never_write_one_folder() -> None:
    """T03: a writable folder of one tenant's server, or one above or below it, is not mounted for another's."""
    folders = {ACME: "/srv/x", BETA: "/srv/x/sub", TenantId("other"): "/srv/xy"}

    def plan(tenant: TenantId | None) -> SandboxPlan:
        return baseline_plan(mounts=(Mount(folders[tenant or ACME], "/workspace", writable=True),))

    async with pool(plan=plan) as stage:
        await once(stage, ACME)
        with pytest.raises(CallRefused) as refused:
            await once(stage, BETA)
        await once(stage, TenantId("other"))

        assert "CALL-075" == refused.value.id
        assert 2 == stage.server.starts


async def test_a_server_that_is_gone_is_replaced() -> None:
    """The next use starts another process, after a back-off that is recorded."""
    async with pool(restarts=dataclasses.replace(QUICK, first=0.3, longest=0.3)) as stage:
        await once(stage)
        await stage.backend.instances[0].stop(0)
        await until(lambda: stage.facts("pool.lost"))
        said = await once(stage)

        assert 2 == said["pid"]
        assert len(stage.facts("pool.restart")) == 1


async def test_a_crash_loop_opens_the_breaker_for_that_tenant_only() -> None:
    """After three ends in a row starts are refused at once; another tenant is served; later one start is tried."""
    async with pool(Whoami(refuse=3)) as stage:
        for _ in range(3):
            with pytest.raises(SandboxError):
                await once(stage)
        with pytest.raises(CallRefused) as refused:
            await once(stage)
        other = await once(stage, BETA)
        starts = stage.server.starts
        await asyncio.sleep(0.35)
        again = await once(stage)

        assert "CALL-073" == refused.value.id
        assert (4, 4) == (starts, other["pid"])
        assert 5 == again["pid"]


async def test_a_platform_failure_reaches_whoever_waits() -> None:
    """Everybody who waits for the start gets the engine's error, and the next use tries again."""
    async with pool() as stage:
        stage.backend.fails.append(PlatformError("LAUNCH-001", "no engine", "start it"))
        failed = await asyncio.gather(*(once(stage) for _ in range(5)), return_exceptions=True)
        said = await once(stage)

        assert {"LAUNCH-001"} == {getattr(one, "id", one) for one in failed}
        assert 1 == said["pid"]


async def test_a_call_on_a_dying_instance_is_told_that_its_effect_is_unknown() -> None:
    """Without a word of the contract nothing is repeated."""
    async with pool(Whoami(deadly=1.0)) as stage:
        with pytest.raises(ServerFault) as fault:
            await once(stage)

        assert "CALL-074" == fault.value.id
        assert [] == stage.facts("pool.repeat")


async def test_an_idempotent_call_is_repeated_once_on_a_fresh_instance() -> None:
    """The contract says that repeating changes nothing: the caller gets its answer and the trail the repetition."""
    server = Whoami(deadly=1.0)
    async with pool(server) as stage:
        async with stage.pool.lease(DRIVER, ACME) as lease:
            asking = asyncio.create_task(ask(lease, idempotent=True))
            await until(lambda: stage.facts("pool.repeat"))
            server.deadly = 0.0
            said = await asking

        assert (2, "acme") == (said["pid"], said["tenant"])
        assert [{"method": "tools/call", "reason": "WIRE-040"}] == stage.facts("pool.repeat")


async def test_a_server_that_does_not_answer_a_ping_is_replaced_before_it_is_used() -> None:
    """After a rest a server has to answer; a stalled one costs its own tenant a start and no call."""
    async with pool(health_after=0.0, health_timeout=0.1) as stage:
        await once(stage)
        stage.server.mute = 1
        said = await once(stage)

        assert 2 == said["pid"]
        assert ["CALL-079"] == [one["reason"] for one in stage.facts("pool.lost")]


async def test_an_unknown_driver_is_the_callers_mistake() -> None:
    """Only what was added is served."""
    async with pool() as stage:
        with pytest.raises(UsageError) as refused:
            await stage.pool.acquire("nothing", ACME)

        assert "CALL-078" == refused.value.id


async def test_closing_while_starting_leaves_nothing() -> None:
    """The start is given up, whoever waits is told, and the backend has no instance left."""
    server = Whoami()

    async def slow(fake: Any) -> int:
        await asyncio.sleep(30)
        return 0

    async with pool(server) as stage:
        stage.backend.script = slow
        waiting = asyncio.create_task(once(stage))
        await until(lambda: stage.backend.instances)
        async with asyncio.timeout(5):
            await stage.pool.close()
        with pytest.raises((SandboxError, asyncio.CancelledError)):
            await waiting
        with pytest.raises(CallRefused) as refused:
            await once(stage)

        assert "CALL-077" == refused.value.id


async def test_a_caller_that_gives_up_does_not_end_the_start_of_others() -> None:
    """Two wait for one start; one is cancelled; the other is served."""
    async with pool(Whoami(delays=0.05)) as stage:
        first, second = asyncio.create_task(once(stage)), asyncio.create_task(once(stage))
        await asyncio.sleep(0)
        first.cancel()
        said = await second

        assert 1 == said["pid"]


async def test_who_has_to_let_go_starts_nothing_that_was_on_its_way() -> None:
    """Instances that wait for their turn when another gateway may have their tenants are not started afterwards."""
    async with pool(starting=1) as stage:
        async with stage.pool._gate.slot(BETA):
            asked = asyncio.create_task(once(stage))
            await until(lambda: stage.pool._starts)
            stage.pool.expel()
        with pytest.raises(CallRefused, match="CALL-077"):
            await asked
        left = (stage.server.starts, stage.pool.figures()["instances"])
        later = await once(stage)

        assert left == (0, 0)
        assert later["pid"] == 1


async def test_who_goes_away_while_a_rested_server_is_asked_does_not_keep_it() -> None:
    """A request that is cancelled during the ping is no user afterwards: the instance rests, and ends like others."""
    async with pool(health_after=0.0, health_timeout=30.0) as stage:
        await once(stage)
        held = next(iter(stage.pool._bound.values()))
        stage.server.mute = stage.server.starts
        asked = asyncio.create_task(stage.pool.acquire(DRIVER, ACME))
        await until(lambda: held.leases)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

        assert held.leases == 0
