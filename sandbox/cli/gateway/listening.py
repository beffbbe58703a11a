"""The HTTP server: uvicorn with its h11 parser, and bounds that uvicorn does not have.

One parser and no other: a faster one is picked up silently when it is installed, and reads header fields differently
from the proxies in front (ADR 0100).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
from collections.abc import Iterator
from typing import Any, Final

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from sandbox.errors import PlatformError
from sandbox.serve.http.bounds import HEAD_TIMEOUT, MAX_CONNECTIONS, MAX_HEAD, PIECE, WRITE_TIMEOUT

HSTS: Final = ("Strict-Transport-Security", "max-age=31536000")
"""Said where the gateway ends TLS under a public name: a browser does not come back in the clear for a year."""

KEEP_ALIVE: Final = 30
"""Seconds for which a connection waits for its next request."""

BACKLOG: Final = 512


class BoundedProtocol(H11Protocol):
    """Ends connections that take their time; uvicorn would keep them for ever.

    - The first head has :data:`HEAD_TIMEOUT` seconds, and so has every later one, and whatever else comes while no
      request is in progress, from its first byte on: uvicorn's own time limit ends with that byte.
    - Of what waits to be read by the client, a :data:`PIECE` or the rest has to be gone within :data:`WRITE_TIMEOUT`
      seconds, also after the answer is complete and the connection is being closed.
    """

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a head; keep what TLS knows of the peer."""
        super().connection_made(transport)
        known = tls_extension(transport)
        self._known = known
        if known is not None:
            self.app = functools.partial(_told, self.app, known)
        self._head: asyncio.TimerHandle | None = self.loop.call_later(HEAD_TIMEOUT, self._too_late)
        self._unread: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._head = _stopped(self._head)
        self._unread = _stopped(self._unread)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what has come; what begins here has to be whole in time."""
        super().data_received(data)
        if self.transport.get_protocol() is not self:  # it is a WebSocket now, with bounds of its own
            return
        if not self._resting:
            self._head = _stopped(self._head)
        elif self._head is None:
            self._head = self.loop.call_later(HEAD_TIMEOUT, self._too_late)

    def pause_writing(self) -> None:
        """Begin to wait for the client to read."""
        super().pause_writing()
        self._unread = _stopped(self._unread)
        waiting = self.transport.get_write_buffer_size()
        self._unread = self.loop.call_later(WRITE_TIMEOUT, self._not_read, waiting)

    def resume_writing(self) -> None:
        """Stop waiting for it."""
        super().resume_writing()
        self._unread = _stopped(self._unread)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that rests; what the client has not read yet does not keep it."""
        super().timeout_keep_alive_handler()
        self._cut_later()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection on, with what TLS knows of the peer."""
        self._head = _stopped(self._head)  # the head is there, and this protocol is told nothing more
        super().handle_websocket_upgrade(event)
        after: Any = self.transport.get_protocol()
        if self._known is not None and hasattr(after, "app"):  # its task begins in the loop's next turn
            after.app = functools.partial(_told, after.app, self._known)

    @property
    def _resting(self) -> bool:
        """Whether no request is in progress."""
        begun: Any = self.cycle  # None until the first head is there, whatever its annotation says
        return begun is None or bool(begun.response_complete)

    def _too_late(self) -> None:
        self._head = None
        if self._resting and not self.transport.is_closing():
            self.transport.close()
            self._cut_later()

    def _cut_later(self) -> None:
        """Cut a connection that is being closed, if its client does not even read what there is."""
        if self._unread is None:
            waiting = self.transport.get_write_buffer_size()
            self._unread = self.loop.call_later(WRITE_TIMEOUT, self._not_read, waiting)

    def _not_read(self, before: int) -> None:
        self._unread = None
        left = self.transport.get_write_buffer_size()
        if before - left < PIECE:
            self.transport.abort()
        else:
            self._unread = self.loop.call_later(WRITE_TIMEOUT, self._not_read, left)


def _stopped(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Return no timer, after that one was stopped."""
    if timer is not None:
        timer.cancel()
    return None


async def _told(app: ASGIApp, known: dict[str, Any], scope: Scope, receive: Receive, send: Send) -> None:
    """Call an application with ASGI's TLS extension, which uvicorn does not give."""
    scope["extensions"] = {**scope.get("extensions", {}), "tls": known}
    await app(scope, receive, send)


def tls_extension(transport: Any) -> dict[str, Any] | None:
    """Return ASGI's TLS extension of a connection, of it what is used here; ``None`` for one in the clear."""
    found = transport.get_extra_info("ssl_object")
    if found is None:
        return None
    der = found.getpeercert(True)
    return {"client_cert_chain": [ssl.DER_cert_to_PEM_cert(der)] if der else [], "client_cert_name": None}


class Server(uvicorn.Server):
    """A server that leaves signals to its owner."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and give up handshakes of TLS as early as heads of requests; uvicorn would wait a minute."""
        config, loop = self.config, asyncio.get_running_loop()

        def protocol() -> asyncio.Protocol:
            return BoundedProtocol(config, self.server_state, self.lifespan.state, loop)

        until = None if config.ssl is None else HEAD_TIMEOUT
        self.servers = [
            await loop.create_server(
                protocol, sock=one, ssl=config.ssl, backlog=config.backlog, ssl_handshake_timeout=until
            )
            for one in sockets or ()
        ]
        self.started = True


def server_of(app: ASGIApp, tls: ssl.SSLContext | None = None, *, named: bool = False, sockets: int = 0) -> Server:
    """Return the server of an application.

    Args:
        app: the application.
        tls: what it speaks TLS with, ``None`` for HTTP in the clear.
        named: clients use a public name.
        sockets: bytes of one message over WebSocket; 0 takes none (ADR 0120).
    """
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="websockets-sansio" if sockets else "none",
        ws_max_size=sockets,
        ws_per_message_deflate=False,
        lifespan="off",
        loop="none",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=2,
        limit_concurrency=MAX_CONNECTIONS,
        h11_max_incomplete_event_size=MAX_HEAD,
        ssl_context_factory=None if tls is None else lambda _config, _default: tls,
        headers=[HSTS] if tls is not None and named else [],
    )
    return Server(config)


def listening(address: tuple[str, int]) -> socket.socket:
    """Return a socket that listens, so that a taken port is known before anything is started.

    Raises:
        PlatformError: ``CLI-184``, it cannot be had.
    """
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    # The protocol is named: asyncio switches Nagle's algorithm off only where it is, and with it every answer whose
    # head and body are two writes would wait 40 ms for the client's acknowledgement.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.bind(address)
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        text = f"{address[0]}:{address[1]} cannot be listened on: {error.strerror}"
        raise PlatformError("CLI-184", text, "choose another with --listen") from None
    made.setblocking(False)
    return made


async def serve_on(server: Server, listener: socket.socket) -> None:
    """Serve until the server is told to exit."""
    await asyncio.shield(server.serve(sockets=[listener]))
