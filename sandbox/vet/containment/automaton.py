"""Deterministic automata for regular expressions with search semantics, and words of their Boolean combinations.

A pattern of JSON Schema matches *somewhere* in a string (2020-12 validation §6.3.3), so the automaton of ``r``
accepts every string with a match of ``r`` in it. Anchors are positions: ``^`` holds before the first character; ``$``
holds at the end and, in Python, also before a newline that ends the string. Threads of the subset construction carry
that in a mode:

- ``HERE``: nothing assumed about the rest of the string;
- ``LAST``: ``$`` was passed on the assumption that exactly one newline follows (Python only);
- ``OVER``: that newline was read, the string must end here.

The number of states is bounded; a pattern that exceeds the bound raises and is then an opaque predicate.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import getitem
from typing import Final

from sandbox.vet.containment.budget import Budget
from sandbox.vet.containment.charset import ANY, LAST, NEWLINE, CharSet
from sandbox.vet.containment.regex import Alt, Cat, Chars, Edge, Look, Reading, Regex, Repeat, UnsupportedError

MAX_NFA_STATES: Final = 16_000
"""States before determinisation; ``.{1,4096}`` needs about 12,300."""

MAX_DFA_STATES: Final = 4_500
"""States after determinisation."""

HERE: Final = 0
LAST_CHAR: Final = 1
OVER: Final = 2

_INITIAL: Final = -1
_MATCHED_STATE: Final = -2


@dataclass(frozen=True, slots=True)
class Dfa:
    """A complete deterministic automaton; state 0 is initial.

    Attributes:
        starts: first code point of each interval of the alphabet, ascending.
        classes: column of ``table`` for each interval; −1 for surrogates.
        table: next state by state and column.
        accepts: whether a state accepts.
        alive: whether an accepting state can be reached from a state.
    """

    starts: tuple[int, ...]
    classes: tuple[int, ...]
    table: tuple[tuple[int, ...], ...]
    accepts: tuple[bool, ...]
    alive: tuple[bool, ...]

    def column(self, point: int) -> int:
        """Return the column of a code point; −1 for a surrogate."""
        return self.classes[bisect_right(self.starts, point) - 1]

    def matches(self, text: str) -> bool:
        """Return whether the string is accepted, in time linear to its length."""
        state = 0
        for char in text:
            column = self.column(ord(char))
            if column < 0:
                return False
            state = self.table[state][column]
        return self.accepts[state]


PRINTABLE: Final = Dfa(
    starts=(0, 0x20, 0x7F, ANY[0][1] + 1, ANY[1][0]),
    classes=(1, 0, 1, -1, 1),
    table=((0, 1), (1, 1)),
    accepts=(True, False),
    alive=(True, False),
)
"""Strings of printable ASCII."""


@dataclass(slots=True)
class _Nfa:
    """Thompson automaton: one character edge per state at most, and three sorts of empty edges."""

    budget: Budget
    moves: list[tuple[int, int] | None] = field(default_factory=list)
    empty: list[list[int]] = field(default_factory=list)
    starts: list[list[int]] = field(default_factory=list)
    ends: list[list[int]] = field(default_factory=list)
    sets: dict[CharSet, int] = field(default_factory=dict)

    def state(self) -> int:
        if len(self.moves) >= MAX_NFA_STATES:
            raise UnsupportedError
        self.budget.spend()
        self.moves.append(None)
        self.empty.append([])
        self.starts.append([])
        self.ends.append([])
        return len(self.moves) - 1

    def add(self, node: Regex, source: int) -> int:
        """Add the automaton of a tree after ``source`` and return its last state."""
        match node:
            case Chars(chars):
                target = self.state()
                self.moves[source] = (self.sets.setdefault(chars, len(self.sets)), target)
                return self._fresh(target)
            case Cat(parts):
                for part in parts:
                    source = self.add(part, source)
                return source
            case Alt(parts):
                return self._alternatives(parts, source)
            case Repeat(body, least, most):
                return self._repeat(body, least, most, source)
            case Edge(start):
                target = self.state()
                (self.starts if start else self.ends)[source].append(target)
                return self._fresh(target)
            case Look():
                raise UnsupportedError

    def _fresh(self, source: int) -> int:
        target = self.state()
        self.empty[source].append(target)
        return target

    def _alternatives(self, parts: Sequence[Regex], source: int) -> int:
        target = self.state()
        for part in parts:
            self.empty[self.add(part, self._fresh(source))].append(target)
        return self._fresh(target)

    def _repeat(self, body: Regex, least: int, most: int | None, source: int) -> int:
        for _ in range(least):
            source = self.add(body, self._fresh(source))
        if most is None:
            source = self._fresh(source)
            self.empty[self.add(body, self._fresh(source))].append(source)
            return self._fresh(source)
        target = self.state()
        for _ in range(most - least):
            self.empty[source].append(target)
            source = self.add(body, self._fresh(source))
        self.empty[source].append(target)
        return self._fresh(target)

    def reach(self, source: int, *, at_start: bool, at_end: bool) -> set[int]:
        """Return the states reachable without reading, with the given anchors holding."""
        seen = {source}
        todo = [source]
        while todo:
            state = todo.pop()
            targets = [*self.empty[state]]
            if at_start:
                targets += self.starts[state]
            if at_end:
                targets += self.ends[state]
            for target in targets:
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        self.budget.spend(len(seen))
        return seen


class _Subsets:
    """The subset construction of one pattern."""

    def __init__(self, tree: Regex, reading: Reading, budget: Budget) -> None:
        self.nfa = _Nfa(budget)
        self.first = self.nfa.state()
        self.final = self.nfa.add(tree, self.first)
        self.python = reading is Reading.PYTHON
        self.budget = budget
        self.starts, self.classes, self.members = _partition(tuple(self.nfa.sets))
        self.newline = self.classes[bisect_right(self.starts, 0x0A) - 1]
        self._closures: dict[int, frozenset[tuple[int, int]]] = {}
        self._over: dict[int, frozenset[tuple[int, int]]] = {}

    def closure(self, state: int) -> frozenset[tuple[int, int]]:
        """Return the threads that stand at ``state`` somewhere after the start of the string."""
        if state not in self._closures:
            self._closures[state] = self._threads(state, at_start=False)
        return self._closures[state]

    def _threads(self, state: int, *, at_start: bool) -> frozenset[tuple[int, int]]:
        nfa = self.nfa
        here = nfa.reach(state, at_start=at_start, at_end=False)
        threads = {(one, HERE) for one in here if nfa.moves[one] or nfa.ends[one] or one == self.final}
        if self.python:
            passed = {target for one in here for target in nfa.ends[one]}
            last = {far for one in passed for far in nfa.reach(one, at_start=at_start, at_end=True)}
            threads |= {(one, LAST_CHAR) for one in last if nfa.moves[one] or one == self.final}
        return frozenset(threads)

    def over(self, state: int) -> frozenset[tuple[int, int]]:
        if state not in self._over:
            reached = self.nfa.reach(state, at_start=False, at_end=True)
            self._over[state] = frozenset({(self.final, OVER)} if self.final in reached else ())
        return self._over[state]

    def initial(self) -> frozenset[tuple[int, int]]:
        return self._threads(self.first, at_start=True)

    def step(self, threads: frozenset[tuple[int, int]], column: int) -> frozenset[tuple[int, int]]:
        """Return the threads after one character of a column, a new search included."""
        following: set[tuple[int, int]] = set(self.closure(self.first))
        self.budget.spend(1 + len(threads) // 4)
        for state, mode in threads:
            if mode == OVER:
                continue
            move = self.nfa.moves[state]
            moved = move is not None and move[0] in self.members[column]
            if mode == HERE:
                if moved and move is not None:
                    following |= self.closure(move[1])
            elif column == self.newline:
                if state == self.final:
                    following.add((self.final, OVER))
                if moved and move is not None:
                    following |= self.over(move[1])
        return frozenset(following)

    def accepts_at_end(self, threads: frozenset[tuple[int, int]], *, at_start: bool) -> bool:
        return any(
            mode == OVER or (mode == HERE and self.final in self.nfa.reach(state, at_start=at_start, at_end=True))
            for state, mode in threads
            if mode == OVER or self.nfa.ends[state] or state == self.final
        )


def _partition(sets: Sequence[CharSet]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[frozenset[int], ...]]:
    """Return the coarsest alphabet that the sets respect: interval starts, class of each, members of each class.

    The newline is always a class of its own.
    """
    events: dict[int, list[int]] = {0: [], 0x0A: [], 0x0B: [], ANY[0][1] + 1: [], ANY[1][0]: []}
    for index, intervals in enumerate(sets):
        for low, high in intervals:
            events.setdefault(low, []).append(index)
            if high < LAST:
                events.setdefault(high + 1, []).append(index)
    starts = tuple(sorted(events))
    classes: list[int] = []
    ids: dict[tuple[frozenset[int], bool], int] = {}
    inside: set[int] = set()
    for start in starts:
        inside.symmetric_difference_update(events[start])
        surrogate = ANY[0][1] < start < ANY[1][0]
        classes.append(-1 if surrogate else ids.setdefault((frozenset(inside), start == NEWLINE[0][0]), len(ids)))
    return starts, tuple(classes), tuple(members for members, _ in ids)


def build(tree: Regex, reading: Reading, budget: Budget) -> Dfa:
    """Return the automaton of a pattern.

    Raises:
        UnsupportedError: too many states, or look-ahead elsewhere than after a leading ``^``.
        UndecidedError: the budget is empty.
    """
    looks, rest = _leading_looks(tree)
    main = _determinise(rest, reading, budget)
    parts = [(_determinise(Cat((Edge(start=True), look.body)), reading, budget), not look.negative) for look in looks]
    return combine([(main, True), *parts], budget) if parts else main


def _leading_looks(tree: Regex) -> tuple[list[Look], Regex]:
    if not isinstance(tree, Cat) or not tree.parts or tree.parts[0] != Edge(start=True):
        return [], tree
    count = 1
    while count < len(tree.parts) and isinstance(tree.parts[count], Look):
        count += 1
    looks = [part for part in tree.parts[1:count] if isinstance(part, Look)]
    return looks, Cat((tree.parts[0], *tree.parts[count:]))


def _determinise(tree: Regex, reading: Reading, budget: Budget) -> Dfa:
    subsets = _Subsets(tree, reading, budget)
    first = subsets.initial()
    final = (subsets.final, HERE)
    accept_now = subsets.accepts_at_end(first, at_start=True)
    matched = frozenset({(_MATCHED_STATE, HERE)})
    order: list[frozenset[tuple[int, int]]] = [matched if final in first else first | {(_INITIAL, HERE)}]
    numbers = {order[0]: 0}
    accepts = [final in first or accept_now]
    table: list[tuple[int, ...]] = []
    for threads in order:  # grows while it is walked
        if threads == matched:
            table.append((numbers[matched],) * len(subsets.members))
            continue
        row: list[int] = []
        for column in range(len(subsets.members)):
            following = subsets.step(threads - {(_INITIAL, HERE)}, column)
            if final in following:
                following = matched
            if following not in numbers:
                if len(order) >= MAX_DFA_STATES:
                    raise UnsupportedError
                numbers[following] = len(order)
                order.append(following)
                accepts.append(following == matched or subsets.accepts_at_end(following, at_start=False))
            row.append(numbers[following])
        table.append(tuple(row))
    return Dfa(subsets.starts, subsets.classes, tuple(table), tuple(accepts), _alive(table, accepts))


def _alive(table: Sequence[Sequence[int]], accepts: Sequence[bool]) -> tuple[bool, ...]:
    before: list[list[int]] = [[] for _ in table]
    for state, row in enumerate(table):
        for target in set(row):
            before[target].append(state)
    alive = list(accepts)
    todo = [state for state, accepting in enumerate(accepts) if accepting]
    while todo:
        for state in before[todo.pop()]:
            if not alive[state]:
                alive[state] = True
                todo.append(state)
    return tuple(alive)


@dataclass(frozen=True, slots=True)
class Letters:
    """A common alphabet of several automata: intervals of code points and each automaton's column for them."""

    starts: tuple[int, ...]
    classes: tuple[int, ...]
    columns: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, automata: Sequence[Dfa]) -> Letters:
        """Return the coarsest alphabet that all automata respect."""
        starts = tuple(sorted({start for dfa in automata for start in dfa.starts} | {0, ANY[0][1] + 1, ANY[1][0]}))
        ids: dict[tuple[int, ...], int] = {}
        classes: list[int] = []
        for start in starts:
            if ANY[0][1] < start < ANY[1][0]:
                classes.append(-1)
            else:
                classes.append(ids.setdefault(tuple(dfa.column(start) for dfa in automata), len(ids)))
        return cls(starts, tuple(classes), tuple(ids))

    def intervals(self, letter: int) -> list[tuple[int, int]]:
        """Return the code points of one letter."""
        ends = [*(start - 1 for start in self.starts[1:]), LAST]
        return [(start, end) for start, end, one in zip(self.starts, ends, self.classes, strict=True) if one == letter]


def explore(
    parts: Sequence[tuple[Dfa, bool]], letters: Letters, budget: Budget, limit: int
) -> tuple[list[tuple[int, ...]], list[list[int]]]:
    """Return the reachable states of the product and its transition table; −1 leads where nothing is accepted.

    Args:
        parts: automata, each with whether its language (true) or the complement (false) is meant.
        letters: their common alphabet.
        budget: pays for every transition.
        limit: most states.

    Raises:
        UnsupportedError: more states than ``limit``.
    """
    order: list[tuple[int, ...]] = [(0,) * len(parts)]
    numbers = {order[0]: 0}
    table: list[list[int]] = []
    tables = [dfa.table for dfa, _ in parts]
    dead = [_dead_states(dfa, wanted=wanted) for dfa, wanted in parts]
    cost = 1 + len(letters.columns) * (2 + len(parts)) // 6
    for state in order:  # grows while it is walked
        budget.spend(cost)
        rows = list(map(getitem, tables, state))
        outgoing: list[int] = []
        for columns in letters.columns:
            target = tuple(map(getitem, rows, columns))
            if any(map(getitem, dead, target)):
                outgoing.append(-1)
                continue
            number = numbers.get(target)
            if number is None:
                if len(order) >= limit:
                    raise UnsupportedError
                number = numbers[target] = len(order)
                order.append(target)
            outgoing.append(number)
        table.append(outgoing)
    return order, table


def _dead_states(dfa: Dfa, *, wanted: bool) -> list[bool]:
    """Return for each state whether the wanted outcome is out of reach."""
    if wanted:
        return [not alive for alive in dfa.alive]
    return [
        accepting and all(target == state for target in row)
        for state, (accepting, row) in enumerate(zip(dfa.accepts, dfa.table, strict=True))
    ]


def combine(parts: Sequence[tuple[Dfa, bool]], budget: Budget) -> Dfa:
    """Return the automaton of an intersection of languages and complements."""
    letters = Letters.of([dfa for dfa, _ in parts])
    order, table = explore(parts, letters, budget, MAX_DFA_STATES)
    sink = len(order)
    closed = [[sink if target < 0 else target for target in row] for row in table]
    closed.append([sink] * len(letters.columns))
    accepts = [
        all(dfa.accepts[one] is wanted for (dfa, wanted), one in zip(parts, state, strict=True)) for state in order
    ]
    accepts.append(False)
    rows = tuple(tuple(row) for row in closed)
    return Dfa(letters.starts, letters.classes, rows, tuple(accepts), _alive(rows, accepts))
