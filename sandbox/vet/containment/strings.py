"""Sets of strings: unions of boxes, each an intersection of length bounds, patterns, listed words, opaque predicates.

A set is a tuple of :class:`Box`; ``()`` is empty, :data:`EVERY_STRING` is all. The sets are closed under union,
intersection and complement, exactly; only the number of boxes is bounded. Whether a box holds a string at all is
decided by a :class:`Lexicon`, which knows in which reading patterns are meant: lengths count code points (2020-12
validation §6.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice, product
from typing import Final, NamedTuple, TypeAlias

from sandbox.vet.containment import automaton, regex
from sandbox.vet.containment.automaton import PRINTABLE, Dfa
from sandbox.vet.containment.budget import MAX_BOXES, MAX_WITNESS_CHARS, Budget, UndecidedError
from sandbox.vet.containment.charset import ANY
from sandbox.vet.containment.outcome import EMPTY, Found, Open, Outcome, better, doubt
from sandbox.vet.containment.regex import Reading, UnsupportedError
from sandbox.vet.containment.words import Words, characters

MAX_CACHED_PATTERNS: Final = 512
"""Automata kept between decisions; the oldest goes first."""

MAX_CACHED_STATES: Final = 300
"""States of an automaton that is kept; larger ones are built again rather than filling the memory."""

_NO_TEXT: Final[frozenset[str]] = frozenset()


class Box(NamedTuple):
    """One conjunction of facts about a string.

    Attributes:
        least: fewest code points.
        most: most code points, ``None`` without a bound.
        only: when given, the string is one of these.
        but: the string is none of these.
        pos: patterns that match.
        neg: patterns that do not match.
        is_a: opaque predicates that hold, such as ``format:uri``.
        is_not: opaque predicates that do not hold.
    """

    least: int = 0
    most: int | None = None
    only: frozenset[str] | None = None
    but: frozenset[str] = _NO_TEXT
    pos: frozenset[str] = _NO_TEXT
    neg: frozenset[str] = _NO_TEXT
    is_a: frozenset[str] = _NO_TEXT
    is_not: frozenset[str] = _NO_TEXT


StringSet: TypeAlias = tuple[Box, ...]

EVERY_STRING: Final[StringSet] = (Box(),)
NO_STRING: Final[StringSet] = ()


def words(texts: Iterable[str]) -> StringSet:
    """Return the set of the given strings."""
    only = frozenset(texts)
    return (Box(only=only),) if only else NO_STRING


def meet_boxes(one: Box, other: Box) -> Box | None:
    """Return the intersection of two boxes, ``None`` when it is empty for a simple reason."""
    least = max(one.least, other.least)
    most = one.most if other.most is None else other.most if one.most is None else min(one.most, other.most)
    pos, neg = one.pos | other.pos, one.neg | other.neg
    is_a, is_not = one.is_a | other.is_a, one.is_not | other.is_not
    if (most is not None and most < least) or not pos.isdisjoint(neg) or not is_a.isdisjoint(is_not):
        return None
    but = one.but | other.but
    only = one.only if other.only is None else other.only if one.only is None else one.only & other.only
    if only is not None:
        only = frozenset(text for text in only - but if least <= len(text) and (most is None or len(text) <= most))
        if not only:
            return None
        least, most, but = 0, None, _NO_TEXT
    return Box(least, most, only, but, pos, neg, is_a, is_not)


def meet(one: StringSet, other: StringSet) -> StringSet:
    """Return the intersection of two sets.

    Raises:
        UndecidedError: the result has too many boxes.
    """
    if one == EVERY_STRING:
        return other
    if other == EVERY_STRING:
        return one
    met = (meet_boxes(left, right) for left, right in product(one, other))
    return simplify(box for box in met if box is not None)


def join(*sets: StringSet) -> StringSet:
    """Return the union of sets."""
    return simplify(box for one in sets for box in one)


def simplify(boxes: Iterable[Box]) -> StringSet:
    """Return equal boxes once, word lists merged, everything when one box is everything."""
    kept: dict[Box, None] = {}
    merged: dict[Box, frozenset[str]] = {}
    for box in boxes:
        if box == EVERY_STRING[0]:
            return EVERY_STRING
        if box.only is None:
            kept[box] = None
        else:
            rest = box._replace(only=None)
            merged[rest] = merged.get(rest, _NO_TEXT) | box.only
        if len(kept) + len(merged) > MAX_BOXES:
            raise UndecidedError("a set of strings has too many alternatives")
    return (*(rest._replace(only=only) for rest, only in merged.items()), *kept)


def without(one: StringSet) -> StringSet:
    """Return the complement.

    Raises:
        UndecidedError: the result has too many boxes.
    """
    result = EVERY_STRING
    for box in one:
        result = meet(result, tuple(_outside(box)))
    return result


def _outside(box: Box) -> Iterator[Box]:
    if box.only is not None:
        yield Box(but=box.only)
    if box.least > 0:
        yield Box(most=box.least - 1)
    if box.most is not None:
        yield Box(least=box.most + 1)
    if box.but:
        yield Box(only=box.but)
    yield from (Box(neg=frozenset({pattern})) for pattern in sorted(box.pos))
    yield from (Box(pos=frozenset({pattern})) for pattern in sorted(box.neg))
    yield from (Box(is_not=frozenset({name})) for name in sorted(box.is_a))
    yield from (Box(is_a=frozenset({name})) for name in sorted(box.is_not))


_automata: dict[tuple[str, Reading], Dfa | None] = {}


class Lexicon:
    """Decides whether sets of strings are empty, in one reading of regular expressions.

    Args:
        reading: whose regular expressions are meant.
        budget: pays for the work.

    Attributes:
        consulted: whether the answer to anything so far could depend on the reading.
    """

    def __init__(self, reading: Reading, budget: Budget) -> None:
        self.reading = reading
        self.budget = budget
        self.consulted = False
        self._answers: dict[Box, Outcome] = {}
        self._own: dict[str, Dfa | None] = {}

    def automaton(self, pattern: str) -> Dfa | None:
        """Return the automaton of a pattern, ``None`` when it is opaque."""
        self.consulted = True
        if pattern in self._own:
            return self._own[pattern]
        key = (pattern, self.reading)
        if key not in _automata:
            try:
                found: Dfa | None = automaton.build(regex.parse(pattern, self.reading), self.reading, self.budget)
            except UnsupportedError:
                found = None
            self._own[pattern] = found
            if found is None or len(found.table) <= MAX_CACHED_STATES:
                if len(_automata) >= MAX_CACHED_PATTERNS:
                    _automata.pop(next(iter(_automata)), None)
                _automata[key] = found
        else:
            self._own[pattern] = _automata[key]
        return self._own[pattern]

    def holds(self, text: str, box: Box) -> bool | None:
        """Return whether a string is in a box, ``None`` when an opaque predicate decides that."""
        self.budget.spend()
        if len(text) < box.least or (box.most is not None and len(text) > box.most) or text in box.but:
            return False
        if box.only is not None and text not in box.only:
            return False
        verdicts = [self.matches(text, pattern) for pattern in box.pos]
        verdicts += [_negate(self.matches(text, pattern)) for pattern in box.neg]
        if False in verdicts:
            return False
        return None if box.is_a or box.is_not or None in verdicts else True

    def matches(self, text: str, pattern: str) -> bool | None:
        """Return whether a pattern matches somewhere in a string, ``None`` when the pattern is opaque."""
        dfa = self.automaton(pattern)
        if dfa is None:
            return None
        self.budget.spend(1 + len(text) // 16)
        return dfa.matches(text)

    def contains(self, text: str, where: StringSet) -> bool | None:
        """Return whether a string is in a set, ``None`` when that is not decided."""
        undecided = False
        for box in where:
            held = self.holds(text, box)
            if held:
                return True
            undecided = undecided or held is None
        return None if undecided else False

    def find(self, where: StringSet) -> Outcome:
        """Return a short string of the set, or that there is none."""
        undecided: Open | None = None
        best: Found | None = None
        for box in where:
            outcome = self.find_in(box)
            if isinstance(outcome, Open):
                undecided = better(undecided, outcome)
            elif isinstance(outcome, Found) and (best is None or _readability(outcome) < _readability(best)):
                best = outcome
        return best or undecided or EMPTY

    def find_in(self, box: Box) -> Outcome:
        """Return a short string of the box, or that there is none."""
        if box not in self._answers:
            self._answers[box] = self._search(box)
        return self._answers[box]

    def _search(self, box: Box) -> Outcome:
        self.budget.spend()
        opaque = sorted(box.is_a | box.is_not)
        opaque += [f"pattern:{text}" for text in sorted(box.pos | box.neg) if self.automaton(text) is None]
        try:
            word = next(self._members(box), None)
        except UndecidedError as error:
            if self.budget.left < 0:
                raise
            return Open(error.reason)
        except UnsupportedError:
            return Open("an intersection of patterns is too complex")
        if word is None:
            return EMPTY
        return Open(doubt(opaque), word) if opaque else Found(word)

    def members(self, box: Box, limit: int) -> list[str]:
        """Return up to ``limit`` different strings of a box without opaque predicates.

        Raises:
            UndecidedError: the strings are too long to be written down, or an intersection is too complex.
        """
        try:
            return list(islice(self._members(box), limit))
        except UnsupportedError:
            raise UndecidedError("an intersection of patterns is too complex") from None

    def _members(self, box: Box) -> Iterator[str]:
        """Yield the strings of a box, opaque predicates taken as fulfilled."""
        if box.only is not None:
            listed = sorted(box.only, key=lambda text: (len(text), text))
            yield from (text for text in listed if self.holds(text, box) is not False)
            return
        known = [
            (self.automaton(text), wanted)
            for texts, wanted in ((box.pos, True), (box.neg, False))
            for text in sorted(texts)
        ]
        parts = [(dfa, wanted) for dfa, wanted in known if dfa is not None]
        source = self._readable(parts, box) if parts else _ordered(_plain, box.least, box.most)
        for text in source:
            self.budget.spend()
            if text not in box.but:
                yield text

    def _readable(self, parts: list[tuple[Dfa, bool]], box: Box) -> Iterator[str]:
        """Yield the words of an intersection, those in printable ASCII first: every engine reads them alike."""
        try:
            yield from _ordered(Words([*parts, (PRINTABLE, True)], self.budget).all, box.least, box.most)
        except UndecidedError:
            if self.budget.left < 0:
                raise
        others = _ordered(Words(parts, self.budget).all, box.least, box.most)
        yield from (text for text in others if not PRINTABLE.matches(text))


def _negate(verdict: bool | None) -> bool | None:
    return None if verdict is None else not verdict


def _readability(found: Found) -> tuple[bool, int]:
    return (found.value == "", len(found.value))


def _ordered(source: Callable[[int, int | None], Iterator[str]], least: int, most: int | None) -> Iterator[str]:
    """Yield the words within bounds, one-letter words before the empty one, which is hard to see in a message."""
    if least > 0 or most == 0:
        yield from source(least, most)
        return
    yield from source(1, 1)
    yield from source(0, 0)
    if most is None or most > 1:
        yield from source(2, most)


def _plain(least: int, most: int | None) -> Iterator[str]:
    """Yield strings within length bounds, more than any schema can exclude: over a million of each length but zero."""
    if least > MAX_WITNESS_CHARS:
        raise UndecidedError(f"every string that would do is longer than {MAX_WITNESS_CHARS} characters")
    for length in count(least) if most is None else range(least, most + 1):
        if length == 0:
            yield ""
        else:
            yield from ("a" * (length - 1) + char for char in characters(ANY))
