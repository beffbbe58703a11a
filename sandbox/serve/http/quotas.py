"""How much one tenant may ask for, and what is said when it is too much: 429 or 503 with honest times.

Rates are those of :mod:`sandbox.serve.ratelimit`, by tenant, endpoint and tool; every tool call's answer says where
the caller stands (``X-MCP-Limit``, S1-41). What is in progress is bounded for each tenant and in all, so that memory
is; a client beyond the bound is told to come back rather than queued.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterator

from sandbox.serve.http.bounds import RETRY_AFTER, HttpBounds
from sandbox.serve.http.doors import Door
from sandbox.serve.http.refusals import HttpRefused
from sandbox.serve.ratelimit import Buckets, Rate, Standing
from sandbox.tenant import TenantId
from sandbox.wire.jsonrpc import Message, Request


class Quotas:
    """Rates and numbers of requests in progress.

    Args:
        bounds: of the gateway.
        rate: of one tenant and tool.
        overall: of one tenant at one endpoint, whatever it asks for.
        clock: seconds that never go back.
    """

    def __init__(self, bounds: HttpBounds, rate: Rate, overall: Rate, clock: Callable[[], float]) -> None:
        self._bounds = bounds
        self._tools: Buckets[tuple[TenantId, str]] = Buckets(rate)
        self._all: Buckets[tuple[TenantId, str]] = Buckets(overall)
        self._clock = clock
        self._active: Counter[TenantId] = Counter()

    @property
    def active(self) -> int:
        """Requests in progress."""
        return self._active.total()

    def take(self, tenant: TenantId, door: Door, message: Message) -> dict[str, str]:
        """Count one request and return the header fields that say where its tenant stands.

        Raises:
            HttpRefused: ``GATE-012`` (429), too fast; with ``Retry-After`` and ``X-MCP-Limit``.
        """
        request_id = message.id if isinstance(message, Request) else None
        now = self._clock()
        standing = self._all.take((tenant, door.name), now)
        self._check(standing, f"`{door.path}` is used", request_id)
        if not isinstance(message, Request) or message.method != "tools/call":
            return {}
        key = door.limited(str(message.params.get("name", "")))
        if not key:
            return {}
        standing = self._tools.take((tenant, key), now)
        self._check(standing, f"`{message.params['name']}` is called", request_id)
        return {"X-MCP-Limit": standing.header()}

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
