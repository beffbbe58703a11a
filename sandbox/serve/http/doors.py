"""What stands behind an endpoint: a vetted server of the caller's tenant, lent for a session or for one request."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from sandbox.errors import SandboxError
from sandbox.events import Scope
from sandbox.serve.asking import Asking, Budgets
from sandbox.serve.calls import Caller
from sandbox.serve.client_model import Handler, SessionOptions
from sandbox.serve.client_replies import Clean
from sandbox.serve.http.turns import Turn
from sandbox.serve.identity.model import Access, Identity
from sandbox.supervisor.admission import LiveServer
from sandbox.tenant import TenantContext, TenantId
from sandbox.transport.peer import ServerPeer
from sandbox.vet.model import Exposure
from sandbox.wire.jsonrpc import Request


@dataclass(frozen=True, slots=True)
class Behind:
    """What one session or request works with.

    Attributes:
        exposure: what the caller sees when it begins.
        peer: the server.
        handler: carries what needs the server, for this caller.
        scope: where facts are recorded.
        options: of the session.
        follow: calls a function with every later exposure; returns what ends that.
    """

    exposure: Exposure
    peer: ServerPeer
    handler: Handler
    scope: Scope
    options: SessionOptions
    follow: Callable[[Callable[[Exposure], None]], Callable[[], None]] = field(default=lambda _hear: lambda: None)

    async def gone(self) -> SandboxError | None:
        """Return when the server is gone."""
        return await self.peer.wait_closed()


class Door(Protocol):
    """One endpoint.

    Attributes:
        path: where it is mounted, such as ``/mcp/files``.
        name: in records and registers.
        access: who may come in.
        info: MCP ``Implementation`` that clients see.
        legacy: the transport of 2024-11-05 is offered too.
        turn: counts the changes after which what was lent has to be lent anew.
        stateless: its servers keep nothing in their process, so that every gateway may run its own.
    """

    path: str
    name: str
    access: Access
    info: dict[str, Any]
    legacy: bool
    turn: Turn
    stateless: bool

    def open(self, identity: Identity, request: Request | None = None) -> AbstractAsyncContextManager[Behind]:
        """Lend what is behind it, for a session or for one request; raises SandboxError when there is nothing."""

    def limited(self, tool: str) -> str:
        """Return the key that calls of a tool are counted under, empty for a tool that does not exist."""


class Lent(Protocol):
    """A server while it is lent: :class:`sandbox.supervisor.leases.Lease`."""

    @property
    def live(self) -> LiveServer:
        """The vetted server."""


class Lender(Protocol):
    """Instances by driver and tenant: :class:`sandbox.supervisor.pool.Instances`."""

    def lease(self, driver: str, tenant: TenantId, user: str = "") -> AbstractAsyncContextManager[Lent]:
        """Lend the instance of a driver and tenant."""


HandlerFor = Callable[[Caller], Handler]
"""Makes the handler of one caller."""


@dataclass(frozen=True, slots=True)
class Equipment:
    """What carries the requests of one live server.

    Attributes:
        handler: makes the handler of one caller.
        clean: see :class:`~sandbox.serve.client_model.SessionOptions`.
        asking: makes what judges the questions of the server to one client; ``None``: it may ask nothing.
    """

    handler: HandlerFor
    clean: Clean = field(default=lambda params: params)
    asking: Callable[[], Asking] | None = None


Equip = Callable[[LiveServer], Awaitable[Equipment]]
"""Makes what carries the requests of one live server; called once for each, and may take a moment."""


class DriverDoor:
    """An endpoint with one driver behind it.

    Args:
        driver: id.
        path: of the endpoint.
        access: who may come in.
        lender: of instances.
        equip: makes the pipeline of a live server.
        tools: names of the tools that the driver binds, for limits.
        info: MCP ``Implementation`` that clients see.
        call_timeout: seconds.
        legacy: the transport of 2024-11-05 is offered too.
        stateless: the server keeps nothing in its process, says the operator.
    """

    def __init__(
        self,
        driver: str,
        path: str,
        access: Access,
        *,
        lender: Lender,
        equip: Equip,
        tools: frozenset[str],
        info: dict[str, Any],
        call_timeout: float,
        legacy: bool = False,
        stateless: bool = False,
    ) -> None:
        self.name = driver
        self.stateless = stateless
        self.legacy = legacy
        self.path = path
        self.access = access
        self.tools = tools
        self.info = info
        self.turn = Turn()
        self.call_timeout = call_timeout
        self._lender = lender
        self._equip = equip
        self._budgets = Budgets()
        self._equipped: WeakKeyDictionary[ServerPeer, Equipment] = WeakKeyDictionary()

    def like(self, other: DriverDoor) -> bool:
        """Return whether clients could not tell the two apart."""
        mine, others = (
            (one.path, one.access, one.legacy, one.stateless, one.tools, one.info, one.call_timeout)
            for one in (self, other)
        )
        return mine == others

    def renew(self, other: DriverDoor) -> None:
        """Become another door to the same driver: requests that begin now see that one, and sessions go on there."""
        self.access, self.legacy, self.tools, self.info = other.access, other.legacy, other.tools, other.info
        self.call_timeout, self.stateless = other.call_timeout, other.stateless
        self._lender, self._equip, self._equipped = other._lender, other._equip, WeakKeyDictionary()
        self._budgets = Budgets()
        self.turn.next()

    @contextlib.asynccontextmanager
    async def open(
        self,
        identity: Identity,
        request: Request | None = None,
    ) -> AsyncIterator[Behind]:
        """Lend the instance of the caller's tenant: one server, whatever is asked."""
        tenant: TenantContext = identity.tenant
        async with self._lender.lease(self.name, tenant.tenant, tenant.user) as lent:
            live = lent.live
            equipment = await self._equipment(live)
            caller = Caller(tenant)
            scope = live.scope.child().within(tenant=tenant.tenant)
            options = SessionOptions(
                server_info=self.info,
                call_timeout=self.call_timeout,
                clean=equipment.clean,
                asking=self._asking(equipment, identity, alone=request is not None),
                asker=caller,
            )
            yield Behind(live.exposure, live.peer, equipment.handler(caller), scope, options, _follower(live))

    def _asking(self, equipment: Equipment, identity: Identity, *, alone: bool) -> Asking | None:
        """Return what judges questions: with a budget for a session, or for all lone requests of one credential."""
        if equipment.asking is None:
            return None
        return self._budgets.of(identity.owner, equipment.asking) if alone else equipment.asking()

    def limited(self, tool: str) -> str:
        """Return the key of a tool's limit."""
        return f"{self.name}/{tool}" if tool in self.tools else ""

    async def _equipment(self, live: LiveServer) -> Equipment:
        equipped, equip = self._equipped, self._equip  # a change while it is made is for the next caller
        found = equipped.get(live.peer)
        if found is None:
            found = equipped[live.peer] = await equip(live)
        return found


def _follower(live: LiveServer) -> Callable[[Callable[[Exposure], None]], Callable[[], None]]:
    def follow(hear: Callable[[Exposure], None]) -> Callable[[], None]:
        live.revetter.subscribe(hear)
        return lambda: live.revetter.unsubscribe(hear)

    return follow
