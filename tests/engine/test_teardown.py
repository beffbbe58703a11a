"""However a session ends, nothing of it remains: no container, network, volume or process."""

# ruff: noqa: ASYNC240 - tests may block
from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.launch import owner, watchdog
from sandbox.launch.engine import Engine
from sandbox.launch.interface import LABEL_OWNER, LABEL_RUN
from sandbox.launch.reap import reap
from tests.conftest import ENGINE_SOCKET
from tests.probe_kit import PREFIX, probe_image, with_label
from tests.second_engine import second_engine
from tests.shared import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.anyio]

SUPERVISOR = Path(__file__).parent.parent / "probes" / "supervisor.py"
PATIENCE = 90.0


class Supervisor:
    """A supervisor in a process of its own, at a stage of a launch."""

    def __init__(self, process: asyncio.subprocess.Process, run_id: str, socket_path: str) -> None:
        self.process = process
        self.run_id = run_id
        self.socket_path = socket_path

    async def remains(self) -> list[str]:
        """Return what of its run exists in the engine, and which of its processes live."""
        found = await with_label(f"{LABEL_RUN}={self.run_id}", self.socket_path)
        return found + [f"process {pid}" for pid in processes(self.run_id)]

    async def nothing_remains(self) -> list[str]:
        """Return what remains when it is all gone, or when patience is."""
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(Exception):
                found = await self.remains()
                if not found:
                    return []
            if time.monotonic() > deadline:
                return await self.remains()
            await asyncio.sleep(0.2)


def processes(word: str) -> list[int]:
    """Return the processes whose command line or environment names a run: watchdog, init and server alike."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if word.encode() in (path / "cmdline").read_bytes() and int(path.name) != os.getpid():
                found.append(int(path.name))
    return found


@contextlib.asynccontextmanager
async def supervisor(stage: str, socket_path: str = str(ENGINE_SOCKET)) -> AsyncIterator[Supervisor]:
    """Yield a supervisor that has reached a stage."""
    run_id = owner.new_run_id()
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SUPERVISOR), socket_path, probe_image(socket_path=socket_path), run_id, stage,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT))))},
    )  # fmt: skip
    assert process.stdout is not None
    ready = await asyncio.wait_for(process.stdout.readline(), 60)
    assert ready == b"ready\n"
    try:
        yield Supervisor(process, run_id, socket_path)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        process._transport.close()


@pytest.mark.claim("P-LAUNCH-05")
async def test_a_client_that_leaves() -> None:
    """At the end of the client's stream the supervisor removes everything and its watchdog ends."""
    async with supervisor("run") as session:
        before = await session.remains()
        session.process.stdin.close()
        await asyncio.wait_for(session.process.wait(), 60)

        assert (2 <= len(before), 0, []) == (True, session.process.returncode, await session.nothing_remains())


@pytest.mark.claim("P-LAUNCH-05")
@pytest.mark.parametrize(
    "how", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP, signal.SIGSEGV], ids=lambda how: how.name
)
@pytest.mark.parametrize("stage", ["run", "created", "creating", "network"])
async def test_a_supervisor_that_is_killed(how: signal.Signals, stage: str) -> None:
    """A supervisor that dies by a signal, at any stage of a launch, is cleaned up after (probe R09)."""
    async with supervisor(stage) as session:
        session.process.send_signal(how)
        await session.process.wait()

        assert (-how, []) == (session.process.returncode, await session.nothing_remains())


@pytest.mark.claim("P-LAUNCH-05")
async def test_the_supervisors_whole_process_group_is_killed() -> None:
    """A terminal or service manager that kills the process group does not kill the watchdog with it."""
    async with supervisor("run") as session:
        group = [pid for pid in processes(session.run_id) if os.getpgid(pid) == os.getpgid(session.process.pid)]
        session.process.kill()
        await session.process.wait()

        assert ([session.process.pid], []) == (group, await session.nothing_remains())


@pytest.mark.claim("P-LAUNCH-06")
@pytest.mark.parametrize("crash", [signal.SIGTERM, signal.SIGKILL], ids=["engine stopped", "engine crashed"])
@pytest.mark.slow
async def test_the_engine_restarts_while_nobody_is_left(crash: signal.Signals) -> None:
    """The watchdog waits for an engine that is away when the supervisor dies, and then removes what it left."""
    with second_engine() as engine:
        async with supervisor("run", str(engine.socket)) as session:
            engine.stop(crash)
            session.process.kill()
            await session.process.wait()
            await asyncio.sleep(1)
            waiting = processes(session.run_id)
            engine.start()

            assert (True, []) == (len(waiting) >= 1, await session.nothing_remains())


@pytest.mark.claim("P-LAUNCH-06")
@pytest.mark.slow
async def test_the_engine_restarts_during_a_session() -> None:
    """A session whose engine goes away closes when its client leaves, and nothing remains."""
    with second_engine() as engine:
        async with supervisor("run", str(engine.socket)) as session:
            engine.stop()
            engine.start()
            session.process.stdin.close()
            await asyncio.wait_for(session.process.wait(), 60)

            assert (0, []) == (session.process.returncode, await session.nothing_remains())


async def test_the_watchdog_holds_nothing_of_the_client() -> None:
    """The watchdog has no file of the supervisor but its pipe: a client that waits for the end of a stream gets it."""
    async with supervisor("run") as session:
        [watcher] = [pid for pid in processes(session.run_id) if pid != session.process.pid]
        files = {path.name: str(path.readlink()) for path in Path(f"/proc/{watcher}/fd").iterdir()}
        resident = next(line for line in Path(f"/proc/{watcher}/status").read_text().splitlines() if "VmRSS" in line)
        session.process.stdin.close()
        await session.process.wait()

    assert {"0": True, "1": False, "2": False} == {name: target.startswith("pipe:") for name, target in files.items()}
    assert int(resident.split()[1]) < 16 * 1024


def test_the_watchdog_knows_the_label() -> None:
    """The watchdog imports nothing of this package, so its copy of the label is compared here."""
    assert LABEL_RUN == watchdog.LABEL


# --- reaping ----------------------------------------------------------------------------------------------------------
@contextlib.asynccontextmanager
async def orphan(label: str, socket_path: str = str(ENGINE_SOCKET)) -> AsyncIterator[tuple[Engine, str]]:
    """Yield a container that a run with an owner label left."""
    engine = Engine(Path(socket_path))
    body = {
        "Image": probe_image(socket_path=socket_path),
        "Entrypoint": ["/probe"],
        "Labels": {LABEL_RUN: "orphan", LABEL_OWNER: label},
    }
    container, _ = await engine.create(body, f"{PREFIX}-orphan-{os.urandom(4).hex()}")
    try:
        yield engine, container
    finally:
        await engine.remove(container)


async def test_reaping_removes_what_the_dead_left() -> None:
    """A container of a supervisor that is gone, watchdog and all, is removed at the next start."""
    boot, pid, _, namespace = owner.own().split(":")
    with second_engine() as own:  # on the common one, any other test that starts something would reap it first
        async with orphan(f"{boot}:{pid}:1:{namespace}", str(own.socket)) as (engine, container):
            reaped = await reap(engine)

            assert (True, False) == (container in reaped.containers, await engine.remove(container))


@pytest.mark.parametrize(
    "label",
    [owner.own(), "", "what is this", owner.own().rpartition(":")[0] + ":1"],
    ids=["living", "none", "nonsense", "another namespace"],
)
async def test_reaping_spares_the_living_and_what_cannot_be_judged(label: str) -> None:
    """A living supervisor's container, and one whose owner cannot be told from here, stay."""
    async with orphan(label) as (engine, container):
        reaped = await reap(engine)

        assert (False, True) == (container in reaped.containers, container in reaped.spared)


async def test_reaping_leaves_other_peoples_containers_alone() -> None:
    """A container without the run label is never touched, whatever it is called."""
    engine = Engine(ENGINE_SOCKET)
    container, _ = await engine.create(
        {"Image": probe_image(), "Cmd": ["/probe"]}, f"{PREFIX}-bystander-{os.urandom(4).hex()}"
    )
    reaped = await reap(engine)
    there = await engine.remove(container)

    assert (True, False) == (there, container in reaped.spared + reaped.containers)
