"""Is there a JSON value in every node of a goal? The decision procedure, top level and Boolean search.

A goal is a set of nodes. It is taken apart by type: for null, booleans, numbers and strings the answer is emptiness
of an intersection of sets (:mod:`sections`). For arrays and objects it is a tableau: conjunctions are flattened,
clauses (disjunctions) are branched over after those that the facts already settle are dropped, and a conjunction of
facts is handed to :mod:`arrays` or :mod:`objects`, which ask for the values of members: new, smaller goals.

Recursion. Goals are sets over finitely many nodes, so that a path of sub-goals that does not end must repeat one. A
goal that is met again below itself is answered *empty*. That is sound: assume a goal has values and take one of least
height; its members satisfy sub-goals with values of smaller height, so that the path through them never meets the
goal again, and the search, which is exhaustive, finds it. An answer found under such an assumption is remembered only
as long as the assumption stands (``low``: how far down the stack it reaches).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import Final, Protocol

from sandbox.vet.containment import numbers
from sandbox.vet.containment.algebra import Algebra
from sandbox.vet.containment.arrays import Elements
from sandbox.vet.containment.budget import MAX_DEPTH, Budget, UndecidedError
from sandbox.vet.containment.evaluate import Judge
from sandbox.vet.containment.facts import Opaque
from sandbox.vet.containment.nodes import And, Literal, Node, Or, Values
from sandbox.vet.containment.objects import Members
from sandbox.vet.containment.outcome import EMPTY, Found, Open, Outcome, better
from sandbox.vet.containment.sections import BOOLEANS, NULLS, Numbers, Sections, Strings
from sandbox.vet.containment.strings import Lexicon
from sandbox.vet.containment.values import ALL, ARRAY, BOOLEAN, KINDS, NUMBER, OBJECT, STRING, value_of

NEVER: Final = 1 << 30
"""A stack position that no answer depends on."""


class View(Protocol):
    """A conjunction of facts about arrays or about objects."""

    def solve(self) -> Outcome:
        """Return a value of which all facts hold, or that there is none."""

    def verdict(self, fact: Literal) -> bool | None:
        """Return whether a further fact surely holds or surely fails; ``None`` when that is not cheap to see."""


@dataclass(slots=True)
class _Frame:
    """A goal in progress, and the answers that stand only while it does."""

    goal: frozenset[Node]
    provisional: list[frozenset[Node]] = field(default_factory=list)


class Solver:
    """Decides goals in one reading of regular expressions.

    Args:
        algebra: where the nodes come from.
        lexicon: decides sets of strings.
    """

    def __init__(self, algebra: Algebra, lexicon: Lexicon) -> None:
        self.algebra = algebra
        self.lexicon = lexicon
        self.budget: Budget = algebra.budget
        self.judge = Judge(algebra, lexicon)
        self.strings = Sections(algebra, Strings())
        self.numbers = Sections(algebra, Numbers())
        self.nulls = Sections(algebra, NULLS)
        self.booleans = Sections(algebra, BOOLEANS)
        self._known: dict[frozenset[Node], Outcome] = {}
        self._lows: dict[frozenset[Node], int] = {}
        self._stack: list[_Frame] = []
        self._positions: dict[frozenset[Node], int] = {}
        self._low = NEVER

    def solve(self, nodes: Iterable[Node]) -> Outcome:
        """Return a value that is in every node, or that there is none."""
        self.budget.spend()
        goal = frozenset(node for node in nodes if node is not self.algebra.everything)
        if self.algebra.nothing in goal or any(node.negation in goal for node in goal):
            return EMPTY
        if goal in self._known:
            self._low = min(self._low, self._lows.get(goal, NEVER))
            return self._known[goal]
        if goal in self._positions:
            self._low = min(self._low, self._positions[goal])
            return EMPTY
        if len(self._stack) >= MAX_DEPTH:
            return Open(f"the schemas nest deeper than {MAX_DEPTH} values")
        return self._new(goal)

    def _new(self, goal: frozenset[Node]) -> Outcome:
        """Decide a goal that is neither known nor in progress."""
        self.budget.spend(4 + len(goal))
        position = len(self._stack)
        before, self._low = self._low, NEVER
        frame = _Frame(goal)
        self._stack.append(frame)
        self._positions[goal] = position
        try:
            outcome = self._by_type(goal)
        finally:
            self._stack.pop()
            del self._positions[goal]
        self._remember(frame, position, outcome)
        self._low = min(before, self._low if self._low < position else NEVER)
        return outcome

    def _remember(self, frame: _Frame, position: int, outcome: Outcome) -> None:
        """Keep the answer; keep, pass down or forget the answers that were found while it was assumed empty."""
        if outcome is not EMPTY:
            for goal in frame.provisional:
                del self._known[goal], self._lows[goal]
            self._known[frame.goal] = outcome
            return
        below = self._low if self._low < position else NEVER
        self._known[frame.goal] = EMPTY
        if below == NEVER:
            for goal in frame.provisional:
                del self._lows[goal]
            return
        for goal in (*frame.provisional, frame.goal):
            self._lows[goal] = below
            self._stack[below].provisional.append(goal)

    def _by_type(self, goal: frozenset[Node]) -> Outcome:
        undecided: Open | None = None
        possible = reduce(and_, (node.kinds for node in goal), ALL)
        for kind in KINDS:
            if not kind & possible:
                continue
            try:
                outcome = self._of_kind(goal, kind)
            except UndecidedError as error:
                if self.budget.left < 0:
                    raise
                outcome = Open(error.reason)
            if isinstance(outcome, Found):
                return outcome
            if isinstance(outcome, Open):
                undecided = better(undecided, outcome)
        return undecided or EMPTY

    def _of_kind(self, goal: frozenset[Node], kind: int) -> Outcome:
        if kind == STRING:
            return self.lexicon.find(self.strings.all_of(_ordered(goal)))
        if kind == NUMBER:
            return numbers.find(self.numbers.all_of(_ordered(goal)), self.budget)
        if kind in (ARRAY, OBJECT):
            return self._conjunction(
                self.algebra.all_of(self.algebra.special(node, kind) for node in _ordered(goal)), kind
            )
        few = (self.booleans if kind == BOOLEAN else self.nulls).all_of(_ordered(goal))
        return Found(min(few, key=repr)) if few else EMPTY

    # --- arrays and objects -------------------------------------------------------------------------------------------
    def _conjunction(self, node: Node, kind: int) -> Outcome:
        """Decide a conjunction of facts and clauses about one type."""
        self.budget.spend(2)
        if node is self.algebra.nothing:
            return EMPTY
        parts = node.parts if isinstance(node, And) else () if node is self.algebra.everything else (node,)
        facts = {part for part in parts if not isinstance(part, Or)}
        clauses: list[Node] = [part for part in parts if isinstance(part, Or)]
        if clauses:
            settled = self._settle(facts, clauses)
            if settled is None:
                return EMPTY
            clauses, units = settled
            if units:
                return self._conjunction(self.algebra.all_of((*_ordered(facts), *clauses, *units)), kind)
        listed = [fact for fact in facts if isinstance(fact, Values) and fact.positive]
        if listed:
            return self._try(listed[0], node)
        view = self._view([fact for fact in _ordered(facts) if isinstance(fact, Literal)], kind)
        if not clauses:
            return self._leaf(view, facts)
        return self._branch(facts, clauses, view, kind)

    def _settle(self, facts: set[Node], clauses: list[Node]) -> tuple[list[Node], list[Node]] | None:
        """Return the clauses that are still open and what has to hold in addition; ``None`` for a contradiction."""
        rest: list[Node] = []
        units: list[Node] = []
        for clause in clauses:
            parts = clause.parts if isinstance(clause, Or) else (clause,)
            self.budget.spend(len(parts) // 2)
            if any(_present(part, facts) for part in parts):
                continue
            live = [part for part in parts if not _absent(part, facts)]
            if not live:
                return None
            if len(live) == 1:
                units.append(live[0])
            else:
                rest.append(clause if len(live) == len(parts) else self.algebra.any_of(live))
        return rest, units

    def _try(self, listed: Values, node: Node) -> Outcome:
        """Decide a conjunction with a list of values by trying them."""
        undecided: Open | None = None
        for key in sorted(listed.keys, key=lambda key: (len(repr(key)), repr(key))):
            verdict = self.judge.holds(key, node)
            if verdict:
                return Found(value_of(key))
            if verdict is None:
                undecided = better(undecided, Open("whether a listed value is valid is not decided", value_of(key)))
        return undecided or EMPTY

    def _view(self, facts: list[Literal], kind: int) -> View:
        return Elements(self, facts) if kind == ARRAY else Members(self, facts)

    def _leaf(self, view: View, facts: set[Node]) -> Outcome:
        outcome = view.solve()
        opaque = [fact.fact.name for fact in facts if isinstance(fact, Literal) and isinstance(fact.fact, Opaque)]
        if isinstance(outcome, Found) and opaque:
            return Open(f"{opaque[0]} is not understood", outcome.value)
        return outcome

    def _branch(self, facts: set[Node], clauses: list[Node], view: View, kind: int) -> Outcome:
        """Branch over the clause with the best prospects, after dropping what the facts settle in theory."""
        pruned = self._prune(clauses, view)
        if pruned is None:
            return EMPTY
        if not pruned:
            return self._leaf(view, facts)
        chosen = min(pruned, key=lambda clause: (_prospect(pruned[clause]), clause.serial))
        live = pruned[chosen]
        others = [self.algebra.any_of(parts) for clause, parts in pruned.items() if clause is not chosen]
        undecided: Open | None = None
        known = _ordered(facts)
        for part in live:
            outcome = self._conjunction(self.algebra.all_of((*known, *others, part)), kind)
            if isinstance(outcome, Found):
                return outcome
            if isinstance(outcome, Open):
                undecided = better(undecided, outcome)
        return undecided or EMPTY

    def _parts(self, clause: Node) -> list[Node]:
        return list(clause.parts) if isinstance(clause, Or) else [clause]

    def _prune(self, clauses: list[Node], view: View) -> dict[Node, list[Node]] | None:
        """Return the possible parts of each clause that the facts do not settle; ``None`` for a contradiction."""
        rest: dict[Node, list[Node]] = {}
        for clause in clauses:
            live: list[Node] = []
            for part in self._parts(clause):
                verdict = self._verdict(part, view)
                if verdict:
                    break
                if verdict is None:
                    live.append(part)
            else:
                if not live:
                    return None
                rest[clause] = live
        return rest

    def _verdict(self, part: Node, view: View) -> bool | None:
        self.budget.spend()
        if isinstance(part, Literal):
            return view.verdict(part)
        if isinstance(part, And):
            verdicts = [view.verdict(one) for one in part.parts if isinstance(one, Literal)]
            if False in verdicts:
                return False
            return True if len(verdicts) == len(part.parts) and all(verdicts) else None
        return None


def _ordered(nodes: Iterable[Node]) -> list[Node]:
    """Return nodes in the order of their creation, so that the same question has the same answer in every process."""
    return sorted(nodes, key=lambda node: node.serial)


def _present(part: Node, facts: set[Node]) -> bool:
    if part in facts:
        return True
    return isinstance(part, And) and all(one in facts for one in part.parts)


def _absent(part: Node, facts: set[Node]) -> bool:
    if part.negation in facts:
        return True
    return isinstance(part, And) and any(one.negation in facts for one in part.parts)


def _prospect(live: list[Node]) -> float:
    """Return how promising branching over a clause is; lower is better: few branches that each say much."""
    said = sum(len(part.parts) if isinstance(part, And) else 1 for part in live)
    return len(live) * len(live) / said
