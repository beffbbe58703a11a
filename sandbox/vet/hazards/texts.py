"""Every text of a tool's definition, with its place: what a model or a person may get to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sandbox.vet.hazards.interface import Role, Text

MAX_TEXTS: Final = 20_000
"""Texts of one definition that are looked at; the largest real one has some hundreds."""

_DATA: Final = frozenset({"default", "example", "examples", "enum", "const"})
_SCHEMAS: Final = frozenset({"inputSchema", "outputSchema"})
_NAMED: Final = frozenset({"properties", "$defs", "definitions", "dependentSchemas", "dependencies"})
_NAMES: Final = frozenset({"required"})


def texts(definition: Mapping[str, Any]) -> list[Text]:
    """Return the texts of a definition: names, descriptions, titles, values, and whatever else is a string in it."""
    found: list[Text] = []
    todo: list[tuple[Any, str, Role]] = [(definition, "", "prose")]
    while todo and len(found) < MAX_TEXTS:
        value, place, role = todo.pop()
        if isinstance(value, str):
            found.append(Text(place, value, role))
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                path = f"{place}/{key}" if place else str(key)
                found.extend(_key(key, place, path))
                todo.append((inner, path, _role(key, place, role)))
        elif isinstance(value, list):
            todo.extend((inner, f"{place}/{index}", role) for index, inner in enumerate(value))
    return found


def _key(key: Any, place: str, path: str) -> Iterator[Text]:
    """Yield a member's name where it is the author's to choose: property names, definitions, and any odd one."""
    chosen = bool(place) and place.rpartition("/")[2] in _NAMED
    if isinstance(key, str) and (chosen or not key.isascii()):
        yield Text(path, key, "name")


def _role(key: Any, place: str, role: Role) -> Role:
    if role == "data" or (key in _DATA and place.rpartition("/")[2] not in _NAMED):
        return "data"
    if (key == "name" and not place) or key in _NAMES:
        return "name"
    return "prose"


def depth(value: Any) -> int:
    """Return how deep JSON nests, without recursion."""
    deepest = 0
    todo = [(value, 1)]
    while todo:
        inner, level = todo.pop()
        deepest = max(deepest, level)
        if isinstance(inner, Mapping):
            todo.extend((one, level + 1) for one in inner.values())
        elif isinstance(inner, list):
            todo.extend((one, level + 1) for one in inner)
    return deepest


def schemas(definition: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the schemas of a definition by member name."""
    for side in sorted(_SCHEMAS):
        if side in definition:
            yield side, definition[side]
