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
from sandbox.serve.calls import Caller
from sandbox.serve.client_model import Handler, SessionOptions
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
        legacy: the transport of 2024-11-05 is offered too.
    """

    path: str
    name: str
    access: Access
    legacy: bool

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

Equip = Callable[[LiveServer], Awaitable[HandlerFor]]
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
    ) -> None:
        self.name = driver
        self.legacy = legacy
        self.path = path
        self.access = access
        self.tools = tools
        self.info = info
        self._lender = lender
        self._equip = equip
        self._equipped: WeakKeyDictionary[ServerPeer, HandlerFor] = WeakKeyDictionary()
        self._options = SessionOptions(server_info=info, call_timeout=call_timeout)

    @contextlib.asynccontextmanager
    async def open(
        self,
        identity: Identity,
        request: Request | None = None,  # noqa: ARG002 - one server, whatever is asked
    ) -> AsyncIterator[Behind]:
        """Lend the instance of the caller's tenant."""
        tenant: TenantContext = identity.tenant
        async with self._lender.lease(self.name, tenant.tenant, tenant.user) as lent:
            live = lent.live
            handler = (await self._handlers(live))(Caller(tenant))
            scope = live.scope.child().within(tenant=tenant.tenant)
            yield Behind(live.exposure, live.peer, handler, scope, self._options, _follower(live))

    def limited(self, tool: str) -> str:
        """Return the key of a tool's limit."""
        return f"{self.name}/{tool}" if tool in self.tools else ""

    async def _handlers(self, live: LiveServer) -> HandlerFor:
        found = self._equipped.get(live.peer)
        if found is None:
            found = self._equipped[live.peer] = await self._equip(live)
        return found


def _follower(live: LiveServer) -> Callable[[Callable[[Exposure], None]], Callable[[], None]]:
    def follow(hear: Callable[[Exposure], None]) -> Callable[[], None]:
        live.revetter.subscribe(hear)
        return lambda: live.revetter.unsubscribe(hear)

    return follow
