"""Instances that are used up: their driver was changed or is served no more.

A retired instance takes no new user. Whoever uses it has until a deadline to finish; then it ends. Its tenant's next
lease gets a fresh instance at once, unless the two would write the same folder of the host: then the old one has to be
gone first, since no server expects a second one of itself among its files.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from sandbox.errors import SandboxError
from sandbox.events import Scope

if TYPE_CHECKING:
    from sandbox.plan.model import SandboxPlan
    from sandbox.supervisor.held import Held
    from sandbox.supervisor.room import Key

RETIRE_GRACE: Final = 20.0
"""Seconds in which users of a retired instance have to finish: what a drain of the whole gateway leaves them too."""


class Retiring:
    """The retired instances of one pool.

    Args:
        scope: where retiring is recorded.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._cuts: dict[Held, asyncio.TimerHandle] = {}

    def retire(self, held: Held, grace: float, why: str) -> None:
        """Give an instance no new user, and end it when its last one is done or ``grace`` seconds are over."""
        held.retired = True
        scope = self._scope.within(driver=held.served.spec.id, tenant=held.tenant or "")
        with contextlib.suppress(SandboxError):  # it announces nothing
            scope.fact("pool.retire", reason=why, used=held.leases)
        if not held.leases or held.live is None:
            held.end()
            return
        self._cuts[held] = asyncio.get_running_loop().call_later(grace, self._cut, held)

    def released(self, held: Held) -> None:
        """End a retired instance that nobody uses any more."""
        if held.retired and not held.leases:
            held.end()

    def ended(self, held: Held) -> None:
        """Take note that nothing is left of an instance."""
        timer = self._cuts.pop(held, None)
        if timer is not None:
            timer.cancel()

    async def clear(self, key: Key, plan: SandboxPlan) -> None:
        """Return when an instance of a pair may be started beside its retired ones."""
        writes = any(mount.writable for mount in plan.mounts)
        for held in [one for one in self._cuts if (one.served.spec.id, one.tenant) == key]:
            if writes or any(mount.writable for mount in held.plan.mounts):
                await held.gone()

    def _cut(self, held: Held) -> None:
        if held.over:
            return
        scope = self._scope.within(driver=held.served.spec.id, tenant=held.tenant or "")
        with contextlib.suppress(SandboxError):
            scope.fact("pool.cut", used=held.leases)
        held.end()
