"""Input and output schema of a tool: JSON Schema 2020-12 whose meaning is in the package (MCPKG §8.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sandbox.errors import SandboxError
from sandbox.mcpkg.documents import MAX_SHOWN, Findings
from sandbox.vet.validators import SchemaValidator

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_DATA: Final = frozenset({"const", "enum", "default", "examples"})


def schema_of(schema: Mapping[str, Any], key: str, file: str, findings: Findings) -> Mapping[str, Any]:
    """Return a schema after checking it; problems are noted as ``PKG-012``."""
    import jsonschema_rs  # noqa: PLC0415 - only commands of packages pay for it

    dialect = schema.get("$schema", DIALECT)
    if dialect.rstrip("#") != DIALECT:
        message = f"the dialect {str(dialect)[:MAX_SHOWN]!r} is not read"
        findings.error("PKG-012", file, f"{key}.$schema", message, "write JSON Schema 2020-12")
        return schema
    if key == "input_schema" and schema.get("type") != "object":
        message = 'a tool takes an object, so its "type" is "object"'
        findings.error("PKG-012", file, f"{key}.type", message, "describe the object of arguments")
    for reference in _references(schema):
        if not str(reference).startswith("#"):
            message = f"the reference {str(reference)[:MAX_SHOWN]!r} leaves the document"
            findings.error("PKG-012", file, key, message, "put what it means under `$defs`")
            return schema
    try:
        jsonschema_rs.meta.validate(dict(schema))
        SchemaValidator(schema, key)
    except (jsonschema_rs.ValidationError, SandboxError, ValueError) as error:
        message = str(getattr(error, "message", error)).replace("\n", " ")[: 4 * MAX_SHOWN]
        findings.error("PKG-012", file, key, f"this is no JSON Schema: {message}", "correct it")
    return schema


def _references(schema: Any) -> Iterator[Any]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key in {"$ref", "$dynamicRef"}:
                yield value
            elif key not in _DATA:
                yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)


def with_defaults(schema: Mapping[str, Any], value: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with the defaults of its schema's properties where members are missing (S3-62).

    Only ``properties`` of the schema itself and of objects that are present or have a default count; a default that a
    reference or a combination would bring is not guessed.
    """
    filled = dict(value)
    for name, rule in schema.get("properties", {}).items():
        if not isinstance(rule, Mapping):
            continue
        if name not in filled and "default" in rule:
            filled[name] = rule["default"]
        if isinstance(filled.get(name), Mapping) and "properties" in rule:
            filled[name] = with_defaults(rule, filled[name])
    return filled
