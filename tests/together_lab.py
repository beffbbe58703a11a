"""Several gateways over servers in memory, on real sockets, with one store and one issuer, as a balancer sees them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

from sandbox.cli.gateway.listening import listening, server_of
from sandbox.cli.gateway.sharing import Sharing
from sandbox.events import Scope, Trace
from sandbox.serve.http import fields
from sandbox.serve.http.aggregate import AggregateDoor
from sandbox.serve.http.app import App, Gateway
from sandbox.serve.http.bounds import HttpBounds
from sandbox.serve.http.quotas import Quotas
from sandbox.serve.identity.keeper import Gatekeeper
from sandbox.serve.identity.keys import KeySource
from sandbox.serve.identity.model import Access
from sandbox.serve.identity.tokens import Issuer, JwtVerifier
from sandbox.serve.ratelimit import Rate
from sandbox.serve.shared.interface import Store
from sandbox.serve.shared.opening import store_of
from sandbox.serve.shared.team import Team
from sandbox.supervisor.bounds import PoolBounds
from sandbox.supervisor.held import Served
from sandbox.supervisor.opening import opening
from sandbox.supervisor.pool import Instances
from sandbox.testing.backend import FakeBackend
from sandbox.testing.memory import MemoryRecorder
from sandbox.testing.plans import baseline_plan
from tests.gateway_lab import ISSUER, V25, Issuing, Lab, Server, door_of
from tests.unit.serve.builders import contract_of, spec_of
from tests.unit.supervisor.test_pool import ROOMY

PUBLIC = "https://mcp.example"
OPEN, KEPT = "/mcp/open", "/mcp/closed"
"""Endpoints of two drivers: ``open`` is declared stateless, ``closed`` is not. Both ask for a token."""


@dataclass
class Member(Lab):
    """One gateway.

    Attributes:
        team: it, among the others.
        pool: of its instances.
        voice: closes what speaks another dialect in front of it.
        made: of what it was made, to be made again.
    """

    team: Team = field(default=None)  # type: ignore[assignment]
    pool: Instances = field(default=None)  # type: ignore[assignment]
    serving: Any = None
    voice: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    made: Made | None = None

    def token(self, path: str = KEPT, **claims: Any) -> str:
        """Return a token for the endpoints of all gateways."""
        return self.issuer.token(claims.pop("audience", PUBLIC), **claims)

    async def kill(self) -> None:
        """End it like a process that is killed: its heartbeat stops, its socket closes, nothing is given back.

        Jobs are ended as their own ``close`` says: as a crash would, and their file is another process's to use.
        """
        running, task = self.serving
        self.team._task.cancel()
        running.force_exit = running.should_exit = True
        for server in running.servers:
            server.close()
        for connection in list(running.server_state.connections):
            connection.transport.abort()
        await task
        await self.voice.aclose()


@dataclass(frozen=True)
class Made:
    """Of what one gateway of a lab is made."""

    url: str
    address: str
    peers: tuple[str, ...]
    options: Options
    issuer: Issuing
    script: Server
    number: int


@dataclass
class Options:
    """How the gateways of a lab are made."""

    lease: float = 15.0
    forward: bool = True
    rate: Rate = field(default_factory=lambda: Rate(1000, 1000))
    overall: Rate = field(default_factory=lambda: Rate(10_000, 10_000))
    pool: Mapping[str, Any] = field(default_factory=dict)
    bounds: Mapping[str, Any] = field(default_factory=dict)
    plan: Any = field(default_factory=lambda: lambda _tenant: baseline_plan())
    duties: Mapping[str, Any] = field(default_factory=dict)
    speaks: Callable[[App, int], contextlib.AbstractAsyncContextManager[Any]] | None = None
    """Gives what is served in front of a gateway of a number."""
    sockets: int = 0


@contextlib.asynccontextmanager
async def together(
    url: str, count: int = 2, options: Options | None = None, stores: list[Store] | None = None
) -> AsyncIterator[list[Member]]:
    """Open gateways that share a store.

    Args:
        url: of the store.
        count: of gateways.
        options: see there.
        stores: filled with the gateways' handles on the store.
    """
    chosen, issuer, script = options or Options(), Issuing(), Server()
    sockets = [listening(("127.0.0.1", 0)) for _ in range(count)]
    peers = tuple(f"http://127.0.0.1:{one.getsockname()[1]}" for one in sockets)
    async with contextlib.AsyncExitStack() as stack:
        for one in sockets:
            stack.callback(one.close)
        found = []
        for number, (listener, address) in enumerate(zip(sockets, peers, strict=True)):
            known = peers if chosen.forward else ()
            made = Made(url, address, known, chosen, issuer, script, number)
            found.append(await stack.enter_async_context(_opened(made, listener, stores)))
        yield found


@contextlib.asynccontextmanager
async def again(member: Member) -> AsyncIterator[Member]:
    """Start a gateway that was killed once more: another process at the same address, with the same files."""
    assert member.made is not None
    port = int(member.made.address.rpartition(":")[2])
    async with _opened(member.made, listening(("127.0.0.1", port))) as fresh:
        yield fresh


@contextlib.asynccontextmanager
async def _opened(made: Made, listener: Any, stores: list[Store] | None = None) -> AsyncIterator[Member]:
    store = store_of(made.url)
    await store.open()
    if stores is not None:
        stores.append(store)
    try:
        async with _member(store, listener, made) as member:
            yield member
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def _member(store: Store, listener: Any, made: Made) -> AsyncIterator[Member]:
    recorder = MemoryRecorder()
    address, peers, options, issuer, script = made.address, made.peers, made.options, made.issuer, made.script
    backend, scope = FakeBackend(script), Scope(recorder, Trace.new())
    bounds = HttpBounds(**{"json_wait": 0.15, "drain": 2.0, **options.bounds})
    keys = KeySource(issuer.fetch, time.monotonic)
    keeper = Gatekeeper(PUBLIC, JwtVerifier({ISSUER: Issuer(ISSUER, keys)}), (ISSUER,))
    sharing = Sharing(Team(store, scope, address, options.lease), peers)
    for name, value in options.duties.items():
        setattr(sharing.team.duties, name, value)
    quotas = Quotas(bounds, options.rate, options.overall, time.monotonic, store)
    places = fields.places_of(listener.getsockname(), "", tuple(one.removeprefix("http://") for one in peers))
    gateway = Gateway(keeper, places, scope, quotas, bounds, together=sharing.together(quotas, bounds))
    async with Instances(opening(backend, scope), scope, PoolBounds(**options.pool), lambda: ROOMY) as pool:
        doors = []
        for name in ("open", "closed"):
            spec = spec_of(contract_of(inputs={"type": "object"})).model_copy(
                update={"id": name, "protocol_version": V25}
            )
            pool.add(Served(spec, options.plan))
            door = door_of(name, Access(), pool)
            door.stateless = name == "open"
            door._lender = sharing.lender_of(pool, stateless=door.stateless)
            doors.append(door)
        app = App(gateway, [*doors, AggregateDoor("/mcp", doors, scope)])
        sharing.serve(app, pool)
        app.sessions.begin()
        await sharing.team.begin()
        voice = contextlib.AsyncExitStack()
        served: Any = app
        if options.speaks is not None:
            try:
                served = await voice.enter_async_context(options.speaks(app, made.number))
            except BaseException:
                await sharing.team.leave()
                raise
        running = server_of(served, sockets=options.sockets)
        task = asyncio.create_task(running.serve(sockets=[listener]))
        async with httpx2.AsyncClient(timeout=20, trust_env=False) as client:
            while not running.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.01)
            try:
                yield Member(
                    address, app, script, issuer, recorder, client,
                    team=sharing.team, pool=pool, serving=(running, task), voice=voice, made=made,
                )  # fmt: skip
            finally:
                await app.drain()
                await voice.aclose()
                await pool.close()
                await sharing.team.leave()
                await gateway.together.close() if gateway.together else None
                running.should_exit = True
                await task
        listener.close()
