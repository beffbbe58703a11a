"""Moves bytes between two connected sockets: backpressure, half-close, counts; no copies in the common case.

One read buffer serves every connection, because the loop is single-threaded and what was read is written before
anything else is read. Only what the other side does not take is kept (at most one chunk), and nothing more is read
until it has. Callbacks rather than coroutines: they halve the time that a small message takes.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from sandbox.launch.egress.inside.bounds import CHUNK, READS_PER_TURN

_BUFFER: Final = bytearray(CHUNK)
_VIEW: Final = memoryview(_BUFFER)


class Pump:
    """One direction of a connection.

    Args:
        source: non-blocking socket that is read.
        sink: non-blocking socket that is written.
        ended: called once: the source has finished and everything is written (``""``), or why it broke.
        spend: told the size of each read; false ends the connection.
        look: shown what was read; false ends the connection before anything of it is written.

    Attributes:
        count: bytes read.
    """

    __slots__ = ("_ended", "_look", "_loop", "_rest", "_sink", "_source", "_spend", "_state", "count")

    def __init__(
        self,
        source: socket.socket,
        sink: socket.socket,
        ended: Callable[[str], None],
        spend: Callable[[int], bool],
        look: Callable[[bytes], bool] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._source, self._sink = source, sink
        self._ended, self._spend, self._look = ended, spend, look
        self._rest: memoryview | None = None
        self._state = ""
        self.count = 0

    @property
    def started(self) -> bool:
        """Whether this direction has been begun."""
        return bool(self._state)

    def start(self, first: bytes = b"") -> None:
        """Write ``first``, then move what comes; ``first`` was counted by who read it."""
        self._state = "reading"
        self._loop.add_reader(self._source, self._readable)
        if first:
            self._write(memoryview(first))

    def stop(self) -> None:
        """Stop moving; idempotent, calls nobody."""
        if self._state == "reading":
            self._loop.remove_reader(self._source)
        elif self._state == "writing":
            self._loop.remove_writer(self._sink)
        self._state = "stopped"
        self._rest = None

    def _readable(self) -> None:
        for _ in range(READS_PER_TURN):
            try:
                size = self._source.recv_into(_BUFFER)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._end(f"reset ({error.strerror})")
                return
            if not size:
                self._finish()
                return
            self.count += size
            if not self._spend(size) or (self._look is not None and not self._look(bytes(_VIEW[:size]))):
                return
            if not self._write(_VIEW[:size]) or size < CHUNK:
                return

    def _write(self, data: memoryview) -> bool:
        """Write now what the sink takes and keep the rest; return whether everything went."""
        try:
            sent = self._sink.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._end(f"reset ({error.strerror})")
            return False
        if sent == len(data):
            return True
        self._rest = memoryview(bytes(data[sent:]))
        self._loop.remove_reader(self._source)
        self._loop.add_writer(self._sink, self._writable)
        self._state = "writing"
        return False

    def _writable(self) -> None:
        rest = self._rest
        if rest is None:
            return
        try:
            sent = self._sink.send(rest)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(f"reset ({error.strerror})")
            return
        if sent < len(rest):
            self._rest = rest[sent:]
            return
        self._rest = None
        self._loop.remove_writer(self._sink)
        self._loop.add_reader(self._source, self._readable)
        self._state = "reading"

    def _finish(self) -> None:
        try:
            self._sink.shutdown(socket.SHUT_WR)
        except OSError as error:
            self._end(f"reset ({error.strerror})")
            return
        self._end("")

    def _end(self, why: str) -> None:
        self.stop()
        self._ended(why)
