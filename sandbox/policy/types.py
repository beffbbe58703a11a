"""JSON Schema → Cedar types: which arguments rules may look at, and as what.

A Cedar attribute has one type. So a schema gets a type only when every value it admits has that type; ``null`` beside
one other type is tolerated (``values.NULL`` is equal to nothing). Everything else has *no* type, and a rule that looks
at it is refused when the rules are loaded (``POL-007``): better than a rule that is skipped for half of the values.

``allOf``, ``anyOf`` and ``oneOf`` are read only where all branches agree on the type; ``$ref`` only within the
document.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

CedarType: TypeAlias = dict[str, Any]
"""A type in Cedar's JSON schema format."""

MAX_DEPTH: Final = 24
"""Nesting of schemas that are followed, references included; deeper, or recursive, has no type."""

STRING: Final[CedarType] = {"type": "String"}
LONG: Final[CedarType] = {"type": "Long"}
BOOL: Final[CedarType] = {"type": "Boolean"}
DECIMAL: Final[CedarType] = {"type": "Extension", "name": "decimal"}
STRINGS: Final[CedarType] = {"type": "Set", "element": STRING}

_PLAIN: Final = {"string": STRING, "integer": LONG, "number": DECIMAL, "boolean": BOOL}


def record(attributes: Mapping[str, CedarType], required: frozenset[str] | set[str] = frozenset()) -> CedarType:
    """Return a record type; attributes that are not required are optional."""
    members = {name: {**kind, "required": name in required} for name, kind in attributes.items()}
    return {"type": "Record", "attributes": members}


def arguments_type(inputs: Mapping[str, Any]) -> CedarType:
    """Return the record type of a tool's arguments; members without a type are left out."""
    kind = _type(inputs, inputs, 0)
    return kind if kind is not None and kind["type"] == "Record" else record({})


def member_names(inputs: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the top-level members that a schema declares, with or without a type."""
    names: set[str] = set()
    pending: list[tuple[Any, int]] = [(inputs, 0)]
    while pending:
        schema, depth = pending.pop()
        schema = _resolved(schema, inputs)
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
            continue
        names.update(schema.get("properties") or ())
        for keyword in ("allOf", "anyOf", "oneOf"):
            pending += [(branch, depth + 1) for branch in schema.get(keyword) or ()]
    return frozenset(names)


def _type(schema: Any, root: Mapping[str, Any], depth: int) -> CedarType | None:
    schema = _resolved(schema, root)
    if depth > MAX_DEPTH or not isinstance(schema, Mapping):
        return None
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in schema:
            return _of_branches(schema, keyword, root, depth)
    if "enum" in schema or "const" in schema:
        return _of_values(schema["enum"] if "enum" in schema else [schema["const"]])
    return _of_declared(schema, root, depth)


def _of_declared(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> CedarType | None:
    declared = schema.get("type")
    names = [name for name in (declared if isinstance(declared, list) else [declared]) if name != "null"]
    if len(names) != 1:
        return None
    (name,) = names
    if name == "array":
        element = _type(schema.get("items"), root, depth + 1)
        return {"type": "Set", "element": element} if element and "prefixItems" not in schema else None
    if name == "object":
        members = {key: _type(value, root, depth + 1) for key, value in dict(schema.get("properties") or {}).items()}
        return record({key: kind for key, kind in members.items() if kind}, set(schema.get("required") or ()))
    return _PLAIN.get(str(name))


def _of_branches(schema: Mapping[str, Any], keyword: str, root: Mapping[str, Any], depth: int) -> CedarType | None:
    """Return the type on which all branches agree; a type beside them decides, for branches can only narrow it."""
    if "type" in schema:
        return _of_declared(schema, root, depth)
    branches = [item for item in schema[keyword] if not (isinstance(item, Mapping) and item.get("type") == "null")]
    kinds = [_type(branch, root, depth + 1) for branch in branches]
    return kinds[0] if kinds and kinds[0] is not None and all(kind == kinds[0] for kind in kinds) else None


def _of_values(values: Any) -> CedarType | None:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {str}:
        return STRING
    if kinds == {bool}:
        return BOOL
    return LONG if kinds == {int} else None


def _resolved(schema: Any, root: Mapping[str, Any]) -> Any:
    """Follow local references; ``None`` when one leads nowhere, outside or in a circle."""
    for _ in range(MAX_DEPTH):
        if not isinstance(schema, Mapping) or "$ref" not in schema:
            return schema
        pointer = schema["$ref"]
        if not isinstance(pointer, str) or not pointer.startswith("#"):
            return None
        schema = _at(root, pointer[1:])
    return None


def _at(root: Any, pointer: str) -> Any:
    node = root
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, Mapping) or name not in node:
            return None
        node = node[name]
    return node
