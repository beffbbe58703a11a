"""Facts: what one keyword says about values of one type.

A fact speaks about values of its type and holds of every value of any other type, as a JSON Schema keyword does. Its
negation therefore says the type as well: ``not {minLength: 3}`` is "a string, shorter than 3". Upper bounds are
negations of lower ones, so that every pair of opposites is a fact and its negation, and *p and not p* is seen without
understanding p.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from sandbox.vet.containment.numbers import Rational
from sandbox.vet.containment.strings import StringSet
from sandbox.vet.containment.values import ARRAY, NUMBER, OBJECT, STRING

if TYPE_CHECKING:
    from sandbox.vet.containment.nodes import Node


@dataclass(frozen=True, slots=True)
class AtLeast:
    """A number is at least (or, when ``open``, greater than) ``bound``."""

    bound: Rational
    open: bool


@dataclass(frozen=True, slots=True)
class MultipleOf:
    """A number is a multiple of ``step``, which is exact in binary."""

    step: Rational


@dataclass(frozen=True, slots=True)
class NumberIs:
    """An opaque predicate about numbers."""

    name: str


@dataclass(frozen=True, slots=True)
class Length:
    """A string has at least ``least`` code points."""

    least: int


@dataclass(frozen=True, slots=True)
class Pattern:
    """A string contains a match of ``text``."""

    text: str


@dataclass(frozen=True, slots=True)
class StringIs:
    """An opaque predicate about strings."""

    name: str


@dataclass(frozen=True, slots=True)
class Size:
    """An array has at least ``least`` elements."""

    least: int


@dataclass(frozen=True, slots=True)
class Item:
    """The element at ``index``, if there is one, is in ``node``."""

    index: int
    node: Node


@dataclass(frozen=True, slots=True)
class Items:
    """Every element from index ``start`` on is in ``node``."""

    start: int
    node: Node


@dataclass(frozen=True, slots=True)
class Count:
    """At least ``least`` elements are in ``node``."""

    node: Node
    least: int


@dataclass(frozen=True, slots=True)
class Unique:
    """No two elements are equal."""


@dataclass(frozen=True, slots=True)
class Width:
    """An object has at least ``least`` members."""

    least: int


@dataclass(frozen=True, slots=True)
class Need:
    """An object has the member ``name``."""

    name: str


@dataclass(frozen=True, slots=True)
class Each:
    """Every member whose name is in ``names`` has a value in ``node``."""

    names: StringSet
    node: Node


@dataclass(frozen=True, slots=True)
class Named:
    """Every member's name is, as a string, in ``node``."""

    node: Node


@dataclass(frozen=True, slots=True)
class Opaque:
    """Something about values of the types in ``mask`` that is only known to be equal to itself."""

    name: str
    mask: int


Fact: TypeAlias = (
    AtLeast
    | MultipleOf
    | NumberIs
    | Length
    | Pattern
    | StringIs
    | Size
    | Item
    | Items
    | Count
    | Unique
    | Width
    | Need
    | Each
    | Named
    | Opaque
)

KIND_OF_FACT: Final[dict[type, int]] = {
    **dict.fromkeys((AtLeast, MultipleOf, NumberIs), NUMBER),
    **dict.fromkeys((Length, Pattern, StringIs), STRING),
    **dict.fromkeys((Size, Item, Items, Count, Unique), ARRAY),
    **dict.fromkeys((Width, Need, Each, Named), OBJECT),
}


def kinds_of(fact: Fact) -> int:
    """Return the types that a fact speaks about."""
    return fact.mask if isinstance(fact, Opaque) else KIND_OF_FACT[type(fact)]
