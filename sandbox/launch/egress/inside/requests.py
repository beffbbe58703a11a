"""Plain HTTP/1 requests of one connection, each held to the name that was looked up; no I/O.

h11 parses. What goes on to the server is written anew from what was parsed, so that no second parser can read a second
request out of the same bytes (request smuggling). The head of every request of a kept-alive connection is checked.

Invariant: any bytes give bytes to send on, or :class:`~.reasons.Denied`; what is sent on parses to the same requests,
each with exactly one ``Host`` that equals the name.

Not checked: what the server answers. After a WebSocket upgrade that the server accepted (101), bytes pass as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import h11

from sandbox.launch.egress.inside.bounds import MAX_HEAD
from sandbox.launch.egress.inside.reasons import HOST, HTTP, PLACEHOLDER, TUNNEL, Denied

METHODS: Final = (
    b"GET ",
    b"HEAD ",
    b"POST ",
    b"PUT ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"CONNECT ",
    b"TRACE ",
    b"PRI ",
)
"""First bytes that an ``auto`` rule takes for HTTP."""


class Gate:
    """Checks the client's bytes of one connection.

    Args:
        name: the name that was looked up, canonical.
        port: the port that was dialled.
        guard: shown everything that comes; false ends the connection.

    Attributes:
        upgrading: a WebSocket upgrade was asked for; until the server has answered, nothing more is read.
    """

    def __init__(self, name: str, port: int, guard: Callable[[bytes], bool] | None = None) -> None:
        host = (f"[{name}]" if ":" in name else name).encode()
        self._hosts = {host, b"%s:%d" % (host, port)}
        self._guard = guard
        self._reader = _reader()
        self._requests = 0
        self._chunked = False
        self.upgrading = False

    def feed(self, data: bytes) -> bytes:
        """Return what to send on for the client's next bytes; empty ``data`` says that the client has finished.

        Raises:
            Denied: ``EGR-110``, ``EGR-111`` or ``EGR-112``.
        """
        if self._guard is not None and not self._guard(data):
            raise Denied(PLACEHOLDER)
        return self._feed(data)

    def _feed(self, data: bytes) -> bytes:
        out = bytearray()
        try:
            self._reader.receive_data(data)
            while not self.upgrading:
                event = self._reader.next_event()
                if event is h11.NEED_DATA or isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                    break
                out += self._write(event)
        except h11.RemoteProtocolError as error:
            raise Denied(HTTP, str(error)[:120]) from None
        return bytes(out)

    @property
    def begun(self) -> bool:
        """Whether the head of a first request has been checked."""
        return self._requests > 0

    def rest(self) -> bytes:
        """Return the client's bytes behind an upgrade request."""
        return bytes(self._reader.trailing_data[0])

    def refused(self) -> bytes:
        """Go on after the server declined an upgrade; return what the client has sent meanwhile, to send on."""
        self.upgrading = False
        return self._next()

    def _write(self, event: object) -> bytes:
        if isinstance(event, h11.Request):
            self._requests += 1
            return self._head(event)
        if isinstance(event, h11.Data):
            return b"%x\r\n%s\r\n" % (len(event.data), event.data) if self._chunked else bytes(event.data)
        if isinstance(event, h11.EndOfMessage):
            end = b""
            if self._chunked:
                end = b"0\r\n" + _fields(event.headers.raw_items()) + b"\r\n"
            return end + (b"" if self.upgrading else self._next())
        raise Denied(HTTP, "something that is no request")

    def _next(self) -> bytes:
        """Start reading the next request with what is left over."""
        left = self._reader.trailing_data[0]
        self._reader = _reader()
        return self._feed(left) if left else b""

    def _head(self, request: h11.Request) -> bytes:
        """Check one request head and write it anew.

        Steps:

        1. HTTP/1, and no tunnel.
        2. Exactly one Host, and it is the name.
        3. An absolute target names the same host.
        4. One way to tell where the body ends.
        5. An upgrade only to WebSocket, and only as the first request of a connection.
        """
        headers = [(name.lower(), value) for name, value in request.headers]
        # 1
        if request.http_version not in {b"1.0", b"1.1"}:
            raise Denied(HTTP, "not HTTP/1")
        if request.method == b"CONNECT":
            raise Denied(TUNNEL, "CONNECT")
        # 2
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            raise Denied(HOST, ", ".join(host[:120].decode("latin-1") for host in hosts))
        # 3
        self._target(request.target)
        # 4
        coded = [value for name, value in headers if name == b"transfer-encoding"]
        sized = [value for name, value in headers if name == b"content-length"]
        if (coded and sized) or len(coded) > 1 or len(sized) > 1 or (coded and request.http_version != b"1.1"):
            raise Denied(HTTP, "two ways to tell where the body ends")
        self._chunked = bool(coded)
        # 5
        self._upgrade(request, headers)
        line = b"%s %s HTTP/%s\r\n" % (request.method, request.target, request.http_version)
        head = line + _fields(request.headers.raw_items()) + b"\r\n"
        if len(head) > MAX_HEAD:  # h11 bounds what is incomplete, not what arrives whole
            raise Denied(HTTP, f"a head of more than {MAX_HEAD} bytes")
        return head

    def _target(self, target: bytes) -> None:
        if target.startswith(b"/") or target == b"*":
            return
        scheme, _, rest = target.partition(b"://")
        authority = rest.partition(b"/")[0].partition(b"?")[0].partition(b"#")[0]
        if scheme.lower() != b"http" or authority.lower() not in self._hosts:
            raise Denied(HOST, target[:120].decode("latin-1"))

    def _upgrade(self, request: h11.Request, headers: list[tuple[bytes, bytes]]) -> None:
        asked = [value.strip().lower() for name, value in headers if name == b"upgrade"]
        if not asked:
            return
        if asked != [b"websocket"] or request.method != b"GET" or self._chunked:
            raise Denied(TUNNEL, f"upgrade to {b', '.join(asked)[:60].decode('latin-1')}")
        if self._requests > 1:
            raise Denied(TUNNEL, "an upgrade on a connection that has carried requests")
        self.upgrading = True


def switched(answer: bytes) -> bool | None:
    """Return whether a server's first bytes accept an upgrade (status 101); ``None`` while that cannot be told."""
    line = answer.partition(b"\r\n")[0]
    if not b"HTTP/1.1 ".startswith(line[:9]):
        return False
    return line[9:12] == b"101" if len(line) >= 12 else (False if b"\r\n" in answer else None)  # noqa: PLR2004 - status


def looks_like_http(data: bytes) -> bool | None:
    """Return whether a client's first bytes begin an HTTP request; ``None`` while both is possible."""
    head = data[:8].upper()
    if any(head.startswith(method) for method in METHODS):
        return True
    return None if any(method.startswith(head) for method in METHODS) else False


def _reader() -> h11.Connection:
    return h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)


def _fields(raw: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return header lines, names in the case they came in."""
    return b"".join(b"%s: %s\r\n" % (name, value) for name, value in raw)
