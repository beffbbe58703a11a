# ruff: noqa: ASYNC109 - the deadline of a request is part of the protocol: the server is told when it passes
"""What a caller gets from the pool: the server of its driver and tenant, for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sandbox.errors import SandboxError, ServerFault, ServerTimeout
from sandbox.tenant import TenantId
from sandbox.transport.outcomes import RemoteError

if TYPE_CHECKING:
    from sandbox.supervisor.admission import LiveServer
    from sandbox.supervisor.held import Held
    from sandbox.supervisor.pool import Instances
    from sandbox.transport.peer import ServerPeer


class Lease:
    """One use of one instance. Made by :meth:`sandbox.supervisor.pool.Instances.lease`.

    Attributes:
        driver: id.
        tenant: whom the instance belongs to.
        user: subject within the tenant.
        held: the instance; another one after a repetition.
    """

    def __init__(self, pool: Instances, driver: str, tenant: TenantId, user: str, held: Held) -> None:
        self.driver = driver
        self.tenant = tenant
        self.user = user
        self.held = held
        self._pool = pool

    @property
    def live(self) -> LiveServer:
        """The vetted server."""
        assert self.held.live is not None  # noqa: S101 - the pool lends only what is ready
        return self.held.live

    @property
    def peer(self) -> ServerPeer:
        """The server as a protocol peer."""
        return self.live.peer

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout: float, idempotent: bool = False,
        **more: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """Send a request and return its neutral result.

        Args:
            method: of the protocol.
            params: as :meth:`~sandbox.transport.peer.ServerPeer.request`.
            timeout: until the answer, a repetition included, seconds.
            idempotent: the *contract* says that repeating it changes nothing (AIP-14); the server's own hint does not
                count. Only such a request is repeated, once, when its instance ended before it answered.
            **more: see :meth:`~sandbox.transport.peer.ServerPeer.request`.

        Raises:
            ServerFault: ``CALL-074``, the instance ended before it answered; whether it did what it was asked to is
                not known.
            SandboxError: as ``ServerPeer.request``; as :meth:`Instances.lease` when another instance cannot be had.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        try:
            return await self.peer.request(method, params, timeout=timeout, **more)
        except ServerFault as fault:
            if isinstance(fault, ServerTimeout) or self.peer.fault is None:
                raise
            if not idempotent or loop.time() >= until:
                raise lost(fault) from None
            self._note(method, fault)
        await self._exchange()
        try:
            return await self.peer.request(method, params, timeout=max(0.0, until - loop.time()), **more)
        except ServerFault as fault:
            if isinstance(fault, ServerTimeout) or self.peer.fault is None:
                raise
            raise lost(fault) from None

    def _note(self, method: str, fault: SandboxError) -> None:
        scope = self._pool.scope.within(driver=self.driver, tenant=self.tenant, instance=self.live.instance.id)
        scope.fact("pool.repeat", method=method, reason=fault.id)

    async def _exchange(self) -> None:
        """Use the instance that replaces a lost one."""
        fresh = await self._pool.acquire(self.driver, self.tenant)
        old, self.held = self.held, fresh
        self._pool.release(old)


def lost(fault: SandboxError) -> ServerFault:
    """Return what a caller is told whose instance ended before it answered."""
    text = f"the server ended before it answered ({fault.id}); whether it did what it was asked to is not known"
    return ServerFault("CALL-074", text, "look at what the tool has done, and call again")


async def is_healthy(peer: ServerPeer, timeout: float) -> bool:
    """Return whether a server answers: ``ping`` in the handshake era, ``server/discover`` after it.

    Any answer will do, an error too: what is asked is whether somebody is there.
    """
    try:
        if peer.era == "handshake":
            await peer.request("ping", timeout=timeout)
        else:
            await peer.request("server/discover", timeout=timeout)
    except RemoteError:
        return True
    except SandboxError:
        return False
    return True
