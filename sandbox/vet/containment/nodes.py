"""Nodes: sets of JSON values as Boolean formulas over facts.

Nodes are made by :class:`~sandbox.vet.containment.algebra.Algebra`, each once: equal subschemas of both sides are the
same object, compared and hashed by identity. This makes the ordinary case, two schemas that share most of their
parts, cheap, and lets keywords that are not understood still be equal to themselves.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import reduce
from operator import and_, or_

from sandbox.vet.containment.facts import Fact, kinds_of
from sandbox.vet.containment.values import ALL, Key, kind_of


class Node:
    """A set of JSON values; made by :class:`Algebra` only.

    Attributes:
        serial: order of creation, for deterministic results.
        kinds: types that its values can have; an upper bound that is cheap to know.
        negation: its complement, once somebody asked for it.
        special: its restriction to a type, once somebody asked for it.
    """

    __slots__ = ("kinds", "negation", "serial", "special")

    def __init__(self, kinds: int = ALL) -> None:
        self.serial = 0
        self.kinds = kinds
        self.negation: Node | None = None
        self.special: dict[int, Node] = {}


class Everything(Node):
    """All values."""

    __slots__ = ()


class Nothing(Node):
    """No value."""

    __slots__ = ()


class And(Node):
    """Values in every part."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Node, ...]) -> None:
        super().__init__(reduce(and_, (part.kinds for part in parts), ALL))
        self.parts = parts


class Or(Node):
    """Values in some part."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Node, ...]) -> None:
        super().__init__(reduce(or_, (part.kinds for part in parts), 0))
        self.parts = parts


class One(Node):
    """Values in exactly one part; with ``positive`` false, in none or in several."""

    __slots__ = ("parts", "positive")

    def __init__(self, parts: tuple[Node, ...], positive: bool) -> None:
        super().__init__(reduce(or_, (part.kinds for part in parts), 0) if positive else ALL)
        self.parts = parts
        self.positive = positive


class Ref(Node):
    """The node that a recursive reference stands for, or its complement; looked up when it is needed."""

    __slots__ = ("key", "positive")

    def __init__(self, key: Hashable, positive: bool) -> None:
        super().__init__()
        self.key = key
        self.positive = positive


class Types(Node):
    """Values whose type is in a mask."""

    __slots__ = ("mask",)

    def __init__(self, mask: int) -> None:
        super().__init__(mask)
        self.mask = mask


class Values(Node):
    """The listed values; with ``positive`` false, all others."""

    __slots__ = ("keys", "positive")

    def __init__(self, keys: frozenset[Key], positive: bool) -> None:
        super().__init__(reduce(or_, map(kind_of, keys), 0) if positive else ALL)
        self.keys = keys
        self.positive = positive


class Literal(Node):
    """A fact, or with ``positive`` false its negation; ``mask`` says about values of which types."""

    __slots__ = ("fact", "mask", "positive")

    def __init__(self, fact: Fact, positive: bool) -> None:
        self.mask = kinds_of(fact)
        super().__init__(ALL if positive else self.mask)
        self.fact = fact
        self.positive = positive
