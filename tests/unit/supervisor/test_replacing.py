"""Drivers that are changed while their instances are used: who goes on with what, and what is left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandbox.errors import ServerFault, UsageError
from sandbox.plan.model import Mount, SandboxPlan
from sandbox.supervisor.held import Served
from sandbox.testing.plans import baseline_plan
from tests.unit.supervisor.test_pool import ACME, BETA, DRIVER, Stage, ask, driver, once, pool, until

pytestmark = pytest.mark.anyio


def again(**more: Any) -> Served:
    """Return the driver as it is served after a change."""
    return Served(driver(), lambda _tenant: baseline_plan(), **more)


def writing(_tenant: object) -> SandboxPlan:
    """Return a plan that writes a folder of the host."""
    return baseline_plan(mounts=(Mount("/srv/data", "/data", writable=True),))


async def test_an_idle_instance_of_a_changed_driver_ends_and_the_next_call_gets_a_fresh_one() -> None:
    """Without the change the same process would have answered again."""
    async with pool() as stage:
        before, control = await once(stage), await once(stage)
        stage.pool.replace(again())
        after = await once(stage)

        assert before["pid"] == control["pid"] == 1
        assert 2 == after["pid"]
        assert [("replaced", 0)] == [(one["reason"], one["used"]) for one in stage.facts("pool.retire")]
        await until(lambda: stage.pool.figures()["instances"] == 1)


async def test_a_call_in_progress_finishes_on_the_old_instance_while_new_ones_use_the_fresh() -> None:
    """Nothing is switched in the middle of a call, and nobody waits for it where no folder is shared."""
    async with pool() as stage:
        async with stage.pool.lease(DRIVER, ACME) as lease:
            stage.pool.replace(again())
            fresh = await once(stage)
            old = await ask(lease)

        assert (1, 2) == (old["pid"], fresh["pid"])
        await until(lambda: stage.pool.figures()["instances"] == 1)
        assert not stage.facts("pool.cut")
        assert not stage.facts("pool.lost")


async def test_an_instance_that_writes_is_gone_before_the_next_one_starts() -> None:
    """Two processes of one driver never write one folder of one tenant at the same time."""
    async with pool(plan=writing) as stage:
        async with stage.pool.lease(DRIVER, ACME) as lease:
            stage.pool.replace(Served(driver(), writing))
            waiting = asyncio.create_task(once(stage))
            await ask(lease)
            starts = stage.server.starts
            assert not waiting.done()
        fresh = await waiting

        assert 1 == starts
        assert 2 == fresh["pid"]


async def test_a_call_that_outlasts_the_grace_is_cut_and_told() -> None:
    """The deadline holds: the instance ends, its caller gets an error, the trail says so, and no breaker counts it."""
    async with pool() as stage:
        async with stage.pool.lease(DRIVER, ACME) as lease:
            stage.pool.replace(again(), grace=0.05)
            await ask(lease)
            await lease.held.gone()
            with pytest.raises(ServerFault):
                await ask(lease)
        fresh = await once(stage)

        assert [1] == [one["used"] for one in stage.facts("pool.cut")]
        assert 2 == fresh["pid"]
        assert not stage.facts("pool.lost")


async def test_a_removed_driver_takes_nobody_and_its_users_finish() -> None:
    """Who comes next is told that it is not served; who is there finishes; then nothing is left."""
    async with pool() as stage:
        async with stage.pool.lease(DRIVER, ACME) as lease:
            stage.pool.remove(DRIVER)
            with pytest.raises(UsageError) as refused:
                await once(stage, BETA)
            said = await ask(lease)
        await until(lambda: not stage.pool.figures()["instances"])

        assert "CALL-078" == refused.value.id
        assert 1 == said["pid"]


async def test_warm_instances_of_a_changed_driver_are_never_handed_out() -> None:
    """What waited for a tenant was started from the old plan: it ends, and the shelf is filled from the new one."""
    async with pool(warm=1) as stage:
        await until(lambda: stage.facts("pool.warm"))
        stage.pool.replace(again())
        await until(lambda: len(stage.facts("pool.warm")) == 2)
        said = await once(stage)

        assert 2 == said["pid"]
        assert [True] == [one["warm"] for one in stage.facts("pool.bind")]


async def test_a_start_that_a_change_overtakes_is_begun_again() -> None:
    """A request that came before the change gets an instance of the new version, however the two interleave."""
    for steps in range(12):
        async with pool() as stage:
            waiting = asyncio.create_task(once(stage))
            for _ in range(steps):
                await asyncio.sleep(0)
            fresh = again()
            stage.pool.replace(fresh)
            await waiting

            assert [fresh] == [held.served for held in _bound(stage)]


async def test_a_changed_driver_gets_a_fresh_chance_at_once() -> None:
    """The breaker that a broken version opened does not hold the mended one back."""
    async with pool() as stage:
        loop = asyncio.get_running_loop()
        for _ in range(3):
            stage.pool._breaker.failed((DRIVER, ACME), loop.time())
        assert stage.pool._breaker.refuses((DRIVER, ACME), loop.time())
        stage.pool.replace(again())

        assert 1 == (await once(stage))["pid"]


async def test_other_drivers_keep_their_instances() -> None:
    """What was not changed is not touched."""
    async with pool() as stage:
        other = driver().model_copy(update={"id": "other-mcp"})
        stage.pool.add(Served(other, lambda _tenant: baseline_plan(driver_id="other-mcp")))
        async with stage.pool.lease("other-mcp", ACME) as lease:
            pid = (await ask(lease))["pid"]
        stage.pool.replace(again())
        async with stage.pool.lease("other-mcp", ACME) as lease:
            assert pid == (await ask(lease))["pid"]


def _bound(stage: Stage) -> list[Any]:
    return list(stage.pool._bound.values())
