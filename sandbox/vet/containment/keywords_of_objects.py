"""Keywords about objects, as nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandbox import jsontext
from sandbox.vet.containment import strings
from sandbox.vet.containment.budget import UndecidedError
from sandbox.vet.containment.dialect import Dialect
from sandbox.vet.containment.facts import Each, Named, Need, Opaque
from sandbox.vet.containment.nodes import Node
from sandbox.vet.containment.strings import EVERY_STRING, Box, StringSet
from sandbox.vet.containment.values import ALL, OBJECT

if TYPE_CHECKING:
    from sandbox.vet.containment.document import Place
    from sandbox.vet.containment.reader import Reader, Scope


def required(reader: Reader, place: Place, value: Any, _scope: Scope) -> Node:
    """``required``."""
    return reader.algebra.all_of([reader.algebra.fact(Need(name)) for name in names(place, "required", value)])


def names(place: Place, keyword: str, value: Any) -> list[str]:
    """Return the value of a keyword that is a list of member names."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise UndecidedError(f"`{keyword}` at {place} is not a list of names")
    return value


def table(place: Place, keyword: str) -> dict[str, Any]:
    """Return the value of a keyword that maps names to something; empty when it is absent."""
    value = place.schema.get(keyword, {})
    if not isinstance(value, dict):
        raise UndecidedError(f"`{keyword}` at {place} is not an object")
    return value


def properties(reader: Reader, place: Place, _value: Any, scope: Scope) -> Node:
    """``properties``."""
    return reader.algebra.all_of(
        [
            each(reader, strings.words((name,)), reader.child(place, ("properties", name), scope))
            for name in table(place, "properties")
        ]
    )


def each(reader: Reader, names: StringSet, node: Node) -> Node:
    """Return "every member whose name is in ``names`` is in ``node``"."""
    return reader.algebra.fact(Each(names, node))


def pattern_properties(reader: Reader, place: Place, _value: Any, scope: Scope) -> Node:
    """``patternProperties``."""
    return reader.algebra.all_of(
        [
            each(reader, (Box(pos=frozenset({text})),), reader.child(place, ("patternProperties", text), scope))
            for text in table(place, "patternProperties")
        ]
    )


def additional(reader: Reader, place: Place, _value: Any, scope: Scope) -> Node:
    """``additionalProperties``: members that neither ``properties`` nor ``patternProperties`` of this schema name."""
    return each(reader, strings.without(own_names(place)), reader.child(place, ("additionalProperties",), scope))


def own_names(place: Place) -> StringSet:
    """Return the names that ``properties`` and ``patternProperties`` of a schema apply to."""
    listed = strings.words(table(place, "properties"))
    return strings.join(listed, *((Box(pos=frozenset({text})),) for text in table(place, "patternProperties")))


def property_names(reader: Reader, place: Place, _value: Any, scope: Scope) -> Node:
    """``propertyNames``."""
    node = reader.child(place, ("propertyNames",), scope)
    if node is reader.algebra.nothing:
        return each(reader, EVERY_STRING, node)
    return reader.algebra.fact(Named(node))


def dependent_required(reader: Reader, place: Place, _value: Any, _scope: Scope) -> Node:
    """``dependentRequired``."""
    return reader.algebra.all_of(
        [
            _if_present(reader, name, required(reader, place, others, ()))
            for name, others in table(place, "dependentRequired").items()
        ]
    )


def dependent_schemas(reader: Reader, place: Place, _value: Any, scope: Scope) -> Node:
    """``dependentSchemas``."""
    return reader.algebra.all_of(
        [
            _if_present(reader, name, reader.inplace(place, ("dependentSchemas", name), scope))
            for name in table(place, "dependentSchemas")
        ]
    )


def _if_present(reader: Reader, name: str, node: Node) -> Node:
    return reader.algebra.any_of(
        (reader.algebra.types(ALL & ~OBJECT), reader.algebra.fact(Need(name), positive=False), node)
    )


def dependencies(reader: Reader, place: Place, _value: Any, scope: Scope) -> Node:
    """``dependencies``: gone since 2019-09, where some validators still assert it."""
    listed = table(place, "dependencies")
    if place.document.dialect >= Dialect.D2019:
        return opaque(reader, place, "dependencies", listed, OBJECT)
    parts: list[Node] = []
    for name, value in listed.items():
        if isinstance(value, list):
            parts.append(_if_present(reader, name, required(reader, place, value, ())))
        else:
            parts.append(_if_present(reader, name, reader.inplace(place, ("dependencies", name), scope)))
    return reader.algebra.all_of(parts)


def opaque(reader: Reader, place: Place, keyword: str, value: Any, mask: int) -> Node:
    """Return a predicate that equals only that of the same keyword and value, where references mean the same."""
    text = jsontext.canonical(value).decode()
    whole = f" of {jsontext.digest(place.document.schema)}" if "$ref" in text or "$dynamicRef" in text else ""
    return reader.algebra.fact(Opaque(f"`{keyword}` {text}{whole}", mask))
