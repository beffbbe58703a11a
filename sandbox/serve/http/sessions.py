"""Handshake sessions over HTTP: each belongs to whoever opened it, holds its server, and ends.

A session is a task that keeps the server lent while it lasts. It ends when its client deletes it, when nobody used it
for long, when its server is gone (the client is told 404 and opens another, 2025-11-25, session management), and when
the gateway ends. Its id is 160 random bits; knowing it is not enough: another credential is told that there is no such
session.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from sandbox.errors import SandboxError, ServerFault
from sandbox.serve.client_lasting import Lasting
from sandbox.serve.client_model import SessionOptions
from sandbox.serve.client_tasks import Tasks
from sandbox.serve.http.bounds import MAX_KEPT_BYTES, MAX_KEPT_STREAMS, RETRY_AFTER, HttpBounds
from sandbox.serve.http.channel import HttpChannel
from sandbox.serve.http.doors import Behind, Door
from sandbox.serve.http.moving import moving
from sandbox.serve.http.refusals import HttpRefused, malformed
from sandbox.serve.http.streams import Stream
from sandbox.serve.identity.model import Identity
from sandbox.serve.session import ClientSession
from sandbox.tenant import TenantId
from sandbox.wire.jsonrpc import Message, Request

if TYPE_CHECKING:
    from starlette.types import Scope as AsgiScope

    from sandbox.serve.http.endpoint import Arrival

LAST_ANSWERS: Final = 0.2
"""Seconds in which answers on their way still go out after the server has ended."""

DIGEST_DIGITS: Final = 32
"""Of the digest by which records name a session: as many as a trace id has."""

STANDING: Final = "s"
"""Key of the stream of what belongs to no request."""


TasksFor = Callable[[Identity, Door], Tasks]
LastingFor = Callable[[Identity, Door], Lasting]
"""Make what keeps the tasks of one caller at one endpoint."""


class HttpSession:
    """One handshake session.

    Args:
        door: whose server it uses.
        identity: who opened it.
        one_stream: everything goes to the standing stream (the transport of 2024-11-05).
        session_id: of a session that was opened at another gateway; empty makes a fresh one.
        tag: begins the names of its streams, so that no gateway takes another's for its own.

    Attributes:
        id: ``Mcp-Session-Id``.
        standing: what belongs to no request.
        version: agreed; empty until then.
        tasks: makes what keeps the tasks of its client; ``None``: nothing does. Set before it is opened.
    """

    def __init__(
        self, door: Door, identity: Identity, *, one_stream: bool = False, session_id: str = "", tag: str = ""
    ) -> None:
        self.id = session_id or secrets.token_urlsafe(20)
        self.one_stream = one_stream
        self.door = door
        self.identity = identity
        self.used = asyncio.get_running_loop().time()
        self.standing = Stream(tag + STANDING)
        self.version = ""
        self.tasks: TasksFor | None = None
        self.channel = HttpChannel(lambda: self.standing, one_stream=one_stream)
        self._streams: OrderedDict[str, Stream] = OrderedDict({self.standing.key: self.standing})
        self._tag = tag
        self._number = 0
        self._session: ClientSession | None = None
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Return when its server is there.

        Raises:
            SandboxError: there is none to be had.
        """
        self._task = asyncio.create_task(self._keep())
        try:
            await asyncio.shield(self._opened)
        except asyncio.CancelledError:
            self._task.cancel()
            raise

    def stream(self) -> Stream:
        """Return a stream for one more response."""
        self._number += 1
        stream = Stream(f"{self._tag}{self._number}", self._let_go)
        self._streams[stream.key] = stream
        return stream

    def answered(self, stream: Stream) -> None:
        """Take note that a response is over, and let go of what nobody can come back for, and of what is too much."""
        if not stream.told:
            self._streams.pop(stream.key, None)
        self._let_go()

    def _let_go(self) -> None:
        over = [one for one in self._streams.values() if one.over and not one.reader and one is not self.standing]
        size = sum(one.size for one in over)
        for number, one in enumerate(over[:-1]):
            if len(over) - number <= MAX_KEPT_STREAMS and size <= MAX_KEPT_BYTES:
                break
            size -= one.size
            del self._streams[one.key]

    def resumed(self, last_id: str) -> Stream:
        """Return the stream that an event id belongs to, wound back to after it.

        Raises:
            HttpRefused: ``GATE-018``, there is no such stream any more.
        """
        key, _, number = last_id.partition(".")
        stream = self._streams.get(key)
        if stream is None or not (number.isascii() and number.isdecimal() and len(number) < 10):  # noqa: PLR2004
            raise malformed("GATE-018", "that event belongs to no stream of this session", "ask anew")
        if not stream.reader:  # whoever reads it would get everything twice
            stream.back_to(int(number))
        return stream

    def feed(self, message: Message, size: int, reply: Stream | None) -> None:
        """Hand on one message."""
        self.used = asyncio.get_running_loop().time()
        self.channel.feed(message, size, reply)

    @property
    def busy(self) -> bool:
        """Whether it is used now: a request in progress, or an open stream."""
        return self.channel.busy or any(stream.reader for stream in self._streams.values())

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._task is not None and self._task.done()

    def end(self) -> None:
        """Ask it to end in an orderly way."""
        if self._session is not None:
            self._session.end()
        elif self._task is not None:
            self._task.cancel()

    async def ended(self) -> None:
        """Return when nothing of it is left."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def _keep(self) -> None:
        try:
            async with moving(self.door, self.identity) as behind:
                await self._serve(behind)
        except SandboxError as error:
            if not self._opened.done():
                self._opened.set_exception(error)
        finally:
            if not self._opened.done():
                self._opened.set_exception(ServerFault("GATE-019", "the session ended before it was open", "try again"))
            self._opened.exception()
            self.channel.close()
            for stream in self._streams.values():
                stream.end()

    async def _serve(self, behind: Behind) -> None:
        options = noting(behind.options, self.id)
        if self.tasks is not None:
            options = replace(options, tasks=self.tasks(self.identity, self.door))
        self._session = ClientSession(self.channel, behind.exposure, behind.peer, behind.handler, behind.scope, options)
        unfollow = behind.follow(self._session.replace_exposure)
        watching = asyncio.create_task(self._until_gone(behind))
        try:
            self._opened.set_result(None)
            await self._session.run()
        finally:
            unfollow()
            watching.cancel()

    async def _until_gone(self, behind: Behind) -> None:
        await behind.gone()
        await asyncio.sleep(LAST_ANSWERS)
        if self._session is not None:
            self._session.end()


def noting(options: SessionOptions, session_id: str = "", lasting: Lasting | None = None) -> SessionOptions:
    """Return options with which records say that requests came over HTTP, and in which session (a digest of its id)."""
    digest = {"session_id": sha256(session_id.encode()).hexdigest()[:DIGEST_DIGITS]} if session_id else {}
    return replace(options, noted={"transport": "http", **digest}, lasting=lasting)


class Sessions:
    """Every handshake session of a gateway.

    Args:
        bounds: of the gateway.

    Attributes:
        tasks: makes what keeps the tasks of a caller at an endpoint; ``None``: nothing does.
        lasting: the same for clients without sessions.
        elsewhere: answers a request about a task that another gateway keeps, and returns whether it did; ``None``:
            there is no other. Of its body nothing has been read.
    """

    def __init__(self, bounds: HttpBounds) -> None:
        self.tasks: TasksFor | None = None
        self.lasting: LastingFor | None = None
        self.elsewhere: Callable[[AsgiScope, Arrival, Door], Awaitable[bool]] | None = None
        self._bounds = bounds
        self._all: dict[str, HttpSession] = {}
        self._ending: dict[asyncio.Task[None], HttpSession] = {}
        self._reaper: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._all)

    def begin(self) -> None:
        """Begin to look for sessions that nobody uses."""
        self._reaper = asyncio.create_task(self._reap())

    async def open(self, door: Door, identity: Identity, *, one_stream: bool = False) -> HttpSession:
        """Return a fresh session, its server ready.

        Raises:
            HttpRefused: ``GATE-015`` (429), ``GATE-014`` (503): too many.
            SandboxError: there is no server to be had.
        """
        tenant = identity.tenant.tenant
        again = {"Retry-After": str(RETRY_AFTER)}
        if self.of(tenant) >= self._bounds.sessions_of_tenant:
            text = f"this tenant has {self._bounds.sessions_of_tenant} sessions"
            raise HttpRefused(429, "GATE-015", text, "delete those that are not used", headers=again)
        if len(self._all) >= self._bounds.sessions:
            raise HttpRefused(503, "GATE-014", "this gateway is full", "try again later", headers=again)
        session = self._fresh(door, identity, one_stream)
        session.tasks = self.tasks
        self._all[session.id] = session
        try:
            await session.open()
        except BaseException:
            self._all.pop(session.id, None)  # it may have been ended meanwhile
            raise
        return session

    def _fresh(self, door: Door, identity: Identity, one_stream: bool) -> HttpSession:
        return HttpSession(door, identity, one_stream=one_stream)

    async def seek(self, session_id: str, door: Door, identity: Identity) -> HttpSession:
        """Do what :meth:`find` does, among the sessions of other gateways too where they are shared.

        Raises:
            HttpRefused: as :meth:`find`.
        """
        return self.find(session_id, door, identity)

    async def opened(self, session: HttpSession, request: Request) -> None:
        """Take note that ``initialize`` was answered; where sessions are shared, other gateways know it from now on."""

    async def remove(self, session_id: str, door: Door, identity: Identity) -> None:
        """End a session for good.

        Raises:
            HttpRefused: as :meth:`find`.
        """
        self.drop(self.find(session_id, door, identity))

    async def fail(self, session: HttpSession) -> None:
        """End a session that was never open."""
        self.drop(session)

    def find(self, session_id: str, door: Door, identity: Identity) -> HttpSession:
        """Return the session of an id that belongs to a caller and an endpoint.

        Raises:
            HttpRefused: ``GATE-016`` (404) there is none; ``GATE-017`` (404) it is somebody else's, or was opened with
                more than this credential covers, told alike.
        """
        session = self._all.get(session_id)
        text, mend = "there is no such session", "open one with `initialize`"
        if session is not None and session.over:
            del self._all[session_id]
            session = None
        if session is None:
            raise HttpRefused(404, "GATE-016", text, mend)
        lost = (session.identity.scopes & door.access.deciding) - identity.scopes
        if session.identity.owner != identity.owner or session.door is not door or lost:
            raise NotYours(404, "GATE-017", text, mend)
        session.used = asyncio.get_running_loop().time()
        return session

    def of(self, tenant: TenantId) -> int:
        """Return how many sessions a tenant has."""
        return sum(1 for one in self._all.values() if one.identity.tenant.tenant == tenant)

    def drop(self, session: HttpSession) -> None:
        """End one session."""
        self._all.pop(session.id, None)
        session.end()

    def drop_where(self, which: Callable[[HttpSession], bool], patience: float = 0.0) -> int:
        """End some sessions; return how many.

        Args:
            which: says whether one ends.
            patience: seconds in which requests in progress may be answered; nothing new is taken meanwhile.
        """
        found = [session for session in self._all.values() if which(session)]
        for session in found:
            if patience and session.channel.busy:
                self._all.pop(session.id, None)
                ending = asyncio.create_task(self._end_later(session, patience))
                self._ending[ending] = session
                ending.add_done_callback(self._ending.pop)
            else:
                self.drop(session)
        return len(found)

    async def _end_later(self, session: HttpSession, patience: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        while session.channel.busy and loop.time() < until:  # noqa: ASYNC110 - once in the life of an endpoint
            await asyncio.sleep(0.02)
        self.drop(session)

    async def close(self) -> None:
        """End every session; return when nothing is left."""
        if self._reaper is not None:
            self._reaper.cancel()
        sessions = [*self._all.values(), *self._ending.values()]
        self._all.clear()
        for ending in list(self._ending):
            ending.cancel()
        for session in sessions:
            session.end()
        await asyncio.gather(*(session.ended() for session in sessions))

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(min(5.0, self._bounds.session_idle / 4))
            before = asyncio.get_running_loop().time() - self._bounds.session_idle
            for session in list(self._all.values()):
                if session.over or (session.used <= before and not session.busy):
                    self.drop(session)


class NotYours(HttpRefused):
    """The session exists and belongs to another credential; the client is told what it is told of none at all."""

    def body(self) -> bytes:
        """Return the body of ``GATE-016``."""
        return HttpRefused(self.status, "GATE-016", self.message, self.mend, request_id=self.request_id).body()
