"""Keywords about arrays, as nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandbox.vet.containment.budget import UndecidedError
from sandbox.vet.containment.dialect import Dialect
from sandbox.vet.containment.facts import Count, Item, Items, Size, Unique
from sandbox.vet.containment.nodes import Node
from sandbox.vet.containment.values import ALL, ARRAY

if TYPE_CHECKING:
    from sandbox.vet.containment.document import Place
    from sandbox.vet.containment.reader import Reader, Scope


def size(place: Place, keyword: str, value: Any) -> int:
    """Return the value of a keyword that is a non-negative integer."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UndecidedError(f"`{keyword}` at {place} is not a non-negative integer")
    return value


def unique(reader: Reader, place: Place, value: Any, _scope: Scope) -> Node:
    """``uniqueItems``."""
    if not isinstance(value, bool):
        raise UndecidedError(f"`uniqueItems` at {place} is not a boolean")
    return reader.algebra.fact(Unique()) if value else reader.algebra.everything


def prefix(reader: Reader, place: Place, value: Any, scope: Scope, keyword: str = "prefixItems") -> Node:
    """``prefixItems``, and ``items`` as a list."""
    if not isinstance(value, list):
        raise UndecidedError(f"`{keyword}` at {place} is not a list")
    return reader.algebra.all_of(
        [
            reader.algebra.fact(Item(index, reader.child(place, (keyword, str(index)), scope)))
            for index in range(len(value))
        ]
    )


def items(reader: Reader, place: Place, value: Any, scope: Scope) -> Node:
    """``items``: for all elements, or those after ``prefixItems``; as a list in older dialects."""
    if isinstance(value, list):
        if place.document.dialect >= Dialect.D2020:
            raise UndecidedError(f"`items` at {place} is a list, which 2020-12 does not have")
        return prefix(reader, place, value, scope, "items")
    start = 0
    if place.document.dialect >= Dialect.D2020 and isinstance(place.schema.get("prefixItems"), list):
        start = len(place.schema["prefixItems"])
    return rest(reader, start, reader.child(place, ("items",), scope))


def additional_items(reader: Reader, place: Place, _value: Any, scope: Scope) -> Node:
    """``additionalItems``: only beside ``items`` as a list."""
    listed = place.schema.get("items")
    if not isinstance(listed, list):
        return reader.algebra.everything
    return rest(reader, len(listed), reader.child(place, ("additionalItems",), scope))


def rest(reader: Reader, start: int, node: Node) -> Node:
    """Return "every element from ``start`` on is in ``node``"; none at all is a bound on the length."""
    if node is reader.algebra.nothing:
        return reader.algebra.at_most(Size(start + 1))
    return reader.algebra.fact(Items(start, node))


def contains(reader: Reader, place: Place, _value: Any, scope: Scope) -> Node:
    """``contains`` with ``minContains`` and ``maxContains``."""
    node = reader.child(place, ("contains",), scope)
    least, most = 1, None
    if place.document.dialect >= Dialect.D2019:
        least = size(place, "minContains", place.schema.get("minContains", 1))
        most = place.schema.get("maxContains")
    parts = [_count(reader, node, least)]
    if most is not None:
        more = _count(reader, node, size(place, "maxContains", most) + 1)
        parts.append(reader.algebra.any_of((reader.algebra.types(ALL & ~ARRAY), reader.algebra.negate(more))))
    return reader.algebra.all_of(parts)


def _count(reader: Reader, node: Node, least: int) -> Node:
    if node is reader.algebra.everything:
        return reader.algebra.fact(Size(least))
    if node is reader.algebra.nothing and least > 0:
        return reader.algebra.types(ALL & ~ARRAY)
    return reader.algebra.fact(Count(node, least))
