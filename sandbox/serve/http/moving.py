"""A session's server, when the session outlives it: drivers and policies are changed while clients are connected.

::

    async with moving(door, identity) as behind:  # the same form as ``door.open(identity)``
        …

When the door turns (:class:`~sandbox.serve.http.turns.Turn`), what the session was lent is given back as soon as the
calls that use it are done, and the session gets what the door gives now. The rules:

- a call stays where it began; nothing is switched in the middle of one;
- no call that comes after the turn begins on what was there before, not even for the moment until the new one is there:
  it waits, and is refused when nothing can be had;
- the client is told which of its lists have changed;
- what it watched is decided anew and watched there.

A server that ends by itself ends the session, as ever.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from sandbox.errors import CallRefused, SandboxError
from sandbox.serve.http.doors import Behind, Door
from sandbox.serve.http.moved import MovingAsking, MovingHandler, MovingPeer, MovingWatches
from sandbox.serve.identity.model import Identity
from sandbox.vet.model import Exposure

if TYPE_CHECKING:
    from sandbox.serve.asking import Asking
    from sandbox.transport.peer import PeerListener, ServerPeer

Hear = Callable[[Exposure], None]


@contextlib.asynccontextmanager
async def moving(door: Door, identity: Identity) -> AsyncIterator[Behind]:
    """Lend what is behind a door for as long as the caller's block lasts, whatever becomes of it.

    Raises:
        SandboxError: there is nothing to be had at the beginning.
    """
    mover = Mover(door, identity)
    try:
        first = await mover.begin()
        asking = None if first.options.asking is None else cast("Asking", MovingAsking(mover))
        options = replace(first.options, clean=mover.clean, asking=asking)
        peer = cast("ServerPeer", MovingPeer(mover))
        yield Behind(first.exposure, peer, MovingHandler(mover), first.scope, options, mover.follow)
    finally:
        await mover.close()


class Place:
    """What a session was lent once.

    Attributes:
        behind: it.
        exposure: what is exposed of it now.
        users: calls that use it.
        left: nobody begins to use it any more.
    """

    def __init__(self, behind: Behind, stack: contextlib.AsyncExitStack) -> None:
        self.behind = behind
        self.exposure = behind.exposure
        self.users = 0
        self.left = False
        self._stack = stack
        self._closing: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        """Whether it was given back."""
        return self._closing is not None and self._closing.done()

    def leave(self) -> None:
        """Give it back once nobody uses it."""
        self.left = True
        if not self.users and self._closing is None:
            self._closing = asyncio.create_task(self._stack.aclose())

    async def closed(self) -> None:
        """Give it back now, and return when that is done."""
        self.users = 0
        self.leave()
        assert self._closing is not None  # noqa: S101 - leaving began it
        await asyncio.wait((self._closing,))

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Count one call."""
        self.users += 1
        try:
            yield
        finally:
            self.users -= 1
            if self.left:
                self.leave()


class Mover:
    """Keeps one session where its door leads.

    Args:
        door: of the session.
        identity: of its client.
    """

    def __init__(self, door: Door, identity: Identity) -> None:
        self._door = door
        self._identity = identity
        self._number = -1
        self._task: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._places: list[Place] = []
        self._hears: list[Hear] = []
        self._unfollow: Callable[[], None] = lambda: None
        self._lost: asyncio.Future[SandboxError | None] = asyncio.get_running_loop().create_future()
        self._watching: asyncio.Task[None] | None = None
        self.listeners: list[PeerListener] = []
        self.watches = MovingWatches(self)

    async def begin(self) -> Behind:
        """Lend the first time."""
        await self._move()
        self._watcher = asyncio.create_task(self._follow_turns())
        return self.last.behind

    async def close(self) -> None:
        """Give everything back."""
        tasks = [one for one in (self._watcher, self._task, self._watching) if one is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._unfollow()
        for place in self._places:
            await place.closed()

    @property
    def last(self) -> Place:
        """Where the session is, or was last."""
        return self._places[-1]

    async def current(self) -> Place:
        """Return where a call that begins now belongs.

        Raises:
            CallRefused: ``GATE-050``, nothing can be had there; or as the door says.
        """
        while self._number != self._door.turn.number:
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._move())
            try:
                await asyncio.shield(self._task)
            except CallRefused:
                raise
            except SandboxError as error:
                text = "the server behind this session was changed and cannot be had now"
                raise CallRefused("GATE-050", text, f"ask who runs this gateway to look for {error.id}") from None
        return self.last

    def follow(self, hear: Hear) -> Callable[[], None]:
        """Call a function with every later exposure."""
        self._hears.append(hear)
        return lambda: self._hears.remove(hear)

    def clean(self, params: dict[str, Any]) -> dict[str, Any]:
        """Clean what a server says, as it is cleaned there now, and where calls may still be carried."""
        for place in self._places:  # a call that stays tells of its own server's secrets
            params = place.behind.options.clean(params)
        return params

    async def gone(self) -> SandboxError | None:
        """Return when the server that the session uses has ended by itself."""
        return await asyncio.shield(self._lost)

    async def _follow_turns(self) -> None:
        """Move as soon as the door turns, so that clients hear of it; what fails is tried again by the next call."""
        while True:
            seen = self._door.turn.number
            if self._number != seen:
                with contextlib.suppress(SandboxError):
                    await self.current()
            await self._door.turn.after(max(seen, self._number))

    async def _move(self) -> None:
        """Leave where the session is, and lend what the door gives now."""
        if self._places:
            self._leave()
        number, stack = self._door.turn.number, contextlib.AsyncExitStack()
        behind = await stack.enter_async_context(self._door.open(self._identity))
        place = Place(behind, stack)
        if self._places and behind.options.asking is not None:
            behind.options.asking.go_on_from(self.last.behind.options.asking)
        self._places = [*(one for one in self._places if not one.over), place]
        for listener in self.listeners:
            behind.peer.add_listener(listener)
        self._unfollow = behind.follow(self._hearing(place))
        self._watching = asyncio.create_task(self._watch(place))
        moved, self._number = self._number >= 0, number
        if moved:
            behind.scope.fact("session.move", turn=number)
            self._tell(place.exposure)
            await self.watches.again(place)

    def _leave(self) -> None:
        place = self.last
        if place.left:
            return
        if self._watching is not None:
            self._watching.cancel()
        self._unfollow()
        self._unfollow = lambda: None
        for listener in self.listeners:
            place.behind.peer.remove_listener(listener)
        self.watches.leave(place)
        place.leave()

    async def _watch(self, place: Place) -> None:
        fault = await place.behind.gone()
        if place is self.last and self._number == self._door.turn.number and not self._lost.done():
            self._lost.set_result(fault)

    def _hearing(self, place: Place) -> Hear:
        def hear(exposure: Exposure) -> None:
            place.exposure = exposure
            self._tell(exposure)

        return hear

    def _tell(self, exposure: Exposure) -> None:
        for hear in list(self._hears):
            hear(exposure)
