"""Whether one given value is in a node: three-valued, because an opaque predicate may decide it.

Used where one side lists its values (``enum``, ``const``): trying them is exact and cheap.
"""

from __future__ import annotations

from collections.abc import Iterable

from sandbox.vet.containment.algebra import Algebra
from sandbox.vet.containment.facts import (
    AtLeast,
    Count,
    Each,
    Fact,
    Item,
    Items,
    Length,
    MultipleOf,
    Named,
    Need,
    NumberIs,
    Pattern,
    Size,
    Unique,
    Width,
)
from sandbox.vet.containment.nodes import And, Everything, Literal, Node, Nothing, One, Or, Ref, Types, Values
from sandbox.vet.containment.numbers import divides, predicate_holds
from sandbox.vet.containment.strings import Lexicon
from sandbox.vet.containment.values import Key, kind_of

Verdict = bool | None


def all_hold(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the conjunction: false wins over undecided."""
    undecided = False
    for verdict in verdicts:
        if verdict is False:
            return False
        undecided = undecided or verdict is None
    return None if undecided else True


def some_hold(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the disjunction: true wins over undecided."""
    undecided = False
    for verdict in verdicts:
        if verdict:
            return True
        undecided = undecided or verdict is None
    return None if undecided else False


def opposite(verdict: Verdict) -> Verdict:
    """Return the negation; undecided stays so."""
    return None if verdict is None else not verdict


def at_least(verdicts: Iterable[Verdict], least: int) -> Verdict:
    """Return whether at least ``least`` hold."""
    sure = possible = 0
    for verdict in verdicts:
        sure += verdict is True
        possible += verdict is not False
    if sure >= least:
        return True
    return None if possible >= least else False


class Judge:
    """Evaluates nodes on values.

    Args:
        algebra: where the nodes come from.
        lexicon: decides patterns.
    """

    def __init__(self, algebra: Algebra, lexicon: Lexicon) -> None:
        self._algebra = algebra
        self._lexicon = lexicon
        self._known: dict[tuple[Key, Node], Verdict] = {}

    def holds(self, key: Key, node: Node) -> Verdict:
        """Return whether the value is in the node, ``None`` when that is not decided."""
        memo = (key, node)
        if memo not in self._known:
            self._algebra.budget.spend()
            self._known[memo] = self._evaluate(key, node)
        return self._known[memo]

    def _evaluate(self, key: Key, node: Node) -> Verdict:  # noqa: C901 - one case for each kind of node
        match node:
            case Everything():
                return True
            case Nothing():
                return False
            case And(parts=parts):
                return all_hold(self.holds(key, part) for part in parts)
            case Or(parts=parts):
                return some_hold(self.holds(key, part) for part in parts)
            case One(parts=parts, positive=positive):
                verdict = self._exactly_one(key, parts)
            case Ref(key=target, positive=positive):
                verdict = self.holds(key, self._algebra.targets[target])
            case Types(mask=mask):
                return bool(mask & kind_of(key))
            case Values(keys=keys, positive=positive):
                return (key in keys) is positive
            case Literal(fact=fact, positive=positive):
                if not node.mask & kind_of(key):
                    return positive
                verdict = self._fact(key, fact)
            case _:
                return None
        return verdict if positive else opposite(verdict)

    def _exactly_one(self, key: Key, parts: tuple[Node, ...]) -> Verdict:
        verdicts = [self.holds(key, part) for part in parts]
        several = at_least(verdicts, 2)
        if several:
            return False
        return all_hold((at_least(verdicts, 1), opposite(several)))

    def _fact(self, key: Key, fact: Fact) -> Verdict:  # noqa: C901, PLR0912 - one case for each kind of fact
        content = key[1]
        match fact:
            case AtLeast(bound=bound, open=opened):
                return bool(content > bound or (content == bound and not opened))
            case MultipleOf(step=step):
                return divides(step, content)
            case NumberIs(name=name):
                return predicate_holds(name, content)
            case Length(least=least) | Size(least=least) | Width(least=least):
                return len(content) >= least
            case Pattern(text=text):
                return self._lexicon.matches(content, text)
            case Item(index=index, node=node):
                return self.holds(content[index], node) if index < len(content) else True
            case Items(start=start, node=node):
                return all_hold(self.holds(item, node) for item in content[start:])
            case Count(node=node, least=least):
                return at_least((self.holds(item, node) for item in content), least)
            case Unique():
                return len(set(content)) == len(content)
            case Need(name=name):
                return any(member == name for member, _ in content)
            case Each(names=names, node=node):
                return all_hold(
                    some_hold((opposite(self._lexicon.contains(member, names)), self.holds(item, node)))
                    for member, item in content
                )
            case Named(node=node):
                return all_hold(self.holds(("string", member), node) for member, _ in content)
            case _:
                return None
