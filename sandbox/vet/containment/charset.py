"""Sets of Unicode scalar values as sorted, disjoint, non-adjacent inclusive intervals.

Surrogates (U+D800 … U+DFFF) belong to no set: strict JSON cannot carry them (``sandbox.jsontext``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Final, TypeAlias

CharSet: TypeAlias = tuple[tuple[int, int], ...]

LAST: Final = 0x10FFFF
SURROGATES: Final = (0xD800, 0xDFFF)
ANY: Final[CharSet] = ((0, SURROGATES[0] - 1), (SURROGATES[1] + 1, LAST))
NONE: Final[CharSet] = ()

LINE_ENDS_ECMA: Final[CharSet] = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
"""LineTerminator, ECMA-262 §12.3."""

NEWLINE: Final[CharSet] = ((0x0A, 0x0A),)

DIGITS: Final[CharSet] = ((0x30, 0x39),)
WORD_ASCII: Final[CharSet] = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
SPACE_ECMA: Final[CharSet] = (
    (0x09, 0x0D),
    (0x20, 0x20),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
)
"""WhiteSpace and LineTerminator, ECMA-262 §12.2, §12.3."""


def of(intervals: Iterable[tuple[int, int]]) -> CharSet:
    """Return the set of some intervals, in any order, overlapping or not; surrogates are left out."""
    return intersection(_merge(intervals), ANY)


def _merge(intervals: Iterable[tuple[int, int]]) -> CharSet:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(intervals):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def union(*sets: CharSet) -> CharSet:
    """Return the union."""
    return _merge(interval for one in sets for interval in one)


def complement(one: CharSet) -> CharSet:
    """Return all scalar values that are not in the set."""
    gaps: list[tuple[int, int]] = []
    start = 0
    for low, high in one:
        if low > start:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= LAST:
        gaps.append((start, LAST))
    return intersection(tuple(gaps), ANY)


def intersection(one: CharSet, other: CharSet) -> CharSet:
    """Return the common scalar values."""
    common: list[tuple[int, int]] = []
    i = j = 0
    while i < len(one) and j < len(other):
        low = max(one[i][0], other[j][0])
        high = min(one[i][1], other[j][1])
        if low <= high:
            common.append((low, high))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return tuple(common)


_SCAN_TO: Final = {"d": 0x20000, "w": 0x40000, "s": 0x3100}
"""First code point that need not be asked about: no later one is in the class (a test shows that)."""


@cache
def python_class(letter: str) -> CharSet:
    r"""Return what ``\d``, ``\w`` or ``\s`` means to Python's ``re`` on ``str``: Unicode classes of this Python.

    Asked of ``re`` itself, once for each letter and process (up to 40 ms), so that it cannot differ from it.
    """
    low, high = SURROGATES
    everything = "".join(map(chr, range(min(low, _SCAN_TO[letter]))))
    if _SCAN_TO[letter] > high:
        everything += "\x00" * (high - low + 1) + "".join(map(chr, range(high + 1, _SCAN_TO[letter])))
    return of((found.start(), found.end() - 1) for found in re.finditer(rf"\{letter}+", everything))


ECMA_CLASSES: Final = {"d": DIGITS, "w": WORD_ASCII, "s": SPACE_ECMA}
"""CharacterClassEscape, ECMA-262 §22.2.2.9."""
