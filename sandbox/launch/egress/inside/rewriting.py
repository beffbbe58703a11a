"""Requests of one connection, held to the name and with secrets put in; no I/O.

A body is kept whole, up to :data:`~.bounds.MAX_BODY`, because a value has another length than its placeholder; what is
longer goes on as it comes, and a placeholder in it ends the connection. A client that waits for ``100 Continue`` gets
it from here, since the server is told of the request only when its body is known.
"""

from __future__ import annotations

from typing import Final

import h11

from sandbox.launch.egress.inside.bounds import MAX_BODY
from sandbox.launch.egress.inside.replacing import LENGTH, Fields, Replacer
from sandbox.launch.egress.inside.requests import Gate

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class RewritingGate(Gate):
    """A gate that puts values in.

    Args:
        name: the name that was looked up, canonical.
        port: the port that was dialled.
        replacer: of this connection.
    """

    def __init__(self, name: str, port: int, replacer: Replacer) -> None:
        super().__init__(name, port)
        self._replacer = replacer
        self._line = b""
        self._fields: Fields = []
        self._kind = b""
        self._body = bytearray()
        self._streaming = False
        self._tail = b""
        self._interim = b""

    def interim(self) -> bytes:
        """Return what the client is to be told meanwhile."""
        told, self._interim = self._interim, b""
        return told

    def _write(self, event: object) -> bytes:
        if isinstance(event, h11.Request):
            return self._begin(event)
        if isinstance(event, h11.Data):
            return self._data(bytes(event.data))
        if isinstance(event, h11.EndOfMessage) and not self.upgrading:
            return self._end(event)
        return super()._write(event)

    def _begin(self, request: h11.Request) -> bytes:
        """Check a head and keep it until its body is known."""
        super()._write(request)
        self._replacer.none(request.method)
        target, fields = self._replacer.head(request.target, list(request.headers.raw_items()))
        named = {name.lower(): value for name, value in fields}
        self._line = b"%s %s HTTP/%s\r\n" % (request.method, target, request.http_version)
        self._kind = named.get(b"content-type", b"")
        if named.get(b"expect", b"").lower() == b"100-continue":
            self._interim = CONTINUE
        self._fields = [(name, value) for name, value in fields if name.lower() != b"expect"]
        self._body.clear()
        self._tail = b""
        self._streaming = self.upgrading or int(named.get(b"content-length", b"0")) > MAX_BODY
        return self._head_bytes(self._fields) if self._streaming else b""

    def _data(self, data: bytes) -> bytes:
        if self._streaming:
            return self._stream(data)
        self._body += data
        if len(self._body) <= MAX_BODY:
            return b""
        self._streaming = True
        return self._head_bytes(self._fields) + self._stream(bytes(self._body))

    def _stream(self, data: bytes) -> bytes:
        self._replacer.beyond(self._tail + data)
        self._tail = (self._tail + data)[-LENGTH + 1 :]
        return self._framed(data)

    def _end(self, event: h11.EndOfMessage) -> bytes:
        """Put values into a whole body and write the request."""
        out = b""
        if not self._streaming:
            body = self._replacer.body(bytes(self._body), self._kind)
            out = self._head_bytes(_sized(self._fields, len(body))) + (self._framed(body) if body else b"")
        for name, value in event.headers.raw_items():
            self._replacer.beyond(name + b":" + value)
        return out + super()._write(event)

    def _framed(self, data: bytes) -> bytes:
        return b"%x\r\n%s\r\n" % (len(data), data) if self._chunked else data

    def _head_bytes(self, fields: Fields) -> bytes:
        return self._line + b"".join(b"%s: %s\r\n" % field for field in fields) + b"\r\n"


def _sized(fields: Fields, size: int) -> Fields:
    return [(name, b"%d" % size if name.lower() == b"content-length" else value) for name, value in fields]
