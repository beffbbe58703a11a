"""The null, boolean, number and string parts of a node, computed exactly as sets.

For a value of one of these types a schema is a Boolean combination of facts about that type only, so that its
*section* is an element of a Boolean algebra of sets. Containment there is emptiness of an intersection; no search is
needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar

from sandbox.vet.containment import numbers, strings
from sandbox.vet.containment.algebra import Algebra
from sandbox.vet.containment.budget import Budget, UndecidedError
from sandbox.vet.containment.facts import AtLeast, Fact, Length, MultipleOf, NumberIs, Opaque, Pattern, StringIs
from sandbox.vet.containment.nodes import And, Everything, Literal, Node, Nothing, One, Or, Ref, Types, Values
from sandbox.vet.containment.numbers import NumberSet, Range
from sandbox.vet.containment.strings import Box, StringSet
from sandbox.vet.containment.values import BOOLEAN, NULL, NUMBER, STRING, Key, kind_of

S = TypeVar("S")


class SetAlgebra(Protocol[S]):
    """Operations on the sets of one type."""

    kind: int
    everything: S
    nothing: S

    def listed(self, keys: list[Any]) -> S:
        """Return the set of the given contents of keys."""

    def fact(self, fact: Fact) -> S:
        """Return the values of this type of which a fact holds."""

    def meet(self, one: S, other: S) -> S:
        """Return the intersection."""

    def join(self, one: S, other: S) -> S:
        """Return the union."""

    def without(self, one: S) -> S:
        """Return the complement."""


class Strings:
    """Sets of strings."""

    kind = STRING
    everything = strings.EVERY_STRING
    nothing = strings.NO_STRING

    def listed(self, keys: list[Any]) -> StringSet:
        """Return the set of the given strings."""
        return strings.words(keys)

    def fact(self, fact: Fact) -> StringSet:
        """Return the strings of which a fact holds."""
        match fact:
            case Length(least=least):
                return (Box(least=least),)
            case Pattern(text=text):
                return (Box(pos=frozenset({text})),)
            case StringIs(name=name) | Opaque(name=name):
                return (Box(is_a=frozenset({name})),)
            case _:
                raise UndecidedError("a fact about strings of an unknown kind")

    def meet(self, one: StringSet, other: StringSet) -> StringSet:
        """Return the intersection."""
        return strings.meet(one, other)

    def join(self, one: StringSet, other: StringSet) -> StringSet:
        """Return the union."""
        return strings.join(one, other)

    def without(self, one: StringSet) -> StringSet:
        """Return the complement."""
        return strings.without(one)


class Numbers:
    """Sets of numbers."""

    kind = NUMBER
    everything = numbers.EVERY_NUMBER
    nothing = numbers.NO_NUMBER

    def listed(self, keys: list[Any]) -> NumberSet:
        """Return the set of the given numbers."""
        return numbers.numbers(keys)

    def fact(self, fact: Fact) -> NumberSet:
        """Return the numbers of which a fact holds."""
        match fact:
            case AtLeast(bound=bound, open=opened):
                return (Range(low=bound, above=opened),)
            case MultipleOf(step=step):
                return (Range(step=step),)
            case NumberIs(name=name) | Opaque(name=name):
                return (Range(is_a=frozenset({name})),)
            case _:
                raise UndecidedError("a fact about numbers of an unknown kind")

    def meet(self, one: NumberSet, other: NumberSet) -> NumberSet:
        """Return the intersection."""
        return numbers.meet(one, other)

    def join(self, one: NumberSet, other: NumberSet) -> NumberSet:
        """Return the union."""
        return numbers.join(one, other)

    def without(self, one: NumberSet) -> NumberSet:
        """Return the complement."""
        return numbers.without(one)


class Few:
    """Sets of null or of booleans, listed one by one; an opaque fact about them is not decided."""

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.everything: frozenset[Any] = frozenset({None}) if kind == NULL else frozenset({False, True})
        self.nothing: frozenset[Any] = frozenset()

    def listed(self, keys: list[Any]) -> frozenset[Any]:
        """Return the set of the given values."""
        return frozenset(keys)

    def fact(self, fact: Fact) -> frozenset[Any]:
        """Refuse: no fact that is understood speaks about null or booleans."""
        raise UndecidedError(f"{getattr(fact, 'name', 'a keyword')} is not understood")

    def meet(self, one: frozenset[Any], other: frozenset[Any]) -> frozenset[Any]:
        """Return the intersection."""
        return one & other

    def join(self, one: frozenset[Any], other: frozenset[Any]) -> frozenset[Any]:
        """Return the union."""
        return one | other

    def without(self, one: frozenset[Any]) -> frozenset[Any]:
        """Return the complement."""
        return self.everything - one


class Sections(Generic[S]):
    """Computes and remembers the sections of nodes for one type.

    Args:
        algebra: where the nodes come from.
        sets: operations on the sets of the type.
    """

    def __init__(self, algebra: Algebra, sets: SetAlgebra[S]) -> None:
        self._algebra = algebra
        self._sets = sets
        self._budget: Budget = algebra.budget
        self._known: dict[Node, S] = {}

    def of(self, node: Node) -> S:
        """Return the values of the type that are in a node.

        Raises:
            UndecidedError: the set is too complex.
        """
        found = self._known.get(node)
        if found is None:
            self._budget.spend(2)
            found = self._compute(node)
            self._known[node] = found
        return found

    def _compute(self, node: Node) -> S:  # noqa: C901 - one case for each kind of node
        sets = self._sets
        match node:
            case Everything():
                return sets.everything
            case Nothing():
                return sets.nothing
            case And(parts=parts):
                return self.all_of(parts)
            case Or(parts=parts):
                return self._any_of(parts)
            case One(parts=parts, positive=positive):
                once = self._exactly_one(parts)
                return once if positive else self._without(once)
            case Ref(key=key, positive=positive):
                target = self.of(self._algebra.targets[key])
                return target if positive else self._without(target)
            case Types(mask=mask):
                return sets.everything if mask & sets.kind else sets.nothing
            case Values(keys=keys, positive=positive):
                return self._listed(keys, positive=positive)
            case Literal(fact=fact, positive=positive):
                if not node.mask & sets.kind:
                    return sets.everything if positive else sets.nothing
                held = sets.fact(fact)
                return held if positive else self._without(held)
            case _:
                raise UndecidedError("a formula of an unknown kind")

    def all_of(self, parts: Iterable[Node]) -> S:
        """Return the values of the type that are in every part."""
        result = self._sets.everything
        for part in parts:
            result = self._meet(result, self.of(part))
            if not result:
                break
        return result

    def _any_of(self, parts: Iterable[Node]) -> S:
        result = self._sets.nothing
        for part in parts:
            result = self._sets.join(result, self.of(part))
            self._budget.spend(_size(result))
        return result

    def _exactly_one(self, parts: tuple[Node, ...]) -> S:
        none, once = self._sets.everything, self._sets.nothing
        for part in parts:
            here = self.of(part)
            away = self._without(here)
            once = self._sets.join(self._meet(once, away), self._meet(none, here))
            none = self._meet(none, away)
        return once

    def _meet(self, one: S, other: S) -> S:
        self._budget.spend(_size(one) * _size(other))
        return self._sets.meet(one, other)

    def _without(self, one: S) -> S:
        self._budget.spend(2 * _size(one) ** 2)
        return self._sets.without(one)

    def _listed(self, keys: frozenset[Key], *, positive: bool) -> S:
        held = self._sets.listed([content for key in keys if kind_of(key) == self._sets.kind for content in (key[1],)])
        return held if positive else self._without(held)


def _size(found: object) -> int:
    """Return the number of boxes of a set."""
    return len(found) if isinstance(found, tuple) else 1


NULLS = Few(NULL)
BOOLEANS = Few(BOOLEAN)
