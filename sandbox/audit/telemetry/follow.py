"""Reads one stream of the ledger as it grows: whole lines, each once, across segments."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Final

from sandbox.audit.ledger import segment_name
from sandbox.audit.tail import MAX_LINE_BYTES

MAX_READ: Final = 1 << 20
"""Bytes of one look: some two thousand records."""


class Follower:
    """Follows a stream from its first record.

    Args:
        folder: the audit folder.
        stream: name of the stream.

    Attributes:
        segment: number of the segment that is being read, from 1.
    """

    def __init__(self, folder: Path, stream: str) -> None:
        self.segment = 1
        self._place, self._stream = folder / "segments", stream
        self._file: BinaryIO | None = None
        self._rest = b""

    def lines(self) -> list[bytes]:
        """Return whole lines that were not returned before, without their newlines; empty when there are none yet."""
        found = self._read()
        if not found and not self._rest and self._next().exists():
            self.close()
            self.segment += 1
            found = self._read()
        return found

    def close(self) -> None:
        """Close what is open."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def _read(self) -> list[bytes]:
        if self._file is None:
            try:
                self._file = self._path(self.segment).open("rb", buffering=0)
            except FileNotFoundError:
                return []
        # A partial line is kept; one without end is no record, and would fill the memory.
        *lines, rest = (self._rest + (self._file.read(MAX_READ) or b"")).split(b"\n")
        self._rest = rest if len(rest) <= MAX_LINE_BYTES else b""
        return lines

    def _next(self) -> Path:
        return self._path(self.segment + 1)

    def _path(self, number: int) -> Path:
        return self._place / segment_name(self._stream, number)
