"""One instance of a pool, from its start to its removal, kept by a task of its own.

A vetted server lives inside a context manager (:func:`sandbox.supervisor.open_server`) that removes every trace of it.
The task that enters it also leaves it: nobody else's cancellation can leave a container behind.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandbox.errors import SandboxError, ServerFault
from sandbox.plan.model import SandboxPlan
from sandbox.tenant import TenantId

if TYPE_CHECKING:
    from sandbox.spec.model import DriverSpec
    from sandbox.supervisor.admission import LiveServer

Opener = Callable[["Served", SandboxPlan, TenantId | None], AbstractAsyncContextManager["LiveServer"]]
"""Starts an instance from a plan for a tenant, or for nobody yet, and removes it afterwards."""


def _no_secrets(_tenant: TenantId | None) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Served:
    """One driver as a pool serves it.

    Attributes:
        spec: the driver.
        plan: makes the plan of a tenant; ``None`` asks for the plan of an instance that belongs to nobody yet.
        secrets: slug → value for a tenant; for ``None`` those that every tenant shares.
        warm: instances of this driver that wait for a tenant; ``None``: what the pool's bounds say.
    """

    spec: DriverSpec
    plan: Callable[[TenantId | None], SandboxPlan]
    secrets: Callable[[TenantId | None], Mapping[str, str]] = _no_secrets
    warm: int | None = None


@dataclass(eq=False, slots=True)
class Held:
    """One instance.

    Attributes:
        served: its driver.
        plan: what it is started from.
        tenant: whom it belongs to; ``None`` until it is handed to somebody, and never changed after that.
        live: the vetted server, once it is ready.
        leases: who uses it now.
        used: event loop time of the last lease's end.
        wanted: false once it was asked to end; an end before that is a failure.
        paused: frozen until it is handed out.
        retired: gets no new user (:mod:`sandbox.supervisor.retiring`).
    """

    served: Served
    plan: SandboxPlan
    tenant: TenantId | None
    live: LiveServer | None = None
    leases: int = 0
    used: float = 0.0
    started: float = 0.0
    wanted: bool = True
    paused: bool = False
    retired: bool = False
    _ready: asyncio.Event = field(default_factory=asyncio.Event)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None
    _error: BaseException | None = None

    def start(self, opener: Opener, ended: Callable[[Held], None]) -> None:
        """Begin; ``ended`` is called once, when nothing of it is left."""
        self._task = asyncio.create_task(self._keep(opener))
        self._task.add_done_callback(lambda _task: ended(self))

    async def ready(self) -> LiveServer:
        """Return the vetted server.

        Raises:
            SandboxError: it could not be started, or does not fit its contracts.
        """
        await self._ready.wait()
        if self.live is not None:
            return self.live
        if isinstance(self._error, Exception):
            raise self._error.with_traceback(None)
        raise ServerFault("CALL-077", "the instance was ended before it was ready", "call again")

    @property
    def sound(self) -> bool:
        """Whether it can take requests, as far as is known without asking it."""
        found = self.wanted and not self.retired and self.live is not None and self.live.peer.fault is None
        return found and not self.over

    @property
    def starting(self) -> bool:
        """Whether it is on its way."""
        return not self._ready.is_set()

    @property
    def over(self) -> bool:
        """Whether nothing of it is left."""
        return self._task is not None and self._task.done()

    @property
    def error(self) -> BaseException | None:
        """Why it ended, when that was not asked for."""
        return self._error

    def end(self) -> None:
        """Ask it to end; a start that is under way is given up."""
        self.wanted = False
        self._stop.set()
        if self.starting and self._task is not None:
            self._task.cancel()

    def fail(self, error: SandboxError) -> None:
        """End it for a fault of its own, which counts against it."""
        self._error = error
        self.end()

    async def gone(self) -> None:
        """Return when nothing of it is left."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def _keep(self, opener: Opener) -> None:
        try:
            async with opener(self.served, self.plan, self.tenant) as live:
                self.live = live
                self.started = self.used = asyncio.get_running_loop().time()
                self._ready.set()
                await self._until_over(live)
                if self.paused:
                    with contextlib.suppress(SandboxError):  # a frozen server cannot end in an orderly way
                        await live.instance.unpause()
        except SandboxError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 - whoever waits gets it; the pool goes on with other instances
            self._error = error
        finally:
            self._ready.set()

    async def _until_over(self, live: LiveServer) -> None:
        """Return when it is asked to end, when its process has ended, or when it broke the protocol."""
        waiting = [asyncio.ensure_future(one) for one in (self._stop.wait(), live.ended(), live.peer.wait_closed())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if self.wanted:
                self._error = live.peer.fault or ServerFault("WIRE-040", "the server ended", "read its stderr")
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
