"""JSON Schemas of this part, as docs/schemas/ has them: driver metadata, tools, responses, settings (section 12).

Written by ``python -m sandbox.mcs.published DIR``; a test holds the files against this.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from sandbox.mcs.settings import DriverSettings, OrchestratorSettings

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_TEXT: Final = {"type": "string"}
_WORD: Final = {"type": "string", "minLength": 1}
_MAYBE: Final = {"type": ["string", "null"]}
_WORDS: Final = {"type": "array", "items": _WORD, "uniqueItems": True}


def _object(required: tuple[str, ...], /, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


DRIVER: Final[dict[str, Any]] = {
    "$schema": DIALECT,
    "title": "Values of the MCS driver contract 0.6, as dataclasses.asdict writes them",
    "anyOf": [{"$ref": f"#/$defs/{name}"} for name in ("DriverMeta", "Tools", "DriverResponse")],
    "$defs": {
        "DriverBinding": _object(
            ("capability", "adapter", "spec_format"), capability=_WORD, adapter=_WORD, spec_format=_WORD
        ),
        "DriverMeta": _object(
            ("id", "name", "version", "bindings", "supported_llms", "capabilities"),
            id=_WORD,
            name=_WORD,
            version={"type": "string", "pattern": r"^[0-9]+\.[0-9]+\.[0-9]+"},
            bindings={"type": "array", "items": {"$ref": "#/$defs/DriverBinding"}},
            supported_llms={"anyOf": [_WORDS, {"type": "null"}]},
            capabilities=_WORDS,
        ),
        "ToolParameter": _object(
            ("name", "description"),
            name=_WORD,
            description=_TEXT,
            required={"type": "boolean", "default": False},
            schema={"anyOf": [{"$ref": DIALECT}, {"type": "null"}]},
        ),
        "Tool": {
            **_object(
                ("name", "parameters"),
                name=_WORD,
                title=_MAYBE,
                description=_MAYBE,
                parameters={"type": "array", "items": {"$ref": "#/$defs/ToolParameter"}},
            ),
            "anyOf": [{"required": [one], "properties": {one: _WORD}} for one in ("title", "description")],
        },
        "Tools": {"type": "array", "items": {"$ref": "#/$defs/Tool"}},
        "DriverResponse": _object(
            ("call_executed", "call_failed"),
            tool_call_result=True,
            call_executed={"type": "boolean"},
            call_failed={"type": "boolean"},
            call_detail=_MAYBE,
            retry_prompt=_MAYBE,
            messages={"anyOf": [{"type": "array", "items": {"type": "object"}}, {"type": "null"}]},
        ),
    },
}


def schemas() -> dict[str, str]:
    """Return file name → text."""
    either: TypeAdapter[Any] = TypeAdapter(OrchestratorSettings | DriverSettings)
    settings = {"$schema": DIALECT, "title": "Settings of mcp-sandbox's MCS drivers", **either.json_schema()}
    found = {"mcs-driver.schema.json": DRIVER, "mcs-settings.schema.json": settings}
    return {name: json.dumps(schema, indent=1, ensure_ascii=False) + "\n" for name, schema in found.items()}


if __name__ == "__main__":
    for _name, _text in schemas().items():
        (Path(sys.argv[1]) / _name).write_text(_text, encoding="utf-8")
