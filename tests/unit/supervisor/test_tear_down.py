"""Step 7 of the flow: whatever happens to the figures, the server is stopped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandbox.errors import PlatformError
from sandbox.events import Scope, Trace
from sandbox.launch.interface import Usage
from sandbox.supervisor import tear_down
from sandbox.testing.backend import FakeBackend, FakeInstance, FakeServer
from sandbox.testing.memory import MemoryRecorder
from sandbox.testing.plans import baseline_plan

pytestmark = pytest.mark.anyio


async def until_end(server: FakeServer) -> int:
    """Serve until the end of input."""
    while await server.read_line():
        pass
    return 0


async def torn_down(asked: FakeInstance, recorder: MemoryRecorder) -> list[dict[str, Any]]:
    """Tear a server down; return what the trail says of its figures."""
    scope = Scope(recorder, Trace.new())
    try:
        await tear_down(asked, scope, 1.0)
    finally:
        assert asked.stream is not None
        asked.stream.close()
    return [fact.attrs["usage"] for fact in recorder.facts if fact.name == "teardown"]


async def launched(recorder: MemoryRecorder) -> FakeInstance:
    """Start a server."""
    return await FakeBackend(until_end).launch(baseline_plan(), Scope(recorder, Trace.new()), {})


@pytest.mark.parametrize("error", [PlatformError("LAUNCH-028", "gone"), TypeError("a defect")], ids=["gone", "defect"])
async def test_a_server_is_stopped_although_it_cannot_be_measured(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that gives no figures costs the figures; a defect of ours is told, after the server was stopped."""
    recorder = MemoryRecorder()
    instance = await launched(recorder)

    async def usage() -> Usage:
        raise error

    monkeypatch.setattr(instance, "usage", usage)
    if isinstance(error, PlatformError):
        assert [{}] == await torn_down(instance, recorder)
    else:
        with pytest.raises(TypeError, match="a defect"):
            await torn_down(instance, recorder)

    assert ("launch.stop", "outcome") in recorder.phases()


async def test_figures_that_never_come_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is stopped; with figures that come, they are recorded (control)."""
    recorder, other = MemoryRecorder(), MemoryRecorder()
    silent, control = await launched(recorder), await launched(other)

    async def usage() -> Usage:
        return await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(silent, "usage", usage)

    assert [{}] == await torn_down(silent, recorder)
    assert ("launch.stop", "outcome") in recorder.phases()
    assert 1 == (await torn_down(control, other))[0]["memory_bytes"]
