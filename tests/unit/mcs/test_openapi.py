"""Tools as OpenAPI: every shipped driver's document is valid, and references stay within their tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate

from sandbox.cli import main
from sandbox.mcs.openapi import document, moved
from sandbox.mcs.reviewed import Reviewed
from tests.shared import ROOT

DRIVERS = sorted(path.parent for path in (ROOT / "drivers").glob("*/DRIVER.md"))


@pytest.mark.parametrize("folder", DRIVERS, ids=lambda path: path.name)
def test_every_shipped_driver_has_a_valid_document(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`mcs openapi` prints it without starting anything; each tool is one operation."""
    assert 0 == main(["mcs", "openapi", str(folder)])

    made = json.loads(capsys.readouterr().out)
    validate(made)
    operations = [path["post"]["operationId"] for path in made["paths"].values()]
    assert [tool.name for tool in Reviewed(folder).list_tools()] == operations


def test_references_lead_to_where_the_schema_stands_now() -> None:
    """Recursive schemas of two tools with the same definition names do not meet: values that look like them stay."""
    tree: dict[str, Any] = {
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/node"}},
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "self": {"$ref": "#"}}}},
        "$schema": "https://json-schema.org/draft/2020-12/schema",
    }
    definitions = [{"name": name, "description": "d", "inputSchema": tree} for name in ("a", "b/../c", "Text", "{x}")]
    made = document("t", "1.0.0", definitions)
    validate(made)

    schemas = made["components"]["schemas"]
    assert "#/components/schemas/a/$defs/node" == schemas["a"]["$defs"]["node"]["properties"]["next"]["$ref"]
    assert "#/components/schemas/a" == schemas["a"]["$defs"]["node"]["properties"]["self"]["$ref"]
    kept = {"default": {"$ref": "#/x"}, "const": {"$ref": "#/x"}, "properties": {"$ref": {"type": "string"}}}
    assert kept == moved(kept, "a")
    assert ["/tools/a", "/tools/b%2F..%2Fc", "/tools/Text", "/tools/%7Bx%7D"] == list(made["paths"])
    assert {"type": "string"} == schemas["Text"]
    assert 4 == len({path["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
                     for path in made["paths"].values()})  # fmt: skip


def test_the_prompt_of_a_driver_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    """`mcs prompt` prints what a model is told, in either style."""
    for style, word in (("inline", '"parameters"'), ("schema", "fetch_spec")):
        assert 0 == main(["mcs", "prompt", str(ROOT / "drivers" / "text-mcp"), "--style", style])
        shown = capsys.readouterr().out
        assert word in shown
        assert "text-crc32" in shown
