"""Arrays: is there one of which a conjunction of facts holds?

Facts come down to universal ones (the element at an index, or every element from an index on, is in a node),
*requests* (some element in a range of indexes is in a node; ``contains`` asks for several), *limits* (at most so many
elements are in a node), bounds on the length, and whether elements are all different or some two equal.

Beyond the highest index that a fact names, all positions are alike. Longer arrays than are needed to serve every
request at a position of its own never help, so that finitely many lengths remain. For each length every way to serve
the requests and to count towards the limits is tried; each position's element then has to be in a set of nodes: a
smaller goal. For ``uniqueItems`` the elements are chosen by a matching over enumerated values; for its negation two
positions are tied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import ge, le
from typing import TYPE_CHECKING, Any, Final

from sandbox.vet.containment.budget import MAX_ARRAY, MAX_UNIVERSE, UndecidedError
from sandbox.vet.containment.facts import Count, Item, Items, Size, Unique
from sandbox.vet.containment.matching import distinct
from sandbox.vet.containment.nodes import Literal, Node
from sandbox.vet.containment.outcome import EMPTY, NOTHING, Found, Open, Outcome, better, value_in
from sandbox.vet.containment.values import Key, key_of, value_of

if TYPE_CHECKING:
    from sandbox.vet.containment.solve import Solver

MAX_GROUPS: Final = 8
"""Different requests, and different limits, of one array."""

MAX_PLAIN_ARRAY: Final = 5_000
"""Elements of an array that is filled with one and the same value."""


@dataclass(frozen=True, slots=True)
class Request:
    """At least ``copies`` elements at indexes ``low`` ≤ i < ``high`` are in ``node``."""

    low: int
    high: int | None
    node: Node
    copies: int


@dataclass(frozen=True, slots=True)
class Cell:
    """Positions that hold the same value: one, or two that are tied."""

    indexes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Way:
    """What the value of one cell may do.

    Attributes:
        goal: nodes that it has to be in.
        serves: which requests it serves.
        counts: which limits it counts towards.
        sure: whether a value is known.
    """

    goal: frozenset[Node]
    serves: tuple[bool, ...]
    counts: tuple[bool, ...]
    sure: bool

    def beats(self, other: Way) -> bool:
        """Return whether this way is at least as good in every respect, and not the same."""
        return (
            self.sure >= other.sure
            and all(map(ge, self.serves, other.serves))
            and all(map(le, self.counts, other.counts))
            and (self.serves, self.counts) != (other.serves, other.counts)
        )


class Elements:
    """A conjunction of facts about arrays.

    Args:
        solver: decides the goals of values.
        facts: the facts.
    """

    def __init__(self, solver: Solver, facts: Sequence[Literal]) -> None:
        self._solver = solver
        self._algebra = solver.algebra
        self._least = 0
        self._most: int | None = None
        self._items: dict[int, list[Node]] = {}
        self._tails: list[tuple[int, Node]] = []
        self._requests: list[Request] = []
        self._limits: list[tuple[Node, int]] = []
        self._unique = self._twins = False
        self._known_ways: dict[tuple[frozenset[Node], tuple[bool, ...], tuple[bool, ...]], list[Way]] = {}
        for fact in facts:
            self._add(fact)
        named = [index + 1 for index in self._items]
        named += [start for start, _ in self._tails]
        named += [request.low if request.high is None else request.high for request in self._requests]
        self._prefix = max(named, default=0)

    def _add(self, literal: Literal) -> None:
        positive = literal.positive
        match literal.fact:
            case Size(least=least) if positive:
                self._least = max(self._least, least)
            case Size(least=least):
                self._shorten(least - 1)
            case Item(index=index, node=node) if positive:
                self._items.setdefault(index, []).append(node)
            case Item(index=index, node=node):
                self._least = max(self._least, index + 1)
                self._requests.append(Request(index, index + 1, self._algebra.negate(node), 1))
            case Items(start=start, node=node) if positive:
                self._tails.append((start, node))
            case Items(start=start, node=node):
                self._least = max(self._least, start + 1)
                self._requests.append(Request(start, None, self._algebra.negate(node), 1))
            case Count(node=node, least=least) if positive:
                self._least = max(self._least, least)
                self._requests.append(Request(0, None, node, least))
            case Count(node=node, least=least):
                self._limits.append((node, least - 1))
            case Unique():
                self._unique = self._unique or positive
                self._twins = self._twins or not positive
            case _:
                pass  # opaque: the solver knows

    def _shorten(self, most: int) -> None:
        self._most = most if self._most is None else min(self._most, most)

    def _base(self, index: int) -> frozenset[Node]:
        """Return the nodes that the element at an index has to be in."""
        nodes = set(self._items.get(index, ()))
        nodes.update(node for start, node in self._tails if start <= index)
        return frozenset(nodes)

    def verdict(self, fact: Literal) -> bool | None:
        """Return whether a further fact surely holds or surely fails."""
        match fact.fact:
            case Size(least=least):
                verdict = (
                    True if self._least >= least else False if self._most is not None and self._most < least else None
                )
            case Item(index=index, node=node):
                verdict = self._verdict_at(range(index, index + 1), node)
            case Items(start=start, node=node):
                verdict = self._verdict_at(range(start, max(start, self._prefix) + 1), node)
            case _:
                return None
        return verdict if fact.positive or verdict is None else not verdict

    def _verdict_at(self, indexes: range, node: Node) -> bool | None:
        """Return whether the elements at some indexes, where they exist, are surely in a node or surely not."""
        if any(index < self._least and self._solver.solve(self._base(index) | {node}) is EMPTY for index in indexes):
            return False
        outside = self._algebra.negate(node)
        if all(
            (self._most is not None and index >= self._most)
            or self._solver.solve(self._base(index) | {outside}) is EMPTY
            for index in indexes
        ):
            return True
        return None

    # --- solving ------------------------------------------------------------------------------------------------------
    def solve(self) -> Outcome:
        """Return an array of which all facts hold, or that there is none."""
        undecided: Open | None = None
        for index in range(min(self._prefix, MAX_ARRAY) + 1):
            if self._most is not None and index >= self._most:
                break
            if self._solver.solve(self._base(index)) is EMPTY:
                self._shorten(index)
        if (self._most is not None and self._least > self._most) or (self._unique and self._twins):
            return EMPTY
        for outcome in self._outcomes():
            if isinstance(outcome, Found):
                return outcome
            undecided = better(undecided, outcome)
        return undecided or EMPTY

    def _outcomes(self) -> Iterator[Found | Open]:
        """Yield an outcome for every length and every way to serve the requests; failures are left out."""
        if not (self._requests or self._limits or self._unique or self._twins):
            yield self._plain()
            return
        if len(self._requests) > MAX_GROUPS or len(self._limits) > MAX_GROUPS or self._prefix > MAX_ARRAY:
            yield Open("too many different demands on the elements of one array")
            return
        needed = sum(request.copies for request in self._requests) + (2 if self._twins else 0)
        longest = max(self._least, self._prefix) + needed
        if self._most is not None:
            longest = min(longest, self._most)
        for length in range(self._least, longest + 1):
            if length > MAX_ARRAY:
                yield Open(f"more than {MAX_ARRAY} elements would be needed")
                return
            for cells in self._layouts(length):
                yield from self._assign(cells)

    def _plain(self) -> Found | Open:
        if self._least > MAX_PLAIN_ARRAY:
            return Open(f"more than {MAX_PLAIN_ARRAY} elements would be needed")
        head = min(self._least, self._prefix)
        outcomes = [self._solver.solve(self._base(index)) for index in range(head)]
        if self._least > head:
            outcomes += [self._solver.solve(self._base(self._prefix))] * (self._least - head)
        return _compose(outcomes)

    def _layouts(self, length: int) -> Iterator[list[Cell]]:
        """Yield the cells of an array; with twins once for each pair of positions that may hold equal values."""
        if not self._twins:
            yield [Cell((index,)) for index in range(length)]
            return
        last = min(length, self._prefix + 2)
        for second in range(1, last):
            for first in range(second):
                rest = [Cell((index,)) for index in range(length) if index not in (first, second)]
                yield [Cell((first, second)), *rest]

    def _assign(self, cells: list[Cell]) -> Iterator[Found | Open]:
        """Yield an outcome for every way to serve the requests with these cells."""
        pending = tuple(request.copies for request in self._requests)
        room = tuple(most for _, most in self._limits)
        failed: set[tuple[int, tuple[int, ...], tuple[int, ...]]] = set()
        yield from self._from(cells, 0, pending, room, [], failed)

    def _from(
        self,
        cells: list[Cell],
        at: int,
        pending: tuple[int, ...],
        room: tuple[int, ...],
        goals: list[frozenset[Node]],
        failed: set[tuple[int, tuple[int, ...], tuple[int, ...]]],
    ) -> Iterator[Found | Open]:
        self._solver.budget.spend(2)
        if at == len(cells):
            if not any(pending):
                yield from self._choose(cells, goals)
            return
        state = (at, pending, room)
        if state in failed or not self._servable(cells[at:], pending):
            return
        succeeded = False
        for goal, served, counted in self._ways(cells[at], pending, room):
            for outcome in self._from(cells, at + 1, served, counted, [*goals, goal], failed):
                succeeded = True
                yield outcome
        if not succeeded and not self._unique:
            failed.add(state)

    def _servable(self, cells: list[Cell], pending: tuple[int, ...]) -> bool:
        """Return whether enough positions are left for every request."""
        for request, copies in zip(self._requests, pending, strict=True):
            if copies and copies > sum(self._fitting(cell, request) for cell in cells):
                return False
        return True

    def _fitting(self, cell: Cell, request: Request) -> int:
        return sum(request.low <= index and (request.high is None or index < request.high) for index in cell.indexes)

    def _ways(
        self, cell: Cell, pending: tuple[int, ...], room: tuple[int, ...]
    ) -> Iterator[tuple[frozenset[Node], tuple[int, ...], tuple[int, ...]]]:
        """Yield what a cell may do: its goal, and what is left of requests and limits afterwards."""
        size = len(cell.indexes)
        weights = [
            min(copies, self._fitting(cell, request)) for request, copies in zip(self._requests, pending, strict=True)
        ]
        base = frozenset[Node]().union(*(self._base(index) for index in cell.indexes))
        key = (base, tuple(weight > 0 for weight in weights), tuple(free >= size for free in room))
        if key not in self._known_ways:
            self._known_ways[key] = self._best(list(self._decide(base, (*key[1], *key[2]), ())))
        for way in self._known_ways[key]:
            self._solver.budget.spend()
            left = tuple(
                copies - weight * serves for copies, weight, serves in zip(pending, weights, way.serves, strict=True)
            )
            yield way.goal, left, tuple(free - size * counts for free, counts in zip(room, way.counts, strict=True))

    def _decide(self, goal: frozenset[Node], able: tuple[bool, ...], taken: tuple[bool, ...]) -> Iterator[Way]:
        """Yield every way to serve requests and to count towards limits, the helpful ones first.

        Decisions are taken one by one, and a decision that leaves no value is not followed further.

        Args:
            goal: what the value has to be in so far.
            able: which requests may be served, then which limits have room.
            taken: the decisions so far.
        """
        self._solver.budget.spend(2)
        outcome = self._solver.solve(goal)
        if outcome is EMPTY:
            return
        requests = len(self._requests)
        at = len(taken)
        if at == len(able):
            yield Way(goal, taken[:requests], taken[requests:], isinstance(outcome, Found))
        elif at < requests:
            if able[at]:
                yield from self._decide(goal | {self._requests[at].node}, able, (*taken, True))
            yield from self._decide(goal, able, (*taken, False))
        else:
            node = self._limits[at - requests][0]
            yield from self._decide(goal | {self._algebra.negate(node)}, able, (*taken, False))
            if able[at]:
                yield from self._decide(goal | {node}, able, (*taken, True))

    def _best(self, ways: list[Way]) -> list[Way]:
        """Leave out ways that another one beats: it serves as much, counts as little, and is as sure.

        Whatever completes the array after the worse way completes it after the better one. Not so with ``uniqueItems``,
        where the values themselves matter.
        """
        if self._unique:
            return ways
        return [way for way in ways if not any(other is not way and other.beats(way) for other in ways)]

    def _choose(self, cells: list[Cell], goals: list[frozenset[Node]]) -> Iterator[Found | Open]:
        """Yield the array of cells with these goals; nothing when ``uniqueItems`` leaves no choice of values."""
        length = sum(len(cell.indexes) for cell in cells)
        outcomes: list[Outcome] = [EMPTY] * length
        if self._unique:
            chosen = self._different(goals)
            if chosen is EMPTY:
                return
            if isinstance(chosen, Open):
                yield chosen
                return
            yield chosen
            return
        for cell, goal in zip(cells, goals, strict=True):
            for index in cell.indexes:
                outcomes[index] = self._solver.solve(goal)
        yield _compose(outcomes)

    def _different(self, goals: list[frozenset[Node]]) -> Outcome:
        """Return an array of different elements, each in its goal."""
        pools: dict[frozenset[Node], list[Key]] = {}
        undecided: Open | None = None
        for goal in goals:
            if goal not in pools:
                pools[goal], doubt = self._enumerate(goal, min(len(goals), MAX_UNIVERSE + 1))
                undecided = undecided or doubt
        chosen = distinct([pools[goal] for goal in goals])
        if chosen is not None:
            return Found([value_of(key) for key in chosen])
        if undecided is None and len(goals) > MAX_UNIVERSE:
            undecided = Open(f"more than {MAX_UNIVERSE} different elements would be needed")
        return undecided or EMPTY

    def _enumerate(self, goal: frozenset[Node], limit: int) -> tuple[list[Key], Open | None]:
        """Return up to ``limit`` different values of a goal, and why there may be more when there are fewer."""
        keys: list[Key] = []
        while len(keys) < limit:
            outcome = self._solver.solve(goal | {self._algebra.values(keys, positive=False)})
            if outcome is EMPTY:
                break
            if isinstance(outcome, Open):
                return keys, outcome
            keys.append(key_of(outcome.value))
        return keys, None


def _compose(outcomes: Sequence[Outcome]) -> Found | Open:
    value: list[Any] = []
    undecided: Open | None = None
    for outcome in outcomes:
        if outcome is EMPTY:
            raise UndecidedError("an element without a value")  # cannot happen: empty goals are left out before
        if isinstance(outcome, Open):
            undecided = undecided or outcome
        value.append(value_in(outcome))
    if undecided is None:
        return Found(value)
    return Open(undecided.reason, NOTHING if any(one is NOTHING for one in value) else value)
