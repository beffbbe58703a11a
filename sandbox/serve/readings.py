r"""What a text can be taken for: every reading of a path that a decoder behind us might make.

A path is safe only when *each* reading of it stays inside. Servers decode once, twice, not at all, tolerate overlong
UTF-8, fold Unicode, or treat a backslash as a slash; which of them a given server does is unknown. So the text is not
normalised to one meaning: all meanings are enumerated, and one that climbs (``..``) refuses the text.

Readings are the closure of the text under

- percent-decoding, with ``%uXXXX`` and with overlong or truncated UTF-8 as lenient decoders take it (CVE-2000-0884
  class);
- Unicode folding: NFKC, invisible characters dropped, look-alikes of dot, slash and backslash mapped, and the
  private-use characters that SMB and Cygwin use for reserved ones.

In each, ``/`` and ``\`` separate components, and a component counts up to the first of ``? # ; :`` (queries, path
parameters, streams).

Bounded: each round is linear, decoding shortens, and more than :data:`MAX_READINGS` readings refuse the text. There is
    no
backtracking: each pattern consumes disjoint classes.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final
from urllib.parse import unquote_to_bytes

from sandbox.limits import KIB

MAX_READINGS: Final = 12
"""Different readings of one text. A name with a percent sign has two, a doubly encoded one three; more is
obfuscation."""

MAX_READING_CHARS: Final = 16 * KIB
"""One reading. Folding can lengthen a text eighteenfold; a path has 4 KiB, and no name needs four times that."""

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_COMPONENT: Final = re.compile(r"(?:^|[/\\])([ .]*)(?=[/\\?#;:]|$)")
_PERCENT_U: Final = re.compile(r"%[uU]([0-9A-Fa-f]{4})")
_OVERLONG: Final = re.compile(
    rb"[\xc0\xc1].|\xe0[\x80-\x9f].|\xf0[\x80-\x8f]..|\xf8[\x80-\x87]...|\xfc[\x80-\x83]....", re.DOTALL
)
_INVISIBLE: Final = re.compile("[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e"
                               "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]")  # fmt: skip
_LOOKALIKE: Final = str.maketrans(
    {
        **dict.fromkeys("\u2044\u2215\u2571\u29f8\u29f6\u2afd\uff0f\uf02f\u1735\u2cc6", "/"),
        **dict.fromkeys("\u2216\u29f5\u29f9\ufe68\uff3c\uf05c\u27cd\u20e5", "\\"),
        **dict.fromkeys("\u2024\uff0e\ufe52\uf02e\u0701\u0702\ua60e", "."),
    }
)
_HAS_LOOKALIKE: Final = re.compile("[" + "".join(map(chr, _LOOKALIKE)) + "]")


class TooManyReadings(ValueError):
    """The text has more readings than anybody needs: it is written to confuse decoders."""


def is_plain(text: str) -> bool:
    """Return whether the text has only one reading: itself."""
    return text.isascii() and "%" not in text and "\\" not in text


def readings(text: str) -> list[str]:
    """Return all readings of a text, itself first.

    Raises:
        TooManyReadings: more than :data:`MAX_READINGS`, or one longer than :data:`MAX_READING_CHARS`.
    """
    found = [text]
    seen = {text}
    for reading in found:
        for other in (decoded(reading), folded(reading)):
            if other not in seen:
                if len(found) == MAX_READINGS or len(other) > MAX_READING_CHARS:
                    raise TooManyReadings(f"more than {MAX_READINGS} readings, or one too long")
                seen.add(other)
                found.append(other)
    return found


def decoded(text: str) -> str:
    """Return the text after one round of lenient percent-decoding."""
    if "%" not in text:
        return text
    wide = _PERCENT_U.sub(_wide, text)
    raw = unquote_to_bytes(wide.encode("utf-8", "replace"))
    return _OVERLONG.sub(_overlong, raw).decode("utf-8", "replace")


def folded(text: str) -> str:
    """Return the text as software sees it that normalises Unicode or drops what cannot be seen."""
    if text.isascii():
        return text
    return _alike(unicodedata.normalize("NFKC", _alike(_INVISIBLE.sub("", text))))


def _alike(text: str) -> str:
    return text.translate(_LOOKALIKE) if _HAS_LOOKALIKE.search(text) else text


def has_control(text: str) -> bool:
    """Return whether the text has a C0 or C1 control character."""
    return _CONTROL.search(text) is not None


def climbs(text: str) -> bool:
    """Return whether a component of one reading is ``..``, also with spaces around or between the dots.

    Three dots and more are an ordinary name, unless a space makes them something that Windows would trim.
    """
    if ".." not in text and ". " not in text:
        return False
    return any(_goes_up(match[1]) for match in _COMPONENT.finditer(text))


def _goes_up(dots: str) -> bool:
    count = dots.count(".")
    return count == 2 or (count > 2 and " " in dots)  # noqa: PLR2004 - the two dots of `..`


def _wide(match: re.Match[str]) -> str:
    code = int(match[1], 16)
    return "\ufffd" if 0xD800 <= code <= 0xDFFF else chr(code)  # noqa: PLR2004 - surrogates are no characters


def _overlong(match: re.Match[bytes]) -> bytes:
    """Return what a decoder that does not check for the shortest form makes of a sequence: its last seven bits."""
    *_, high, low = match[0]
    return bytes([((high & 0x3F) << 6 | low & 0x3F) & 0x7F])
