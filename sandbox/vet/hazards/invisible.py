"""Characters that a person does not see and a model does.

What counts as hidden: bidirectional controls (reorder what is shown), zero-width and filler characters, tag
characters and variation selectors (carry data), control characters and terminal escapes, noncharacters. What is
allowed because people write it: joiners inside emoji sequences and between letters of scripts that need them (RFC
5892 appendix A), one variation selector after a character that has variants, the three flags made of tags (Unicode
TR51).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Final, NamedTuple

_BIDI: Final = frozenset((0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)))
_ZERO_WIDTH: Final = frozenset(
    (
        *(0x00AD, 0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180E, 0x200B, 0x2028, 0x2029, 0x3164, 0xFEFF, 0xFFA0),
        *range(0x2060, 0x2066),
        *range(0x206A, 0x2070),
        *range(0xFFF0, 0xFFFC),
        *range(0x1BCA0, 0x1BCA4),
        *range(0x1D173, 0x1D17B),
    )
)
_ZWNJ: Final = 0x200C
_ZWJ: Final = 0x200D
_VARIATION: Final = (range(0xFE00, 0xFE10), range(0x180B, 0x180E), range(0xE0100, 0xE01F0))
_EMOJI_STYLE: Final = frozenset((0xFE0E, 0xFE0F))
_TAGS: Final = range(0xE0000, 0xE0080)
_TAG_END: Final = 0xE007F
_BLACK_FLAG: Final = 0x1F3F4
_FLAGS: Final = frozenset(("gbeng", "gbsct", "gbwls"))
_KEYCAP: Final = 0x20E3
_SKIN: Final = range(0x1F3FB, 0x1F400)
_PICTURES: Final = (
    *(range(0x1F000, 0x1FB00), range(0x2190, 0x2200), range(0x2300, 0x2400), range(0x2460, 0x2500)),
    *(range(0x25A0, 0x27C0), range(0x2900, 0x2980), range(0x2B00, 0x2C00)),
)
_OTHER_PICTURES: Final = frozenset((0x00A9, 0x00AE, 0x203C, 0x2049, 0x2122, 0x2139, 0x3030, 0x303D, 0x3297, 0x3299))
_VIRAMA: Final = 9
"""Canonical combining class of the signs that join letters in Indic scripts."""

_LINES: Final = frozenset("\t\n\r")


class Hidden(NamedTuple):
    """One hidden character: where, which, and of what sort."""

    at: int
    char: str
    sort: str


def hidden(text: str, *, name: bool = False) -> Iterator[Hidden]:
    """Yield the hidden characters of a text.

    Args:
        text: any text.
        name: it is an identifier, in which line breaks, joiners and selectors have no use either.
    """
    if text.isascii() and text.isprintable():
        return
    flags = set() if name else _flag_tags(text)
    for index, char in enumerate(text):
        sort = _sort(text, index, name=name)
        if sort and index not in flags:
            yield Hidden(index, char, sort)


def visible(text: str) -> str:
    """Return a text with every hidden character written out as ``<U+202E>``, for reviewers."""
    places = {one.at for one in hidden(text)}
    return "".join(f"<U+{ord(char):04X}>" if index in places else char for index, char in enumerate(text))


def _sort(text: str, index: int, *, name: bool) -> str:
    """Return what sort of hidden character stands at an index, or nothing."""
    point = ord(text[index])
    if point < 0x20 or 0x7F <= point < 0xA0:  # noqa: PLR2004 - C0, DEL and C1
        return _control(text[index], name=name)
    if point in _BIDI:
        return "bidirectional control"
    if point in _TAGS:
        return "tag character"
    if point in _ZERO_WIDTH:
        return "zero-width character"
    if point in (_ZWNJ, _ZWJ):
        return "" if not name and _joins(text, index) else "zero-width joiner"
    if any(point in one for one in _VARIATION):
        return "" if not name and _varies(text, index) else "variation selector"
    if 0xD800 <= point < 0xE000 or point & 0xFFFE == 0xFFFE or 0xFDD0 <= point < 0xFDF0:  # noqa: PLR2004 - Unicode §23.7
        return "noncharacter"
    return ""


def _control(char: str, *, name: bool) -> str:
    if char in _LINES and not name:
        return ""
    return "terminal escape" if char in "\x1b\x9b" else "control character"


def _joins(text: str, index: int) -> bool:
    """Return whether a joiner stands where people write one."""
    before, after = _before(text, index), text[index + 1 : index + 2]
    if not before or not after:
        return False
    if ord(text[index]) == _ZWJ and _picture(before) and _picture(after):
        return True
    if unicodedata.combining(text[index - 1]) == _VIRAMA:
        return True
    return all(unicodedata.bidirectional(char) == "AL" for char in (text[index - 1], after))


def _before(text: str, index: int) -> str:
    """Return the character before, modifiers of an emoji skipped."""
    while index > 0:
        index -= 1
        if ord(text[index]) not in _EMOJI_STYLE and ord(text[index]) not in _SKIN:
            return text[index]
    return ""


def _varies(text: str, index: int) -> bool:
    """Return whether a variation selector follows a character that has variants."""
    if index == 0:
        return False
    before, point = text[index - 1], ord(text[index])
    if point in _EMOJI_STYLE:
        keycap = before in "0123456789#*" and text[index + 1 : index + 2] == chr(_KEYCAP)
        return keycap or _picture(before)
    if point in _VARIATION[1]:
        return "MONGOLIAN" in unicodedata.name(before, "")
    return unicodedata.name(before, "").startswith("CJK")


def _picture(char: str) -> bool:
    point = ord(char)
    return point in _OTHER_PICTURES or any(point in one for one in _PICTURES)


def _flag_tags(text: str) -> set[int]:
    """Return the indexes of tag characters that spell one of the three flags."""
    allowed: set[int] = set()
    start = text.find(chr(_BLACK_FLAG))
    while start >= 0:
        end = text.find(chr(_TAG_END), start)
        spelled = "".join(chr(ord(char) - _TAGS.start) for char in text[start + 1 : end] if ord(char) in _TAGS)
        if end > start and spelled in _FLAGS and len(spelled) == end - start - 1:
            allowed.update(range(start + 1, end + 1))
        start = text.find(chr(_BLACK_FLAG), start + 1)
    return allowed
