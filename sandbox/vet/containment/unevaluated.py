"""``unevaluatedProperties`` and ``unevaluatedItems`` (2020-12 core §11) as ordinary facts under conditions.

What counts as evaluated depends on which subschemas of the same value succeed. Of a value that is valid under
everything else in the schema, each applicator contributes a pair (guard, extent): when the guard holds, the names (or
indexes) in the extent are evaluated. The keyword becomes a decision over the guards: for the set T of those that
hold, every member outside ⋃ extents(T) is in the subschema. The number of guards is bounded; beyond it the keyword is
opaque.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sandbox.vet.containment import strings
from sandbox.vet.containment.dialect import Dialect
from sandbox.vet.containment.facts import Need
from sandbox.vet.containment.keywords_of_arrays import rest
from sandbox.vet.containment.keywords_of_objects import each, opaque, own_names
from sandbox.vet.containment.nodes import Node
from sandbox.vet.containment.strings import EVERY_STRING, NO_STRING, StringSet
from sandbox.vet.containment.values import ALL, ARRAY, OBJECT

if TYPE_CHECKING:
    from sandbox.vet.containment.document import Place
    from sandbox.vet.containment.reader import Reader, Scope

MAX_GUARDS: Final = 7
"""Subschemas of one value whose success decides what is evaluated; each doubles the formula. Real ones have up to 4."""

EVERY_INDEX: Final = 1 << 40
"""An extent that covers an array of any length."""


class Names(NamedTuple):
    """Member names that are evaluated when ``guard`` holds."""

    guard: Node
    extent: StringSet


class Indexes(NamedTuple):
    """Indexes below ``extent``, and elements in one of ``matching``, that are evaluated when ``guard`` holds."""

    guard: Node
    extent: int
    matching: tuple[Node, ...] = ()


def unevaluated(reader: Reader, place: Place, scope: Scope) -> Iterator[Node]:
    """Yield the nodes of ``unevaluatedProperties`` and ``unevaluatedItems`` of a schema."""
    if "unevaluatedProperties" in place.schema:
        yield _properties(reader, place, scope)
    if "unevaluatedItems" in place.schema:
        yield _items(reader, place, scope)


def _properties(reader: Reader, place: Place, scope: Scope) -> Node:
    node = reader.child(place, ("unevaluatedProperties",), scope)
    always: StringSet = NO_STRING
    guarded: dict[Node, StringSet] = {}
    for guard, extent in _names(reader, place, scope, outermost=True):
        if guard is reader.algebra.everything:
            always = strings.join(always, extent)
        else:
            guarded[guard] = strings.join(guarded.get(guard, NO_STRING), extent)
    if always == EVERY_STRING or node is reader.algebra.everything:
        return reader.algebra.everything
    if len(guarded) > MAX_GUARDS:
        return opaque(reader, place, "unevaluatedProperties", place.schema, OBJECT)

    def covered(chosen: tuple[Node, ...]) -> Node:
        extent = strings.join(always, *(guarded[guard] for guard in chosen))
        return each(reader, strings.without(extent), node)

    return _by_cases(reader, list(guarded), covered, OBJECT)


def _items(reader: Reader, place: Place, scope: Scope) -> Node:
    node = reader.child(place, ("unevaluatedItems",), scope)
    found = list(_indexes(reader, place, scope, outermost=True))
    guards = list(dict.fromkeys(one.guard for one in found if one.guard is not reader.algebra.everything))
    if len(guards) > MAX_GUARDS:
        return opaque(reader, place, "unevaluatedItems", place.schema, ARRAY)

    def covered(chosen: tuple[Node, ...]) -> Node:
        held = [one for one in found if one.guard is reader.algebra.everything or one.guard in chosen]
        extent = max((one.extent for one in held), default=0)
        if extent >= EVERY_INDEX:
            return reader.algebra.everything
        matching = [node for one in held for node in one.matching]
        return rest(reader, extent, reader.algebra.any_of([node, *matching]))

    return _by_cases(reader, guards, covered, ARRAY)


def _by_cases(reader: Reader, guards: list[Node], covered: Callable[[tuple[Node, ...]], Node], kind: int) -> Node:
    """Return the keyword as a decision over the guards, for values of one type; other values are in it.

    Its complement decides in the same way: written as such, both are disjunctions of few cases.
    """
    algebra = reader.algebra

    def decide(index: int, chosen: tuple[Node, ...], *, positive: bool) -> Node:
        if index == len(guards):
            leaf = covered(chosen)
            return leaf if positive else algebra.negate(leaf)
        guard = guards[index]
        held = algebra.all_of((guard, decide(index + 1, (*chosen, guard), positive=positive)))
        failed = algebra.all_of((algebra.negate(guard), decide(index + 1, chosen, positive=positive)))
        return algebra.any_of((held, failed))

    if not guards:
        return algebra.any_of((algebra.types(ALL & ~kind), covered(())))
    inside = algebra.any_of((algebra.types(ALL & ~kind), decide(0, (), positive=True)))
    outside = algebra.all_of((algebra.types(kind), decide(0, (), positive=False)))
    return algebra.opposites(inside, outside)


# --- what is evaluated ------------------------------------------------------------------------------------------------
def _names(reader: Reader, place: Place, scope: Scope, *, outermost: bool = False) -> Iterator[Names]:
    """Yield the names that a schema evaluates, of an object that is valid under it."""
    if not isinstance(place.schema, dict):
        return
    everything = reader.algebra.everything
    if "additionalProperties" in place.schema or ("unevaluatedProperties" in place.schema and not outermost):
        yield Names(everything, EVERY_STRING)
        return
    yield Names(everything, own_names(place))
    for guard, sub, inner in _inplace(reader, place, scope):
        for found in _names(reader, sub, inner):
            yield Names(reader.algebra.all_of((guard, found.guard)), found.extent)


def _indexes(reader: Reader, place: Place, scope: Scope, *, outermost: bool = False) -> Iterator[Indexes]:
    """Yield the indexes that a schema evaluates, of an array that is valid under it."""
    if not isinstance(place.schema, dict):
        return
    schema, everything = place.schema, reader.algebra.everything
    modern = place.document.dialect >= Dialect.D2020
    listed = schema.get("prefixItems" if modern else "items")
    whole = "items" in schema if modern else (isinstance(listed, dict | bool) or "additionalItems" in schema)
    if whole or ("unevaluatedItems" in schema and not outermost):
        yield Indexes(everything, EVERY_INDEX)
        return
    if isinstance(listed, list):
        yield Indexes(everything, len(listed))
    if modern and "contains" in schema:
        yield Indexes(everything, 0, (reader.child(place, ("contains",), scope),))
    for guard, sub, inner in _inplace(reader, place, scope):
        for found in _indexes(reader, sub, inner):
            yield Indexes(reader.algebra.all_of((guard, found.guard)), found.extent, found.matching)


def _inplace(reader: Reader, place: Place, scope: Scope) -> Iterator[tuple[Node, Place, Scope]]:
    """Yield the subschemas that apply to the same value, each with the condition under which its annotations count."""
    schema, algebra = place.schema, reader.algebra
    inner = reader.scope_in(place, scope)

    for keyword in reader.references(place):
        yield algebra.everything, reader.target(place, keyword, scope), inner
    for keyword in ("allOf", "anyOf", "oneOf"):
        for index in range(len(_list(schema, keyword))):
            branch = place.below((keyword, str(index)))
            yield algebra.everything if keyword == "allOf" else reader.node(branch, inner), branch, inner
    if "if" in schema:
        condition = reader.node(place.below(("if",)), inner)
        yield condition, place.below(("if",)), inner
        for keyword, guard in (("then", condition), ("else", algebra.negate(condition))):
            if keyword in schema:
                yield guard, place.below((keyword,)), inner
    for name in schema.get("dependentSchemas", {}):
        present = algebra.all_of((algebra.types(OBJECT), algebra.fact(Need(name))))
        yield present, place.below(("dependentSchemas", name)), inner


def _list(schema: dict[str, Any], keyword: str) -> list[Any]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []
