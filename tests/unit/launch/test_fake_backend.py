"""The in-memory backend keeps the life-cycle promises of a real one, so that what is tested with it holds."""

from __future__ import annotations

import asyncio

import pytest

from sandbox.errors import PlatformError
from sandbox.events import Scope, Trace
from sandbox.launch.interface import Backend, ExitStatus, Instance
from sandbox.plan.model import EnvEntry
from sandbox.testing.backend import STDERR, FakeBackend, FakeServer
from sandbox.testing.memory import MemoryRecorder
from sandbox.testing.plans import baseline_plan

pytestmark = pytest.mark.anyio


async def echo(server: FakeServer) -> int:
    """Repeat every line, and leave at the end of input."""
    await server.write(b"starting\n", STDERR)
    while line := await server.read_line():
        await server.write(line)
    return 0


async def stubborn(server: FakeServer) -> int:
    """Ignore everything."""
    await asyncio.Event().wait()
    return 0


def scope(recorder: MemoryRecorder | None = None) -> Scope:
    """Return a scope over memory."""
    return Scope(recorder or MemoryRecorder(), Trace.new())


async def receive(instance: Instance, frames: int) -> list[tuple[int, bytes]]:
    """Return frames of the engine's framing."""
    loop, data, found = asyncio.get_running_loop(), b"", []
    while len(found) < frames:
        data += await loop.sock_recv(instance.stream, 1 << 16)
        while len(data) >= 8 and len(data) >= 8 + int.from_bytes(data[4:8], "big"):
            size = int.from_bytes(data[4:8], "big")
            found.append((data[0], data[8 : 8 + size]))
            data = data[8 + size :]
    return found


async def test_a_script_talks_in_the_engines_framing() -> None:
    """What a script writes arrives in frames, stderr and stdout apart."""
    backend: Backend = FakeBackend(echo)
    instance = await backend.launch(baseline_plan(), scope(), {})
    await asyncio.get_running_loop().sock_sendall(instance.stream, b"one\ntwo\n")
    found = await receive(instance, 3)
    status = await instance.stop(5)
    instance.stream.close()

    assert [(2, b"starting\n"), (1, b"one\n"), (1, b"two\n")] == found
    assert ExitStatus(0) == status == await instance.wait()


async def test_a_stubborn_script_is_killed() -> None:
    """A script that ignores the end of its input ends with the status of SIGKILL."""
    backend = FakeBackend(stubborn)
    instance = await backend.launch(baseline_plan(), scope(), {})
    status = await instance.stop(0.05)
    instance.stream.close()

    assert (137, status) == (status.code, await instance.stop(0))


async def test_a_frozen_script_waits() -> None:
    """A paused script answers when it is let go on."""
    backend = FakeBackend(echo)
    instance = await backend.launch(baseline_plan(), scope(), {})
    await receive(instance, 1)
    await instance.pause()
    await asyncio.get_running_loop().sock_sendall(instance.stream, b"x\n")
    waiting = asyncio.ensure_future(receive(instance, 1))
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    await instance.unpause()
    found = await waiting
    await instance.stop(1)
    instance.stream.close()

    assert (set(), [(1, b"x\n")]) == (done, found)


async def test_failures_and_secrets_are_played_as_asked() -> None:
    """A launch fails when told to, the next one works, and secrets reach the script's variables."""
    backend = FakeBackend(echo, fails=[PlatformError("LAUNCH-005", "too slow")])
    recorder = MemoryRecorder()
    plan = baseline_plan(env=(EnvEntry("TOKEN", secret="slug"),))
    with pytest.raises(PlatformError):
        await backend.launch(plan, scope(recorder), {"slug": "value"})
    instance = await backend.launch(plan, scope(recorder), {"slug": "value"})
    await backend.close()
    instance.stream.close()

    assert [False, True] == [fact.attrs["ok"] for fact in recorder.named("launch.create") if fact.phase == "outcome"]
    assert ({"TOKEN": "value"}, [plan]) == (dict(backend.instances[0]._server.env), backend.launched)
    assert "value" not in repr(recorder.facts)
