"""Shortest, readable words of an intersection of regular languages, one after the other and never twice.

For automata with a common alphabet the reachable product is explored once. ``F(k)``, the states from which exactly
``k`` more letters can end in acceptance, is computed backwards, layer by layer; the layers repeat sooner or later,
which decides bounds of any size (``minLength: 1000000``) without walking them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sandbox.vet.containment.automaton import Dfa, Letters, explore
from sandbox.vet.containment.budget import MAX_WITNESS_CHARS, Budget, UndecidedError

MAX_PRODUCT_STATES: Final = 20_000
"""Reachable states of one product; the budget usually ends first."""

_PREFERRED: Final = (
    (0x61, 0x7A),
    (0x41, 0x5A),
    (0x30, 0x39),
    (0x5F, 0x5F),
    (0x2D, 0x2D),
    (0x2E, 0x2E),
    (0x21, 0x7E),
    (0x20, 0x20),
)
"""Characters that read well in a counterexample, best first; no regular-expression engine reads them differently."""


class Words:
    """The language of an intersection.

    Args:
        parts: at least one automaton, each with whether its language (true) or the complement is meant.
        budget: pays for the work.

    Raises:
        UnsupportedError: the product is too large.
        UndecidedError: the budget is empty.
    """

    def __init__(self, parts: Sequence[tuple[Dfa, bool]], budget: Budget) -> None:
        self._budget = budget
        self._letters = Letters.of([dfa for dfa, _ in parts])
        states, table = explore(parts, self._letters, budget, MAX_PRODUCT_STATES)
        self._intervals: dict[int, list[tuple[int, int]]] = {}
        self._ranks = [self._rank(letter) for letter in range(len(self._letters.columns))]
        self._edges = [self._outgoing(row) for row in table]
        self._before: list[list[int]] = [[] for _ in table]
        for state, row in enumerate(table):
            for target in {one for one in row if one >= 0}:
                self._before[target].append(state)
        final = frozenset(
            number
            for number, state in enumerate(states)
            if all(dfa.accepts[one] is wanted for (dfa, wanted), one in zip(parts, state, strict=True))
        )
        self._layers: list[frozenset[int]] = [final]
        self._seen = {final: 0}
        self._cycle: tuple[int, int] | None = None

    def _points(self, letter: int) -> list[tuple[int, int]]:
        if letter not in self._intervals:
            self._intervals[letter] = self._letters.intervals(letter)
        return self._intervals[letter]

    def _rank(self, letter: int) -> tuple[int, int]:
        """Return how well the best character of a letter reads; lower is better."""
        best = (len(_PREFERRED), self._points(letter)[0][0])
        for rank, (low, high) in enumerate(_PREFERRED):
            for start, end in self._points(letter):
                if start <= high and end >= low:
                    return (rank, max(start, low))
        return best

    def _outgoing(self, row: Sequence[int]) -> list[tuple[int, int]]:
        edges = [(letter, target) for letter, target in enumerate(row) if target >= 0]
        return sorted(edges, key=lambda edge: self._ranks[edge[0]])

    def _layer(self, length: int) -> frozenset[int]:
        """Return ``F(length)``."""
        while self._cycle is None and len(self._layers) <= length:
            last = self._layers[-1]
            following = frozenset(state for target in last for state in self._before[target])
            self._budget.spend(1 + len(last) + len(following))
            if following in self._seen:
                self._cycle = (self._seen[following], len(self._layers))
                break
            self._seen[following] = len(self._layers)
            self._layers.append(following)
        if length < len(self._layers):
            return self._layers[length]
        assert self._cycle is not None  # noqa: S101 - the loop above ends in no other way
        start, end = self._cycle
        return self._layers[start + (length - start) % (end - start)]

    def lengths(self, least: int, most: int | None) -> Iterator[int]:
        """Yield the lengths of words within bounds, ascending; ends only when there are no more."""
        length = least
        idle = 0
        while most is None or length <= most:
            self._budget.spend()
            if 0 in self._layer(length):
                idle = 0
                yield length
            else:
                idle += 1
                if self._cycle is not None and idle > self._cycle[1] - self._cycle[0] and length > self._cycle[1]:
                    return
            length += 1

    def first(self, least: int, most: int | None) -> str | None:
        """Return the shortest word within bounds, or ``None`` when there is none."""
        return next(self.all(least, most), None)

    def all(self, least: int, most: int | None) -> Iterator[str]:
        """Yield every word within bounds once, shortest first, readable ones first.

        Raises:
            UndecidedError: words exist, but only longer ones than a witness may be.
        """
        for length in self.lengths(least, most):
            if length > MAX_WITNESS_CHARS:
                raise UndecidedError(f"every string that would do is longer than {MAX_WITNESS_CHARS} characters")
            yield from self._of_length(length)

    def _of_length(self, length: int) -> Iterator[str]:
        if length == 0:
            yield ""
            return
        chosen: list[str] = []
        stack = [self._choices(0, length)]
        while stack:
            self._budget.spend()
            choice = next(stack[-1], None)
            if choice is None:
                stack.pop()
                if chosen:
                    chosen.pop()
                continue
            char, target = choice
            if len(stack) == length:
                yield "".join((*chosen, char))
            else:
                chosen.append(char)
                stack.append(self._choices(target, length - len(stack)))

    def _choices(self, state: int, remaining: int) -> Iterator[tuple[str, int]]:
        allowed = self._layer(remaining - 1)
        for letter, target in self._edges[state]:
            if target in allowed:
                yield from ((char, target) for char in characters(self._points(letter)))


def characters(intervals: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Yield every character of some intervals once, readable ones first."""
    given: list[tuple[int, int]] = []
    for low, high in (*_PREFERRED, (0, 0x10FFFF)):
        for start, end in intervals:
            for point in range(max(low, start), min(high, end) + 1):
                if not any(first <= point <= last for first, last in given):
                    yield chr(point)
        given.append((low, high))
