r"""Parser of the regular expressions that have one clear meaning in ECMA-262 and in Python.

JSON Schema asks for ECMA-262 (2020-12 core §6.4); the reference implementation uses Python's ``re``. The two agree on
a large fragment: literals, classes, groups, alternation, greedy or lazy quantifiers, ``^`` and ``$``. Inside the
fragment the parser is told which :class:`Reading` to follow, because ``\d``, ``\w``, ``\s``, ``.`` and ``$`` denote
different sets. Look-ahead is accepted only directly after a leading ``^``, where it is an intersection of languages.
Everything else (look-behind, back-references, ``\b``, ``\p{…}``, inline flags, forms that one of the two rejects or
reads otherwise) raises :class:`UnsupportedError`; the pattern is then an opaque predicate about which only identity
is known.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from sandbox.vet.containment import charset
from sandbox.vet.containment.charset import CharSet

MAX_PATTERN_CHARS: Final = 2_000
"""Characters of one pattern; the longest seen in real tool schemas has about 200."""

MAX_GROUP_DEPTH: Final = 30
"""Nesting of groups; each level costs parser frames."""


class Reading(enum.Enum):
    """Whose meaning of regular expressions is followed. A *yes* must hold in every reading."""

    ECMA = "ECMA-262"
    PYTHON = "Python re"


class UnsupportedError(Exception):
    """The pattern lies outside the fragment."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of a set."""

    chars: CharSet


@dataclass(frozen=True, slots=True)
class Cat:
    """One after the other."""

    parts: tuple[Regex, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """One of these."""

    parts: tuple[Regex, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """``least`` to ``most`` times; ``most`` is ``None`` without an upper bound."""

    body: Regex
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Edge:
    """``^`` (``start``) or ``$``."""

    start: bool


@dataclass(frozen=True, slots=True)
class Look:
    """Look-ahead; only directly after a leading ``^``."""

    body: Regex
    negative: bool


Regex: TypeAlias = Chars | Cat | Alt | Repeat | Edge | Look

_COUNTED: Final = re.compile(r"\{([0-9]{1,6})(?:(,)([0-9]{1,6})?)?\}")
_CONTROL: Final = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D}
_QUANTIFIERS: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def parse(pattern: str, reading: Reading) -> Regex:
    """Return the syntax tree of a pattern.

    Raises:
        UnsupportedError: the pattern is outside the fragment, or not a regular expression at all.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise UnsupportedError
    parser = _Parser(pattern, reading)
    tree = parser.alternatives(0)
    if parser.at < len(pattern):
        raise UnsupportedError
    return tree


class _Parser:
    def __init__(self, text: str, reading: Reading) -> None:
        self.text = text
        self.at = 0
        self.reading = reading

    def peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def take(self) -> str:
        if self.at >= len(self.text):
            raise UnsupportedError
        self.at += 1
        return self.text[self.at - 1]

    def alternatives(self, depth: int) -> Regex:
        if depth > MAX_GROUP_DEPTH:
            raise UnsupportedError
        branches = [self.sequence(depth)]
        while self.peek() == "|":
            self.at += 1
            branches.append(self.sequence(depth))
        return branches[0] if len(branches) == 1 else Alt(tuple(branches))

    def sequence(self, depth: int) -> Regex:
        parts: list[Regex] = []
        while self.at < len(self.text) and self.peek() not in "|)":
            parts.append(self.quantified(depth))
        return parts[0] if len(parts) == 1 else Cat(tuple(parts))

    def quantified(self, depth: int) -> Regex:
        atom = self.atom(depth)
        bounds = self.quantifier()
        if bounds is None:
            return atom
        if isinstance(atom, Edge | Look):
            raise UnsupportedError
        if self.peek() == "?":  # lazy: same language
            self.at += 1
        if self.peek() in {"*", "+", "?"} or _COUNTED.match(self.text, self.at):
            raise UnsupportedError  # possessive in Python, an error in ECMA-262
        return Repeat(atom, *bounds)

    def quantifier(self) -> tuple[int, int | None] | None:
        mark = self.peek()
        if mark in _QUANTIFIERS:
            self.at += 1
            return _QUANTIFIERS[mark]
        if mark != "{":
            return None
        found = _COUNTED.match(self.text, self.at)
        if found is None:
            if self.text[self.at + 1 : self.at + 2] == ",":
                raise UnsupportedError  # {,n} counts in Python only
            return None
        self.at = found.end()
        least = int(found[1])
        most = least if found[2] is None else int(found[3]) if found[3] else None
        if most is not None and most < least:
            raise UnsupportedError
        return least, most

    def atom(self, depth: int) -> Regex:
        char = self.take()
        if char == "(":
            return self.group(depth)
        if char == "[":
            return Chars(self.bracket())
        if char == "\\":
            escaped = self.escape()
            return Chars(escaped if isinstance(escaped, tuple) else ((escaped, escaped),))
        if char == ".":
            ends = charset.LINE_ENDS_ECMA if self.reading is Reading.ECMA else charset.NEWLINE
            return Chars(charset.complement(ends))
        if char in "^$":
            return Edge(start=char == "^")
        if char in "*+?":
            raise UnsupportedError
        return Chars(charset.of([(ord(char), ord(char))]))

    def group(self, depth: int) -> Regex:
        look: bool | None = None
        if self.peek() == "?":
            self.at += 1
            mark = self.take()
            if mark not in ":=!":
                raise UnsupportedError
            look = None if mark == ":" else mark == "!"
        body = self.alternatives(depth + 1)
        if self.take() != ")":
            raise UnsupportedError
        return body if look is None else Look(body, negative=look)

    def escape(self) -> int | CharSet:
        char = self.take()
        if char in "dwsDWS":
            return self.named_class(char)
        if char in _CONTROL:
            return _CONTROL[char]
        if char == "0" and not self.peek().isdigit():
            return 0
        if char in "xu":
            return self.hexadecimal(2 if char == "x" else 4)
        if char.isascii() and not char.isalnum():
            return ord(char)
        raise UnsupportedError

    def named_class(self, letter: str) -> CharSet:
        lower = letter.lower()
        found = charset.ECMA_CLASSES[lower] if self.reading is Reading.ECMA else charset.python_class(lower)
        return found if letter == lower else charset.complement(found)

    def hexadecimal(self, digits: int) -> int:
        text = self.text[self.at : self.at + digits]
        if len(text) < digits or any(char not in "0123456789abcdefABCDEF" for char in text):
            raise UnsupportedError
        self.at += digits
        point = int(text, 16)
        if charset.SURROGATES[0] <= point <= charset.SURROGATES[1]:
            raise UnsupportedError  # one half of a pair: read differently everywhere
        return point

    def bracket(self) -> CharSet:
        negated = self.peek() == "^"
        if negated:
            self.at += 1
        if self.peek() == "]":
            raise UnsupportedError  # empty class in ECMA-262, a literal in Python
        members: list[tuple[int, int]] = []
        while self.peek() != "]":
            low = self.member()
            if self.peek() == "-" and self.text[self.at + 1 : self.at + 2] != "]":
                self.at += 1
                high = self.member()
                if isinstance(low, tuple) or isinstance(high, tuple) or high < low:
                    raise UnsupportedError
                members.append((low, high))
            else:
                members.extend(low if isinstance(low, tuple) else ((low, low),))
        self.at += 1
        return charset.complement(charset.of(members)) if negated else charset.of(members)

    def member(self) -> int | CharSet:
        char = self.take()
        if char == "\\":
            return self.escape()
        following = self.peek()
        if char == "[" or (char == following and char in "&|~-"):
            raise UnsupportedError  # may become set operations in either language
        return ord(char)
