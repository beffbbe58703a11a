"""What a server says beside its results is cleaned at every endpoint of the gateway."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandbox.events import Scope, Trace
from sandbox.serve.http.aggregate import AggregateDoor
from sandbox.serve.http.doors import DriverDoor, Equipment
from sandbox.serve.identity.model import Access, anonymous
from sandbox.testing.memory import MemoryRecorder
from sandbox.vet.model import Exposure

pytestmark = pytest.mark.anyio


class Peer:
    """A server of whom nothing is asked."""

    fault = None


def door(name: str, scope: Scope) -> DriverDoor:
    """Return an endpoint whose server's one secret is its name."""
    revetter = SimpleNamespace(subscribe=lambda _hear: None, unsubscribe=lambda _hear: None)
    live = SimpleNamespace(exposure=Exposure({}), peer=Peer(), scope=scope, revetter=revetter)

    class Lender:
        @contextlib.asynccontextmanager
        async def lease(self, *_of: object) -> AsyncIterator[Any]:
            yield SimpleNamespace(live=live)

    async def equip(_live: Any) -> Equipment:
        def clean(said: dict[str, Any]) -> dict[str, Any]:
            return {key: str(value).replace(name, "***") for key, value in said.items()}

        return Equipment(cast("Any", lambda _caller: None), clean)

    return DriverDoor(
        name, f"/mcp/{name}", Access(anonymous=True), lender=cast("Any", Lender()), equip=equip, tools=frozenset(),
        info={"name": name, "version": "1"}, call_timeout=1.0,
    )  # fmt: skip


async def test_log_messages_lose_secrets_at_the_endpoint_of_a_driver_and_of_all() -> None:
    """A session behind one door cleans with its server's cleaner, one behind all doors with every server's."""
    scope = Scope(MemoryRecorder(), Trace.new())
    doors = [door("red", scope), door("blue", scope)]
    said = {"data": "red blue green"}
    async with doors[0].open(anonymous()) as own, AggregateDoor("/mcp", doors, scope).open(anonymous()) as of_all:
        alone, together = own.options.clean(said), of_all.options.clean(said)

    assert {"data": "*** blue green"} == alone
    assert {"data": "*** *** green"} == together
