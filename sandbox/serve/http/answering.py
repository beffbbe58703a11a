"""Writes one response: plain JSON when the first message is the answer, an event stream otherwise.

A response becomes an event stream as soon as something comes before the answer, or when the answer takes longer than
:data:`~sandbox.serve.http.bounds.JSON_WAIT`. Events carry ids where the stream can be resumed (2025-11-25,
basic/transports, resumability); streams of clients that understand it begin with an event without data, so that they
have an id to come back with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from starlette.types import Receive, Send

from sandbox.serve.http.bounds import PIECE, RETRY_MS, WRITE_TIMEOUT, HttpBounds
from sandbox.serve.http.streams import Sent, Stream
from sandbox.wire.codes import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
)
from sandbox.wire.jsonrpc import Failure, Message

STATELESS_STATUS: Final[Mapping[int, int]] = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CLIENT_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
"""JSON-RPC error → HTTP status (2026-07-28, Streamable HTTP, responses); other errors go with 200."""

EVENT_HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
)
JSON_HEADERS: Final = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"))


class ClientGone(Exception):
    """The client closed its connection, or does not read."""


@dataclass(frozen=True, slots=True)
class Response:
    """How a stream is answered.

    Attributes:
        headers: further header fields.
        statuses: JSON-RPC error → status of a plain answer.
        priming: begin an event stream with an event that has only an id.
        events: an event stream in any case.
        opening: first bytes of the event stream.
    """

    headers: Mapping[str, str] = field(default_factory=dict)
    statuses: Mapping[int, int] = field(default_factory=dict)
    priming: bool = False
    events: bool = False
    opening: bytes = b""


class Writer:
    """Writes to one connection.

    Args:
        receive: of ASGI, the body read.
        send: of ASGI.
        bounds: of the gateway.
    """

    def __init__(self, receive: Receive, send: Send, bounds: HttpBounds) -> None:
        self._receive = receive
        self._send = send
        self._bounds = bounds

    async def answer(self, stream: Stream, how: Response) -> None:
        """Write a stream to its end.

        Raises:
            ClientGone: before its end.
        """
        watching = asyncio.create_task(self._gone())
        writing = asyncio.create_task(self._write(stream, how))
        stream.reader = True
        try:
            await asyncio.wait((watching, writing), return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                raise ClientGone
            writing.result()
        finally:
            stream.reader = False
            for task in (watching, writing):
                task.cancel()
            await asyncio.gather(watching, writing, return_exceptions=True)

    async def _write(self, stream: Stream, how: Response) -> None:
        if not how.events:
            await stream.wait(self._bounds.json_wait)
            first = stream.take()
            if stream.drained and len(first) == 1:
                await self._plain(first[0], how)
                return
        else:
            first = []
        await self._begin(200, (*EVENT_HEADERS, *_raw(how.headers)))
        opening = how.opening or b": \n\n"
        stream.told = bool(stream.key)
        if stream.key and how.priming:
            opening = f"id: {stream.key}.0\nretry: {RETRY_MS}\ndata: \n\n".encode()
        await self._body(opening + _events(stream, first), more=True)
        while not stream.drained:
            news = await stream.wait(self._bounds.heartbeat)
            await self._body(_events(stream, stream.take()) if news else b": \n\n", more=True)
        await self._body(b"", more=False)

    async def _plain(self, sent: Sent, how: Response) -> None:
        status = _status(sent.message, how.statuses)
        length = (b"content-length", str(len(sent.data)).encode())
        await self._begin(status, (*JSON_HEADERS, length, *_raw(how.headers)))
        await self._body(sent.data, more=False)

    async def _begin(self, status: int, headers: tuple[tuple[bytes, bytes], ...]) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def _body(self, data: bytes, *, more: bool) -> None:
        for at in range(0, max(1, len(data)), PIECE):
            piece, last = data[at : at + PIECE], at + PIECE >= len(data)
            sending = self._send({"type": "http.response.body", "body": piece, "more_body": more or not last})
            try:
                await asyncio.wait_for(sending, WRITE_TIMEOUT)
            except (TimeoutError, OSError):
                raise ClientGone from None

    async def _gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _events(stream: Stream, messages: list[Sent]) -> bytes:
    if not stream.key:
        return b"".join(b"event: message\ndata: " + one.data + b"\n\n" for one in messages)
    return b"".join(
        b"event: message\nid: %s.%d\ndata: %s\n\n" % (stream.key.encode(), one.number, one.data) for one in messages
    )


def _status(message: Message, statuses: Mapping[int, int]) -> int:
    return statuses.get(message.code, 200) if isinstance(message, Failure) else 200


def _raw(headers: Mapping[str, str]) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items())
