"""Publishes a gateway's own servers at a registry of the dialect, again and again (S1-22, S1-45, S1-50).

Each round sends every entry whole (``PUT ID``), so that a registry that was restarted learns it again, and removes
those that are no longer served. The next round comes at half the shortest ttl, a little earlier by chance so that many
gateways do not come together; after a failure sooner, then ever later. A failure is said once, recorded, and never
stops serving. At an orderly end the entries are removed, by the last of several gateways; after any other they expire.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

from sandbox.dialect.links import HttpLink
from sandbox.dialect.model import to_json
from sandbox.dialect.registrations import Entry
from sandbox.errors import AuditUnavailable, SandboxError, ServerFault, UsageError
from sandbox.events import Scope

FIRST_PAUSE: Final = 2.0
"""Seconds after a first failure; doubled with each further one, up to half the ttl."""

TIMEOUT: Final = 10.0
"""Seconds for one request to the registry."""

GOODBYE: Final = 5.0
"""Seconds that the end of a gateway waits for its entries to be removed."""

_EARLIER: Final = 0.8
_REFUSED, _GONE = 400, 404
_ANSWERED: Final = "DIA-076"
"""The registry is there, and refused one entry."""


def address(url: str) -> str:
    """Return the address of a registry.

    Raises:
        UsageError: ``DIA-075``, a token would go there in the clear, or it is none.
    """
    try:
        parts = urlsplit(url)
        good = bool(parts.hostname) and parts.username is None and not parts.query and not parts.fragment
        good = good and (parts.scheme == "https" or (parts.scheme == "http" and _loopback(str(parts.hostname))))
    except ValueError:
        good = False
    if not good:
        mend = "write https://HOST/mcp/2025-11/registry, without a user, query or fragment"
        raise UsageError("DIA-075", f"{url[:200]!r} is no address for a token", mend)
    return url.rstrip("/")


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _alone() -> bool:
    return True


class Registrar:
    """Publishes entries while it runs.

    Args:
        link: to the registry, with the token.
        entries: gives those that are served now.
        scope: where failures and their end are recorded.
        tell: says a line to the operator.
        wait: pauses for some seconds.
        last: whether no other gateway goes on serving the same.
    """

    def __init__(
        self,
        link: HttpLink,
        entries: Callable[[], tuple[Entry, ...]],
        scope: Scope,
        tell: Callable[[str], None],
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
        last: Callable[[], Awaitable[bool]] = _alone,
    ) -> None:
        self._link, self._entries, self._scope, self._tell, self._wait = link, entries, scope, tell, wait
        self._last = last
        self._published: set[str] = set()
        self._well: bool | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Publish until the block ends, then remove what was published."""
        task = asyncio.create_task(self._rounds())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self._goodbye()

    async def _rounds(self) -> None:
        failures = 0
        while True:
            entries, problem = self._entries(), ""
            half = min((one.ttl for one in entries), default=60) / 2
            try:
                await self._published_now(entries)
                failures = 0
            except (SandboxError, OSError) as error:
                failures += 1
                problem = str(error)
            self._note(problem, len(entries))
            pause = min(half, FIRST_PAUSE * 2 ** min(failures - 1, 16)) if failures else half
            await self._wait(pause * random.uniform(_EARLIER, 1.0))  # noqa: S311 - spreads load, guards nothing

    async def _published_now(self, entries: tuple[Entry, ...]) -> None:
        """Publish each entry, whatever became of the others: a name that somebody else took stops only itself.

        Raises:
            SandboxError: what the first one that failed met.
        """
        failures: list[ServerFault] = []
        served = {one.server_id: one for one in entries}
        for name in (*sorted(self._published - served.keys()), *served):
            try:
                if name not in served:
                    await self._removed(name)
                    continue
                self._published.add(name)  # before the answer, which may be lost
                await self._sent("PUT", name, served[name])
            except ServerFault as error:
                if error.id != _ANSWERED:
                    raise
                failures.append(error)
        if failures:
            raise failures[0]

    async def _removed(self, name: str) -> None:
        await self._sent("DELETE", name)
        self._published.discard(name)

    async def _sent(self, method: str, name: str, entry: Entry | None = None) -> None:
        reply = await self._link.send(method, name, None if entry is None else to_json(entry))
        if reply.status < 300 or (method == "DELETE" and reply.status == _GONE):  # noqa: PLR2004 - HTTP's successes
            return
        body = reply.body if isinstance(reply.body, dict) else {}
        error = body.get("error")
        why = str(error.get("message", ""))[:200] if isinstance(error, dict) else ""
        text = f"the registry answered {reply.status} for {name}: {why or 'it does not say why'}"
        raise ServerFault(_ANSWERED, text, "see its operator; this gateway goes on serving and tries again")

    def _note(self, problem: str, count: int) -> None:
        """Say and record a change from well to failing or back, once."""
        well = not problem
        if well is self._well:
            return
        told = {"reason": problem[:300]} if problem else {}
        with contextlib.suppress(AuditUnavailable):  # the gateway says so itself; here it is tried again
            self._scope.child().fact("registry.publish", status="ok" if well else "failed", servers=count, **told)
            self._well = well
        self._tell(f"servers registered elsewhere: {count}" if well else f"not registered, and tried again: {problem}")

    async def _goodbye(self) -> None:
        with contextlib.suppress(SandboxError, OSError, TimeoutError):
            async with asyncio.timeout(GOODBYE):
                if not await self._last():
                    return
                for name in sorted(self._published):
                    await self._removed(name)
