"""The HTTP server: uvicorn with its h11 parser, and bounds that uvicorn does not have.

One parser and no other: a faster one is picked up silently when it is installed, and reads header fields differently
from the proxies in front (ADR 0100).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from sandbox.errors import PlatformError
from sandbox.serve.http.bounds import HEAD_TIMEOUT, MAX_CONNECTIONS, MAX_HEAD

KEEP_ALIVE: Final = 30
"""Seconds for which a connection waits for its next request."""

BACKLOG: Final = 512


class BoundedProtocol(H11Protocol):
    """Closes connections whose first request does not come in time; uvicorn would keep them for ever."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a head."""
        super().connection_made(transport)
        self._head = self.loop.call_later(HEAD_TIMEOUT, self._too_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._head.cancel()
        super().connection_lost(exc)

    def _too_late(self) -> None:
        begun: object = self.cycle  # None until the first head is there, whatever its annotation says
        if begun is None and not self.transport.is_closing():
            self.transport.close()


class Server(uvicorn.Server):
    """A server that leaves signals to its owner."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def server_of(app: ASGIApp) -> Server:
    """Return the server of an application."""
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
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
