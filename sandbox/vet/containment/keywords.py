"""What each keyword means, as nodes: one function for each keyword that decides what is valid.

Keywords with values of a wrong type make the schema undecidable rather than being skipped: nobody knows what a
validator makes of them. :data:`KEYWORDS` says which dialects know a keyword; unknown keywords and annotations are not
in it. Applicators are here, the others in ``keywords_of_*``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sandbox.vet.containment import keywords_of_arrays as arrays
from sandbox.vet.containment import keywords_of_objects as objects
from sandbox.vet.containment import keywords_of_values as values
from sandbox.vet.containment.budget import UndecidedError
from sandbox.vet.containment.dialect import Dialect
from sandbox.vet.containment.facts import Length, Size, Width
from sandbox.vet.containment.nodes import Node

if TYPE_CHECKING:
    from sandbox.vet.containment.document import Place
    from sandbox.vet.containment.reader import Reader, Scope


def several(reader: Reader, place: Place, keyword: str, scope: Scope) -> list[Node]:
    """Return the nodes of ``allOf``, ``anyOf`` or ``oneOf``."""
    value = place.schema[keyword]
    if not isinstance(value, list) or not value:
        raise UndecidedError(f"`{keyword}` at {place} is not a list of schemas")
    return [reader.inplace(place, (keyword, str(index)), scope) for index in range(len(value))]


def all_of(reader: Reader, place: Place, _value: Any, scope: Scope) -> Node:
    """``allOf``."""
    return reader.algebra.all_of(several(reader, place, "allOf", scope))


def any_of(reader: Reader, place: Place, _value: Any, scope: Scope) -> Node:
    """``anyOf``."""
    return reader.algebra.any_of(several(reader, place, "anyOf", scope))


def one_of(reader: Reader, place: Place, _value: Any, scope: Scope) -> Node:
    """``oneOf``."""
    return reader.algebra.one_of(several(reader, place, "oneOf", scope))


def negation(reader: Reader, place: Place, _value: Any, scope: Scope) -> Node:
    """``not``."""
    return reader.algebra.negate(reader.inplace(place, ("not",), scope))


def conditional(reader: Reader, place: Place, _value: Any, scope: Scope) -> Node:
    """``if`` with ``then`` and ``else``."""
    condition = reader.inplace(place, ("if",), scope)
    parts: list[Node] = []
    if "then" in place.schema:
        parts.append(reader.algebra.any_of((reader.algebra.negate(condition), reader.inplace(place, ("then",), scope))))
    if "else" in place.schema:
        parts.append(reader.algebra.any_of((condition, reader.inplace(place, ("else",), scope))))
    return reader.algebra.all_of(parts)


def _bound(keyword: str, fact: Callable[[int], Length | Size | Width], *, upper: bool) -> Maker:
    """Return the maker of a bound on length, number of elements or number of members."""

    def make(reader: Reader, place: Place, value: Any, _scope: Scope) -> Node:
        bound = arrays.size(place, keyword, value)
        return reader.algebra.at_most(fact(bound + 1)) if upper else reader.algebra.fact(fact(bound))

    return make


Maker = Callable[["Reader", "Place", Any, "Scope"], Node]


class Keyword(NamedTuple):
    """How a keyword is read, and by which dialects."""

    make: Maker
    since: Dialect = Dialect.DRAFT4
    until: Dialect = Dialect.D2020


KEYWORDS: Final[dict[str, Keyword]] = {
    "type": Keyword(values.type_),
    "enum": Keyword(values.listed),
    "const": Keyword(values.constant, Dialect.DRAFT6),
    "minimum": Keyword(values.minimum),
    "maximum": Keyword(values.maximum),
    "exclusiveMinimum": Keyword(values.above, Dialect.DRAFT6),
    "exclusiveMaximum": Keyword(values.below, Dialect.DRAFT6),
    "multipleOf": Keyword(values.multiple),
    "minLength": Keyword(_bound("minLength", Length, upper=False)),
    "maxLength": Keyword(_bound("maxLength", Length, upper=True)),
    "pattern": Keyword(values.pattern),
    "format": Keyword(values.format_),
    "contentEncoding": Keyword(values.content, Dialect.DRAFT7),
    "contentMediaType": Keyword(values.content, Dialect.DRAFT7),
    "minItems": Keyword(_bound("minItems", Size, upper=False)),
    "maxItems": Keyword(_bound("maxItems", Size, upper=True)),
    "uniqueItems": Keyword(arrays.unique),
    "prefixItems": Keyword(arrays.prefix, Dialect.D2020),
    "items": Keyword(arrays.items),
    "additionalItems": Keyword(arrays.additional_items, Dialect.DRAFT4, Dialect.D2019),
    "contains": Keyword(arrays.contains, Dialect.DRAFT6),
    "minProperties": Keyword(_bound("minProperties", Width, upper=False)),
    "maxProperties": Keyword(_bound("maxProperties", Width, upper=True)),
    "required": Keyword(objects.required),
    "properties": Keyword(objects.properties),
    "patternProperties": Keyword(objects.pattern_properties),
    "additionalProperties": Keyword(objects.additional),
    "propertyNames": Keyword(objects.property_names, Dialect.DRAFT6),
    "dependentRequired": Keyword(objects.dependent_required, Dialect.D2019),
    "dependentSchemas": Keyword(objects.dependent_schemas, Dialect.D2019),
    "dependencies": Keyword(objects.dependencies),
    "allOf": Keyword(all_of),
    "anyOf": Keyword(any_of),
    "oneOf": Keyword(one_of),
    "not": Keyword(negation),
    "if": Keyword(conditional, Dialect.DRAFT7),
}
