"""Vets a live server again and again: what was approved once must still be what is offered.

A server may change its lists at any time, with or without a word. They are read again, every page of them,

- when it says so (``list_changed``): until they are read and judged, no call is forwarded and no result passed on;
- before a call, within a rate: the request goes out ahead of the call, and the call's result waits until it is judged;
- after a call, within the same rate: a server that changes after N calls is found out before call N + 1 is forwarded;
- every now and then while nobody calls.

There is one reader for each server. What it finds is judged by the function it is given, and told to every session.
When the lists cannot be read, everything is out of service until they can.
A server that lists one thing and does another is not found out by any reading; its results are held to the contract.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from sandbox.errors import SandboxError
from sandbox.events import Scope
from sandbox.limits import RECHECK_AT_ONCE, RECHECK_IDLE, RECHECK_PER_SECOND, RECHECK_RETRY
from sandbox.spec.model import DriverSpec
from sandbox.transport.limiter import TokenBucket
from sandbox.transport.peer import ServerPeer
from sandbox.vet.model import Exposure, ServerSurface
from sandbox.vet.pins import digest_of
from sandbox.vet.surface import collect

CHANGES: Final = frozenset(f"notifications/{name}/list_changed" for name in ("tools", "prompts", "resources"))

UNREADABLE: Final = "the server's lists cannot be read, so nobody knows whether they are still what was approved"

Judge = Callable[[ServerSurface, Scope], Awaitable[Exposure]]
"""Holds a surface against what was approved and returns what goes on; may take seconds, and must not block."""


class Revetter:
    """Reads one server's lists again, and tells what goes on.

    Args:
        peer: the server.
        spec: its driver.
        judge: decides what goes on.
        scope: where it is recorded.
        patience: seconds for one page: as long as one call may keep a server busy.

    Attributes:
        exposure: what callers may see and use now.
    """

    def __init__(self, peer: ServerPeer, spec: DriverSpec, judge: Judge, scope: Scope, patience: float) -> None:
        self.exposure = Exposure({})
        self._peer = peer
        self._spec = spec
        self._judge = judge
        self._scope = scope
        self._patience = patience
        self._heard: list[Callable[[Exposure], None]] = []
        self._loop = asyncio.get_running_loop()
        self._bucket = TokenBucket(RECHECK_PER_SECOND, RECHECK_AT_ONCE)
        self._asked = self._read = self._announced = 0
        self._occasion = ""
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._wake = asyncio.Event()
        self._seen = ""
        self._stale = False
        self._good: Exposure | None = None
        self._task: asyncio.Task[None] | None = None
        self._over = False
        self._free = asyncio.Event()
        self._free.set()
        peer.add_listener(self)

    def begin(self, surface: ServerSurface, exposure: Exposure) -> None:
        """Go on from a first surface that has been judged."""
        self.exposure = self._good = exposure
        self._seen = digest_of(surface)
        self._ask("start")  # it may have said that something changes before anybody listened
        self._task = self._loop.create_task(self._work())

    def subscribe(self, hear: Callable[[Exposure], None]) -> None:
        """Call ``hear`` with every exposure that differs from the one before."""
        self._heard.append(hear)

    def unsubscribe(self, hear: Callable[[Exposure], None]) -> None:
        """Undo :meth:`subscribe`."""
        with contextlib.suppress(ValueError):
            self._heard.remove(hear)

    def judge_again(self) -> Awaitable[None]:
        """Have the lists read and judged at once, also when they are as before: something else was approved.

        Returns:
            Waits until that is done; not for a frozen server, which is judged when it is given to a tenant.
        """
        self._stale = True
        self._announced = self._ask("approved")
        return self.until(self._announced if self._free.is_set() else 0)

    async def close(self) -> None:
        """End the reading."""
        self._end()
        with contextlib.suppress(ValueError):
            self._peer.remove_listener(self)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def hold(self) -> None:
        """Return when what was asked for has been read, and read nothing more: the server is about to be frozen."""
        await self.until(self._asked)
        self._free.clear()

    def go_on(self, scope: Scope) -> None:
        """Undo :meth:`hold`, recording in another scope: the server has been given to a tenant."""
        self._scope = scope
        self._free.set()

    # --- around a call -------------------------------------------------------------------------------------------
    @property
    def announced(self) -> int:
        """Number of the reading that has to be judged before anything is forwarded."""
        return self._announced

    def judged(self, number: int) -> bool:
        """Return whether the reading of a number is judged, or nothing will be read any more."""
        return self._read >= number or self._over

    async def until(self, number: int) -> None:
        """Return when :meth:`judged`."""
        if not self.judged(number):
            settled: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append((number, settled))
            await settled

    def ahead_of_call(self) -> int:
        """Have the lists read ahead of a call, within the rate; return what has to be judged before its result."""
        if self._bucket.take(self._loop.time()):
            self._ask("before a call")
        return self._asked

    def after_call(self) -> None:
        """Have the lists read after a call, within the rate."""
        if self._bucket.take(self._loop.time()):
            self._ask("after a call")

    # --- PeerListener --------------------------------------------------------------------------------------------
    def server_notified(self, method: str, params: dict[str, Any]) -> None:  # noqa: ARG002 - a change has no parameters
        """Read again what the server says has changed."""
        if method in CHANGES:
            self._announced = self._ask("list_changed")

    def server_pressure(self, full: bool) -> None:
        """Nothing to do: readings are few."""

    def server_closed(self, error: SandboxError) -> None:  # noqa: ARG002 - requests fail with it by themselves
        """Let whoever waits go on: every request fails by itself."""
        self._end()

    # --- the reader ----------------------------------------------------------------------------------------------
    def _ask(self, occasion: str) -> int:
        """Ask for a reading that begins from now on; return its number."""
        self._asked += 1
        self._occasion = occasion
        self._wake.set()
        return self._asked

    def _settle(self) -> None:
        """Let go on who waited for what has been read."""
        waiting, self._waiting = self._waiting, []
        for number, settled in waiting:
            if not self.judged(number):
                self._waiting.append((number, settled))
            elif not settled.done():
                settled.set_result(None)

    async def _work(self) -> None:
        while True:
            if self._asked == self._read:
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), RECHECK_IDLE if self._good else RECHECK_RETRY)
            await self._free.wait()
            if self._over:
                return
            number, occasion = self._asked, self._occasion if self._asked > self._read else "interval"
            try:
                await self._once(occasion)
            except SandboxError:  # it cannot be recorded: nothing goes on, and every call finds out itself
                self._publish(self._nothing(UNREADABLE))
                self._end()
            self._read = number
            self._settle()

    async def _once(self, occasion: str) -> None:
        """Read the lists once and publish what is judged of them."""
        stale, self._stale = self._stale, False  # what is approved during this reading is for the next one
        try:
            surface = await collect(_Patient(self._peer, self._patience), self._spec, self._peer.client_capabilities)
        except SandboxError as error:
            if self._peer.fault is None:
                self._unread(occasion, error.id)
            return
        seen = digest_of(surface)
        if seen == self._seen and self._good is not None and not stale:
            return
        if seen != self._seen:
            self._scope.fact("vet.recheck", occasion=occasion, was=self._seen, now=seen)
        try:
            judged = await self._judge(surface, self._scope)
        except SandboxError:
            raise
        except Exception as error:  # noqa: BLE001 - a defect of ours must not leave anything in service unjudged
            self._unread(occasion, type(error).__name__)
            return
        self._seen, self._good = seen, judged
        self._publish(judged)

    def _unread(self, occasion: str, error: str) -> None:
        if self._good is not None:
            self._scope.fact("vet.recheck", occasion=occasion, was=self._seen, error=error)
        self._good = None
        self._publish(self._nothing(UNREADABLE))

    def _nothing(self, why: str) -> Exposure:
        now = self.exposure
        held: Mapping[str, str] = {**dict.fromkeys(now.tools, why), **now.held}
        return Exposure({}, surface=now.surface, held=held)

    def _publish(self, exposure: Exposure) -> None:
        if exposure == self.exposure:
            return
        self.exposure = exposure
        for hear in list(self._heard):
            hear(exposure)

    def _end(self) -> None:
        self._over = True
        self._free.set()
        self._wake.set()
        self._settle()


class _Patient:
    """A server whose lists may take as long to come as a call may take."""

    def __init__(self, peer: ServerPeer, patience: float) -> None:
        self.era = peer.era
        self.protocol_version = peer.protocol_version
        self.server_info = peer.server_info
        self.capabilities = peer.capabilities
        self.instructions = peer.instructions
        self._peer = peer
        self._patience = patience

    async def list_all(self, method: str) -> tuple[dict[str, Any], ...]:
        """Return every item of one list."""
        return await self._peer.list_all(method, timeout=self._patience)
