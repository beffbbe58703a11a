"""A gate that lets a bounded number through at once, tenants in turn.

Waiting is served by tenant and not by arrival: a tenant that asks a thousand times delays another by one, not by a
thousand. Waiting is bounded in number and in time; beyond that the request is refused. Calls pass such a gate (step 9),
and so do starts of instances.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from sandbox.errors import CallRefused
from sandbox.tenant import TenantId

MAX_RUNNING: Final = 64
"""Calls that run at once in one supervisor; each holds a request of a server and its answer."""

MAX_RUNNING_OF_TENANT: Final = 16
"""Calls that run at once for one tenant."""

MAX_WAITING_OF_TENANT: Final = 128
"""Calls of one tenant that wait; beyond it the client is too far ahead of its own answers."""

MAX_WAIT: Final = 30.0
"""Seconds in the queue; a model that waits longer has given up."""


class Gate:
    """Lets calls through, a bounded number at once, tenants in turn.

    Args:
        total: calls that run at once.
        of_tenant: calls of one tenant that run at once.
        waiting: calls of one tenant that wait.
        patience: seconds that one waits.
    """

    def __init__(
        self,
        total: int = MAX_RUNNING,
        of_tenant: int = MAX_RUNNING_OF_TENANT,
        waiting: int = MAX_WAITING_OF_TENANT,
        patience: float = MAX_WAIT,
    ) -> None:
        self._total, self._of_tenant, self._most_waiting, self._patience = total, of_tenant, waiting, patience
        self._running: dict[TenantId, int] = {}
        self._sum = 0
        self._queues: OrderedDict[TenantId, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def running(self) -> int:
        """Calls that run now."""
        return self._sum

    @property
    def waiting(self) -> int:
        """Calls that wait now."""
        return sum(map(len, self._queues.values()))

    @asynccontextmanager
    async def slot(self, tenant: TenantId) -> AsyncIterator[None]:
        """Return a context in which a call of a tenant runs.

        Raises:
            CallRefused: ``CALL-051``, too many wait; ``CALL-052``, it waited too long.
        """
        if tenant not in self._queues and self._free(tenant):
            self._start(tenant)
        else:
            await self._wait(tenant)
        try:
            yield
        finally:
            self._end(tenant)

    def _free(self, tenant: TenantId) -> bool:
        return self._sum < self._total and self._running.get(tenant, 0) < self._of_tenant

    def _start(self, tenant: TenantId) -> None:
        self._running[tenant] = self._running.get(tenant, 0) + 1
        self._sum += 1

    def _end(self, tenant: TenantId) -> None:
        self._sum -= 1
        left = self._running.pop(tenant) - 1
        if left:
            self._running[tenant] = left
        self._admit()

    async def _wait(self, tenant: TenantId) -> None:
        queue = self._queues.setdefault(tenant, deque())
        if len(queue) >= self._most_waiting:
            raise CallRefused("CALL-051", "too many calls are waiting already", "wait for answers before calling again")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            async with asyncio.timeout(self._patience):
                await turn
        except BaseException as error:
            self._leave(tenant, turn)
            if isinstance(error, TimeoutError):
                raise CallRefused("CALL-052", "the call waited too long for its turn", "call again later") from None
            raise

    def _leave(self, tenant: TenantId, turn: asyncio.Future[None]) -> None:
        """Give up a place in the queue, or the slot that was handed over at the same moment."""
        if turn.done() and not turn.cancelled():
            self._end(tenant)
            return
        queue = self._queues.get(tenant)
        if queue is not None and turn in queue:
            queue.remove(turn)
            if not queue:
                del self._queues[tenant]

    def _admit(self) -> None:
        """Hand free slots to waiting tenants, each one call, the one served last at the end."""
        progress = True
        while progress and self._sum < self._total:
            progress = False
            for tenant in list(self._queues):
                if self._free(tenant):
                    self._hand_over(tenant)
                    progress = True

    def _hand_over(self, tenant: TenantId) -> None:
        queue = self._queues[tenant]
        turn = queue.popleft()
        if queue:
            self._queues.move_to_end(tenant)
        else:
            del self._queues[tenant]
        if not turn.done():
            self._start(tenant)
            turn.set_result(None)
