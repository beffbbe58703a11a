"""A session whose door turns: where calls are carried, what is given back when, and what a session goes on watching."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from sandbox.errors import CallRefused, PlatformError
from sandbox.events import Scope, Trace
from sandbox.serve.client_model import SessionOptions
from sandbox.serve.http.doors import Behind
from sandbox.serve.http.moving import moving
from sandbox.serve.http.turns import Turn
from sandbox.serve.identity.model import Access, anonymous
from sandbox.testing.memory import MemoryRecorder
from sandbox.vet.model import ExposedTool, Exposure

pytestmark = pytest.mark.anyio


class Call:
    """What the handler needs of a call."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def towards(self, _peer: Any, scope: Scope) -> Call:
        """Return the call on its way to another server."""
        return Call(scope)


@dataclass
class Server:
    """One thing that a door lends: peer and handler in one.

    Attributes:
        turn: of its door when it was lent.
        watched: resources, with how often.
        refuse: resources that may not be watched.
    """

    turn: int
    chance: random.Random
    open: bool = True
    calls: int = 0
    watched: dict[str, int] = field(default_factory=dict)
    refuse: frozenset[str] = frozenset()
    fault: Any = None
    era: str = "handshake"
    capabilities: dict[str, Any] = field(default_factory=dict)
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def watches(self) -> Server:
        """What is watched on it."""
        return self

    async def call_tool(self, _tool: Any, _arguments: Any, _call: Any) -> dict[str, Any]:
        """Carry one call, slowly."""
        self.calls += 1
        for _ in range(self.chance.randrange(6)):
            assert self.open
            await asyncio.sleep(0)
        self.calls -= 1
        return {"turn": self.turn}

    async def watch_resource(self, uri: str, _call: Any) -> None:
        """Decide."""
        if uri in self.refuse:
            raise CallRefused("POL-020", "denied")

    async def watch(self, uri: str, *, timeout: float) -> None:  # noqa: ASYNC109 - the form of the real one
        """Watch."""
        self.watched[uri] = self.watched.get(uri, 0) + 1

    async def unwatch(self, uri: str, *, timeout: float) -> None:  # noqa: ASYNC109 - the form of the real one
        """Watch no more."""
        self.watched[uri] -= 1

    def add_listener(self, _listener: Any) -> None:
        """Nothing."""

    def remove_listener(self, _listener: Any) -> None:
        """Nothing."""

    async def wait_closed(self) -> None:
        """Return when it has ended."""
        await self.closed.wait()


class Simulated:
    """A door that lends simulated servers."""

    def __init__(self, seed: int = 0) -> None:
        self.path, self.name, self.access, self.legacy, self.stateless = "/mcp/x", "x", Access(), False, True
        self.turn = Turn()
        self.chance = random.Random(seed)
        self.servers: list[Server] = []
        self.recorder = MemoryRecorder()
        self.scope = Scope(self.recorder, Trace.new())
        self.down = False
        self.tools = ("tool",)
        self.refuse: frozenset[str] = frozenset()

    def limited(self, _tool: str) -> str:
        """Return no key."""
        return ""

    @contextlib.asynccontextmanager
    async def open(self, _identity: Any, _request: Any = None) -> AsyncIterator[Behind]:
        """Lend one server, after a while."""
        turn = self.turn.number
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)
        if self.down:
            raise PlatformError("LAUNCH-001", "no engine")
        server = Server(turn, self.chance, refuse=self.refuse)
        self.servers.append(server)
        tools = {name: cast("ExposedTool", _Tool(name)) for name in self.tools}
        exposure = Exposure(tools, {}, ("any",))  # type: ignore[arg-type]
        try:
            options = SessionOptions(clean=lambda said: {**said, "text": said["text"].replace(f"secret-{turn}", "•")})
            yield Behind(exposure, server, server, self.scope, options)  # type: ignore[arg-type]
        finally:
            assert not server.calls
            server.open = False


@dataclass
class _Tool:
    name: str


async def carried(door: Simulated, behind: Behind) -> int:
    """Make one call and return the turn of the server that carried it."""
    result = await behind.handler.call_tool(cast("ExposedTool", _Tool("tool")), {}, cast("Any", Call(door.scope)))
    return int(result["turn"])


@pytest.mark.claim("P-GATE-20")
@pytest.mark.parametrize("seed", range(60))
async def test_no_call_is_carried_by_what_was_there_before_it_came(seed: int) -> None:
    """Calls and turns interleaved at random: each is carried by a server at least as new as the call, and all end."""
    door = Simulated(seed)
    chance = random.Random(seed + 1000)

    async def one(behind: Behind) -> None:
        for _ in range(chance.randrange(12)):
            await asyncio.sleep(0)
        came = door.turn.number
        assert await carried(door, behind) >= came

    async with moving(door, anonymous()) as behind:
        calls = [asyncio.create_task(one(behind)) for _ in range(12)]
        for _ in range(6):
            for _ in range(chance.randrange(5)):
                await asyncio.sleep(0)
            door.turn.next()
        await asyncio.gather(*calls)

    assert not [server for server in door.servers if server.open]


async def test_what_cannot_be_had_is_refused_until_it_can() -> None:
    """The old server is not used in the meantime; without another turn the next call finds the new one."""
    door = Simulated()
    async with moving(door, anonymous()) as behind:
        control = await carried(door, behind)
        door.down = True
        door.turn.next()
        with pytest.raises(CallRefused) as refused:
            await carried(door, behind)
        still = [server.open for server in door.servers]
        door.down = False
        after = await carried(door, behind)

    assert (0, "GATE-050", [False], 1) == (control, refused.value.id, still, after)


async def test_a_secret_of_a_server_that_was_left_is_kept_out_while_it_still_carries_a_call() -> None:
    """Attack: a secret is changed with a reload; the call that began before it tells of the old one on its way."""
    door = Simulated()
    async with moving(door, anonymous()) as behind:
        place_of_call = door.servers[0]
        entered, go = asyncio.Event(), asyncio.Event()

        async def slow(*_args: Any) -> dict[str, Any]:
            entered.set()
            await go.wait()
            return {"turn": 0}

        place_of_call.call_tool = slow  # type: ignore[assignment,method-assign]
        calling = asyncio.create_task(carried(door, behind))
        await entered.wait()
        door.turn.next()
        assert await carried(door, behind) == 1
        said = behind.options.clean({"text": "secret-0 and secret-1"})
        go.set()
        assert await calling == 0

    assert said == {"text": "• and •"}


async def test_what_a_session_watches_is_decided_anew_and_moves() -> None:
    """What may still be watched is watched on the new server alone; what may not ends, and is recorded."""
    door = Simulated()
    async with moving(door, anonymous()) as behind:
        for uri in ("a:kept", "a:lost"):
            await behind.handler.watch_resource(uri, cast("Any", Call(door.scope)))
            await behind.peer.watches.watch(uri, timeout=1)
        door.refuse = frozenset(("a:lost",))
        door.turn.next()
        await carried(door, behind)
        for _ in range(10):
            await asyncio.sleep(0)
        old, new = (dict(server.watched) for server in door.servers)

    assert {"a:kept": 0, "a:lost": 0} == old
    assert {"a:kept": 1} == new
    assert [("a:lost", "POL-020")] == [
        (one.attrs["uri"], one.attrs["reason"]) for one in door.recorder.named("session.unwatch")
    ]


async def test_a_tool_that_went_is_refused_with_a_record() -> None:
    """The session's own list may be a moment old; the call is held to what is offered now."""
    door = Simulated()
    async with moving(door, anonymous()) as behind:
        door.tools = ()
        door.turn.next()
        with pytest.raises(CallRefused) as refused:
            await carried(door, behind)

    assert "GATE-051" == refused.value.id
    assert ["GATE-051"] == [one.attrs["reason"] for one in door.recorder.named("call.decide")]


async def test_a_server_that_ends_by_itself_is_told_and_one_that_was_left_is_not() -> None:
    """Only the end of the server that the session uses now ends the session."""
    door = Simulated()
    async with moving(door, anonymous()) as behind:
        gone = asyncio.create_task(behind.gone())
        door.turn.next()
        await carried(door, behind)
        door.servers[0].closed.set()
        for _ in range(20):
            await asyncio.sleep(0)
        early = gone.done()
        door.servers[1].closed.set()
        await asyncio.wait_for(gone, 5)

    assert not early
