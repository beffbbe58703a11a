"""The server's side of stdio: a connected socket, with the engine's multiplexed framing or plain.

The container engine hands over one socket for stdin, stdout and stderr. It applies backpressure in both directions:
when we do not read, the server blocks in ``write``; when the server does not read, our buffer fills and we stop
producing.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final, cast

from sandbox.errors import PlatformError, SandboxError
from sandbox.limits import WRITE_HIGH_WATER, WRITE_LOW_WATER
from sandbox.transport.lines import LineChannel, Side
from sandbox.transport.stderr import StderrTail
from sandbox.wire.attach import STDOUT, AttachDecoder

_GONE: Final = (BrokenPipeError, ConnectionResetError)
"""How a socket says that the other end is no more, which is an end like EOF."""


class SocketChannel(LineChannel, asyncio.Protocol):
    """A channel over one socket; made by :func:`attach` or :func:`connect`."""

    def __init__(self, side: Side, demultiplex: AttachDecoder | None, stderr: StderrTail) -> None:
        super().__init__(side)
        self.stderr = stderr
        self._demultiplex = demultiplex
        self._transport: asyncio.Transport | None = None

    # --- asyncio.Protocol -----------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hold reading until a receiver is there."""
        connected = cast("asyncio.Transport", transport)  # uvloop's share no base class with asyncio's
        self._transport = connected
        connected.set_write_buffer_limits(WRITE_HIGH_WATER, WRITE_LOW_WATER)
        connected.pause_reading()

    def data_received(self, data: bytes) -> None:
        """Separate stderr, then lines."""
        if self._demultiplex is None:
            self._feed(data)
            return
        try:
            pieces = self._demultiplex.feed(data)
        except PlatformError as error:
            self.abort(error)
            return
        for stream, piece in pieces:
            if stream == STDOUT:
                self._feed(piece)
            else:
                self.stderr.feed(piece)

    def eof_received(self) -> bool:
        """Keep the writing half; the receiver decides what EOF means."""
        self._input_ended()
        return not self._over

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end."""
        self._ended(None if exc is None or isinstance(exc, _GONE) else _lost(exc))

    def pause_writing(self) -> None:
        """Pass on that the peer is slower than we are."""
        self._set_full(full=True)

    def resume_writing(self) -> None:
        """Pass on that the peer has caught up."""
        self._set_full(full=False)

    # --- LineChannel ------------------------------------------------------------------------------------------------
    def _write(self, data: bytes) -> None:
        self._connected.write(data)

    def _waiting(self) -> int:
        return self._connected.get_write_buffer_size()

    def _set_reading(self, *, on: bool) -> None:
        if on:
            self._connected.resume_reading()
        else:
            self._connected.pause_reading()

    def _end_writing(self) -> None:
        if self._connected.can_write_eof() and not self._connected.is_closing():
            self._connected.write_eof()

    def _drop(self, *, now: bool) -> None:
        if now:
            self._connected.abort()
        else:
            self._connected.close()

    @property
    def _connected(self) -> asyncio.Transport:
        assert self._transport is not None  # noqa: S101 - made only by connect()
        return self._transport


def _lost(exc: Exception) -> SandboxError:
    return PlatformError(
        "WIRE-031",
        f"the connection to the server's stdio broke: {exc}",
        "see whether the container engine was restarted",
    )


async def attach(stream: socket.socket, stderr: StderrTail | None = None) -> SocketChannel:
    """Return the channel to a started server over ``Instance.stream``, which it then owns."""
    return await connect(stream, "server", AttachDecoder(), stderr)


async def connect(
    stream: socket.socket,
    side: Side,
    demultiplex: AttachDecoder | None = None,
    stderr: StderrTail | None = None,
) -> SocketChannel:
    """Return a channel over a connected stream socket, which it then owns."""
    stream.setblocking(False)
    channel = SocketChannel(side, demultiplex, stderr or StderrTail())
    loop = asyncio.get_running_loop()
    maker: Any = loop.create_unix_connection if stream.family == socket.AF_UNIX else loop.create_connection
    await maker(lambda: channel, sock=stream)
    return channel
