"""Tools as an OpenAPI 3.1 document: a description that models and clients know (section 3.1). Pure.

One operation for each tool: ``POST /tools/{name}`` with the arguments as its body and the contract's outputs as its
answer. The document describes; nothing serves it. Each schema is a component, and references within it are rewritten
to where it stands now (OpenAPI 3.1.1, section 4.8.24: a Schema Object is JSON Schema 2020-12).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

VERSION: Final = "3.1.0"

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")
_SCHEMAS: Final = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
"""Keywords whose value maps names to schemas."""
_LISTS: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_SINGLE: Final = frozenset((
    "items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames", "unevaluatedItems",
    "unevaluatedProperties", "additionalItems", "contentSchema",
))  # fmt: skip


def document(
    title: str, version: str, definitions: Iterable[Mapping[str, Any]], description: str = ""
) -> dict[str, Any]:
    """Return the document of some tools.

    Args:
        title: of the driver.
        version: of the driver.
        definitions: MCP tool definitions, with JSON Schemas whose references stay inside them.
        description: of the driver.
    """
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for definition in definitions:
        name = str(definition["name"])
        component = _component(name, schemas)
        takes = moved(definition.get("inputSchema") or {"type": "object"}, component)
        schemas[component] = takes
        gives_name = _component(f"{name}.result", schemas)
        answer = {"$ref": "#/components/schemas/Text"}
        if isinstance(definition.get("outputSchema"), Mapping):
            schemas[gives_name] = moved(definition["outputSchema"], gives_name)
            answer = {"$ref": f"#/components/schemas/{gives_name}"}
        paths[f"/tools/{_path(name)}"] = {"post": _operation(definition, name, component, answer)}
    schemas.setdefault("Text", {"type": "string"})
    schemas["Refusal"] = {
        "type": "object",
        "properties": {"id": {"type": "string"}, "message": {"type": "string"}},
        "required": ["message"],
    }
    info = {"title": title, "version": version, **({"description": description} if description else {})}
    return {"openapi": VERSION, "info": info, "paths": paths, "components": {"schemas": schemas}}


def moved(schema: Any, component: str) -> Any:
    """Return a schema whose references to its own root point to a component; values in it stay as they are."""
    if not isinstance(schema, Mapping):
        return schema
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key in {"$ref", "$dynamicRef"} and isinstance(value, str) and value.startswith("#"):
            found[key] = f"#/components/schemas/{component}{value[1:]}"
        elif key in _SCHEMAS and isinstance(value, Mapping):
            found[key] = {name: moved(one, component) for name, one in value.items()}
        elif key in _LISTS and isinstance(value, list):
            found[key] = [moved(one, component) for one in value]
        elif key in _SINGLE:
            found[key] = (
                [moved(one, component) for one in value] if isinstance(value, list) else moved(value, component)
            )
        elif key not in {"$schema", "$id", "id"} or not isinstance(value, str):
            found[key] = value
    return found


def _operation(definition: Mapping[str, Any], name: str, component: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    annotations = definition.get("annotations") or {}
    title = definition.get("title") or annotations.get("title")
    body = {
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{component}"}}},
        "required": True,
    }
    refusal = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}}
    told = {key: definition[key] for key in ("description",) if definition.get(key)}
    return {
        "operationId": name,
        **({"summary": title} if title else {}),
        **told,
        "requestBody": body,
        "responses": {
            "200": {"description": "What the tool gives.", "content": {"application/json": {"schema": dict(answer)}}},
            "4XX": {"description": "The call was refused.", **refusal},
            "5XX": {"description": "The tool failed.", **refusal},
        },
    }


def _component(name: str, taken: Mapping[str, Any]) -> str:
    base = _UNSAFE.sub("_", name)
    number, found = 1, base
    while found in taken or found in {"Text", "Refusal"}:
        number += 1
        found = f"{base}_{number}"
    return found


def _path(name: str) -> str:
    """Return a name as one segment of a path; braces would be a template."""
    return quote(name, safe="")
