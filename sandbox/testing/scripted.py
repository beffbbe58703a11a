"""The other end of a channel, played by a test: a playbook of what is received and sent.

Bytes really pass: what we send is encoded by us and decoded strictly here, and what the script sends goes through the
same framing as on a pipe.

Example::

    channel, server = scripted("server")
    connecting = asyncio.create_task(ServerPeer.connect(channel, …))
    probe = await server.receive(Request)
    server.send(Failure(probe.id, -32601, "no"))
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

from sandbox.errors import SandboxError
from sandbox.transport.lines import LineChannel, Side
from sandbox.wire.framing import LineDecoder
from sandbox.wire.jsonrpc import Failure, Message, Notification, Request, RequestId, Result, decode, encode

M = TypeVar("M", Request, Notification, Result, Failure)

PATIENCE = 10.0
"""Seconds until an expected message counts as missing; only a failing test waits so long."""


class ScriptedChannel(LineChannel):
    """A channel whose other end is a :class:`Script`."""

    def __init__(self, side: Side) -> None:
        super().__init__(side)
        self.script = Script(self)
        self.held: list[bytes] = []
        self.reading = False
        self.fake_waiting = 0

    def deliver(self, data: bytes) -> None:
        """Take bytes from the script, unless reading is paused: then they wait, as in a kernel."""
        if self.reading:
            self._feed(data)
        else:
            self.held.append(data)

    def deliver_eof(self) -> None:
        """Take the script's EOF."""
        self._input_ended()

    def make_full(self, full: bool) -> None:
        """Behave as if the other end did not read."""
        self._set_full(full)

    def _write(self, data: bytes) -> None:
        self.script.take(data)

    def _waiting(self) -> int:
        return self.fake_waiting

    def _set_reading(self, *, on: bool) -> None:
        self.reading = on
        while self.held and self.reading:
            self._feed(self.held.pop(0))

    def _end_writing(self) -> None:
        self.script.eof.set()

    def _drop(self, *, now: bool) -> None:  # noqa: ARG002 - nothing is buffered
        asyncio.get_running_loop().call_soon(self._ended, None)


class Script:
    """What a test does at the other end.

    Attributes:
        eof: set when our side closed its output.
        unread: messages that our side sent and the test did not look at.
    """

    def __init__(self, channel: ScriptedChannel) -> None:
        self.eof = asyncio.Event()
        self.unread: asyncio.Queue[Message] = asyncio.Queue()
        self._channel = channel
        self._decoder = LineDecoder()
        self._counter = 0

    # --- what our side sends ----------------------------------------------------------------------------------------
    def take(self, data: bytes) -> None:
        """Decode what our side wrote; it must be strict, whoever it is for."""
        for line in self._decoder.feed(data):
            if isinstance(line, SandboxError):
                raise line
            self.unread.put_nowait(decode(line))

    async def receive(self, kind: type[M]) -> M:
        """Return the next message of our side, which must be of ``kind``."""
        message = await asyncio.wait_for(self.unread.get(), PATIENCE)
        if not isinstance(message, kind):
            raise AssertionError(f"expected a {kind.__name__}, got {message!r}")  # noqa: TRY004 - a test's expectation
        return message

    async def expect(self, method: str) -> Request:
        """Return the next message, which must be a request of ``method``."""
        request = await self.receive(Request)
        if request.method != method:
            raise AssertionError(f"expected {method}, got {request!r}")
        return request

    # --- what the script sends ----------------------------------------------------------------------------------------
    def send(self, *messages: Message) -> None:
        """Send messages to our side."""
        for message in messages:
            self._channel.deliver(encode(message))

    def send_bytes(self, data: bytes) -> None:
        """Send bytes that may be anything."""
        self._channel.deliver(data)

    def close(self) -> None:
        """Close the script's side."""
        self._channel.deliver_eof()

    def call(self, method: str, params: Mapping[str, Any] | None = None, id: RequestId | None = None) -> RequestId:  # noqa: A002 - the protocol's word
        """Send a request and return its id."""
        if id is None:
            self._counter += 1
            id = self._counter  # noqa: A001 - the protocol's word
        self.send(Request(id, method, dict(params or {})))
        return id

    async def ask(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return the result of the next answer."""
        request_id = self.call(method, params)
        answer = await self.receive(Result)
        if answer.id != request_id:
            raise AssertionError(f"expected an answer to {request_id!r}, got {answer!r}")
        return answer.result


def scripted(side: Side) -> tuple[ScriptedChannel, Script]:
    """Return a channel and the script at its other end, which plays ``side``."""
    channel = ScriptedChannel(side)
    return channel, channel.script
