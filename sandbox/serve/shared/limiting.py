"""Step 9 of a call where the same tenant's servers run at several gateways: one bucket for all of them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from sandbox.errors import CallRefused
from sandbox.serve.calls import Caller
from sandbox.serve.ratelimit import Rate, TooFast
from sandbox.serve.shared.interface import Bucket, StateUnavailable, Store, name_of
from sandbox.supervisor.fair import Gate
from sandbox.vet.model import ExposedTool


class SharedLimiter:
    """Implements :class:`sandbox.serve.calls.Limiter`: the shared bucket of driver, tenant and tool, then the gate.

    Args:
        store: shared.
        driver: id.
        rate: of one tenant and tool.
        gate: of this gateway; how many calls run at once is bounded by each for itself.
    """

    def __init__(self, store: Store, driver: str, rate: Rate, gate: Gate) -> None:
        self._store = store
        self._driver = driver
        self._rate = rate
        self._gate = gate

    @contextlib.asynccontextmanager
    async def slot(self, caller: Caller, tool: ExposedTool) -> AsyncIterator[None]:
        """Be the context in which a call runs.

        Raises:
            CallRefused: ``CALL-050`` too fast, ``GATE-060`` nobody can count; ``CALL-051``, ``CALL-052``.
        """
        tenant = caller.tenant.tenant
        bucket = Bucket(name_of("call", self._driver, tenant, tool.name), self._rate)
        try:
            standing = (await self._store.take([bucket]))[0]
        except StateUnavailable as error:
            raise CallRefused(error.id, error.message, error.mend) from None
        if not standing.allowed:
            raise TooFast(tool.name, standing)
        async with self._gate.slot(tenant):
            yield
