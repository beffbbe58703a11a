"""Instances by driver and tenant: one vetted server for each pair, started when it is first needed.

::

    async with Instances(opening(backend, scope), scope) as pool:
        pool.add(Served(spec, plan=lambda tenant: plan))
        async with pool.lease("filesystem-mcp", tenant, "alice") as lease:
            result = await lease.request("tools/call", {…}, timeout=30)

A lease, step by step:

 1. An instance of the pair that is ready is used; after a long rest it has to answer a ping first.
 2. Otherwise one start is begun for everybody who waits for the pair: after the back-off of earlier failures, and not
    at all while the circuit breaker is open (:mod:`sandbox.supervisor.breaker`).
 3. Starts take their turn by tenant, a bounded number at once (:mod:`sandbox.supervisor.fair`).
 4. Folders: two tenants never write the same one.
 5. A warm instance (vetted, paused, nobody's) is taken where the tenant's plan and secrets are those it was made with.
 6. Otherwise there has to be room: a number of instances, and the host's figures (:mod:`sandbox.supervisor.headroom`).
    Idle instances make room, warm ones first. Without room the request is refused before the host swaps.
 7. The instance belongs to its tenant until it is removed. It is handed to nobody else, ever.

Nothing here knows an engine: plans go in, vetted servers come out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from sandbox.errors import CallRefused, SandboxError, ServerTimeout, UsageError
from sandbox.events import Scope
from sandbox.supervisor.bounds import PoolBounds
from sandbox.supervisor.breaker import Breaker
from sandbox.supervisor.fair import Gate
from sandbox.supervisor.headroom import HostFigures, read_host
from sandbox.supervisor.held import Held, Opener, Served
from sandbox.supervisor.leases import Lease, is_healthy
from sandbox.supervisor.retiring import RETIRE_GRACE, Retiring
from sandbox.supervisor.room import Key, Room, written
from sandbox.supervisor.warm import WarmShelf, bind
from sandbox.tenant import TenantId

if TYPE_CHECKING:
    pass

REAP_LEAST: Final = 0.02
REAP_MOST: Final = 10.0
"""Seconds between two looks for idle instances."""


class Instances:
    """The instances of one supervisor.

    Args:
        opener: starts and removes one instance.
        scope: where facts are recorded; driver, tenant and instance are added.
        bounds: see :class:`~sandbox.supervisor.bounds.PoolBounds`.
        host: reads the host's figures.
    """

    def __init__(
        self,
        opener: Opener,
        scope: Scope,
        bounds: PoolBounds | None = None,
        host: Callable[[], HostFigures] = read_host,
    ) -> None:
        self.bounds = bounds or PoolBounds()
        self._opener = opener
        self._scope = scope
        self._served: dict[str, Served] = {}
        self._all: set[Held] = set()
        self._bound: dict[Key, Held] = {}
        self._starts: dict[Key, asyncio.Task[Held]] = {}
        self._breaker: Breaker[tuple[str, TenantId | None]] = Breaker(self.bounds.restarts)
        own = self.bounds
        self._gate = Gate(own.starting, own.starting_of_tenant, own.waiting_of_tenant, own.patience)
        self._shelf = WarmShelf(self)
        self._retiring = Retiring(scope)
        self._space = Room(self._all, self._bound, self._shelf.spare, own, host, scope)
        self._closing = False
        self._expelled = 0
        self._reaper: asyncio.Task[None] | None = None

    # --- life ------------------------------------------------------------------------------------------------------
    async def __aenter__(self) -> Self:
        self._reaper = asyncio.create_task(self._reap())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End every instance; return when nothing of any is left."""
        self._closing = True
        self._shelf.close()
        tasks = [*self._starts.values(), *([self._reaper] if self._reaper else [])]
        for task in tasks:
            task.cancel()
        for held in list(self._all):
            held.end()
        await asyncio.gather(*tasks, *(held.gone() for held in list(self._all)), return_exceptions=True)

    def add(self, served: Served) -> None:
        """Serve a driver from now on, and begin its warm instances."""
        self._served[served.spec.id] = served
        self._shelf.refill(served)

    def replace(self, served: Served, grace: float = RETIRE_GRACE) -> None:
        """Serve a driver anew: its instances are retired, and whoever comes next gets one made from what is served now.

        Args:
            served: of a driver that is served, or not yet.
            grace: seconds in which calls in progress may finish on the old instances.
        """
        driver = served.spec.id
        self._served[driver] = served
        self._breaker.forget(lambda key: key[0] == driver)
        self._retire(driver, grace, "replaced")
        self._shelf.refill(served)

    def refresh(self, served: Served) -> None:
        """Start later instances of a driver in another way; those that belong to a tenant go on."""
        self._served[served.spec.id] = served
        for held in self._shelf.drop(served.spec.id):
            self._retiring.retire(held, 0.0, "replaced")
        self._shelf.refill(served)

    def rebound(self, bounds: PoolBounds) -> None:
        """Hold instances to other numbers and times from now on; none is ended for it."""
        self.bounds = bounds
        self._space.rebound(bounds)

    def expel(self) -> None:
        """End every instance that belongs to a tenant, at once: another gateway may run one for it now.

        Starts that are on their way come to nothing; whoever waits for one is refused (``CALL-077``).
        """
        self._expelled += 1
        for held in [one for one in self._all if one.tenant is not None]:
            held.end()

    def has(self, driver: str, tenant: TenantId) -> bool:
        """Return whether something of a pair's instance is there, starting or ending too."""
        return any(held.tenant == tenant and held.served.spec.id == driver for held in self._all)

    def serves_tenant(self, tenant: TenantId) -> bool:
        """Return whether a tenant has an instance, starting or ending too."""
        return any(held.tenant == tenant for held in self._all)

    def written(self, driver: str, tenant: TenantId) -> list[str]:
        """Return the folders of the host that a pair's instance writes to.

        Raises:
            UsageError: ``CALL-078``, there is no such driver.
        """
        return written(self._known(driver).plan(tenant))

    def remove(self, driver: str, grace: float = RETIRE_GRACE) -> None:
        """Serve a driver no more; calls in progress may finish within ``grace`` seconds."""
        self._served.pop(driver, None)
        self._breaker.forget(lambda key: key[0] == driver)
        self._retire(driver, grace, "removed")

    def _retire(self, driver: str, grace: float, why: str) -> None:
        for key in [one for one in self._bound if one[0] == driver]:
            held = self._bound[key]
            if self._beginning(key) is None:  # a start sees for itself that it is of what was served before
                del self._bound[key]
                self._retiring.retire(held, grace, why)
        for held in self._shelf.drop(driver):
            self._retiring.retire(held, grace, why)

    def serves(self, served: Served) -> bool:
        """Return whether this is how a driver is served now."""
        return self._served.get(served.spec.id) is served

    # --- leases ----------------------------------------------------------------------------------------------------
    @contextlib.asynccontextmanager
    async def lease(self, driver: str, tenant: TenantId, user: str = "") -> AsyncIterator[Lease]:
        """Lend the instance of a driver and tenant for the caller's block.

        Args:
            driver: id of a driver that was added.
            tenant: verified; decides which instance it is.
            user: verified subject within the tenant, for the lease's own record; does not choose the instance.

        Raises:
            UsageError: ``CALL-078``, there is no such driver.
            CallRefused: ``CALL-051``, ``CALL-052`` too many wait; ``CALL-070`` … ``CALL-073``, ``CALL-075``,
                ``CALL-077``.
            SandboxError: it could not be started, or does not fit its contracts.
        """
        lease = Lease(self, driver, tenant, user, await self.acquire(driver, tenant))
        try:
            yield lease
        finally:
            self.release(lease.held)

    async def acquire(self, driver: str, tenant: TenantId) -> Held:
        """Return the pair's instance, one more user counted; :meth:`release` has to follow."""
        key, expelled = (driver, tenant), self._expelled
        while True:
            self._known(driver)
            self._check_expelled(expelled)
            held = self._bound.get(key)
            if held is not None and held.sound and self._beginning(key) is None:  # a warm one may still be frozen
                held.leases += 1
                try:
                    healthy = held.leases > 1 or await self._healthy(held)
                except BaseException:  # whoever asked has gone
                    self.release(held)
                    raise
                if healthy and not held.retired:
                    return held
                self.release(held)
                if held.retired:  # while it was asked
                    continue
                held.fail(ServerTimeout("CALL-079", "the server did not answer a ping", "report it to its author"))
            await self._started(key)

    def _known(self, driver: str) -> Served:
        if driver not in self._served:
            raise UsageError("CALL-078", f"the driver `{driver}` is not served here", "use one of those listed")
        return self._served[driver]

    def release(self, held: Held) -> None:
        """Take note that one user less uses an instance."""
        held.leases -= 1
        held.used = asyncio.get_running_loop().time()
        if not held.leases:
            self._retiring.released(held)
            self._space.changed()

    async def _healthy(self, held: Held) -> bool:
        rested = asyncio.get_running_loop().time() - held.used
        if rested < self.bounds.health_after or held.live is None:
            return True
        return await is_healthy(held.live.peer, self.bounds.health_timeout)

    async def _started(self, key: Key) -> Held:
        """Return a fresh instance of the pair; everybody who waits for the pair waits for the same start."""
        if self._closing:
            raise CallRefused("CALL-077", "no more calls are taken: this supervisor is ending", "connect again later")
        task = self._beginning(key)
        if task is None:
            task = self._starts[key] = asyncio.create_task(self._start(key))
            task.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(task)

    def _beginning(self, key: Key) -> asyncio.Task[Held] | None:
        """Return the start of a pair that is under way."""
        task = self._starts.get(key)
        return None if task is None or task.done() else task

    def _forget(self, key: Key, done: asyncio.Task[Held]) -> None:
        if self._starts.get(key) is done:
            del self._starts[key]
        if not done.cancelled():
            done.exception()  # whoever waited has it

    # --- starts ----------------------------------------------------------------------------------------------------
    async def _start(self, key: Key) -> Held:
        """Steps 2 to 7."""
        driver, tenant = key
        expelled = self._expelled
        old = self._bound.get(key)
        if old is not None:
            old.end()
            await old.gone()
        await self._back_off(key)  # 2
        async with self._gate.slot(tenant):  # 3
            served = self._known(driver)
            plan = served.plan(tenant)
            await self._retiring.clear(key, plan)
            self._space.check_tenant(tenant)
            self._space.check_folders(tenant, plan)  # 4
            self._check_expelled(expelled)
            held = self._shelf.take(served, plan, tenant)  # 5
            if held is None:
                await self._space.make(plan, tenant)  # 6
                self._check_expelled(expelled)
                held = self.begin(Held(served, plan, tenant))
            self._bound[key] = held
            try:
                await bind(held, tenant, self._scope.within(driver=driver, tenant=tenant))  # 7
            except BaseException:
                held.end()
                raise
            if not self.serves(served):  # the driver was changed meanwhile: whoever waits begins again
                self._bound.pop(key, None)
                self._retiring.retire(held, 0.0, "replaced")
            return held

    def _check_expelled(self, before: int) -> None:
        if self._expelled != before:
            raise CallRefused("CALL-077", "the start was given up: the tenant may have moved", "call again")

    async def _back_off(self, key: Key) -> None:
        loop = asyncio.get_running_loop()
        refused = self._breaker.refuses(key, loop.time())
        if refused:
            text, mend = "the server keeps ending and is not started for now", f"call again in {refused:.0f} s"
            self._space.refuse(key, "CALL-073", text, mend, retry=refused)
        wait = self._breaker.wait(key, loop.time())
        if wait:
            self._scope.within(driver=key[0], tenant=key[1]).fact("pool.restart", delay_ms=round(wait * 1000))
            await asyncio.sleep(wait)

    def begin(self, held: Held) -> Held:
        """Start an instance and count it."""
        self._all.add(held)
        held.start(self._opener, self._ended)
        return held

    def _ended(self, held: Held) -> None:
        """Take note that nothing is left of an instance."""
        self._all.discard(held)
        self._retiring.ended(held)
        self._space.changed()
        driver, tenant = held.served.spec.id, held.tenant
        if tenant is not None and self._bound.get((driver, tenant)) is held:
            del self._bound[driver, tenant]
        if held.error is not None and not self._closing:
            now = asyncio.get_running_loop().time()
            lasted = now - held.started if held.started else 0.0
            self._breaker.failed((driver, tenant), now, lasted)
            reason = getattr(held.error, "id", type(held.error).__name__)
            with contextlib.suppress(SandboxError):  # it announces nothing
                scope = self._scope.within(driver=driver, tenant=tenant or "", instance=instance_of(held))
                scope.fact("pool.lost", reason=reason, lasted_ms=round(lasted * 1000))
        if tenant is None:
            self._shelf.lost(held)

    @property
    def space(self) -> Room:
        """The room for instances."""
        return self._space

    @property
    def closing(self) -> bool:
        """Whether no more instances are started."""
        return self._closing

    async def _reap(self) -> None:
        """End what nobody has used for long."""
        while True:
            await asyncio.sleep(min(REAP_MOST, max(REAP_LEAST, self.bounds.idle / 4)))
            before = asyncio.get_running_loop().time() - self.bounds.idle
            for held in [one for one in self._space.idle() if one.used <= before]:
                with contextlib.suppress(SandboxError):
                    self._scope.within(driver=held.served.spec.id, tenant=held.tenant or "").fact("pool.idle")
                held.end()

    def refusing(self, driver: str, tenant: TenantId) -> str:
        """Return why a tenant could not have a driver's server now, as far as is known without asking; else empty."""
        if driver not in self._served:
            return "it is not served here"
        seconds = self._breaker.refuses((driver, tenant), asyncio.get_running_loop().time())
        if not seconds or self.running(driver, tenant):
            return ""
        return f"its circuit breaker is open for {seconds:.0f} s"

    def running(self, driver: str, tenant: TenantId) -> bool:
        """Return whether a tenant has an instance of a driver that is well, as far as is known without asking it."""
        held = self._bound.get((driver, tenant))
        return held is not None and held.sound

    # --- figures ---------------------------------------------------------------------------------------------------
    def figures(self) -> dict[str, int]:
        """Return how many instances there are, for status pages and tests."""
        used = sum(1 for held in self._all if held.leases)
        warm = sum(1 for held in self._all if held.tenant is None and held.paused)
        return {"instances": len(self._all), "used": used, "warm": warm, "tenants": len({k[1] for k in self._bound})}

    @property
    def scope(self) -> Scope:
        """Where facts are recorded."""
        return self._scope

    def failing(self, served: Served) -> float:
        """Return the seconds for which no warm instance of a driver is started: earlier ones failed."""
        now = asyncio.get_running_loop().time()
        key = (served.spec.id, None)
        return max(self._breaker.refuses(key, now), self._breaker.wait(key, now))


def instance_of(held: Held) -> str:
    """Return the engine's id of an instance, empty before it has one."""
    return held.live.instance.id if held.live is not None else ""
