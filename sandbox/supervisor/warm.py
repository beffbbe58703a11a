"""Instances that wait for a tenant: started, vetted, paused, and nobody's.

A new tenant gets one in milliseconds instead of a cold start. It has served nobody: the only messages that reached it
are those of the handshake and of vetting. Handing it out gives it to one tenant for good.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from sandbox.errors import SandboxError
from sandbox.events import Scope
from sandbox.supervisor.held import Held, Served
from sandbox.tenant import TenantId

if TYPE_CHECKING:
    from sandbox.plan.model import SandboxPlan
    from sandbox.supervisor.pool import Instances


REFILL_AFTER: Final = 1.0
"""Seconds between handing one out and starting the next: a start takes the processor that the first answer needs."""


class WarmShelf:
    """The warm instances of a pool, by driver."""

    def __init__(self, pool: Instances) -> None:
        self._pool = pool
        self._ready: dict[str, list[Held]] = {}
        self._fillers: dict[str, asyncio.Task[None]] = {}

    def refill(self, served: Served, after: float = 0.0) -> None:
        """Begin what is missing of a driver's warm instances, in the background, after some seconds."""
        name = served.spec.id
        wanted = self._pool.bounds.warm if served.warm is None else served.warm
        if wanted and not self._pool.closing and name not in self._fillers:
            filler = self._fillers[name] = asyncio.create_task(self._fill(served, wanted, after))
            filler.add_done_callback(lambda done: self._filled(name, done))

    def _filled(self, name: str, done: asyncio.Task[None]) -> None:
        if self._fillers.get(name) is done:
            del self._fillers[name]

    def take(self, served: Served, plan: SandboxPlan, tenant: TenantId) -> Held | None:
        """Return a warm instance that was started from exactly this plan and these secrets, if there is one."""
        ready = self._ready.get(served.spec.id, [])
        same = served.secrets(tenant) == served.secrets(None)
        found = next((held for held in ready if same and held.sound and held.plan.digest() == plan.digest()), None)
        if found is not None:
            ready.remove(found)
            self.refill(served, REFILL_AFTER)
        return found

    def spare(self) -> Held | None:
        """Take one instance off the shelf, for room; ``None`` when it is empty."""
        for ready in self._ready.values():
            if ready:
                return ready.pop()
        return None

    def lost(self, held: Held) -> None:
        """Forget an instance that ended; it is replaced when it did so by itself."""
        ready = self._ready.get(held.served.spec.id, [])
        if held in ready:
            ready.remove(held)
        if held.error is not None and self._pool.serves(held.served):
            self.refill(held.served)

    def drop(self, driver: str) -> list[Held]:
        """Return every warm instance of a driver, off the shelf, and begin no more of them."""
        filler = self._fillers.pop(driver, None)
        if filler is not None:
            filler.cancel()  # which ends the one that it has begun
        return self._ready.pop(driver, [])

    def close(self) -> None:
        """Begin no more."""
        for filler in list(self._fillers.values()):
            filler.cancel()

    async def _fill(self, served: Served, wanted: int, after: float) -> None:
        await asyncio.sleep(after)
        ready = self._ready.setdefault(served.spec.id, [])
        while len(ready) < wanted and not self._pool.closing:
            await asyncio.sleep(self._pool.failing(served))
            plan = served.plan(None)
            if self._pool.space.full or self._pool.space.shortage(plan):
                return  # warm instances take only room that nobody needs
            held = self._pool.begin(Held(served, plan, None))
            try:
                live = await held.ready()
                await live.revetter.hold()
                await live.instance.pause()
            except SandboxError:
                held.end()
                continue  # after the back-off
            except BaseException:
                held.end()
                raise
            held.paused = True
            ready.append(held)
            with contextlib.suppress(SandboxError):
                self._pool.scope.within(driver=served.spec.id, instance=live.instance.id).fact("pool.warm")


async def bind(held: Held, tenant: TenantId, scope: Scope) -> None:
    """Give an instance to its tenant for good, thawed when it was frozen.

    Raises:
        SandboxError: it could not be started; or it belongs to another tenant, which cannot happen.
    """
    if held.tenant not in (None, tenant):
        raise AssertionError("an instance is never handed to a second tenant")
    warm = held.tenant is None
    held.tenant = tenant
    live = await held.ready()
    if held.paused:
        await live.instance.unpause()
        held.paused = False
    live.scope = scope.within(instance=live.instance.id)
    live.peer.record_in(live.scope)
    live.revetter.go_on(live.scope)
    live.scope.fact("pool.bind", warm=warm)
