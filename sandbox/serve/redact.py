r"""Takes known secrets out of text, in the encodings in which programs print them (J22).

A server that was given a secret may print it: in an error, a debug dump, a URL. What is searched for, for each secret:
itself, JSON-escaped, percent-encoded (every character, or those that must be; both cases), HTML-escaped, hexadecimal
(both cases, also as ``\x..``), base64 (standard and URL-safe, at every alignment, so also inside something longer),
base32, reversed; each also when spaces, line ends or invisible characters stand in between.

This stops accidents. A server that means to can compress, encrypt or spell out what it knows; against that stand the
network rules, and secrets that the process never holds (``egress-substitute``).
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote, quote_plus

MIN_SECRET_CHARS: Final = 6
"""Shorter values are not searched for: they would be found in everything."""

MIN_NEEDLE_CHARS: Final = 6
"""Encoded forms shorter than this are left out for the same reason."""

MAX_ROUNDS: Final = 1000
"""Places that are taken out of one text one by one; beyond it the whole text is replaced."""

_GAP: Final = re.compile("[\\s\u00ad\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff]+")
_GAP_RANGES: Final = (
    (0x09, 0x0D), (0x1C, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0xAD, 0xAD), (0x1680, 0x1680), (0x2000, 0x200F),
    (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x2064), (0x3000, 0x3000), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
)  # fmt: skip
_GAPS: Final = dict.fromkeys(code for first, last in _GAP_RANGES for code in range(first, last + 1))
"""The same characters for ``str.translate``, which takes them out twenty times faster."""

_REST_OF_GROUP: Final = (0, 2, 3)
"""Leading base64 characters that mix with what stands before, by how many bytes of a group of three stand there."""


class Redactor:
    """Replaces secrets by ``[redacted:slug]``.

    Args:
        secrets: slug → value.

    Attributes:
        uncovered: slugs of values too short to be searched for.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self.uncovered = tuple(slug for slug, value in secrets.items() if len(value) < MIN_SECRET_CHARS)
        covered = {slug: value for slug, value in secrets.items() if slug not in self.uncovered}
        pairs = {needle: slug for slug, value in covered.items() for needle in encodings(value)}
        self._needles = tuple(sorted(pairs.items(), key=lambda pair: -len(pair[0])))
        dense = {needle.translate(_GAPS): slug for needle, slug in self._needles}
        self._dense = tuple((needle, slug) for needle, slug in dense.items() if len(needle) >= MIN_NEEDLE_CHARS)
        self._shortest = min((len(needle) for needle, _ in self._dense), default=0)

    def __bool__(self) -> bool:
        """Return whether there is anything to search for."""
        return bool(self._needles)

    def finds(self, text: str) -> bool:
        """Return whether a text holds a secret in some form."""
        return self.redact(text) is not text

    def redact(self, text: str) -> str:
        """Return a text without secrets; the same object when it holds none."""
        if not self._needles or len(text) < self._shortest:
            return text
        for needle, slug in self._needles:
            if needle in text:
                text = text.replace(needle, f"[redacted:{slug}]")
        return self._spaced(text) if _GAP.search(text) else text

    def _spaced(self, text: str) -> str:
        """Take out secrets with gaps in between."""
        dense = text.translate(_GAPS)
        if not any(needle in dense for needle, _ in self._dense):
            return text
        kept = [index for index, character in enumerate(text) if not _GAP.match(character)]
        cuts = sorted(self._places(dense))
        if len(cuts) > MAX_ROUNDS:
            return "[redacted]"
        parts, end = [], 0
        for start, length, slug in cuts:
            first, last = kept[start], kept[start + length - 1]
            if first >= end:
                parts += [text[end:first], f"[redacted:{slug}]"]
            end = max(end, last + 1)
        return "".join(parts) + text[end:]

    def _places(self, dense: str) -> Iterator[tuple[int, int, str]]:
        for needle, slug in self._dense:
            start = dense.find(needle)
            while start >= 0:
                yield start, len(needle), slug
                start = dense.find(needle, start + len(needle))


def encodings(value: str) -> frozenset[str]:
    """Return the forms of a secret that are searched for."""
    raw = value.encode("utf-8", "surrogatepass")
    digits = raw.hex()
    every = "".join(f"%{byte:02x}" for byte in raw)
    forms = {
        value,
        value[::-1],
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        json.dumps(value)[1:-1].replace("/", "\\/"),
        html.escape(value),
        digits,
        digits.upper(),
        "".join(f"\\x{byte:02x}" for byte in raw),
        every,
        every.upper(),
        base64.b32encode(raw).decode().rstrip("="),
        *_percent(value),
        *_base64(raw),
    }
    return frozenset(form for form in forms if len(form) >= MIN_NEEDLE_CHARS)


def _percent(value: str) -> Iterable[str]:
    for form in (
        quote(value, safe="", errors="replace"),
        quote(value, errors="replace"),
        quote_plus(value, errors="replace"),
    ):
        yield form
        yield re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), form)


def _base64(raw: bytes) -> Iterator[str]:
    """Yield the characters that a value always gives, whatever stands before and after it."""
    for before, dropped in enumerate(_REST_OF_GROUP):
        whole = (before + len(raw)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(b"\0" * before + raw).decode()[dropped:whole]
