"""A :class:`~sandbox.launch.interface.Backend` for servers that somebody else runs: nothing is started here.

What other backends do with a container, this one does with the connection: it is bounded by ``plan.limits.lifetime``,
recorded, and ended by ``stop``.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from sandbox.errors import AuditUnavailable, PlatformError
from sandbox.events import Scope
from sandbox.launch.interface import ExitStatus, Usage
from sandbox.plan.model import EngineFacts, ImageFacts, SandboxPlan

MAX_CALLS: Final = 64
"""Calls in flight that one fact names."""

MAX_TOKENS: Final = 64
"""Tokens that are kept out of results: those of more than a day, when each lives half an hour."""

_ENDED: Final = ExitStatus(0)


class RemoteInstance:
    """The use of one remote server; see :class:`~sandbox.launch.interface.Instance`.

    Attributes:
        secrets: slug → value, for header fields; never recorded.
        hang_up: ends the connection within a grace, in seconds; set by whoever makes it.
        logins: folder with the logins of whoever runs this, where the server's tokens may come from.
        tokens: the newest tokens that were used, to be kept out of results; see :meth:`know`.
    """

    stream: socket.socket | None = None

    def __init__(
        self,
        plan: SandboxPlan,
        scope: Scope,
        secrets: Mapping[str, str],
        logins: Path | None = None,
        known: Callable[..., None] | None = None,
    ) -> None:
        self.id = f"remote:{plan.driver_id}"
        self.logins = logins
        self.tokens: tuple[str, ...] = ()
        self._known = known
        self.plan = plan
        self.secrets = dict(secrets)
        self.hang_up: Callable[[float], Awaitable[None]] | None = None
        self._scope = scope
        loop = asyncio.get_running_loop()
        self._calls: list[str] = []
        self._over: asyncio.Future[ExitStatus] = loop.create_future()
        self._expiry = loop.call_later(plan.limits.lifetime, self._expire)

    @contextlib.contextmanager
    def during(self, call: str) -> Iterator[None]:
        """Name a call that is in flight: connections that are made meanwhile are recorded with it."""
        self._calls.append(call)
        try:
            yield
        finally:
            self._calls.remove(call)

    def know(self, secret: str) -> None:
        """Take note of a token before it is used, and tell those who keep it out of records.

        Raises:
            AuditUnavailable: ``CLI-016``, nobody can keep it out of them.
        """
        if secret in self.tokens:
            return
        if self._known is None:
            raise AuditUnavailable("CLI-016", "this recorder cannot redact secrets", "use the audit ledger")
        self._known(secret)
        self.tokens = (*self.tokens, secret)[-MAX_TOKENS:]

    def calls(self) -> list[str]:
        """Return the calls in flight, oldest first, a bounded number of them."""
        return self._calls[:MAX_CALLS]

    async def wait(self) -> ExitStatus:
        """Return when it was stopped or has expired."""
        return await asyncio.shield(self._over)

    async def usage(self) -> Usage:
        """Return nothing: somebody else's machine is not measured."""
        return Usage()

    async def pause(self) -> None:
        """Do nothing: there is nothing to freeze."""

    async def unpause(self) -> None:
        """Do nothing."""

    async def stop(self, grace: float) -> ExitStatus:
        """End the connection; idempotent."""
        self._expiry.cancel()
        hang_up, self.hang_up = self.hang_up, None
        if hang_up is not None:
            await hang_up(grace)
        if not self._over.done():
            self._over.set_result(_ENDED)
        return _ENDED

    def _expire(self) -> None:
        self._scope.fact("launch.expired", container=self.id, lifetime=self.plan.limits.lifetime)
        if not self._over.done():
            self._over.set_result(_ENDED)


class RemoteBackend:
    """Uses remote servers.

    Args:
        logins: folder with the logins of whoever runs this.
        known: is told every token before it is used.
    """

    name = "remote"

    def __init__(self, logins: Path | None = None, known: Callable[..., None] | None = None) -> None:
        self._logins, self._known = logins, known

    async def facts(self) -> EngineFacts:
        """Return what no engine can do."""
        return EngineFacts("remote", "", "", (), "")

    async def image(self, reference: str) -> ImageFacts | None:
        """Return nothing: a remote server has no image."""
        del reference
        return None

    async def launch(self, plan: SandboxPlan, scope: Scope, secrets: Mapping[str, str]) -> RemoteInstance:
        """Return the use of a server; nothing is dialled yet.

        Raises:
            PlatformError: ``LAUNCH-015``, the plan is one of a container.
        """
        if plan.server_kind != "remote":
            message = f"the plan of {plan.driver_id} needs a container engine"
            raise PlatformError("LAUNCH-015", message, "see `mcp-sandbox doctor`")
        scope.fact("launch.remote", url=plan.remote_url.partition("?")[0], transport=plan.transport, plan=plan.digest())
        return RemoteInstance(plan, scope, secrets, self._logins, self._known)

    async def close(self) -> None:
        """Do nothing: every use is ended by its owner."""
