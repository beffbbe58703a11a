"""One record as one line: canonical JSON in printable ASCII, with the hash of the line before it at its front.

The form, fixed with version 1 (docs/audit-events.md, docs/schemas/event.schema.json)::

    {"after":"<64 hex>","attrs":{…},"driver":"…","name":"…","phase":"…","seq":7,"span":"…","time":"…","trace":"…","v":1}

Members are sorted by code point, so ``after`` always comes first and verification finds it without parsing. Members
that would be empty are left out. Whatever a server put into a value, the line holds nothing but the characters 0x20
to 0x7E: everything else is a JSON escape, lone surrogates are written out as text. So one record is one line in
every reader, and printing it moves no cursor (probe J21).

The hash of a line is its RFC 6962 leaf hash; chain and tree are made of the same values.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

import orjson

from sandbox.limits import KIB

VERSION: Final = 1
"""Of the record form."""

MAX_RECORD_BYTES: Final = 64 * KIB
"""One line. A fact has keys, sizes and digests; what is larger is cut to its small members."""

MAX_KEPT_CHARS: Final = 512
"""Of one string that survives the cut of an oversized record."""

MAX_DEPTH: Final = 16
"""Nesting of attributes; deeper values are replaced by their kind."""

AFTER: Final = slice(10, 74)
"""Where ``after`` stands in every line."""

HEAD: Final = b'{"after":"'
"""How every line begins."""

_OTHER: Final = re.compile(r"[^\x20-\x7e]")
_INT_BITS: Final = 63


def leaf(line: bytes) -> bytes:
    """Return the hash of a line without its newline (RFC 6962 §2.1, leaf)."""
    return sha256(b"\x00" + line).digest()


def first_after(stream: str) -> str:
    """Return what stands for the line before the first: it binds a chain to its name."""
    return sha256(f"mcp-sandbox audit stream {stream}".encode()).hexdigest()


class Clock:
    """Wall clock as RFC 3339 in UTC with microseconds; the second's part is made once a second."""

    __slots__ = ("_prefix", "_second")

    def __init__(self) -> None:
        self._second, self._prefix = -1, ""

    def __call__(self) -> str:
        """Return now."""
        nanoseconds = time.time_ns()
        second = nanoseconds // 1_000_000_000
        if second != self._second:
            self._prefix = time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(second))
            self._second = second
        return f"{self._prefix}{nanoseconds // 1000 % 1_000_000:06d}Z"


def encode(fields: dict[str, Any]) -> bytes:
    """Return the line of a record, without newline, at most :data:`MAX_RECORD_BYTES` long; never raises for any value.

    Args:
        fields: ``after``, ``seq`` and the other members; ``attrs`` may hold anything.
    """
    line = _encode(fields)
    if len(line) > MAX_RECORD_BYTES:
        line = _encode({**fields, "attrs": _cut(fields["attrs"], len(line))})
    return line


def _encode(fields: dict[str, Any]) -> bytes:
    try:
        line = orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # orjson's own error derives from it: not JSON, a lone surrogate, a large integer, too deep
        line = orjson.dumps(plain(fields), option=orjson.OPT_SORT_KEYS)
    if line.isascii() and b"\x7f" not in line:
        return line
    return _OTHER.sub(_escape, line.decode()).encode("ascii")


def _escape(found: re.Match[str]) -> str:
    """Return the JSON escape of one character; outside the basic plane a pair of surrogates (RFC 8259 §7)."""
    code = ord(found[0])
    if code < 0x10000:  # noqa: PLR2004 - the basic multilingual plane
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON: what has no JSON form becomes text that says what it was."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode() if not value.isascii() else str(value)
    if isinstance(value, int):
        return int(value) if value.bit_length() <= _INT_BITS else str(value)[:MAX_KEPT_CHARS]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth >= MAX_DEPTH:
        return f"<{type(value).__name__}>"
    if isinstance(value, Mapping):
        return {str(plain(str(key))): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item, depth + 1) for item in value]
    return f"<{type(value).__name__}>"


def _cut(attrs: Any, size: int) -> dict[str, Any]:
    """Return the small members of oversized attributes, and what was dropped."""
    members = plain(attrs) if isinstance(attrs, Mapping) else {}
    kept = {
        key: value
        for key, value in list(members.items())[:64]
        if len(key) <= MAX_KEPT_CHARS and len(orjson.dumps(value)) <= MAX_KEPT_CHARS
    }
    return {**kept, "oversize": {"bytes": size, "dropped": len(members) - len(kept)}}
