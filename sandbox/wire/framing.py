r"""Lines of a byte stream: the stdio framing of every MCP version.

One message is one line that ends with LF (MCP 2026-07-28, basic/transports/stdio). The decoder is incremental: whole
buffers and single bytes give the same items, work is linear in the bytes received, and at most one line is kept.

Carriage returns decide who executes what. Servers that read with universal newlines see two lines where we see one, so
that a CR inside a line smuggles a second message past whoever validated the first (reproduced against a released SDK).
Therefore a CR anywhere in a line is refused; one CR directly before the LF is the line end of Windows programs, has one
meaning for both kinds of reader, and is dropped (ADR-0040). What leaves us is always written anew and ends with LF.
"""

from __future__ import annotations

from typing import Final

from sandbox.limits import MAX_LINE_BYTES
from sandbox.wire.errors import PARSE_ERROR, WireError

_CR: Final = 0x0D


class LineDecoder:
    """Cuts a byte stream into lines, within a bound.

    Args:
        max_bytes: longest line, without its end.

    Attributes:
        pending: bytes of the line that has begun.
    """

    __slots__ = ("_buffer", "_dead", "_max")

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_bytes
        self._buffer = bytearray()
        self._dead = False

    @property
    def pending(self) -> int:
        """Bytes of the line that has begun."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes | WireError]:
        """Return the lines that ``data`` completes, without their ends, in order.

        The last item is a fatal ``WIRE-001`` when a line exceeds the bound; nothing after it is ever read.
        """
        if self._dead:
            return []
        if not self._buffer and data.find(b"\n") == len(data) - 1 and 0 < len(data) - 1 <= self._max:
            return [_without_end(data)]  # exactly one whole line, as nearly always
        return self._cut(data)

    def end(self) -> WireError | None:
        """Return ``WIRE-002`` when the stream ended inside a line; such a message was never complete."""
        if self._dead or not self._buffer:
            return None
        self._dead = True
        count = len(self._buffer)
        self._buffer.clear()
        return WireError(
            "WIRE-002", f"{count} bytes without a line end", "end every message with LF", code=PARSE_ERROR, fatal=True
        )

    def _cut(self, data: bytes) -> list[bytes | WireError]:
        items: list[bytes | WireError] = []
        buffer, start = self._buffer, 0
        while (end := data.find(b"\n", start)) >= 0:
            if len(buffer) + end - start > self._max:
                return [*items, self._too_long()]
            if buffer:
                buffer += memoryview(data)[start:end]
                items.append(bytes(memoryview(buffer)[: -1 if buffer[-1] == _CR else None]))
                buffer.clear()
            else:
                items.append(_without_end(data[start : end + 1]))
            start = end + 1
        if len(buffer) + len(data) - start > self._max:
            return [*items, self._too_long()]
        buffer += memoryview(data)[start:]
        return items

    def _too_long(self) -> WireError:
        self._dead = True
        self._buffer = bytearray()
        return WireError(
            "WIRE-001",
            f"a line longer than {self._max} bytes",
            "send less in one message",
            code=PARSE_ERROR,
            fatal=True,
        )


def _without_end(line: bytes) -> bytes:
    return line[:-2] if line[-2:] == b"\r\n" else line[:-1]


def check_line(line: bytes) -> None:
    """Refuse what a JSON parser would let pass and what deserves a better message than a parser gives.

    Raises:
        WireError: ``WIRE-003`` CR, ``WIRE-004`` empty, ``WIRE-005`` byte order mark, ``WIRE-006`` NUL or not UTF-8.
    """
    if b"\r" in line:
        raise WireError(
            "WIRE-003", "a carriage return inside a message", "separate messages with LF only", code=PARSE_ERROR
        )
    if not line.strip(b" \t"):
        raise WireError("WIRE-004", "an empty line", "send nothing but messages", code=PARSE_ERROR)
    if line.startswith(b"\xef\xbb\xbf"):
        raise WireError("WIRE-005", "a byte order mark", "write UTF-8 without one", code=PARSE_ERROR)
    if b"\x00" in line:
        raise WireError("WIRE-006", "a NUL byte", "write UTF-8 text", code=PARSE_ERROR)
    try:
        line.decode()
    except UnicodeDecodeError as error:
        message = f"bytes that are not UTF-8 (at offset {error.start})"
        raise WireError("WIRE-006", message, "write UTF-8 text", code=PARSE_ERROR) from None
