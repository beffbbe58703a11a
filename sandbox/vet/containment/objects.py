"""Objects: is there one of which a conjunction of facts holds?

Facts come down to three sorts: *universal* (every member whose name is in a set has a value in a node), *existential*
(some member whose name is in a set has a value in a node) and bounds on the number of members. Members are
independent of each other except for their names being different and their number, so that:

1. names that any fact spells out are treated one by one; all other names fall into *regions*, on which every universal
   fact applies to all names or to none;
2. each existential fact is given a member: one that exists already, one with a spelled-out name, or a new one in a
   region; every way of doing so is tried until one works;
3. a member's value has to be in all nodes of the universal facts that apply to its name and of the existential facts
   that it
   serves: a smaller goal;
4. names of the members in regions have to differ: a matching;
5. members are added until there are enough, in whatever region still has names.

The search is exhaustive, so that failing everywhere proves emptiness; anything undecided on the way is kept as
undecided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sandbox.vet.containment import strings
from sandbox.vet.containment.budget import UndecidedError
from sandbox.vet.containment.facts import Each, Named, Need, Width
from sandbox.vet.containment.matching import distinct
from sandbox.vet.containment.nodes import Literal, Node
from sandbox.vet.containment.outcome import EMPTY, NOTHING, Found, Open, Outcome, better, value_in
from sandbox.vet.containment.strings import EVERY_STRING, Box, StringSet

if TYPE_CHECKING:
    from sandbox.vet.containment.solve import Solver

MAX_ADDED: Final = 300
"""Members that are added to reach ``minProperties``."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A member that has to exist.

    Attributes:
        names: where its name may lie; one word for a spelled-out name.
        goal: nodes that its value has to be in.
        value: a value for it, or an undecided one.
        name: its name, when it is spelled out.
    """

    names: StringSet
    goal: frozenset[Node]
    value: Found | Open
    name: str | None = None


class Members:
    """A conjunction of facts about objects.

    Args:
        solver: decides the goals of values.
        facts: the facts.
    """

    def __init__(self, solver: Solver, facts: Sequence[Literal]) -> None:
        self._solver = solver
        self._algebra = solver.algebra
        self._lexicon = solver.lexicon
        self._least = 0
        self._most: int | None = None
        self._named: dict[str, list[Node]] = {}
        self._general: list[tuple[StringSet, Node]] = []
        self._needed: dict[str, set[Node]] = {}
        self._wanted: list[tuple[StringSet, Node]] = []
        self._outside: dict[StringSet, StringSet] = {}
        for fact in facts:
            self._add(fact)
        self._spelled = self._spelled_names()

    # --- reading the facts --------------------------------------------------------------------------------------------
    def _add(self, literal: Literal) -> None:
        match literal.fact:
            case Width(least=least) if literal.positive:
                self._least = max(self._least, least)
            case Width(least=least):
                self._most = least - 1 if self._most is None else min(self._most, least - 1)
            case Need(name=name) if literal.positive:
                self._needed.setdefault(name, set())
            case Need(name=name):
                self._named.setdefault(name, []).append(self._algebra.nothing)
            case Each(names=names, node=node):
                self._add_each(names, node, positive=literal.positive)
            case Named(node=node):
                others = strings.without(self._solver.strings.of(node))
                self._add_each(others, self._algebra.nothing, positive=literal.positive)
            case _:
                pass  # opaque: the solver knows

    def _add_each(self, names: StringSet, node: Node, *, positive: bool) -> None:
        if positive:
            self._add_universal(names, node)
        else:
            self._add_existential(names, self._algebra.negate(node))

    def _add_universal(self, names: StringSet, node: Node) -> None:
        general = []
        for box in names:
            if box.only is not None and not (box.pos or box.neg or box.is_a or box.is_not):
                for name in box.only:
                    self._named.setdefault(name, []).append(node)
            else:
                general.append(box)
        if general:
            self._general.append((tuple(general), node))

    def _add_existential(self, names: StringSet, node: Node) -> None:
        listed = _listed(names)
        if listed is not None and len(listed) == 1:
            self._needed.setdefault(next(iter(listed)), set()).add(node)
        else:
            self._wanted.append((names, node))

    def _spelled_names(self) -> list[str]:
        spelled = set(self._named) | set(self._needed)
        for names, _ in (*self._general, *self._wanted):
            for box in names:
                spelled |= box.only or set()
                spelled |= box.but
        return sorted(spelled)

    # --- one member ---------------------------------------------------------------------------------------------------
    def _goal(self, name: str) -> tuple[frozenset[Node], frozenset[Node]]:
        """Return the nodes that a member's value has to be in, and those that it may have to be in."""
        sure = set(self._named.get(name, ()))
        possible: set[Node] = set()
        for names, node in self._general:
            inside = self._lexicon.contains(name, names)
            if inside is not False:
                (sure if inside else possible).add(node)
        return frozenset(sure), frozenset(possible)

    def _value(self, name: str, wanted: frozenset[Node] = frozenset()) -> Outcome:
        """Return a value for the member ``name``."""
        sure, possible = self._goal(name)
        outcome = self._solver.solve(sure | wanted)
        if outcome is EMPTY or possible <= sure:
            return outcome
        stricter = self._solver.solve(sure | wanted | possible)
        if isinstance(stricter, Found):
            return stricter  # good whether or not the undecided pattern matches the name
        return Open(f"whether a pattern matches the name {name!r} is not decided", value_in(outcome))

    def verdict(self, fact: Literal) -> bool | None:
        """Return whether a further fact surely holds or surely fails."""
        match fact.fact:
            case Each(names=names, node=node):
                verdict = self._verdict_each(names, node)
                return verdict if fact.positive or verdict is None else not verdict
            case Need(name=name) if self._value(name) is EMPTY:
                return not fact.positive
            case Need(name=name) if name in self._needed:
                return fact.positive
            case Width(least=least) if len(self._needed) >= least:
                return fact.positive
            case _:
                return None

    def _verdict_each(self, names: StringSet, node: Node) -> bool | None:
        """Return whether "every member in ``names`` is in ``node``" surely holds, surely fails, or neither."""
        opposite = self._algebra.negate(node)
        only = _listed(names)
        candidates = self._needed if only is None else [name for name in only if name in self._needed]
        for name in candidates:
            if only is None and not self._lexicon.contains(name, names):
                continue
            if self._value(name, frozenset({node, *self._needed[name]})) is EMPTY:
                return False
        if only is not None and all(self._value(name, frozenset({opposite})) is EMPTY for name in only):
            return True
        return None

    # --- all members --------------------------------------------------------------------------------------------------
    def solve(self) -> Outcome:
        """Return an object of which all facts hold, or that there is none."""
        slots: list[Slot] = []
        if self._most is not None and (self._least > self._most or len(self._needed) > self._most):
            return EMPTY
        undecided: Open | None = None
        for name, wanted in self._needed.items():
            outcome = self._value(name, frozenset(wanted))
            if outcome is EMPTY:
                return EMPTY
            slots.append(Slot(strings.words((name,)), frozenset(wanted), outcome, name))
        for outcome in self._place(0, slots):
            if isinstance(outcome, Found):
                return outcome
            undecided = better(undecided, outcome)
        return undecided or EMPTY

    def _place(self, index: int, slots: list[Slot]) -> Iterator[Found | Open]:
        """Yield an outcome for every way to give each existential fact from ``index`` on a member; no failures."""
        self._solver.budget.spend(4)
        if index == len(self._wanted):
            outcome = self._complete(slots)
            if outcome is not EMPTY:
                yield outcome
            return
        names, node = self._wanted[index]
        for place, slot in self._options(names, node, slots):
            changed = [*slots, slot] if place is None else [*slots[:place], slot, *slots[place + 1 :]]
            if self._most is None or len(changed) <= self._most:
                yield from self._place(index + 1, changed)

    def _options(self, names: StringSet, node: Node, slots: list[Slot]) -> Iterator[tuple[int | None, Slot]]:
        """Yield members that may serve an existential fact: the slot that changes (``None``: a new one), and it."""
        for place, slot in enumerate(slots):
            served = self._serve(slot, names, node)
            if served is not None:
                yield place, served
        taken = {slot.name for slot in slots}
        for name in self._spelled:
            if name in taken:
                continue
            inside = self._lexicon.contains(name, names)
            if inside is False:
                continue
            outcome = self._value(name, frozenset({node}))
            if outcome is not EMPTY:
                value = (
                    outcome if inside else Open(f"whether the name {name!r} is meant is not decided", value_in(outcome))
                )
                yield None, Slot(strings.words((name,)), frozenset({node}), value, name)
        for region, goal, outcome in self._regions(names, frozenset({node})):
            yield None, Slot(region, goal, outcome)

    def _serve(self, slot: Slot, names: StringSet, node: Node) -> Slot | None:
        """Return a slot that also serves an existential fact, ``None`` when that is impossible."""
        goal = slot.goal | {node}
        if slot.name is not None:
            inside = self._lexicon.contains(slot.name, names)
            outcome = EMPTY if inside is False else self._value(slot.name, goal)
            if outcome is EMPTY:
                return None
            if inside is None or isinstance(slot.value, Open):
                outcome = Open(f"whether the name {slot.name!r} is meant is not decided", value_in(outcome))
            return Slot(slot.names, goal, outcome, slot.name)
        region = strings.meet(slot.names, names)
        if self._lexicon.find(region) is EMPTY:
            return None
        outcome = self._solver.solve(goal)
        return None if outcome is EMPTY else Slot(region, goal, outcome)

    def _regions(
        self, names: StringSet, wanted: frozenset[Node]
    ) -> Iterator[tuple[StringSet, frozenset[Node], Found | Open]]:
        """Yield the regions of names that nobody spells out, with the goal of a value there and a value."""
        start = strings.meet(names, (Box(but=frozenset(self._spelled)),)) if self._spelled else names
        plain = {node for others, node in self._general if not strings.meet(start, self._complement(others))}
        yield from self._split(start, wanted | plain, 0)

    def _split(
        self, region: StringSet, goal: frozenset[Node], index: int
    ) -> Iterator[tuple[StringSet, frozenset[Node], Found | Open]]:
        self._solver.budget.spend(2 + 4 * len(region))
        outcome = self._solver.solve(goal)
        if outcome is EMPTY:
            return
        name = self._lexicon.find(region)
        if name is EMPTY:
            return
        if index == len(self._general):
            if isinstance(name, Open):
                outcome = Open(name.reason, value_in(outcome))
            yield region, goal, outcome
            return
        names, node = self._general[index]
        yield from self._split(strings.meet(region, self._complement(names)), goal, index + 1)
        yield from self._split(strings.meet(region, names), goal | {node}, index + 1)

    def _complement(self, names: StringSet) -> StringSet:
        if names not in self._outside:
            self._outside[names] = strings.without(names)
        return self._outside[names]

    # --- names and number ---------------------------------------------------------------------------------------------
    def _complete(self, slots: list[Slot]) -> Outcome:
        """Return an object with exactly these members and as many more as ``minProperties`` asks for."""
        unnamed = [slot for slot in slots if slot.name is None]
        members: dict[str, Outcome] = {slot.name: slot.value for slot in slots if slot.name is not None}
        if unnamed:
            pools = [self._names(slot.names, len(unnamed)) for slot in unnamed]
            chosen = distinct([names for names, _ in pools])
            if chosen is None:
                exact = all(complete for _, complete in pools)
                return EMPTY if exact else Open("not enough names are known that patterns accept")
            for name, slot, (_, sure) in zip(chosen, unnamed, pools, strict=True):
                members[name] = (
                    slot.value if sure else Open("what a pattern accepts is not decided", value_in(slot.value))
                )
        if len(members) < self._least:
            missing = self._fill(members)
            if missing is not None:
                return missing
        return _compose(members)

    def _names(self, names: StringSet, limit: int) -> tuple[list[str], bool]:
        """Return up to ``limit`` names of a set, and whether they surely belong to it and no more could be found."""
        found: dict[str, None] = {}
        sure = True
        for box in names:
            outcome = self._lexicon.find_in(box)
            if isinstance(outcome, Open):
                sure = False
                if outcome.candidate is not NOTHING:
                    found[outcome.candidate] = None
            elif outcome is not EMPTY:
                found.update(dict.fromkeys(self._lexicon.members(box, limit)))
        return list(found)[:limit], sure

    def _fill(self, members: dict[str, Outcome]) -> Outcome | None:
        """Add members until there are enough; return why that failed, or ``None``."""
        if self._least - len(members) > MAX_ADDED:
            return Open(f"more than {MAX_ADDED} members would be needed")
        undecided: Open | None = None
        for name, outcome in self._free_members():
            if len(members) >= self._least:
                return None
            if isinstance(outcome, Open):
                undecided = better(undecided, Open(outcome.reason))
            else:
                members.setdefault(name, outcome)
        return None if len(members) >= self._least else undecided or EMPTY

    def _free_members(self) -> Iterator[tuple[str, Found | Open]]:
        """Yield members that may be added: those with spelled-out names, then enough of each region."""
        for name in self._spelled:
            outcome = self._value(name)
            if outcome is not EMPTY:
                yield name, outcome
        for region, _, value in self._regions(EVERY_STRING, frozenset()):
            names, sure = self._names(region, self._least)
            for name in names:
                yield name, value if sure else Open("what a pattern accepts is not decided")


def _listed(names: StringSet) -> frozenset[str] | None:
    """Return the words of a set that is just a list of words, ``None`` for any other."""
    return names[0].only if len(names) == 1 and names[0] == Box(only=names[0].only) else None


def _compose(members: dict[str, Outcome]) -> Found | Open:
    """Return the object of some members; undecided when one of them is."""
    value: dict[str, Any] = {}
    undecided: Open | None = None
    for name, outcome in members.items():
        if outcome is EMPTY:
            raise UndecidedError("a member without a value")  # cannot happen: slots hold values
        if isinstance(outcome, Open):
            undecided = undecided or outcome
        value[name] = value_in(outcome)
    if undecided is None:
        return Found(value)
    return Open(undecided.reason, NOTHING if NOTHING in value.values() else value)
