"""From the arguments that callers send to the arguments that the server gets, as schemas (AIP-32 ``argument_mapping``).

Callers send what the exposed contract accepts. Keys are renamed, then declared facts about the tenant are added. The
set of objects that the server gets is said as a schema again: renamed wherever a keyword speaks of members of the
same object (applicators and local references included), members of members left alone. A keyword whose meaning
renaming would change in a way that cannot be said (patterns over names, listed objects) is refused, not approximated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

FACT: Final = {"type": "string", "minLength": 1}
"""What an injected fact may be: any string but the empty one (``serve.context.fact``)."""

MAX_DEPTH: Final = 32
"""Nesting of applicators that is followed."""

_BRANCHES: Final = ("allOf", "anyOf", "oneOf")
_INPLACE: Final = ("not", "if", "then", "else")
_NAMES: Final = ("patternProperties", "propertyNames", "$dynamicRef", "$recursiveRef")
_CLOSING: Final = ("additionalProperties", "unevaluatedProperties")


class NotSayableError(Exception):
    """The renamed schema cannot be said; ``keyword`` is why."""

    def __init__(self, keyword: str) -> None:
        self.keyword = keyword
        super().__init__(keyword)


def sent_schema(exposed: Mapping[str, Any], mapping: Mapping[str, str], facts: Sequence[str]) -> dict[str, Any]:
    """Return the schema of what the server gets.

    Args:
        exposed: schema of what callers may send, without injected members.
        mapping: contract key → server argument; other keys keep their name.
        facts: server arguments that are injected.

    Raises:
        NotSayableError: a keyword would change its meaning.
    """
    if not mapping and not facts:
        return dict(exposed)
    renamer = _Renamer(exposed, mapping, facts)
    renamed = renamer.schema(exposed, 0)
    definitions = {**dict(exposed.get("$defs", {})), **renamer.copies}
    unsent = [key for key in mapping if key not in mapping.values()]
    injected = {"required": list(facts), "properties": dict.fromkeys(facts, FACT)}
    forbidden = {"properties": dict.fromkeys(unsent, False)}
    outer = {key: renamed.pop(key) for key in ("$schema", "$id", "definitions") if key in renamed}
    renamed.pop("$defs", None)
    return {**outer, "$defs": definitions, "type": "object", "allOf": [renamed, injected, forbidden]}


@dataclass(slots=True)
class _Renamer:
    """Renames members wherever a schema speaks of members of the same object."""

    root: Mapping[str, Any]
    mapping: Mapping[str, str]
    facts: Sequence[str]
    copies: dict[str, Any] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def name(self, key: str) -> str:
        return self.mapping.get(key, key)

    def schema(self, schema: Any, depth: int) -> Any:
        if not isinstance(schema, Mapping):
            return schema
        if depth > MAX_DEPTH:
            raise NotSayableError("nesting")
        renamed = {key: self.keyword(key, value, depth) for key, value in schema.items()}
        if self.facts and any(key in schema for key in _CLOSING):
            renamed["properties"] = {**renamed.get("properties", {}), **dict.fromkeys(self.facts, FACT)}
        return renamed

    def keyword(self, key: str, value: Any, depth: int) -> Any:
        if key in _NAMES:
            raise NotSayableError(key)
        if key in _BRANCHES and isinstance(value, list):
            return [self.schema(one, depth + 1) for one in value]
        if key in _INPLACE:
            return self.schema(value, depth + 1)
        match key:
            case "properties" if isinstance(value, Mapping):
                return {self.name(name): one for name, one in value.items()}
            case "required" if isinstance(value, list):
                return [self.name(name) for name in value]
            case "dependentRequired" | "dependentSchemas" | "dependencies" if isinstance(value, Mapping):
                return {self.name(name): self.dependent(one, depth) for name, one in value.items()}
            case "minProperties" | "maxProperties" if isinstance(value, int):
                return value + len(self.facts)
            case "enum" | "const":
                return self.data(key, value)
            case "$ref":
                return self.reference(value, depth)
        return value

    def dependent(self, value: Any, depth: int) -> Any:
        return [self.name(name) for name in value] if isinstance(value, list) else self.schema(value, depth + 1)

    def data(self, key: str, value: Any) -> Any:
        """Rename the members of listed objects; with injected facts no list can be complete."""
        if self.facts:
            raise NotSayableError(key)
        if key == "enum" and isinstance(value, list):
            return [self.data("const", one) for one in value]
        return {self.name(name): one for name, one in value.items()} if isinstance(value, Mapping) else value

    def reference(self, value: Any, depth: int) -> str:
        """Point to a renamed copy of what a local reference points to; other uses of it stay as they are."""
        if not isinstance(value, str) or not (value == "#" or value.startswith("#/")):
            raise NotSayableError("$ref")
        if value not in self.names:
            self.names[value] = f"as sent {len(self.names)}"
            self.copies[self.names[value]] = self.schema(self.target(value), depth + 1)
        return f"#/$defs/{self.names[value].replace(' ', '%20')}"

    def target(self, reference: str) -> Any:
        found: Any = self.root
        for token in reference[2:].split("/") if reference != "#" else ():
            key = token.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and key in found:
                found = found[key]
            elif isinstance(found, list) and key.isdigit() and int(key) < len(found):
                found = found[int(key)]
            else:
                raise NotSayableError("$ref")
        return found
