"""Whether there is room for one more instance, and who makes room (steps 4 and 6 of a lease)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn

from sandbox.errors import CallRefused
from sandbox.events import Scope
from sandbox.supervisor.bounds import PoolBounds
from sandbox.supervisor.headroom import HostFigures, shortage
from sandbox.supervisor.held import Held
from sandbox.tenant import TenantId

if TYPE_CHECKING:
    from sandbox.plan.model import SandboxPlan

Key = tuple[str, TenantId]
"""Driver id and tenant."""


class Room:
    """The room of one pool.

    Args:
        held: every instance of the pool, warm and starting ones too.
        bound: those that belong to a tenant.
        spare: takes a warm instance off the shelf, if there is one.
        bounds: of the pool.
        host: reads the host's figures.
        scope: where refusals are recorded.
    """

    def __init__(
        self,
        held: set[Held],
        bound: Mapping[Key, Held],
        spare: Callable[[], Held | None],
        bounds: PoolBounds,
        host: Callable[[], HostFigures],
        scope: Scope,
    ) -> None:
        self._all = held
        self._bound = bound
        self._spare = spare
        self._bounds = bounds
        self._host = host
        self._scope = scope
        self._changed = asyncio.Event()

    def everyone(self) -> tuple[Held, ...]:
        """Return every instance, warm and starting ones too, for status pages."""
        return tuple(self._all)

    def rebound(self, bounds: PoolBounds) -> None:
        """Hold to other bounds from now on."""
        self._bounds = bounds
        self.changed()

    def changed(self) -> None:
        """Let whoever waits for room look again."""
        self._changed.set()

    def check_tenant(self, tenant: TenantId) -> None:
        """End an idle instance of a tenant that has as many as it may; refuse when it uses them all."""
        own = [held for held in self._bound.values() if held.tenant == tenant and not held.over]
        if len(own) < self._bounds.of_tenant:
            return
        idle = [held for held in own if not held.leases and held.live is not None]
        if not idle:
            text = f"this tenant uses {len(own)} servers at once already"
            self.refuse(("", tenant), "CALL-070", text, "end one of them, or wait for its answers")
        min(idle, key=lambda held: held.used).end()

    def check_folders(self, tenant: TenantId, plan: SandboxPlan) -> None:
        """Refuse a plan that writes where an instance of another tenant writes: it would carry state across."""
        mine = written(plan)
        for held in self._all:
            if held.tenant in (None, tenant) or held.over:
                continue
            for other in written(held.plan):
                for own in mine:
                    if own == other or own.startswith(other + "/") or other.startswith(own + "/"):
                        self.refuse(
                            (plan.driver_id, tenant),
                            "CALL-075",
                            "another tenant's server writes to the folder that this one would write to",
                            "grant each tenant a folder of its own",
                        )

    async def make(self, plan: SandboxPlan, tenant: TenantId | None) -> None:
        """Return when there is room for an instance (step 6); idle ones are ended for it.

        Raises:
            CallRefused: ``CALL-071`` too many instances, ``CALL-072`` the host has no room.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self._bounds.patience
        while True:
            why, full = self.shortage(plan), len(self._all) >= self._bounds.instances
            if not (why or full):
                return
            victim = self._victim()
            if victim is not None:
                victim.end()
                await victim.gone()
                continue
            key = (plan.driver_id, tenant or TenantId(""))
            if why:
                self.refuse(key, "CALL-072", "this host has no room for another server", "call again later", why)
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), max(0.0, min(until - loop.time(), self._ripens())))
            except TimeoutError:
                if loop.time() >= until:
                    text = f"{len(self._all)} servers run already, and all are in use"
                    self.refuse(key, "CALL-071", text, "call again later")

    def shortage(self, plan: SandboxPlan) -> str:
        """Return why the host has no room for an instance, empty when it has."""
        committed = sum(held.plan.limits.memory_bytes for held in self._all)
        return shortage(self._host(), plan.limits.memory_bytes, committed, self._bounds.reserve)

    @property
    def full(self) -> bool:
        """Whether no more instances are allowed."""
        return len(self._all) >= self._bounds.instances

    def _victim(self) -> Held | None:
        """Return the instance that is missed least: a warm one, else the one unused for longest, if for long enough."""
        warm = self._spare()
        if warm is not None:
            return warm
        before = asyncio.get_running_loop().time() - self._bounds.idle_least
        idle = [held for held in self.idle() if held.used <= before]
        return min(idle, key=lambda held: held.used, default=None)

    def _ripens(self) -> float:
        """Return the seconds until an idle instance may be ended for others."""
        now = asyncio.get_running_loop().time()
        soonest = min((held.used for held in self.idle()), default=now + self._bounds.patience)
        return max(0.01, soonest + self._bounds.idle_least - now)

    def idle(self) -> Iterator[Held]:
        """Return the instances that nobody uses now."""
        return (held for held in self._bound.values() if held.sound and not held.leases)

    def refuse(self, key: Key, number: str, text: str, mend: str, detail: str = "", retry: float = 0.0) -> NoReturn:
        """Record and raise a refusal; ``detail`` is for the operator and not for the client."""
        scope = self._scope.within(driver=key[0], tenant=key[1])
        scope.fact("pool.refuse", reason=number, instances=len(self._all), detail=detail)
        refusal = CallRefused(number, text, mend)
        refusal.retry = retry
        raise refusal


def written(plan: SandboxPlan) -> list[str]:
    """Return the folders of the host that a plan writes to."""
    return [mount.source.rstrip("/") for mount in plan.mounts if mount.writable]
