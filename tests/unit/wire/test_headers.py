"""Header fields that repeat parts of a message (MCP 2026-07-28)."""

from __future__ import annotations

from typing import Any

import pytest
from mcp.shared.inbound import decode_header_value, find_invalid_x_mcp_header

from sandbox.limits import MAX_HEADER_VALUE
from sandbox.wire.errors import WireError
from sandbox.wire.headers import encoded, of_message, repeated
from sandbox.wire.jsonrpc import Request

META = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}


@pytest.mark.parametrize("value", ["plain", "a b", " edge", "é", "a\r\nX: y", "=?base64?YQ==?=", "", "\0", "\t"])
def test_values_survive_the_header(value: str) -> None:
    """The SDK reads back exactly what was meant, and no value breaks a line."""
    written = encoded(value)

    assert value == decode_header_value(written)
    assert written.isascii()
    assert written.isprintable()


def test_a_value_that_no_header_carries_is_refused() -> None:
    """Longer than the bound is an error of the call, not a broken connection."""
    with pytest.raises(WireError) as caught:
        encoded("x" * (MAX_HEADER_VALUE + 1))

    assert "WIRE-061" == caught.value.id


def test_fields_of_messages() -> None:
    """Name and arguments are repeated for the methods that have them; the handshake era has none."""
    call = Request(1, "tools/call", {"name": "t", "arguments": {"a": {"b": True}, "n": 5, "skip": None}, **META})
    read = Request(2, "resources/read", {"uri": "note://é", **META})
    old = Request(3, "tools/call", {"name": "t", "arguments": {}})

    assert {
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "t",
        "Mcp-Param-B": "true",
        "Mcp-Param-N": "5",
    } == of_message(call, {("a", "b"): "B", ("n",): "N", ("skip",): "S", ("absent",): "A"})
    assert "=?base64?bm90ZTovL8Op?=" == of_message(read, {})["Mcp-Name"]
    assert {} == of_message(old, {("a",): "A"})


def annotated(kind: str = "string", token: Any = "Region", **more: Any) -> dict[str, Any]:
    """Return a schema with one annotation."""
    return {"type": "object", "properties": {"r": {"type": kind, "x-mcp-header": token}, **more}}


@pytest.mark.parametrize(
    "schema",
    [
        annotated("number"),
        annotated("object"),
        annotated(token=""),
        annotated(token="a b"),
        annotated(token="a\r\nX"),
        annotated(token=5),
        annotated(s={"type": "string", "x-mcp-header": "REGION"}),
        {"type": "object", "x-mcp-header": "A"},
        {"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}},
        {"anyOf": [annotated()]},
        {"$defs": {"d": {"type": "string", "x-mcp-header": "A"}}},
    ],
)
def test_forbidden_annotations_take_the_tool_out(schema: dict[str, Any]) -> None:
    """What the specification forbids is refused here as in the SDK."""
    assert find_invalid_x_mcp_header(schema) is not None
    with pytest.raises(ValueError, match="a"):
        repeated(schema)


def test_allowed_annotations() -> None:
    """Nested properties count; a property that is called like the annotation does not."""
    schema = annotated(o={"type": "object", "properties": {"x-mcp-header": {"type": "integer", "x-mcp-header": "N"}}})

    assert {("r",): "Region", ("o", "x-mcp-header"): "N"} == repeated(schema)
