"""Handshake sessions under attack: what is read twice, what ends while it begins, and what a credential lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from sandbox.errors import ServerFault
from sandbox.serve.http.bounds import HttpBounds
from sandbox.serve.http.sessions import Sessions
from sandbox.serve.http.turns import Turn
from sandbox.serve.identity.model import Access, anonymous

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


class Beginning:
    """A door whose server never comes."""

    path, name, access, legacy, stateless = "/mcp/never", "never", Access(anonymous=True), False, False

    def __init__(self) -> None:
        self.turn = Turn()
        self.asked = asyncio.Event()

    @contextlib.asynccontextmanager
    async def open(self, *_args: Any) -> AsyncIterator[Any]:
        """Begin, and wait for ever."""
        self.asked.set()
        await asyncio.Event().wait()
        yield None


@pytest.mark.parametrize("ends", ["drop_where", "close"])
async def test_a_session_that_is_ended_while_it_begins_is_refused_as_what_it_is(ends: str) -> None:
    """A reload or the end of the gateway meets a session whose server is starting: its client gets a plain refusal."""
    sessions, door = Sessions(HttpBounds()), Beginning()
    opening = asyncio.create_task(sessions.open(cast("Any", door), anonymous()))
    await door.asked.wait()
    if ends == "close":
        await sessions.close()
    else:
        sessions.drop_where(lambda _session: True)
    with pytest.raises(ServerFault, match="GATE-019"):
        await opening
    assert len(sessions) == 0
