"""Known secret values are taken out of a record before anything is written (probe J22).

Theory. A secret may come back in a record through an error message, a host name, a file name; and a server that
wants to leak it may encode it first. So each value is looked for in the forms that it takes when somebody passes it
on without trying to hide it: as it is, escaped as JSON (once and twice) or HTML, percent-encoded, as hexadecimal,
and as base64 or base64url at each of the three positions in a longer text. Most strings of a record are shorter than
any form and are passed over by their length. Only when one has a value every string is cleaned; and when the line has
one still, put together from what is left, its attributes are dropped altogether.

What this is not: protection against a server that encrypts, splits or reverses a secret. That is what egress rules
are for.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from sandbox.audit.record import AFTER, encode, plain

MIN_CHARS: Final = 6
"""Shorter values are only replaced where they are a whole string: they would be found by chance in every other word."""

MARK: Final = "[redacted]"
"""What stands in place of a secret. It has no character that JSON escapes."""


_PERCENT: Final = re.compile("%[0-9A-F]{2}")


def forms(value: str) -> tuple[str, ...]:
    """Return the texts that stand for a secret value, longest first."""
    raw = value.encode("utf-8", "surrogatepass")
    found = {value, value.encode("utf-8", "backslashreplace").decode()}
    for ascii_only in (True, False):
        escaped = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        found |= {escaped, escaped.replace("/", "\\/"), json.dumps(escaped, ensure_ascii=ascii_only)[1:-1]}
    found |= {quote(raw, safe=""), quote(raw), quote(raw, safe="").replace("%20", "+")}
    found |= {_PERCENT.sub(lambda octet: octet[0].lower(), text) for text in tuple(found)}
    found |= {html.escape(value), raw.hex(), raw.hex().upper(), ":".join(f"{byte:02x}" for byte in raw)}
    for position in range(3):
        found |= set(_base64(raw, position))
    return tuple(sorted((text for text in found if len(text) >= MIN_CHARS), key=lambda text: (-len(text), text)))


def _base64(raw: bytes, position: int) -> tuple[str, str]:
    """Return the base64 and base64url that a longer text has where ``raw`` begins ``position`` bytes into a group.

    The characters at both ends mix bits of the secret with bits of its neighbours and are left out.
    """
    encoded = base64.b64encode(b"\0" * position + raw).rstrip(b"=").decode()
    start = (position * 8 + 5) // 6
    end = (position + len(raw)) * 8 // 6
    stable = encoded[start:end]
    return stable, stable.replace("+", "-").replace("/", "_")


def _needle(text: str) -> bytes:
    """Return how a string stands in a line, with its quotation marks."""
    return encode({"": text})[4:-1]


class Redactor:
    """Takes known values out of records.

    Values can be added while records are written: a secret is known to it before the server that gets it is started.
    """

    def __init__(self) -> None:
        self._whole: frozenset[str] = frozenset()
        self._forms: tuple[str, ...] = ()
        self._needles: tuple[bytes, ...] = ()
        self._pattern: re.Pattern[str] | None = None
        self._shortest, self._numeric = 0, False

    def add(self, *values: str) -> None:
        """Know further secret values; empty ones are nothing."""
        whole = self._whole | {value for value in values if value}
        texts = {text for value in whole if len(value) >= MIN_CHARS for text in forms(value)}
        ordered = tuple(sorted(texts, key=lambda text: (-len(text), text)))
        needles = {_needle(text)[1:-1] for text in ordered}
        needles |= {_needle(value) for value in whole if len(value) < MIN_CHARS}
        # One assignment each, the pattern first: a record that is written meanwhile sees the old or the new.
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None
        self._shortest = min(map(len, ordered), default=0)
        self._numeric = any(value.replace(".", "").isdecimal() for value in whole)
        self._forms, self._whole, self._needles = ordered, whole, tuple(needles)

    def holds(self, line: bytes) -> bool:
        """Return whether a finished line contains a known value in one of its forms."""
        return any(needle in line for needle in self._needles)

    def clean(self, fields: dict[str, Any]) -> bytes:
        """Return the line of a record without any known value.

        Steps: 1 the strings of the record are looked at; 2 if one has a known value, each is cleaned; 3 if the line
        has one still, put together from several strings, it goes without its attributes.
        """
        if not self._whole or not self._dirty(fields):  # 1
            return encode(fields)
        cleaned = {key: self.text(value) for key, value in fields.items() if key not in _OURS}  # 2
        cleaned |= {key: fields[key] for key in _OURS if key in fields}
        line = encode(cleaned)
        if self.holds(line[AFTER.stop :]):
            line = encode({**cleaned, "attrs": {"redacted": True}})  # 3
        return line

    def _dirty(self, value: Any) -> bool:
        """Return whether a string in a value contains a known value; most are too short to."""
        kind = type(value)
        if kind is str:
            if len(value) < self._shortest or self._pattern is None:
                return value in self._whole
            return value in self._whole or self._pattern.search(value) is not None
        if kind is dict:
            return any(self._dirty(key) or self._dirty(item) for key, item in value.items())
        if kind is list or kind is tuple:
            return any(self._dirty(item) for item in value)
        if kind is int or kind is float:
            return self._numeric and str(value) in self._whole
        return not (value is None or kind is bool) and self._dirty(plain(value))

    def text(self, value: Any) -> Any:
        """Return a value as JSON without any known value in its strings."""
        value = plain(value)
        if isinstance(value, str):
            if value in self._whole:
                return MARK
            return self._pattern.sub(MARK, value) if self._pattern else value
        if isinstance(value, Mapping):
            return {self.text(key): self.text(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.text(item) for item in value]
        if not isinstance(value, bool) and value is not None and str(value) in self._whole:
            return MARK
        return value


_OURS: Final = ("after", "seq", "time", "v", "phase", "name")
"""Members that no server and no driver has a part in."""
