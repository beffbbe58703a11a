"""How much one tenant may ask for, and what is said when it is too much: 429 or 503 with honest times.

Rates are by tenant, endpoint and tool, counted in a :class:`~sandbox.serve.shared.interface.Store`: in this process's
memory, or where several gateways count together. Every tool call's answer says where the caller stands
(``X-MCP-Limit``, S1-41). What is in progress is bounded for each tenant and in all, by each gateway for itself, so that
its memory is; a client beyond the bound is told to come back rather than queued.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterator

from sandbox.serve.http.bounds import RETRY_AFTER, HttpBounds
from sandbox.serve.http.doors import Door
from sandbox.serve.http.refusals import HttpRefused
from sandbox.serve.ratelimit import Rate, Standing
from sandbox.serve.shared.interface import Bucket, Store, name_of, plain_name
from sandbox.serve.shared.memory import MemoryStore
from sandbox.tenant import TenantId
from sandbox.wire.jsonrpc import Message, Request


class Quotas:
    """Rates and numbers of requests in progress.

    Args:
        bounds: of the gateway.
        rate: of one tenant and tool.
        overall: of one tenant at one endpoint, whatever it asks for.
        clock: seconds that never go back, for what is counted in this process.
        store: where rates are counted; ``None``: in this process.
    """

    def __init__(
        self, bounds: HttpBounds, rate: Rate, overall: Rate, clock: Callable[[], float], store: Store | None = None
    ) -> None:
        self._bounds = bounds
        self._rate = rate
        self._overall = overall
        self._clock = clock
        self._own = MemoryStore(clock)
        self._store = store
        self._names: Callable[..., str] = plain_name if store is None else name_of
        self._active: Counter[TenantId] = Counter()

    def renew(self, rate: Rate, overall: Rate) -> None:
        """Count by other rates from now on: everybody has a full bucket of the new size once, and owes nothing.

        What was owed is not kept: in a bucket that fills faster and is smaller than the old one it would block a caller
        for as long as the old one took to fill. Who counts in a store does so with other gateways, which have to count
        by the same rates, and keeps its own.
        """
        if self._store is None and (rate, overall) != (self._rate, self._overall):
            self._rate, self._overall, self._own = rate, overall, MemoryStore(self._clock)

    @property
    def rate(self) -> Rate:
        """Of one tenant and tool, now."""
        return self._rate

    @property
    def active(self) -> int:
        """Requests in progress."""
        return self._active.total()

    async def count(self, tenant: TenantId, door: Door, message: Message) -> dict[str, str]:
        """Count one request and return the header fields that say where its tenant stands.

        Raises:
            HttpRefused: ``GATE-012`` (429), too fast; with ``Retry-After`` and ``X-MCP-Limit``. ``GATE-060`` (503),
                nobody can count.
        """
        chain = self._chain(tenant, door, message)
        found = await self._store.take(chain) if self._store is not None else self._own.take_now(chain)
        return self._told(found, door, message)

    async def count_by(self, tenant: TenantId, door: Door, request_id: str | int | None = None) -> Standing:
        """Count one request of whatever kind at an endpoint and return where its tenant stands.

        Raises:
            HttpRefused: ``GATE-012`` (429), too fast; ``GATE-060`` (503), nobody can count.
        """
        chain = [self._overall_of(tenant, door)]
        found = await self._store.take(chain) if self._store is not None else self._own.take_now(chain)
        self._check(found[0], f"`{door.path}` is used", request_id)
        return found[0]

    def _overall_of(self, tenant: TenantId, door: Door) -> Bucket:
        return Bucket(self._names("endpoint", tenant, door.name), self._overall)

    def _chain(self, tenant: TenantId, door: Door, message: Message) -> list[Bucket]:
        """Return the buckets of one request: the endpoint's, and the tool's when it calls one that there is."""
        chain = [self._overall_of(tenant, door)]
        if isinstance(message, Request) and message.method == "tools/call":
            key = door.limited(str(message.params.get("name", "")))
            if key:
                chain.append(Bucket(self._names("tool", tenant, key), self._rate))
        return chain

    def _told(self, found: list[Standing], door: Door, message: Message) -> dict[str, str]:
        request_id = message.id if isinstance(message, Request) else None
        self._check(found[0], f"`{door.path}` is used", request_id)
        if len(found) == 1 or not isinstance(message, Request):
            return {}
        self._check(found[1], f"`{message.params['name']}` is called", request_id)
        return {"X-MCP-Limit": found[1].header()}

    @contextlib.contextmanager
    def running(self, tenant: TenantId, message: Message) -> Iterator[None]:
        """Count a request as in progress.

        Raises:
            HttpRefused: ``GATE-013`` (429) too many of the tenant, ``GATE-014`` (503) too many in all.
        """
        request_id = message.id if isinstance(message, Request) else None
        again = {"Retry-After": str(RETRY_AFTER)}
        if self._active[tenant] >= self._bounds.active_of_tenant:
            text = f"{self._bounds.active_of_tenant} requests of this tenant are in progress"
            raise HttpRefused(429, "GATE-013", text, "wait for answers", headers=again, request_id=request_id)
        if self.active >= self._bounds.active:
            text = "this gateway is full"
            raise HttpRefused(503, "GATE-014", text, "try again later", headers=again, request_id=request_id)
        self._active[tenant] += 1
        try:
            yield
        finally:
            self._active[tenant] -= 1
            if not self._active[tenant]:
                del self._active[tenant]

    @staticmethod
    def _check(standing: Standing, what: str, request_id: str | int | None) -> None:
        if standing.allowed:
            return
        seconds = max(1, math.ceil(standing.retry))
        headers = {"Retry-After": str(seconds), "X-MCP-Limit": standing.header()}
        text = f"{what} too fast"
        raise HttpRefused(429, "GATE-012", text, f"call again in {seconds} s", headers=headers, request_id=request_id)
