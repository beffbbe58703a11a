"""Server-sent events (WHATWG HTML §9.2) as MCP uses them: bytes in, events out, within bounds; pure.

Invariant: any bytes give events or a :class:`~sandbox.wire.errors.WireError`; whole and byte by byte agree; what is
kept between two calls is at most one event of :data:`~sandbox.limits.MAX_LINE_BYTES` and one line of the same bound.

Differences from browsers, all towards strictness: an event of more than the bound, an ``id`` of more than its bound and
text that is not UTF-8 end the stream. Comments and unknown fields are skipped, as the standard says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sandbox.limits import MAX_EVENT_ID, MAX_EVENT_LINES, MAX_LINE_BYTES
from sandbox.wire.errors import WireError

_END: Final = re.compile(rb"[\r\n]")
_BOM: Final = b"\xef\xbb\xbf"
_DIGITS: Final = re.compile(rb"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes:
        kind: its ``event`` field; ``message`` when it has none.
        data: its ``data`` lines, joined with LF.
    """

    kind: str
    data: bytes


class EventDecoder:
    """Decodes one stream.

    Attributes:
        last_id: the newest ``id`` of a complete event, empty when there was none: where to resume.
        retry: milliseconds to wait before resuming, by the server's wish; ``None`` when it has none.
        held: bytes that are kept until their event is complete.
    """

    def __init__(self) -> None:
        self.last_id = ""
        self.retry: int | None = None
        self._line = bytearray()
        self._scanned = 0
        self._after_cr = False
        self._first = True
        self._data = bytearray()
        self._lines = 0
        self._kind = ""
        self._id: str | None = None

    @property
    def held(self) -> int:
        """Bytes that are kept until their event is complete."""
        return len(self._line) + len(self._data)

    def feed(self, data: bytes) -> list[Event]:
        """Take bytes and return the events they complete.

        Raises:
            WireError: ``WIRE-060``, the stream breaks a bound or is not UTF-8; it cannot be read any further.
        """
        events: list[Event] = []
        if self._after_cr and data:
            self._after_cr = False
            data = data[1:] if data.startswith(b"\n") else data
        self._line += data
        at = 0
        while (found := _END.search(self._line, max(at, self._scanned))) is not None:
            line = bytes(self._line[at : found.start()])
            at = found.end()
            if self._line[found.start()] == 0x0D:  # noqa: PLR2004 - CR, perhaps followed by LF
                if at == len(self._line):
                    self._after_cr = True
                elif self._line[at] == 0x0A:  # noqa: PLR2004 - LF
                    at += 1
            self._scanned = 0
            event = self._take(line)
            if event is not None:
                events.append(event)
        del self._line[:at]
        self._scanned = len(self._line)
        if self.held > MAX_LINE_BYTES:
            raise _broken(f"an event of more than {MAX_LINE_BYTES} bytes")
        return events

    def _take(self, line: bytes) -> Event | None:
        """Take one line without its end."""
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        name, colon, value = line.partition(b":")
        if colon and not name:
            return None  # a comment, which keeps connections open
        value = value.removeprefix(b" ")
        if name == b"data":
            self._lines += 1
            if self._lines > MAX_EVENT_LINES or len(self._data) + len(value) > MAX_LINE_BYTES:
                raise _broken(f"an event of more than {MAX_EVENT_LINES} lines or {MAX_LINE_BYTES} bytes")
            self._data += value if self._lines == 1 else b"\n" + value
        elif name == b"event":
            self._kind = _text(value[:64])
        elif name == b"id" and b"\0" not in value:
            if len(value) > MAX_EVENT_ID or not _visible(value):
                raise _broken(f"an event id that is not at most {MAX_EVENT_ID} visible ASCII characters")
            self._id = _text(value)
        elif name == b"retry" and _DIGITS.fullmatch(value):
            self.retry = int(value)
        return None

    def _dispatch(self) -> Event | None:
        """End an event; one without data is none, but its id counts (WHATWG HTML §9.2.6)."""
        if self._id is not None:
            self.last_id = self._id
        data, lines, kind = bytes(self._data), self._lines, self._kind
        self._data, self._lines, self._kind, self._id = bytearray(), 0, "", None
        return Event(kind or "message", data) if lines else None


def _visible(value: bytes) -> bool:
    return all(0x20 <= byte <= 0x7E for byte in value)  # noqa: PLR2004 - what may stand in a header field


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise _broken("text that is not UTF-8") from None


def _broken(what: str) -> WireError:
    return WireError("WIRE-060", f"an event stream with {what}", "send smaller events", fatal=True)
