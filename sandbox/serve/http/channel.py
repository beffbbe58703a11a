"""A session's channel whose messages arrive and leave as HTTP requests and responses.

Where a message goes:

- an answer to the response of the request that it answers;
- progress to the response of the request that asked for it;
- everything else to the one response that is open, or to the session's standing stream.

Nothing is held back for a client that does not read (:mod:`sandbox.serve.http.streams` bounds that), so one slow client
never pauses a server that others of its tenant use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sandbox.errors import SandboxError
from sandbox.serve.http.streams import Stream
from sandbox.transport.interface import Receiver
from sandbox.wire import meta
from sandbox.wire.jsonrpc import Failure, Message, Notification, Request, RequestId, Result


class HttpChannel:
    """Implements :class:`sandbox.transport.interface.Channel`.

    Args:
        elsewhere: gives the stream of what belongs to no open response; ``None`` drops it.
        one_stream: answers go there too (the transport of 2024-11-05).

    Attributes:
        last_size: bytes of the body that is being handed on.
    """

    def __init__(self, elsewhere: Callable[[], Stream | None] = lambda: None, *, one_stream: bool = False) -> None:
        self._one_stream = one_stream
        self.last_size = 0
        self._elsewhere = elsewhere
        self._receiver: Receiver | None = None
        self._early: list[Message] = []
        self._replies: dict[RequestId, Stream] = {}
        self._tokens: dict[RequestId, RequestId] = {}
        self._current: Stream | None = None
        self._closed = asyncio.Event()

    # --- towards the session ---------------------------------------------------------------------------------------
    def feed(self, message: Message, size: int, reply: Stream | None = None) -> None:
        """Hand on one message of the client; its answer goes to ``reply``."""
        if self._closed.is_set():
            if reply is not None:
                reply.end()
            return
        if isinstance(message, Request) and reply is not None and message.id not in self._replies:
            self._replies[message.id] = reply
            token = meta.of(message.params).get(meta.PROGRESS_TOKEN)
            if isinstance(token, str | int):
                self._tokens[token] = message.id
        self.last_size, self._current = size, reply
        try:
            if self._receiver is None:
                self._early.append(message)
            else:
                self._receiver.message_received(message)
        finally:
            self._current = None

    def divert(self, request_id: RequestId, reply: Stream) -> bool:
        """Let what belongs to a request go to another stream from now on; false when it has been answered."""
        if request_id not in self._replies:
            return False
        self._replies[request_id] = reply
        return True

    def forget(self, request_id: RequestId) -> None:
        """End the response of a request that gets no answer: it was cancelled; what is no id names none."""
        if type(request_id) not in (str, int):
            return
        reply = self._replies.pop(request_id, None)
        if reply is not None:
            self._tokens = {token: one for token, one in self._tokens.items() if one != request_id}
            reply.end()

    def lost(self) -> None:
        """Tell the session that its client is gone."""
        self.abort()

    @property
    def busy(self) -> bool:
        """Whether some request waits for its answer."""
        return bool(self._replies)

    # --- Channel ---------------------------------------------------------------------------------------------------
    def start(self, receiver: Receiver) -> None:
        """Begin to hand on; what was fed before follows at once."""
        self._receiver = receiver
        early, self._early = self._early, []
        for message in early:
            if isinstance(message, Request):
                self._current = self._replies.get(message.id)
            try:
                receiver.message_received(message)
            finally:
                self._current = None

    def send(self, message: Message) -> None:
        """Put a message on the stream that it belongs to."""
        if self._closed.is_set():
            return
        if isinstance(message, Result | Failure):
            self._answer(message)
            return
        stream = self._stream_of(message)
        if stream is not None:
            stream.put(message)

    def pause_reading(self) -> None:
        """Nothing: each request is bounded by itself."""

    def resume_reading(self) -> None:
        """Nothing."""

    def finish(self) -> None:
        """Nothing: there is no end of input on HTTP."""

    def close(self) -> None:
        """End every stream."""
        self._closed.set()
        for stream in self._replies.values():
            stream.end()
        self._replies.clear()

    def abort(self, error: SandboxError | None = None) -> None:
        """End every stream and tell the session."""
        if self._closed.is_set():
            return
        self.close()
        if self._receiver is not None:
            self._receiver.channel_closed(error)

    async def wait_closed(self) -> None:
        """Return when it is closed."""
        await self._closed.wait()

    # --- routing ---------------------------------------------------------------------------------------------------
    def _answer(self, message: Result | Failure) -> None:
        stream = self._current
        if self._one_stream:
            standing = self._elsewhere()
            if standing is not None:
                standing.put(message, keep=True)
            return
        if message.id is not None and (stream is None or self._replies.get(message.id) is stream):
            stream = self._replies.pop(message.id, stream)
            self._tokens = {token: one for token, one in self._tokens.items() if one != message.id}
        if stream is not None:
            stream.put(message, last=True)

    def _stream_of(self, message: Message) -> Stream | None:
        if isinstance(message, Notification):
            token = message.params.get(meta.PROGRESS_TOKEN)
            if isinstance(token, str | int) and token in self._tokens:
                return self._replies.get(self._tokens[token])
            listening = meta.of(message.params).get(meta.SUBSCRIPTION_ID)
            if isinstance(listening, str | int):
                return self._replies.get(listening)
        if len(self._replies) == 1:
            return next(iter(self._replies.values()))
        return self._elsewhere()
