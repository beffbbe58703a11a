"""Deaths of brokers, holders and supervisors, evidence that fails, floods, quotas, and what is left after each."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import AuditUnavailable, PlatformError
from sandbox.events import Fact
from sandbox.launch.egress.inside import reasons
from sandbox.launch.egress.learn import propose
from sandbox.launch.egress.provider import Quotas
from sandbox.launch.interface import LABEL_ROLE, LABEL_RUN
from tests.egress_lab import Box, Lab, image, laboratory
from tests.probe_kit import with_label
from tests.shared import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.anyio]

HELLO = "http('allowed.test')"
ROUTE = "'=IHHIIBBBBBBBBI', 28, 24, 0x605, 1, 0, 2, 0, 0, 0, 254, 2, 0, 1, 0"
"""A request for a default route (rtnetlink(7)), as arguments of ``struct.pack``."""

RULES = ("http://allowed.test", "allowed.test:7777", "*.wild.test:7777")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop for the module's lab."""
    return "asyncio"


@pytest.fixture(scope="module")
async def lab() -> AsyncIterator[Lab]:
    """The small internet."""
    async with laboratory(slot=32) as made:
        yield made


async def containers(lab: Lab, box: Box, role: str) -> list[str]:
    """Return the ids of a run's containers of one role."""
    rows = await lab.engine.labelled("containers", f"{LABEL_RUN}={box.attachment._provider.run_id}")
    return [row["Id"] for row in rows if row["Labels"].get(LABEL_ROLE) == role]


def status_of(pid: int) -> dict[str, str]:
    """Return the fields of a process's status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def spare_it(box: Box) -> None:
    """Let a server outlive its way out, so that it can be seen to reach nothing."""
    assert box.instance._network is not None
    box.instance._network.cancel()


async def until(condition: Any, seconds: float = 60) -> None:
    """Wait until an awaitable condition holds."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 - what is waited for is another process's
            await asyncio.sleep(0.1)


# --- privileges ---
@pytest.mark.claim("P-EGR-08")
async def test_holder_and_broker_run_without_any_capability(lab: Lab) -> None:
    """After its set-up the holder is an ordinary user like the broker: no capability, no new privileges, seccomp."""
    async with lab.sandbox(*RULES) as box:
        found = {}
        for role in ("holder", "broker"):
            (container,) = await containers(lab, box, role)
            pid = (await lab.engine.inspect(container))["State"]["Pid"]
            status = status_of(pid)
            found[role] = [
                status["CapEff"],
                status["CapPrm"],
                status["NoNewPrivs"],
                status["Seccomp"],
                status["Uid"].split()[0],
            ]

    assert found == {role: ["0" * 16, "0" * 16, "1", "2", "65531"] for role in ("holder", "broker")}


@pytest.mark.claim("P-EGR-08")
async def test_a_server_sees_and_changes_nothing_of_its_namespace(lab: Lab) -> None:
    """It shares the network of the holder and no process, file or right: routes and DNS cannot be taken over."""
    async with lab.sandbox(*RULES) as box:
        described = await lab.engine.inspect(box.instance.id)
        pids = await box.value("[int(p) for p in os.listdir('/proc') if p.isdigit()]")
        await box.ask(f"socket.socket(16, 3, 0).send(struct.pack({ROUTE}))")
        table = await box.value("open('/proc/net/route').read().count(chr(10))")

        assert await box.error("socket.create_server(('0.0.0.0', 53))") == "EADDRINUSE"
        assert await box.error("open('/run/egress/broker.sock')") in {"ENOENT", "EACCES"}
        assert await box.error("open('/etc/resolv.conf', 'w')") in {"EROFS", "EACCES", "EPERM"}
        assert await box.value(HELLO)

    assert [mount["Destination"] for mount in described["Mounts"]] == []
    assert len(pids) <= 2
    assert table <= 1


async def test_an_open_file_table_of_a_closed_sandbox_is_empty(lab: Lab) -> None:
    """A thousand opens and closes, and the end of a sandbox, leave no descriptor in the broker."""
    async with lab.backend() as (backend, provider):
        box = await lab.launch(backend, RULES)
        broker = (await provider._broker_task()).channel
        assert await box.value(HELLO)
        await asyncio.sleep(0.5)
        before = (await broker.ask("status"))["descriptors"]
        opened = await box.value("sum(tcp('allowed.test', 7777) == 'ping' for _ in range(1000))")
        await asyncio.sleep(0.5)
        after = (await broker.ask("status"))["descriptors"]
        await box.instance.stop(0)
        box.instance.stream.close()
        empty = await broker.ask("status")

    assert opened == 1000
    assert after == before
    assert (empty["flows"], empty["holders"]) == ({}, [])
    assert empty["descriptors"] < before
    outcomes = [fact for fact in box.recorder.named("egress.connect") if fact.phase == "outcome"]
    assert len(outcomes) == 1001


# --- death of the broker ---
@pytest.mark.claim("P-EGR-10")
async def test_a_killed_broker_stops_egress_at_once_and_comes_back(lab: Lab) -> None:
    """Open connections end, new ones are refused without waiting, and the same sandbox works again afterwards."""
    async with lab.sandbox(*RULES, spare=0) as box:
        await box.value("globals().__setitem__('kept', connect('a.wild.test', 7777))")
        address = await box.value("resolve('a.wild.test')")
        (broker,) = await containers(lab, box, "broker")

        await lab.engine.kill(broker, "KILL")
        ended = await box.ask("kept.recv(1).hex()")
        during = await box.ask("connect('198.18.1.0', 80).recv(1).hex()")
        await until(lambda: _recovered(box))
        answer = await box.value(HELLO)

        assert ended.get("value") == "" or ended.get("error") == "ECONNRESET"
        assert during.get("error") in {"ECONNREFUSED", "ECONNRESET"} or during.get("value") == ""
        assert '"host": "good"' in answer
        assert await box.value("resolve('a.wild.test')") == address
        assert len(await containers(lab, box, "broker")) == 1

    connects = box.recorder.named("egress.connect")
    intents = [fact.attrs["flow"] for fact in connects if fact.phase == "intent"]
    outcomes = [fact.attrs["flow"] for fact in connects if fact.phase == "outcome"]
    assert sorted(intents) == sorted(outcomes)
    assert [fact.attrs["state"] for fact in box.recorder.named("egress.broker")] == ["lost", "recovered"]


async def _recovered(box: Box) -> bool:
    return any(fact.attrs["state"] == "recovered" for fact in box.recorder.named("egress.broker"))


@pytest.mark.claim("P-EGR-10")
async def test_a_broker_that_cannot_come_back_gives_the_sandbox_up(lab: Lab) -> None:
    """When no new broker starts, nothing is served and the attachment says that it is lost."""
    async with lab.sandbox(*RULES, spare=0) as box:
        (broker,) = await containers(lab, box, "broker")
        spare_it(box)
        box.attachment._provider._image = "mcp-sandbox/absent"
        await lab.engine.kill(broker, "KILL")
        async with asyncio.timeout(60):
            error = await box.attachment.lost

        assert error.id == "EGR-202"
        assert await box.error("connect('198.18.1.0', 80)") == "ECONNREFUSED"
        assert await lab.arrived("evil") == []


# --- death of the holder ---
@pytest.mark.claim("P-EGR-10")
async def test_a_killed_holder_leaves_no_way_out(lab: Lab) -> None:
    """The broker closes what it had of the namespace; nothing is reached and the attachment is lost."""
    async with lab.sandbox(*RULES, spare=0) as box:
        assert await box.value(HELLO)
        spare_it(box)
        (holder,) = await containers(lab, box, "holder")

        await lab.engine.kill(holder, "KILL")
        async with asyncio.timeout(60):
            error = await box.attachment.lost

        assert error.id == "EGR-207"
        assert await box.error("connect('198.18.1.0', 80)") == "ECONNREFUSED"
        assert await box.error("connect('198.18.1.0', 7777)") == "ECONNREFUSED"
        assert await box.error(f"connect({lab.evil!r}, 80)") == "ECONNREFUSED"


@pytest.mark.claim("P-EGR-10")
async def test_a_holder_that_died_while_it_was_kept_ready_is_replaced(lab: Lab) -> None:
    """The next sandbox gets another one at once, with its own policy, and the trail says so."""
    async with lab.backend(spare=0) as (backend, provider):
        await provider.warm()
        (task,) = provider._pool
        dead = (await task).container
        async with asyncio.timeout(30):
            while not (await (await provider._broker_task()).channel.ask("status"))["holders"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await lab.engine.kill(dead, "KILL")

        box = await lab.launch(backend, RULES)
        reached = await box.value(HELLO)
        refused = await box.error(f"connect({lab.evil!r}, 80)")
        await box.instance.stop(0)
        if box.instance.stream is not None:
            box.instance.stream.close()

    assert '"host": "good"' in reached
    assert refused == "ECONNREFUSED"
    (replaced,) = box.recorder.named("egress.holder")
    assert replaced.attrs["holder"] == dead
    assert "has gone" in replaced.attrs["why"]


# --- death of the supervisor ---
VANISHING = """
import asyncio, sys
from sandbox.launch.engine import Engine
from sandbox.launch.egress.provider import EgressProvider
async def main():
    provider = EgressProvider(Engine(sys.argv[1]), sys.argv[2], image=sys.argv[3])
    provider.prepare(2)
    await provider.start()
    for holder in provider._pool:
        await holder
    print("up", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.claim("P-EGR-10")
async def test_a_killed_supervisor_leaves_no_broker_and_no_holder(lab: Lab) -> None:
    """Even without watchdog: the broker ends with its stream, the holders after their patience with the broker."""
    run_id = os.urandom(16).hex()
    child = subprocess.Popen(  # noqa: ASYNC220 - it is to be killed like a supervisor
        [sys.executable, "-c", VANISHING, lab.engine.socket_path, run_id, image("egress")],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert child.stdout is not None
    assert await asyncio.to_thread(child.stdout.readline) == b"up\n"
    before = await with_label(f"{LABEL_RUN}={run_id}")

    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()

    async def gone() -> bool:
        return not any(row.startswith("containers") for row in await with_label(f"{LABEL_RUN}={run_id}"))

    await until(gone, 90)
    left = await with_label(f"{LABEL_RUN}={run_id}")
    for row in left:
        await lab.engine.remove_volume(row.split()[1])

    assert sum(row.startswith("containers") for row in before) == 3
    assert sum(row.startswith("volumes") for row in before) == 1
    assert {row.split()[0] for row in left} <= {"volumes"}, "it waits for the next reaping, by its label"


async def test_closing_leaves_nothing(lab: Lab) -> None:
    """After close no container, network or volume of the run exists, spare holders included; closing twice is fine."""
    async with lab.backend(spare=2) as (backend, provider):
        box = await lab.launch(backend, RULES)
        box.instance.stream.close()
        run = provider.run_id
    await provider.close()

    assert await with_label(f"{LABEL_RUN}={run}") == []


async def test_an_image_that_is_absent_is_said_and_leaves_nothing(lab: Lab) -> None:
    """The error names the command that makes the image."""
    with pytest.raises(PlatformError, match="EGR-202"):
        await lab.provider("e" * 32, image="mcp-sandbox/absent")
    left = await with_label(f"{LABEL_RUN}={'e' * 32}")
    for row in left:
        await lab.engine.remove_volume(row.split()[1])

    assert [row.split()[0] for row in left] == ["volumes"]


# --- evidence ---
@pytest.mark.claim("P-EGR-07")
async def test_a_connection_that_cannot_be_recorded_is_not_made(lab: Lab) -> None:
    """When the intent cannot be written, nothing is dialled and the sandbox loses its way out."""
    async with lab.sandbox(*RULES) as box:
        assert await box.value(HELLO)
        await lab.forget()
        box.recorder.fails_at = frozenset({"egress.connect/intent"})

        assert await box.error(HELLO) == "ECONNRESET"
        async with asyncio.timeout(30):
            error = await box.attachment.lost
        box.recorder.fails_at = frozenset()

        assert error.id == "EGR-206"
        assert await lab.arrived("good") == []


async def test_facts_carry_tenant_and_the_call_in_flight(lab: Lab) -> None:
    """A connection's intent and outcome share a span and name sandbox, tenant, call, name, address and bytes."""
    async with lab.sandbox(*RULES) as box:
        with box.attachment.during("call-42"):
            await box.value(HELLO)
            await box.facts("egress.connect", lambda facts: any(f.phase == "outcome" for f in facts))

    intent, outcome = [fact for fact in box.recorder.named("egress.connect") if fact.phase != "fact"]
    assert (intent.tenant, outcome.tenant, intent.driver) == ("t1", "t1", "probe")
    assert intent.trace.span_id == outcome.trace.span_id
    assert intent.attrs["calls"] == ["call-42"]
    assert {key: outcome.attrs[key] for key in ("host", "port", "address", "mode", "decision")} == {
        "host": "allowed.test",
        "port": 80,
        "address": lab.good,
        "mode": "http",
        "decision": "allow",
    }
    assert outcome.attrs["bytes_up"] > 20
    assert outcome.attrs["bytes_down"] > 20


@pytest.mark.claim("P-EGR-07")
async def test_a_flood_of_denials_is_counted_and_not_written_out(lab: Lab) -> None:
    """Ten thousand different questions and two thousand connections are some hundred facts whose counts add up."""
    async with lab.sandbox(*RULES) as box:
        ask = "[dns('198.18.0.53', f'x{n}.evil.test')['code'] for n in range(10000)].count(3)"
        asked = await box.value(ask)
        tried = await box.value("sum(bool(timed(lambda: connect('1.1.1.1', 1024 + n)) + 1) for n in range(2000))")
        answer = await box.value(HELLO)

    facts = [fact for fact in box.recorder.facts if fact.attrs.get("decision") == "deny"]
    assert (asked, tried) == (10_000, 2000)
    assert '"host": "good"' in answer
    # A question that is answered late is asked again, and counts again.
    assert 12_000 <= sum(fact.attrs["count"] for fact in facts) <= 12_100
    assert len(facts) < 3000


# --- learning, quotas ---
async def test_learning_denies_everything_and_proposes_what_was_tried(lab: Lab) -> None:
    """Every name has an address, every connection is refused, nothing arrives, and the proposal has hosts and ports."""
    await lab.forget()
    async with lab.sandbox(learning=True) as box:
        for probe in ("tls('allowed.test', sni='allowed.test')", "tcp('db.test', 5432)", "http('allowed.test')"):
            assert await box.error(probe) == "ECONNREFUSED"
        await box.error(f"connect({lab.evil!r}, 22)")
        await asyncio.sleep(0.5)
        arrived = await lab.arrived()
        events = [dict(fact.attrs) for fact in box.recorder.facts]

    assert propose(events) == ["allowed.test:80,443", "db.test:5432", f"{lab.evil}:22"]
    assert arrived == []


async def test_connections_beyond_the_quota_are_refused_and_others_live_on(lab: Lab) -> None:
    """The bound holds for each sandbox; a closed connection makes room."""
    async with lab.sandbox(*RULES, quotas=Quotas(connections=3)) as box:
        await box.value("globals().__setitem__('open_', [connect('allowed.test', 7777) for _ in range(3)])")
        await box.value("[s.sendall(b'x') or s.recv(1).hex() for s in open_]")

        assert await box.error("tcp('allowed.test', 7777)") == "ECONNRESET"
        assert await box.value("(open_.pop().close(), time.sleep(0.3), tcp('allowed.test', 7777))[2]") == "ping"
        assert (await box.denied(reasons.CONNECTIONS))["decision"] == "deny"


async def test_an_idle_connection_is_ended(lab: Lab) -> None:
    """After the idle bound a silent connection is reset, and the outcome says why."""
    async with lab.sandbox(*RULES, quotas=Quotas(idle=1.0)) as box:
        await box.value("globals().__setitem__('idle', connect('allowed.test', 7777))")
        ended = await box.ask("(idle.settimeout(20), idle.recv(1).hex())[1]")

        def has(facts: list[Fact]) -> bool:
            return any(fact.attrs.get("reason") == reasons.IDLE for fact in facts)

        assert ended.get("error") == "ECONNRESET"
        assert has(await box.facts("egress.connect", has))


async def test_many_sandboxes_share_one_broker(lab: Lab) -> None:
    """Four sandboxes with different rules each reach what is theirs and nothing else, at the same time."""
    async with lab.backend() as (backend, provider):
        rules = [("http://allowed.test",), ("allowed.test:7777",), ("*.wild.test:7777",), ()]
        boxes = await asyncio.gather(*(lab.launch(backend, each) for each in rules))
        probes = [HELLO, "tcp('allowed.test', 7777)", "tcp('a.wild.test', 7777)"]
        found = [[not await box.error(probe) for probe in probes] for box in boxes]
        status = await (await provider._broker_task()).channel.ask("status")
        for box in boxes:
            await box.instance.stop(0)
            box.instance.stream.close()

    assert found == [[True, False, False], [False, True, False], [False, False, True], [False, False, False]]
    assert len(status["flows"]) == 4


async def test_a_fact_that_cannot_be_recorded_ends_egress(lab: Lab) -> None:
    """Losing evidence of a denial is treated like losing that of a connection."""
    async with lab.sandbox(*RULES) as box:
        box.recorder.fails_at = frozenset({"egress.dns"})
        await box.error("resolve('evil.test')")
        async with asyncio.timeout(30):
            error = await box.attachment.lost
        box.recorder.fails_at = frozenset()

    assert isinstance(error.__cause__, AuditUnavailable | None)
    assert error.id == "EGR-206"


async def test_a_server_that_lost_its_way_out_is_ended_and_the_reason_is_the_platforms(lab: Lab) -> None:
    """Nobody is left with a deaf server: it is killed, whoever waits is told why, and nothing of it remains."""
    async with lab.backend() as (backend, provider):
        box = await lab.launch(backend, RULES)
        assert await box.value(HELLO)
        (holder,) = await containers(lab, box, "holder")
        await lab.engine.kill(holder, "KILL")
        with pytest.raises(PlatformError, match="EGR-207"):
            async with asyncio.timeout(60):
                await box.instance.wait()
        status = await box.instance.stop(0)
        box.instance.stream.close()
        left = await with_label(f"{LABEL_RUN}={provider.run_id}")

    assert status.code == 137
    assert [fact.attrs["error"] for fact in box.recorder.named("launch.lost")] == ["EGR-207"]
    assert not [row for row in left if box.instance.id[:12] in row or holder[:12] in row]
