"""What both HTTP transports share: tasks for what is under way, one bound for what is being read, one orderly end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final, Protocol

from sandbox.errors import PlatformError, SandboxError, ServerFault
from sandbox.limits import MAX_HTTP_BUFFERED, MAX_HTTP_ERROR, MAX_IN_FLIGHT, MAX_LINE_BYTES
from sandbox.transport.interface import Receiver
from sandbox.transport.remote.http import HttpClient, Response
from sandbox.wire.errors import WireError
from sandbox.wire.jsonrpc import Failure, Message, Request, RequestId, decode
from sandbox.wire.sse import Event, EventDecoder

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"

MAX_TASKS: Final = 4 * MAX_IN_FLIGHT
"""Requests and answers of ours that a server has not taken yet."""

_BAD: Final = 400
_REFUSED: Final = frozenset((401, 403))


class RemoteReceiver(Receiver, Protocol):
    """A receiver that can be told of a request that got no answer, while the server lives on."""

    def request_failed(self, request_id: RequestId, error: SandboxError) -> None:
        """End one request with an error; nothing when it has an answer."""

    def request_waits(self, request_id: RequestId) -> bool:
        """Return whether a request still waits for its answer."""


class RemoteChannel:
    """A channel whose other end is an HTTP server; see :class:`~sandbox.transport.interface.Channel`.

    Args:
        client: to the server; this channel closes it.

    Attributes:
        last_size: bytes of the message that is being handed on.
    """

    def __init__(self, client: HttpClient) -> None:
        self.last_size = 0
        self._client = client
        self._receiver: RemoteReceiver | None = None
        self._over = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._pauses = 0
        self._held = 0
        self._loop = asyncio.get_running_loop()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._leaving: asyncio.Task[None] | None = None

    # --- Channel ----------------------------------------------------------------------------------------------------
    def start(self, receiver: Receiver) -> None:
        """Begin; ``receiver`` is a :class:`RemoteReceiver`."""
        self._receiver = receiver  # type: ignore[assignment] # the peer is one

    def send(self, message: Message) -> None:
        """Send one message in a task of its own."""
        raise NotImplementedError

    def pause_reading(self) -> None:
        """Leave what the server writes in the kernel; pauses nest."""
        self._pauses += 1
        self._open.clear()

    def resume_reading(self) -> None:
        """Undo one pause."""
        self._pauses -= 1
        if not self._pauses:
            self._open.set()

    def finish(self) -> None:
        """Say goodbye, and close."""
        if not self._over:
            self._over = True
            self._leaving = self._loop.create_task(self._leave())

    def close(self) -> None:
        """As :meth:`finish`."""
        self.finish()

    def abort(self, error: SandboxError | None = None) -> None:
        """Close at once; ``error`` is what the receiver is told."""
        self._over = True
        self._loop.call_soon(self._ended, error)

    async def wait_closed(self) -> None:
        """Return when the channel is closed."""
        await asyncio.shield(self._closed)

    # --- what subclasses use ----------------------------------------------------------------------------------------
    async def goodbye(self) -> None:
        """Tell the server that nothing more is coming."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Begin something that ends with the channel; ``None`` when there is too much of it."""
        if self._over or len(self._tasks) >= MAX_TASKS:
            work.close()
            if not self._over:
                message = f"the server does not take what is sent: {MAX_TASKS} messages wait for it"
                self.abort(ServerFault("WIRE-042", message, "let the server read while it writes"))
            return None
        task = self._loop.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def deliver(self, data: bytes) -> None:
        """Hand on the message of one body or event."""
        receiver = self._receiver
        if receiver is None or self._over:
            return
        self.last_size = len(data)
        try:
            message = decode(data)
        except WireError as error:
            receiver.line_refused(error)
        else:
            self.seen(message)
            receiver.message_received(message)

    def seen(self, message: Message) -> None:
        """Take note of a message before it is handed on."""

    def failed(self, request_id: RequestId, error: SandboxError) -> None:
        """End one request of which no answer will come."""
        if self._receiver is not None and not self._over:
            shown = error.as_server_fault() if isinstance(error, WireError) else error
            self._receiver.request_failed(request_id, shown)

    async def body(self, response: Response, most: int = MAX_LINE_BYTES) -> bytes:
        """Return a whole body, counted with all others that are being read."""
        data = bytearray()
        try:
            async with contextlib.aclosing(response.chunks()) as chunks:
                async for piece in chunks:
                    data += piece
                    self._hold(len(piece))
                    _check_size(len(data), most)
                    await self._open.wait()
            return bytes(data)
        except BaseException:
            response.close()
            raise
        finally:
            self._held -= len(data)

    async def events(self, response: Response, decoder: EventDecoder) -> None:
        """Hand on the messages of an event stream until it ends."""
        held = idle = 0
        try:
            async with contextlib.aclosing(response.chunks()) as chunks:
                async for piece in chunks:
                    events = decoder.feed(piece)
                    idle = 0 if events else idle + len(piece)
                    _check_size(idle, MAX_HTTP_BUFFERED)  # comments without end
                    for event in events:
                        self.event(event)
                    before, held = held, decoder.held
                    self._hold(held - before)
                    await self._open.wait()
        except BaseException:
            response.close()
            raise
        finally:
            self._held -= held

    def event(self, event: Event) -> None:
        """Take one event; others than messages have no meaning here, and one without data only carries an id."""
        if event.kind == "message" and event.data:
            self.deliver(event.data)

    async def refused(self, response: Response, request: Request) -> bool:
        """Return whether a status reports an error; the request has then got it.

        Raises:
            ServerFault: ``WIRE-069``, the server does not accept our credentials.
        """
        if response.status < _BAD:
            return False
        data = await self.body(response, MAX_HTTP_ERROR)
        found = _failure(data) if response.kind == JSON else None
        if found is not None and found.id in (request.id, None):
            message = Failure(request.id, found.code, found.message, found.data)
        elif response.status in _REFUSED:
            mend = "see server.headers and the secret that it names"
            raise ServerFault("WIRE-069", f"the server refuses our credentials (status {response.status})", mend)
        else:
            message = Failure(request.id, response.status, f"HTTP status {response.status}")
        if self._receiver is not None and not self._over:
            self.last_size = len(data)
            self._receiver.message_received(message)
        return True

    # --- the end ----------------------------------------------------------------------------------------------------
    def _hold(self, size: int) -> None:
        self._held += size
        if self._held > MAX_HTTP_BUFFERED:
            message = f"the server sent more than {MAX_HTTP_BUFFERED} bytes of unfinished answers"
            error = ServerFault("WIRE-065", message, "report it to the server's author")
            self.abort(error)
            raise error

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except SandboxError as error:  # what belongs to one request was told to it
            self.abort(error.as_server_fault() if isinstance(error, WireError) else error)
        except Exception as error:  # noqa: BLE001 - a task would keep it to itself
            message = f"a defect of ours in talking to a remote server: {type(error).__name__}"
            self.abort(PlatformError("WIRE-033", message, "report it with the audit trail"))

    async def _leave(self) -> None:
        with contextlib.suppress(SandboxError, TimeoutError):
            async with asyncio.timeout(1):
                await self.goodbye()
        self._ended(None)

    def _ended(self, error: SandboxError | None) -> None:
        if self._closed.done():
            return
        for task in list(self._tasks):
            task.cancel()
        self._client.close()
        self._closed.set_result(None)
        if self._receiver is not None:
            self._receiver.channel_closed(error)


def _check_size(size: int, most: int) -> None:
    if size > most:
        message = f"the server sent a body of more than {most} bytes"
        raise ServerFault("WIRE-065", message, "report it to the server's author")


def _failure(data: bytes) -> Failure | None:
    try:
        message = decode(data)
    except WireError:
        return None
    return message if isinstance(message, Failure) else None


def unanswered() -> ServerFault:
    """Return what a request fails with whose answer ended without a result."""
    return ServerFault("WIRE-068", "the server's answer has no result of this request", "report it to its author")


def wrong_kind(response: Response) -> ServerFault:
    """Return what a request fails with whose answer is something else than JSON or events."""
    kind = ascii(response.kind[:60])
    message = f"the server answered with status {response.status} and content of the type {kind}"
    return ServerFault("WIRE-068", message, f"the server must answer with {JSON} or {EVENTS}; see its address")
