"""The server's side of stdio over plain pipes: a child process. For tests and for people who debug a server without us.

Nothing is confined here; the product reaches servers through :mod:`sandbox.transport.attached`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import cast

from sandbox.limits import STOP_GRACE, WRITE_HIGH_WATER, WRITE_LOW_WATER
from sandbox.transport.lines import LineChannel
from sandbox.transport.stderr import StderrTail

_STDIN, _STDOUT, _STDERR = 0, 1, 2


class ProcessChannel(LineChannel, asyncio.SubprocessProtocol):
    """A channel to a child process; made by :func:`spawn`."""

    def __init__(self, stderr: StderrTail) -> None:
        super().__init__("server")
        self.stderr = stderr
        self._process: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._stdout: asyncio.ReadTransport | None = None

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._child.get_pid()

    @property
    def returncode(self) -> int | None:
        """Exit status of the child, ``None`` while it runs."""
        return self._child.get_returncode()

    # --- asyncio.SubprocessProtocol ---------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hold reading until a receiver is there."""
        process = cast("asyncio.SubprocessTransport", transport)  # uvloop's share no base class with asyncio's
        self._process = process
        stdin = cast("asyncio.WriteTransport", process.get_pipe_transport(_STDIN))
        stdout = cast("asyncio.ReadTransport", process.get_pipe_transport(_STDOUT))
        self._stdin, self._stdout = stdin, stdout
        stdin.set_write_buffer_limits(WRITE_HIGH_WATER, WRITE_LOW_WATER)
        stdout.pause_reading()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Separate stderr from lines."""
        if fd == _STDOUT:
            self._feed(data)
        else:
            self.stderr.feed(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Take note of the end of stdout."""
        if fd == _STDOUT:
            self._input_ended()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Report the end: the process is gone and its pipes are closed."""
        self._ended(None)

    def pause_writing(self) -> None:
        """Pass on that the child is slower than we are."""
        self._set_full(full=True)

    def resume_writing(self) -> None:
        """Pass on that the child has caught up."""
        self._set_full(full=False)

    # --- LineChannel ------------------------------------------------------------------------------------------------
    def _write(self, data: bytes) -> None:
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(data)

    def _waiting(self) -> int:
        return self._stdin.get_write_buffer_size() if self._stdin is not None else 0

    def _set_reading(self, *, on: bool) -> None:
        if self._stdout is None or self._stdout.is_closing():
            return
        if on:
            self._stdout.resume_reading()
        else:
            self._stdout.pause_reading()

    def _end_writing(self) -> None:
        if self._stdin is not None:
            self._stdin.close()

    def _drop(self, *, now: bool) -> None:
        if now:
            self._child.close()  # kills
        else:
            asyncio.get_running_loop().call_later(STOP_GRACE, self._child.close)

    @property
    def _child(self) -> asyncio.SubprocessTransport:
        assert self._process is not None  # noqa: S101 - made only by spawn()
        return self._process


async def spawn(
    argv: Sequence[str], *, env: Mapping[str, str] | None = None, stderr: StderrTail | None = None
) -> ProcessChannel:
    """Return a channel to a new child process with piped stdio, unconfined."""
    channel = ProcessChannel(stderr or StderrTail())
    await asyncio.get_running_loop().subprocess_exec(lambda: channel, *argv, env=None if env is None else dict(env))
    return channel
