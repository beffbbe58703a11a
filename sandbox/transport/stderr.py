"""The end of a server's stderr, kept for diagnosis within a bound.

Stderr is free text for people (MCP, stdio). It is never parsed, never forwarded to the client, and costs at most
``MAX_STDERR_BYTES`` whatever the server writes; how much was dropped is counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from sandbox.limits import MAX_STDERR_BYTES, MAX_STDERR_LINE_BYTES


class StderrTail:
    """Keeps the last lines.

    Args:
        on_line: called with each whole line as it arrives, cut to ``MAX_STDERR_LINE_BYTES``; for a person who watches.

    Attributes:
        dropped: bytes that are no longer kept.
        received: bytes in all.
    """

    def __init__(self, on_line: Callable[[bytes], None] | None = None, most: int = MAX_STDERR_BYTES) -> None:
        self._most = most
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._partial = b""
        self._on_line = on_line
        self.dropped = 0
        self.received = 0

    def feed(self, data: bytes) -> None:
        """Take bytes."""
        self.received += len(data)
        if len(data) > self._most:
            self.dropped += len(data) - self._most
            data = data[-self._most :]
        *whole, rest = data.split(b"\n")
        for line in whole:
            self._keep(self._cut(self._partial + line))
            self._partial = b""
        self._partial = self._cut(self._partial + rest)

    def text(self) -> str:
        """Return what is kept, with control characters escaped so that it can be shown on a terminal."""
        lines = [*self._lines, self._partial] if self._partial else self._lines
        return "\n".join(printable(line) for line in lines)

    def _cut(self, line: bytes) -> bytes:
        self.dropped += max(0, len(line) - MAX_STDERR_LINE_BYTES)
        return line[:MAX_STDERR_LINE_BYTES]

    def _keep(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line) + 1
        while self._size > self._most:
            gone = len(self._lines.popleft()) + 1
            self._size -= gone
            self.dropped += gone
        if self._on_line is not None:
            self._on_line(line)


def printable(line: bytes) -> str:
    """Return a line as text in which nothing can move a cursor or change a colour."""
    text = line.decode("utf-8", "backslashreplace").rstrip("\r").replace("\t", "    ")
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
