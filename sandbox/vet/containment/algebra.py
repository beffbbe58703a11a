"""The algebra of nodes: makes each node once, negates, and restricts to one type.

Conjunctions and disjunctions are flattened, repetitions and neutral parts dropped, opposites absorbed, types and value
lists merged. That is all the rewriting there is; it keeps formulas small and makes opposites meet.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import reduce
from operator import and_, or_
from typing import Final

from sandbox.vet.containment.budget import Budget, UndecidedError
from sandbox.vet.containment.facts import Count, Each, Fact, Item, Items, Length, Named, Need, Size, Width, kinds_of
from sandbox.vet.containment.nodes import And, Everything, Literal, Node, Nothing, One, Or, Ref, Types, Values
from sandbox.vet.containment.strings import words
from sandbox.vet.containment.values import ALL, ARRAY, OBJECT, Key, kind_of

MAX_EXCLUSIVE: Final = 80
"""Branches of one ``oneOf`` that no discriminator tells apart; every pair of them is a clause."""


class Algebra:
    """Makes, interns, negates and specialises nodes.

    Args:
        budget: pays for every node.

    Attributes:
        everything: the node of all values.
        nothing: the node of no value.
        targets: what recursive references stand for, filled by the reader of schemas.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.targets: dict[Hashable, Node] = {}
        self._interned: dict[Hashable, Node] = {}
        self._shapes: dict[Key, Node] = {}
        self.everything: Node = self._intern(("everything",), Everything)
        self.nothing: Node = self._intern(("nothing",), lambda: Nothing(0))
        self.everything.negation = self.nothing
        self.nothing.negation = self.everything

    def _intern(self, key: Hashable, make: Callable[[], Node]) -> Node:
        node = self._interned.get(key)
        if node is None:
            self.budget.spend()
            node = make()
            node.serial = len(self._interned)
            self._interned[key] = node
        return node

    def _pair(self, key: Hashable, make: Callable[[bool], Node], *, positive: bool) -> Node:
        """Return one of two opposites, which are made together so that each knows the other."""
        node = self._interned.get((key, positive))
        if node is None:
            node = self._intern((key, positive), lambda: make(positive))
            node.negation = self._intern((key, not positive), lambda: make(not positive))
            node.negation.negation = node
        return node

    # --- makers -------------------------------------------------------------------------------------------------------
    def types(self, mask: int) -> Node:
        """Return the values of some types."""
        if mask == ALL:
            return self.everything
        return self._intern(("types", mask), lambda: Types(mask)) if mask else self.nothing

    def values(self, keys: Iterable[Key], *, positive: bool = True) -> Node:
        """Return the listed values, or all others."""
        listed = frozenset(keys)
        if not listed:
            return self.nothing if positive else self.everything
        self.budget.spend(len(listed) // 8)
        return self._pair(("values", listed), lambda sign: Values(listed, sign), positive=positive)

    def fact(self, fact: Fact, *, positive: bool = True) -> Node:
        """Return a fact or its negation; what always holds is no fact, and its negation is nothing."""
        if _always_holds(fact):
            return self.everything if positive else self.nothing
        return self._pair(("fact", type(fact), fact), lambda sign: Literal(fact, sign), positive=positive)

    def at_most(self, fact: Fact) -> Node:
        """Return an upper bound as a keyword: "not ``fact``" for values of its type, every value of another."""
        return self.any_of((self.types(ALL & ~kinds_of(fact)), self.fact(fact, positive=False)))

    def ref(self, key: Hashable, *, positive: bool = True) -> Node:
        """Return a reference whose target is known later."""
        return self._pair(("ref", key), lambda sign: Ref(key, sign), positive=positive)

    def one_of(self, parts: Iterable[Node]) -> Node:
        """Return the values in exactly one part; parts may repeat."""
        listed = tuple(part for part in parts if part is not self.nothing)
        if len(listed) <= 1:
            return listed[0] if listed else self.nothing
        return self._pair(("one", listed), lambda sign: One(listed, sign), positive=True)

    def all_of(self, parts: Iterable[Node]) -> Node:
        """Return the intersection, flattened and without repetitions."""
        flat = self._flat(parts, And, self.everything, self.nothing)
        if flat is None:
            return self.nothing
        if len(flat) == 1:
            return flat[0]
        return self._intern(("and", frozenset(flat)), lambda: And(flat)) if flat else self.everything

    def any_of(self, parts: Iterable[Node]) -> Node:
        """Return the union, flattened and without repetitions."""
        flat = self._flat(parts, Or, self.nothing, self.everything)
        if flat is None:
            return self.everything
        if len(flat) == 1:
            return flat[0]
        return self._intern(("or", frozenset(flat)), lambda: Or(flat)) if flat else self.nothing

    def _flat(
        self, parts: Iterable[Node], sort: type[And | Or], neutral: Node, absorbing: Node
    ) -> tuple[Node, ...] | None:
        """Return the distinct parts, nested ones of the same sort included, or ``None`` when they absorb everything."""
        kept: dict[Node, None] = {}
        masks: list[int] = []
        listed: list[Values] = []
        for part in parts:
            nested = part.parts if isinstance(part, And | Or) and isinstance(part, sort) else (part,)
            self.budget.spend(len(nested))
            for one in nested:
                if one is absorbing or one.negation in kept:
                    return None
                if isinstance(one, Types):
                    masks.append(one.mask)
                elif isinstance(one, Values):
                    listed.append(one)
                elif one is not neutral:
                    kept[one] = None
        merged = [self._one_mask(masks, sort), self._one_list(listed, sort)]
        if absorbing in merged:
            return None
        return (*(one for one in merged if one is not neutral), *kept)

    def _one_mask(self, masks: list[int], sort: type[And | Or]) -> Node:
        """Return the intersection or union of types."""
        if sort is And:
            return self.types(reduce(and_, masks, ALL))
        return self.types(reduce(or_, masks, 0))

    def _one_list(self, listed: list[Values], sort: type[And | Or]) -> Node:
        """Return the intersection or union of value lists as one list."""
        if len(listed) == 1:
            return listed[0]
        conjunction = sort is And
        leading = [one.keys for one in listed if one.positive is conjunction]
        trailing = [one.keys for one in listed if one.positive is not conjunction]
        away: frozenset[Key] = frozenset().union(*trailing)
        if leading:
            return self.values(frozenset.intersection(*leading) - away, positive=conjunction)
        return self.values(away, positive=not conjunction)

    # --- negation -----------------------------------------------------------------------------------------------------
    def negate(self, node: Node) -> Node:
        """Return the complement; the complement of the complement is the node itself."""
        if node.negation is None:
            opposite = self._opposite(node)
            node.negation = opposite
            if opposite.negation is None:
                opposite.negation = node
        return node.negation

    def _opposite(self, node: Node) -> Node:
        match node:
            case And(parts=parts):
                return self.any_of([self.negate(part) for part in parts])
            case Or(parts=parts):
                return self.all_of([self.negate(part) for part in parts])
            case Types(mask=mask):
                return self.types(ALL & ~mask)
            case _:
                raise UndecidedError("a formula of an unknown kind")  # all others are made together with their opposite

    def opposites(self, inside: Node, outside: Node) -> Node:
        """Declare two nodes to be complements, when neither knows its complement yet; return the first."""
        if inside.negation is None and outside.negation is None:
            inside.negation, outside.negation = outside, inside
        return inside

    # --- specialisation -----------------------------------------------------------------------------------------------
    def special(self, node: Node, kind: int) -> Node:
        """Return the node restricted to one type of values, in which nothing about other types is left."""
        found = node.special.get(kind)
        if found is None:
            self.budget.spend()
            found = self._specialised(node, kind)
            node.special[kind] = found
        return found

    def _specialised(self, node: Node, kind: int) -> Node:
        match node:
            case And(parts=parts):
                return self.all_of(self._until(parts, kind, self.nothing))
            case Or(parts=parts):
                return self.any_of(self._until(parts, kind, self.everything))
            case One(parts=parts, positive=positive):
                return self._exactly_one([self.special(part, kind) for part in parts], kind, positive=positive)
            case Ref(key=key, positive=positive):
                target = self.special(self.targets[key], kind)
                return target if positive else self.special(self.negate(target), kind)
            case Types(mask=mask):
                return self.everything if mask & kind else self.nothing
            case Values(keys=keys, positive=positive):
                return self._listed(keys, kind, positive=positive)
            case Literal() if not node.mask & kind:
                return self.everything if node.positive else self.nothing
            case _:
                return node

    def _until(self, parts: tuple[Node, ...], kind: int, absorbing: Node) -> list[Node]:
        special: list[Node] = []
        for part in parts:
            one = self.special(part, kind)
            special.append(one)
            if one is absorbing:
                break
        return special

    def _listed(self, keys: frozenset[Key], kind: int, *, positive: bool) -> Node:
        listed = frozenset(key for key in keys if kind_of(key) == kind)
        if positive or kind not in (ARRAY, OBJECT):
            return self.values(listed, positive=positive)
        return self.all_of([self.special(self.negate(self.shape(key)), kind) for key in sorted(listed, key=repr)])

    def _exactly_one(self, parts: list[Node], kind: int, *, positive: bool) -> Node:
        parts = [part for part in parts if part is not self.nothing]
        sure = parts.count(self.everything)
        if sure > 1:
            return self.nothing if positive else self.everything
        if sure == 1:
            others = self.any_of([part for part in parts if part is not self.everything])
            return self.special(self.negate(others) if positive else others, kind)
        clashes = [self.all_of(pair) for pair in self._overlapping(parts)]
        if positive:
            return self.all_of([self.any_of(parts), *(self.special(self.negate(clash), kind) for clash in clashes)])
        return self.any_of([self.all_of([self.special(self.negate(part), kind) for part in parts]), *clashes])

    def _overlapping(self, parts: list[Node]) -> list[tuple[Node, Node]]:
        """Return the pairs that no required member with a listed value (a discriminator) tells apart."""
        marks = [_discriminators(part) for part in parts]
        for name in set(marks[0]).intersection(*marks[1:]) if marks else ():
            listed = [mark[name] for mark in marks]
            if sum(map(len, listed)) == len(frozenset().union(*listed)):
                return []
        if len(parts) > MAX_EXCLUSIVE:
            raise UndecidedError(f"a oneOf has more than {MAX_EXCLUSIVE} branches that are not told apart by a member")
        self.budget.spend(len(parts) ** 2)
        return [
            (one, other)
            for index, one in enumerate(parts)
            for other, mark in zip(parts[index + 1 :], marks[index + 1 :], strict=True)
            if not any(keys.isdisjoint(mark[name]) for name, keys in marks[index].items() if name in mark)
        ]

    def shape(self, key: Key) -> Node:
        """Return the node of one array or object, said with facts: its complement is then understood."""
        if key not in self._shapes:
            name, content = key
            if name == "array":
                facts = [self.fact(Item(index, self.values((item,)))) for index, item in enumerate(content)]
                facts += [
                    self.types(ARRAY),
                    self.fact(Size(len(content))),
                    self.fact(Size(len(content) + 1), positive=False),
                ]
            else:
                members = sorted(content, key=lambda member: member[0])
                facts = [self.types(OBJECT), self.fact(Width(len(content) + 1), positive=False)]
                for member, value in members:
                    facts += [self.fact(Need(member)), self.fact(Each(words((member,)), self.values((value,))))]
            self._shapes[key] = self.all_of(facts)
        return self._shapes[key]


def _always_holds(fact: Fact) -> bool:
    match fact:
        case Length(least=least) | Size(least=least) | Width(least=least) | Count(least=least):
            return least <= 0
        case Item(node=node) | Items(node=node) | Named(node=node):
            return isinstance(node, Everything)
        case Each(names=names, node=node):
            return not names or isinstance(node, Everything)
        case _:
            return False


def _discriminators(node: Node) -> dict[str, frozenset[Key]]:
    """Return the required members of an object node whose values are listed."""
    if not isinstance(node, And):
        return {}
    needed = {
        part.fact.name
        for part in node.parts
        if isinstance(part, Literal) and part.positive and isinstance(part.fact, Need)
    }
    listed: dict[str, frozenset[Key]] = {}
    for part in node.parts:
        if (
            isinstance(part, Literal)
            and part.positive
            and isinstance(part.fact, Each)
            and isinstance(part.fact.node, Values)
        ):
            only = part.fact.names[0].only if len(part.fact.names) == 1 else None
            if only and part.fact.node.positive:
                listed.update({name: part.fact.node.keys for name in only if name in needed})
    return listed
