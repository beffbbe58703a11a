"""The client's side of stdio: this process's stdin and stdout, whatever they are.

Pipes, sockets and terminals are read and written without blocking; a regular file or ``/dev/null`` is read in a thread
and written directly, since the kernel never reports them as not ready. A client that does not read fills our write
buffer to its high-water mark, upon which the receiver is told and stops reading from client and server alike: memory
stays bounded and both block in their own ``write``.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from typing import Any, Final

from sandbox.errors import PlatformError, SandboxError
from sandbox.limits import KIB, WRITE_HIGH_WATER, WRITE_LOW_WATER
from sandbox.transport.descriptors import Descriptor, take_stdio
from sandbox.transport.lines import LineChannel

READ_BYTES: Final = 64 * KIB
"""One read of a regular file."""


class StdioChannel(LineChannel):
    """A channel over two descriptors; made by :func:`serve_stdio` or :func:`open_pair`."""

    def __init__(self, reading: Descriptor, writing: Descriptor) -> None:
        super().__init__("client")
        self._descriptors = (reading, writing)
        self._input: _Input | None = None
        self._output: _Output | None = None

    async def connect(self) -> None:
        """Attach the descriptors to the event loop; reading waits for ``start``."""
        loop = asyncio.get_running_loop()
        reading, writing = self._descriptors
        self._output = _Output(self, writing)
        if reading.pollable:
            source = _PipeInput(self)
            self._input = source
            await loop.connect_read_pipe(lambda: source, os.fdopen(reading.fd, "rb", buffering=0))
            source.set_reading(on=False)  # uvloop begins to read after connection_made, whatever that said
        else:
            self._input = _FileInput(self, reading.fd)

    def take(self, data: bytes) -> None:
        """Take bytes of the client."""
        self._feed(data)

    def take_eof(self) -> None:
        """Take note that the client closed its side."""
        self._input_ended()

    def take_pressure(self, *, full: bool) -> None:
        """Take note that the client passed a water mark."""
        self._set_full(full)

    def take_end(self, exc: Exception | None) -> None:
        """Take note that nothing can be written any more."""
        broken = exc is not None and not isinstance(exc, BrokenPipeError | ConnectionResetError)
        error: SandboxError | None = None
        if broken:
            error = PlatformError("WIRE-032", f"writing to the client failed: {exc}", "look at what holds our stdout")
        if self._input is not None:
            self._input.close()
        for descriptor in self._descriptors:
            descriptor.release()
        self._ended(error)

    # --- LineChannel ------------------------------------------------------------------------------------------------
    def _write(self, data: bytes) -> None:
        assert self._output is not None  # noqa: S101 - connect() comes first
        self._output.write(data)

    def _waiting(self) -> int:
        return self._output.waiting if self._output is not None else 0

    def _set_reading(self, *, on: bool) -> None:
        assert self._input is not None  # noqa: S101 - connect() comes first
        self._input.set_reading(on=on)

    def _end_writing(self) -> None:
        """A client sees our EOF when the process ends; stdout has no half-close of its own."""

    def _drop(self, *, now: bool) -> None:
        assert self._output is not None  # noqa: S101 - connect() comes first
        self._output.close(now=now)


class _Input:
    """Where the client's bytes come from."""

    def set_reading(self, *, on: bool) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class _PipeInput(_Input, asyncio.Protocol):
    def __init__(self, channel: StdioChannel) -> None:
        self._channel = channel
        self._transport: Any = None
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self._channel.take(data)

    def eof_received(self) -> None:
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._end()  # a terminal that hangs up, or a reset socket, gives no EOF first

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._channel.take_eof()

    def set_reading(self, *, on: bool) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def close(self) -> None:
        self._ended = True
        if self._transport is not None:
            self._transport.close()


class _FileInput(_Input):
    """Reads in a thread, one block at a time, and waits while reading is off."""

    def __init__(self, channel: StdioChannel, fd: int) -> None:
        self._channel = channel
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._wanted = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._read, name="stdin", daemon=True)

    def set_reading(self, *, on: bool) -> None:
        if not on:
            self._wanted.clear()
            return
        self._wanted.set()
        if not self._thread.is_alive() and not self._closed and self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        self._closed = True
        self._wanted.set()

    def _read(self) -> None:
        while True:
            self._wanted.wait()
            if self._closed:
                break
            data = os.read(self._fd, READ_BYTES)
            taken = threading.Event()
            self._loop.call_soon_threadsafe(self._hand_over, data, taken)
            if not data:
                break
            taken.wait()
        os.close(self._fd)

    def _hand_over(self, data: bytes, taken: threading.Event) -> None:
        taken.set()
        if self._closed:
            return
        if data:
            self._channel.take(data)
        else:
            self._channel.take_eof()


class _Output:
    """Where our bytes go: written at once as far as the kernel takes them, buffered beyond that.

    Not a transport of the event loop: uvloop's reads from the descriptor to notice a reader that leaves, and so takes
    the input of a terminal or a socket for its end.
    """

    def __init__(self, channel: StdioChannel, target: Descriptor) -> None:
        self._channel = channel
        self._fd = target.fd
        self._loop = asyncio.get_running_loop()
        self._buffer: deque[memoryview] = deque()
        self._full = False
        self._registered = False
        self._closing = False
        self.waiting = 0

    def write(self, data: bytes) -> None:
        """Write or buffer."""
        if self._closing:
            return
        self._buffer.append(memoryview(data))
        self.waiting += len(data)
        if self.waiting > len(data):
            self._note_pressure()  # the kernel is full already, and the writer is registered
        else:
            self._flush()

    def close(self, *, now: bool) -> None:
        """Close, after what is buffered unless ``now``."""
        if now or not self.waiting:
            self._end(None)
        self._closing = True

    def _flush(self) -> None:
        try:
            while self._buffer:
                self._advance(os.write(self._fd, self._buffer[0]))
        except BlockingIOError:
            if not self._registered:
                self._registered = True
                self._loop.add_writer(self._fd, self._flush)
        except OSError as error:
            self._end(error)
            return
        else:
            self._unregister()
            if self._closing:
                self._end(None)
                return
        self._note_pressure()

    def _unregister(self) -> None:
        if self._registered:
            self._registered = False
            self._loop.remove_writer(self._fd)

    def _advance(self, count: int) -> None:
        self.waiting -= count
        first = self._buffer.popleft()
        if count < len(first):
            self._buffer.appendleft(first[count:])

    def _note_pressure(self) -> None:
        if not self._full and self.waiting > WRITE_HIGH_WATER:
            self._full = True
            self._channel.take_pressure(full=True)
        elif self._full and self.waiting <= WRITE_LOW_WATER:
            self._full = False
            self._channel.take_pressure(full=False)

    def _end(self, error: OSError | None) -> None:
        if self._fd < 0:
            return
        self._unregister()
        os.close(self._fd)
        self._fd = -1
        self._closing = True
        self._buffer.clear()
        self.waiting = 0
        self._loop.call_soon(self._channel.take_end, error)


async def open_pair(reading: Descriptor, writing: Descriptor) -> StdioChannel:
    """Return a channel over two descriptors, which it then owns."""
    channel = StdioChannel(reading, writing)
    await channel.connect()
    return channel


async def serve_stdio() -> StdioChannel:
    """Return the channel to whoever started this process; stdin and stdout are its own from now on."""
    return await open_pair(*take_stdio())
