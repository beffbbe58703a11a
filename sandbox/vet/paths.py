"""Paths into results: what a ``result_extract`` demands of a server's outputSchema, and what it could name instead."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, Final

MAX_SHOWN_PATHS: Final = 12
"""Paths that a message lists."""

MAX_PATH_DEPTH: Final = 4
"""Steps of a listed path; real result paths have one or two."""

CONTRACT: Final = "urn:mcp-sandbox:contract-outputs"
"""Identifier under which a contract's schema is embedded, so that its own references stay its own."""

_OLD: Final = ("draft-04", "draft-06", "draft-07", "2019-09")


def demanded(path: tuple[str | int, ...], outputs: Mapping[str, Any] | bool) -> Any:
    """Return the schema of documents in which ``path`` leads to a value that fits ``outputs``.

    Args:
        path: steps of a ``result_extract`` (:func:`sandbox.spec.extract.segments`).
        outputs: what the value has to fit; ``True`` asks only for its existence.
    """
    if not path:
        return dict(outputs) if isinstance(outputs, Mapping) else outputs
    schema: Any = outputs
    dialect = ""
    if isinstance(outputs, Mapping):
        schema = {"$id": CONTRACT, **outputs} if "$ref" not in outputs else {"$id": CONTRACT, **_under_all_of(outputs)}
        dialect = str(outputs.get("$schema", ""))
    old = any(name in dialect for name in _OLD)
    for step in reversed(path):
        schema = _member(step, schema, old=old)
    return {"$schema": dialect, **schema} if dialect else schema


def _under_all_of(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Move a reference away from the identifier beside it, which old dialects would ignore."""
    kept = {key: value for key, value in outputs.items() if key != "$ref"}
    return {**kept, "allOf": [*outputs.get("allOf", ()), {"$ref": outputs["$ref"]}]}


def _member(step: str | int, schema: Any, *, old: bool) -> dict[str, Any]:
    if isinstance(step, str):
        return {"type": "object", "required": [step], "properties": {step: schema}}
    return {"type": "array", "minItems": step + 1, "items" if old else "prefixItems": [*[True] * step, schema]}


def existing(schema: Any) -> list[str]:
    """Return paths that documents of a schema have, shortest first."""
    found = dict.fromkeys(text for text, _ in sorted(_walk(schema, schema, "$", 0), key=lambda one: one[1]))
    return list(found)


def closest(path: str, paths: list[str]) -> str:
    """Return the path that was most likely meant, or nothing."""
    matches = difflib.get_close_matches(path, paths, n=1, cutoff=0.5)
    return matches[0] if matches else ""


def _walk(schema: Any, root: Any, text: str, depth: int) -> Iterator[tuple[str, int]]:
    if depth:
        yield text, depth
    if depth >= MAX_PATH_DEPTH or not isinstance(schema, Mapping):
        return
    for part in _inplace(schema, root):
        for name, member in _mapping(part.get("properties")).items():
            yield from _walk(member, root, f"{text}.{name}" if name.isidentifier() else f"{text}['{name}']", depth + 1)
        items = part.get("prefixItems")
        first = items[0] if isinstance(items, list) and items else part.get("items")
        if isinstance(first, Mapping):
            yield from _walk(first, root, f"{text}[0]", depth + 1)


def _inplace(schema: Mapping[str, Any], root: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and those that apply to the same value, local references followed."""
    yield schema
    if depth >= MAX_PATH_DEPTH:
        return
    parts = [part for key in ("allOf", "anyOf", "oneOf") for part in schema.get(key) or ()]
    if isinstance(schema.get("$ref"), str):
        parts.append(_target(schema["$ref"], root))
    for part in parts:
        if isinstance(part, Mapping):
            yield from _inplace(part, root, depth + 1)


def _target(reference: str, root: Any) -> Any:
    if not reference.startswith("#/"):
        return None
    found = root
    for token in reference[2:].split("/"):
        found = _mapping(found).get(token.replace("~1", "/").replace("~0", "~"))
    return found


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
