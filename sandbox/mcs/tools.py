"""MCP tools as tools of the Model Context Standard, and what a call gave as a plain value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sandbox import jsontext
from sandbox.errors import CallRefused, SandboxError, ServerFault, ServerTimeout
from sandbox.mcs.contract import Tool, ToolParameter
from sandbox.serve.codes import ERROR_META
from sandbox.serve.extract import first_text

_TIMEOUTS: Final = frozenset(("timeout",))
_SERVERS: Final = frozenset(("upstream_error",))


def tool_of(definition: Mapping[str, Any]) -> Tool:
    """Return an exposed tool; its parameters are the members of the contract's inputs, in their order."""
    schema = definition.get("inputSchema") or {}
    required = set(schema.get("required") or ())
    shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    parameters = [
        ToolParameter(name, _said(member), name in required, _with(member, shared))
        for name, member in (schema.get("properties") or {}).items()
    ]
    name = str(definition["name"])
    title = definition.get("title")
    return Tool(name, title, definition.get("description") or title or name, parameters)


def schema_of(tool: Tool) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments: closed, so that a model sees that there is nothing else."""
    properties = {
        one.name: (one.schema or {"type": "string"}) | ({"description": one.description} if one.description else {})
        for one in tool.parameters
    }
    required = [one.name for one in tool.parameters if one.required]
    closed = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**closed, "required": required} if required else closed


def error_in(result: Mapping[str, Any]) -> SandboxError | None:
    """Return the error that a failed result reports, of the kind whose fault it is; ``None`` for a good one."""
    if not result.get("isError"):
        return None
    said = first_text(dict(result)) or "it does not say why"
    meta = result.get("_meta")
    known = meta.get(ERROR_META) if isinstance(meta, Mapping) else None
    known = known if isinstance(known, Mapping) else {}
    code, number = str(known.get("code") or ""), str(known.get("id") or "")
    if code in _TIMEOUTS:
        return ServerTimeout(number or "MCS-004", said)
    if code in _SERVERS or not code:
        return ServerFault(number or "MCS-004", f"the tool failed: {said}", "correct the arguments, or see the trail")
    return CallRefused(number, said.removeprefix(f"Refused by mcp-sandbox ({number}): "))


def plain(result: Mapping[str, Any]) -> Any:
    """Return what a result without structured content holds: its only text, else its blocks."""
    content = list(result.get("content") or ())
    if len(content) == 1 and content[0].get("type") == "text":
        return content[0].get("text", "")
    return content


def text_of(value: Any) -> str:
    """Return a result as a model reads it; what is no JSON, as drivers of others may return, as Python writes it."""
    if isinstance(value, str):
        return value
    try:
        return jsontext.dump(value).decode()
    except (TypeError, ValueError, RecursionError):
        return _shown(value)


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - somebody's object; the call has been carried out, and that is told
        return f"a {type(value).__name__} that cannot be shown: {type(error).__name__}"


def _said(member: Any) -> str:
    return str(member.get("description") or member.get("title") or "") if isinstance(member, Mapping) else ""


def _with(member: Any, shared: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a parameter's schema, which stands alone: definitions that it may refer to travel with it."""
    if not isinstance(member, Mapping):
        return None
    return {**member, **(shared if '"$ref"' in jsontext.dump(member).decode() else {})}
