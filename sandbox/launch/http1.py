"""The little of HTTP/1.1 that a container engine's socket needs, as pure functions over bytes.

Every request is sent with ``Connection: close`` on a connection of its own, so an answer is everything up to the end
of the stream. What this module promises: an answer is either decoded whole or refused; a body that was cut short, in
either framing, never passes for a complete one (RFC 9112 §6.3, §8).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from sandbox.limits import KIB

MAX_HEAD_BYTES: Final = 64 * KIB
"""Status line and headers of one answer; engines send below 1 KiB."""

HEAD_END: Final = b"\r\n\r\n"

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n]*)?\Z")
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})(?:;[^\r\n]*)?\Z")


class HttpError(ValueError):
    """The bytes are not one complete HTTP/1.1 answer; the text says why."""


@dataclass(frozen=True, slots=True)
class Head:
    """Status and headers of an answer; header names in lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)


def request(method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
    """Return one request as bytes.

    Args:
        method: HTTP method.
        target: path and query, already percent-encoded.
        body: sent as JSON unless ``headers`` names another content type; ``None`` for no body.
        headers: further headers.
    """
    lines = {"Host": "engine", "Connection": "close", "User-Agent": "mcp-sandbox"}
    if body is not None:
        lines["Content-Type"] = "application/json"
    lines.update(headers or {})
    lines["Content-Length"] = str(len(body or b""))
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {target} HTTP/1.1\r\n{text}\r\n".encode("ascii") + (body or b"")


def target(path: str, query: Mapping[str, str] | None = None) -> str:
    """Return a path and its query, the query's values percent-encoded."""
    if not query:
        return path
    return path + "?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())


def segment(text: str) -> str:
    """Return one path segment, percent-encoded, so that an image reference cannot become a different path."""
    return quote(text, safe="")


def parse_head(data: bytes) -> Head:
    """Return the head of an answer; ``data`` ends before the empty line.

    Raises:
        HttpError: no HTTP/1.x status line, or a header without a colon.
    """
    first, *rest = data.split(b"\r\n")
    match = _STATUS_LINE.match(first)
    if match is None:
        raise HttpError("no HTTP status line")
    headers: dict[str, str] = {}
    for line in rest:
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip():
            raise HttpError("a header line without a name")
        headers[name.decode("latin-1").lower()] = value.strip().decode("latin-1")
    return Head(int(match[1]), headers)


def parse_response(data: bytes) -> tuple[Head, bytes]:
    """Return head and body of a complete answer, which the end of the connection delimits.

    Raises:
        HttpError: not HTTP, or cut short.
    """
    head_bytes, end, rest = data.partition(HEAD_END)
    if not end:
        raise HttpError("the connection ended before the headers did")
    head = parse_head(head_bytes)
    return head, _body(head, rest)


def _body(head: Head, rest: bytes) -> bytes:
    if "chunked" in head.headers.get("transfer-encoding", "").lower():
        return _unchunk(rest)
    length = head.headers.get("content-length")
    if length is None:
        return rest
    if not length.isascii() or not length.isdigit() or int(length) != len(rest):
        raise HttpError(f"{len(rest)} bytes of body where {length[:20]} were announced")
    return rest


def _unchunk(data: bytes) -> bytes:
    body = bytearray()
    at = 0
    while True:
        end = data.find(b"\r\n", at)
        match = _CHUNK_SIZE.match(data[at:end]) if end >= 0 else None
        if match is None:
            raise HttpError("a chunk without a size")
        size = int(match[1], 16)
        at = end + 2
        if size == 0:
            return bytes(body)
        if data[at + size : at + size + 2] != b"\r\n":
            raise HttpError("a chunk was cut short")
        body += data[at : at + size]
        at += size + 2
