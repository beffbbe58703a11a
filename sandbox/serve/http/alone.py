"""Sessions of the stateless era over HTTP: each carries one request, and the repetitions that answer its questions.

A request that comes back with ``input_required`` (2026-07-28, basic/patterns/mrtr) is repeated on any connection, with
the state that it was given. Until then its session waits in a :class:`WaitingRoom` and keeps the server lent; it ends
when the call ends (its time limit goes on), when nobody may wait any more, and when the gateway ends. Whoever repeats
must hold the same credential: the state alone is not enough, and for anybody else it does not exist.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

from sandbox.serve.client_lasting import Lasting
from sandbox.serve.client_model import SessionOptions
from sandbox.serve.http.answering import STATELESS_STATUS, ClientGone, Response, Writer
from sandbox.serve.http.channel import HttpChannel
from sandbox.serve.http.doors import Behind
from sandbox.serve.http.lasting import patience
from sandbox.serve.http.streams import Stream
from sandbox.serve.session import ClientSession
from sandbox.wire.jsonrpc import Message, Request, Result

CLOSING: Final = 2.0
"""Seconds in which the session of one request has to end after its answer."""

MAX_WAITING: Final = 1024
"""Calls of one endpoint that wait for answers; each keeps a server lent."""

MAX_WAITING_OF_OWNER: Final = 32
"""The same of one credential; a person answers one."""


class Asking(HttpChannel):
    """A channel that tells of a question before anybody can read it: the repetition may come at once.

    Args:
        tell: called before a result goes out that asks for input.
    """

    def __init__(self, tell: Callable[[], object]) -> None:
        super().__init__()
        self._tell = tell

    def send(self, message: Message) -> None:
        """Put a message on its stream."""
        if asks(message):
            self._tell()
        super().send(message)


def asks(message: Message) -> bool:
    """Return whether a message asks its client for something."""
    return isinstance(message, Result) and message.result.get("resultType") == "input_required"


class Alone:
    """A session for one request.

    Args:
        owner: digest of the credential that may repeat it.
        room: where it waits to be repeated.

    Attributes:
        carried: requests on their way through it; the first may still be written when its repetition comes.
        kept: it waits, or may be taken up at any moment.
        handing: makes its call a task just now.
        told: its call is a task, and its client is told so: whoever keeps the task ends it.
        gone: its client has left before its call was over.
        behind: what was lent.
        session: carries the call.
    """

    def __init__(self, owner: str, room: WaitingRoom) -> None:
        self.owner = owner
        self.carried = 0
        self.kept = False
        self.handing: asyncio.Task[None] | None = None
        self.told = False
        self.gone = False
        self.channel = Asking(self._asking)
        self.behind: Behind | None = None
        self.session: ClientSession | None = None
        self._room = room
        self._stack = contextlib.AsyncExitStack()
        self._running: asyncio.Task[None] | None = None

    def _asking(self) -> None:
        """Wait in the room to be repeated, unless whoever keeps tasks hears of the question."""
        if self.handing is None and not self.told:
            self._room.keep(self)

    def before(self, message: Message) -> None:
        """Do what comes before a message can be read."""
        if asks(message):
            self._asking()

    async def lend(self, lent: AbstractAsyncContextManager[Behind]) -> Behind:
        """Have a server until :meth:`close`; raises SandboxError when there is none."""
        self.behind = await self._stack.enter_async_context(lent)
        return self.behind

    def begin(self, behind: Behind, options: SessionOptions) -> ClientSession:
        """Begin the session."""
        session = ClientSession(self.channel, behind.exposure, behind.peer, behind.handler, behind.scope, options)
        self._stack.callback(behind.follow(session.replace_exposure))
        self._running = asyncio.create_task(session.run())
        self.session = session
        return session

    async def carry(
        self, writer: Writer, message: Request, size: int, headers: Mapping[str, str], lasting: Lasting | None = None
    ) -> None:
        """Carry the request, or its repetition, to its answer, or until it is a task.

        Raises:
            ClientGone: before that; the request is cancelled.
        """
        stream = Stream()
        waits = patience(lasting, self, message, stream)
        self.carried += 1
        try:
            self.channel.feed(message, size, stream)
            await writer.answer(stream, Response(headers=headers, statuses=STATELESS_STATUS))
        except ClientGone:
            if self.carried == 1 and not self.told:
                self.gone = True
                self.channel.lost()
            raise
        finally:
            self.carried -= 1
            if waits is not None:
                waits.end()

    @property
    def over(self) -> bool:
        """Whether nobody carries anything through it, and nobody can."""
        return not (self.carried or self.kept or self.told)

    @property
    def waiting(self) -> Mapping[str, asyncio.Task[None] | None]:
        """The state under which its call waits to be repeated, with what carries it; empty when it does not wait."""
        calls = self.session.waiting if self.session is not None else {}
        return {state: call.task for state, call in calls.items()}

    def end(self) -> None:
        """Let the session end in an orderly way."""
        if self.session is not None:
            self.session.end()

    async def close(self) -> None:
        """End it, and give the server back."""
        try:
            if self.session is not None and self._running is not None:
                self.session.end()
                await asyncio.wait((self._running,), timeout=CLOSING)
                self._running.cancel()
        finally:
            await self._stack.aclose()


class WaitingRoom:
    """The sessions of one endpoint whose calls wait to be repeated."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[Alone, asyncio.Task[None]]] = {}
        self._over = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def keep(self, alone: Alone) -> bool:
        """Let a session wait whose call does; false when there is nothing to wait for, or no room."""
        state, task = next(iter(alone.waiting.items()), ("", None))
        of_owner = sum(1 for one, _ in self._waiting.values() if one.owner == alone.owner)
        if task is None or len(self) >= MAX_WAITING or of_owner >= MAX_WAITING_OF_OWNER:
            return False
        alone.kept = True
        self._waiting[state] = (alone, asyncio.create_task(self._watch(alone, state, task, self._over)))
        return True

    def take(self, message: Request, owner: str) -> Alone | None:
        """Return the session that waits for a repetition, which is the caller's from now on."""
        state = message.params.get("requestState")
        found = self._waiting.get(state) if isinstance(state, str) else None
        if found is None or found[0].owner != owner:
            return None
        alone, watching = self._waiting.pop(str(state))
        alone.kept = False
        watching.cancel()
        return alone

    def end(self) -> None:
        """End every session that waits."""
        self._over.set()  # and not cancelled: a watcher that has not begun would never close anything
        self._over = asyncio.Event()

    async def _watch(self, alone: Alone, state: str, task: asyncio.Task[None], over: asyncio.Event) -> None:
        """Close a session when its call is over, or everything is, and nobody has repeated it."""
        ending = asyncio.create_task(over.wait())
        try:
            await asyncio.wait((task, ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
            if self._waiting.get(state, (None, None))[0] is alone:
                del self._waiting[state]
                alone.kept = False
                await alone.close()
