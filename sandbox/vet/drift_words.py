"""What a schema says beyond the set of values that it accepts: names, wording, choices, place by place.

Two schemas may accept the same values and mean different things. In an open object every new optional property
*narrows* the set (a value that was anything must now be a string) while it gives the tool something new to act on; a
changed default changes what an omitted argument does; a description is read as an order. So a schema counts as a
narrowing of another only when, besides containment, it says nothing new:

1. at every place that both have, the wording is equal: every keyword that is not an assertion, known or not;
2. no place names a property that was not named there;
3. a property that is no longer named is refused now: its object is closed, and whatever the schema accepts has to pass
   there (no ``anyOf``, ``if``, ``not`` or definition on the way);
4. a choice (text in ``enum`` and ``const``) stood among the choices of that place before;
5. places that only the new schema has consist of assertions without names and texts;
6. places that only the old schema had did too, or lay below a property that is now refused.

Places are JSON Pointers below the root. Nothing is resolved: ``$ref`` is wording, its target is a place of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sandbox import jsontext

Place = tuple[str, ...]
"""Path of keywords, names and indices below the root."""

ASSERTIONS: Final = frozenset({
    "$schema", "type", "enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum",
    "maxLength", "minLength", "pattern", "format", "maxItems", "minItems", "uniqueItems", "maxContains", "minContains",
    "maxProperties", "minProperties", "required", "dependentRequired",
})  # fmt: skip
"""Keywords that only say which values are accepted; what changes in them is decided by containment."""

MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
SINGLES: Final = frozenset({
    "items", "additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "propertyNames",
    "contains", "not", "if", "then", "else",
})  # fmt: skip

_STRAIGHT: Final = frozenset({"properties", "items", "prefixItems", "additionalProperties", "allOf"})
"""Keywords below which a closed object means that its other members are refused."""

MAX_PLACES: Final = 20_000
"""Places of one schema that are looked at; the largest real one has some hundreds."""


class TooManyPlacesError(ValueError):
    """A schema has more places than are looked at."""


@dataclass(slots=True)
class Said:
    """What stands at one place.

    Attributes:
        words: keyword → canonical text of everything that is not an assertion.
        names: properties that are declared here, and names that are required here.
        choices: texts in ``enum`` and ``const``.
        closed: no other property than the named ones is accepted.
    """

    words: dict[str, bytes] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    choices: frozenset[str] = frozenset()
    closed: bool = False

    @property
    def silent(self) -> bool:
        """Whether there are neither words nor names nor choices."""
        return not (self.words or self.names or self.choices)


def places_of(schema: Any) -> dict[Place, Said]:
    """Return every place of a schema with what it says.

    Raises:
        TooManyPlacesError: there are more than :data:`MAX_PLACES`.
    """
    found: dict[Place, Said] = {}
    todo: list[tuple[Place, Any]] = [((), schema)]
    while todo:
        place, value = todo.pop()
        found[place] = _said(value)
        if len(found) > MAX_PLACES:
            raise TooManyPlacesError(f"more than {MAX_PLACES} places")
        todo.extend((place + step, inner) for step, inner in _below(value))
    return found


def _below(schema: Any) -> Iterator[tuple[Place, Any]]:
    if not isinstance(schema, Mapping):
        return
    for keyword, value in schema.items():
        if keyword in MAPS and isinstance(value, Mapping):
            yield from (((keyword, name), inner) for name, inner in value.items() if not isinstance(inner, list))
        elif (keyword in LISTS or keyword == "items") and isinstance(value, list):
            yield from (((keyword, str(index)), inner) for index, inner in enumerate(value))
        elif keyword in SINGLES:
            yield (keyword,), value


def _said(schema: Any) -> Said:
    if not isinstance(schema, Mapping):
        return Said({} if isinstance(schema, bool) else {"": jsontext.canonical(schema)})
    structure = MAPS | SINGLES | LISTS
    return Said(
        words={
            keyword: jsontext.canonical(value)
            for keyword, value in schema.items()
            if keyword not in ASSERTIONS and keyword not in structure
        },
        names=frozenset(_names(schema)),
        choices=frozenset(_texts([schema[key] for key in ("enum", "const") if key in schema])),
        closed=any(schema.get(key) is False for key in ("additionalProperties", "unevaluatedProperties"))
        and not schema.get("patternProperties"),
    )


def _names(schema: Mapping[str, Any]) -> Iterator[str]:
    for keyword in ("properties", "patternProperties", "dependentSchemas", "dependentRequired", "dependencies"):
        value = schema.get(keyword)
        if isinstance(value, Mapping):
            yield from value
            yield from _texts([one for one in value.values() if isinstance(one, list)])
    required = schema.get("required")
    if isinstance(required, list):
        yield from _texts(required)


def _texts(values: list[Any]) -> Iterator[str]:
    """Yield every text in JSON values, member names included."""
    todo = list(values)
    while todo:
        value = todo.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            yield from value
            todo.extend(value.values())
        elif isinstance(value, list):
            todo.extend(value)


@dataclass(frozen=True, slots=True)
class News:
    """One thing that a schema says and another did not.

    Attributes:
        place: where.
        what: a clause for people; quoted texts in it are the server's.
        narrowed_only: it is no news when the set of values has become smaller: a choice was withdrawn.
    """

    place: Place
    what: str
    narrowed_only: bool = False


def news(before: Any, after: Any) -> Iterator[News]:
    """Yield what ``after`` says that ``before`` did not, or no longer says, in the order of its places.

    Raises:
        TooManyPlacesError: a schema is too large to be looked at.
    """
    old, new = places_of(before), places_of(after)
    for place in sorted(old.keys() | new.keys()):
        if place not in old:
            if not new[place].silent:
                yield News(place, _first(new[place], "new: "))
        elif place in new:
            yield from _changes(place, old[place], new[place])
        elif not old[place].silent and not _below_refused(place, old, new):
            yield News(place, _first(old[place], "gone: "))


def _changes(place: Place, old: Said, new: Said) -> Iterator[News]:
    for keyword in sorted(old.words.keys() | new.words.keys()):
        if old.words.get(keyword) != new.words.get(keyword):
            verb = "changed" if keyword in old.words and keyword in new.words else "new"
            verb = verb if keyword in new.words else "gone"
            yield News(place, f"{verb}: `{keyword}`")
    for name in sorted(new.names - old.names):
        yield News(place, f"new: names `{name}`")
    for name in sorted(old.names - new.names):
        yield News(place, f"gone: names `{name}`", narrowed_only=_refuses_others(place, new))
    for choice in sorted(new.choices - old.choices):
        yield News(place, f"new: choice `{choice}`")
    for choice in sorted(old.choices - new.choices):
        yield News(place, f"gone: choice `{choice}`", narrowed_only=True)


def _refuses_others(place: Place, said: Said) -> bool:
    return said.closed and all(keyword in _STRAIGHT for keyword in _keywords(place))


def _keywords(place: Place) -> Iterator[str]:
    """Yield the keywords of a place without the names and indices between them."""
    at = 0
    while at < len(place):
        yield place[at]
        indexed = place[at] == "items" and at + 1 < len(place) and place[at + 1].isdigit()
        at += 2 if place[at] in MAPS or place[at] in LISTS or indexed else 1


def _below_refused(place: Place, old: Mapping[Place, Said], new: Mapping[Place, Said]) -> bool:
    """Return whether a place that is gone lay below a property that its object, which is still there, now refuses."""
    for at in range(len(place) - 1):
        above, keyword, name = place[:at], place[at], place[at + 1]
        if keyword == "properties" and above in new and above in old and name in old[above].names - new[above].names:
            return _refuses_others(above, new[above])
    return False


def _first(said: Said, verb: str) -> str:
    if said.words:
        return f"{verb}`{min(said.words)}`"
    return f"{verb}names `{min(said.names)}`" if said.names else f"{verb}choice `{min(said.choices)}`"


def pointer(place: Place) -> str:
    """Return a place for people: ``/`` between its parts (RFC 6901)."""
    return "/".join(step.replace("~", "~0").replace("/", "~1") for step in place)
