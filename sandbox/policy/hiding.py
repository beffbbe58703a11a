"""Takes members out of an object schema, wherever it mentions them: what we inject is not shown to callers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SINGLE: Final = ("if", "then", "else", "not")
MAX_DEPTH: Final = 32
"""Nesting of branches that are followed; deeper ones keep what they say, which the guard of the call refuses anyway."""


def hide(schema: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return an object schema without the named members.

    They vanish from ``properties``, ``required``, ``dependentRequired``, ``dependentSchemas``, ``dependencies``, from
    defaults and examples of the object, and from every branch that applies to the same object, references within the
    document included. Members of members are left alone: they are other members.

    A branch that loses its only member admits everything, as an empty schema does; so the result admits every object
    that the schema admitted, without the members.
    """
    return _object(schema, frozenset(names), 0) if names else dict(schema)


def _object(schema: Mapping[str, Any], names: frozenset[str], depth: int) -> dict[str, Any]:
    if depth > MAX_DEPTH:
        return dict(schema)
    return {key: _keyword(key, value, names, depth) for key, value in schema.items()}


def _keyword(key: str, value: Any, names: frozenset[str], depth: int) -> Any:
    match key:
        case "properties" | "dependentSchemas" | "default" | "const" if isinstance(value, Mapping):
            return {name: item for name, item in value.items() if name not in names}
        case "required" if isinstance(value, list):
            return [name for name in value if name not in names]
        case "dependentRequired" | "dependencies" if isinstance(value, Mapping):
            return {name: _without(item, names) for name, item in value.items() if name not in names}
        case "examples" | "enum" if isinstance(value, list):
            return [_without(item, names) for item in value]
        case "$defs" | "definitions" if isinstance(value, Mapping):
            return {name: _branch(item, names, depth) for name, item in value.items()}
    if key in _LISTS and isinstance(value, list):
        return [_branch(item, names, depth) for item in value]
    return _branch(value, names, depth) if key in _SINGLE else value


def _without(value: Any, names: frozenset[str]) -> Any:
    if isinstance(value, Mapping):
        return {name: item for name, item in value.items() if name not in names}
    return [item for item in value if item not in names] if isinstance(value, list) else value


def _branch(schema: Any, names: frozenset[str], depth: int) -> Any:
    return _object(schema, names, depth + 1) if isinstance(schema, Mapping) else schema
