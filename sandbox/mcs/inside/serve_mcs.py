#!/usr/bin/env python3
"""Speaks MCP on stdio for one tool driver of the Model Context Standard: ``serve_mcs.py MODULE:CLASS JSON``.

Runs inside the sandbox on the standard library alone; the driver's own Python is imported here and nowhere else. It
decides nothing: arguments and results are held to the contract outside. One call at a time. What the driver prints goes
to stderr.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import types
from pathlib import Path
from typing import Any, BinaryIO

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
PLACE = Path("/mcs")
INTERFACE = "mcs.driver.core"


def provide_interface() -> None:
    """Give the driver the names that it inherits from, where the published package is not installed beside it."""
    try:
        importlib.import_module(INTERFACE)
    except ImportError:
        spec = importlib.util.spec_from_file_location(INTERFACE, PLACE / "own.py")
        if spec is None or spec.loader is None:
            raise
        module = importlib.util.module_from_spec(spec)
        for parent in ("mcs", "mcs.driver"):
            sys.modules.setdefault(parent, types.ModuleType(parent)).__path__ = []
        sys.modules[INTERFACE] = module
        spec.loader.exec_module(module)


def made(name: str, settings: dict[str, Any]) -> Any:
    """Return the driver: a class is called with the settings, anything else is one already."""
    module, _, attribute = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found(**settings) if isinstance(found, type) or settings else found


def listed(driver: Any) -> list[dict[str, Any]]:
    """Return the driver's tools as MCP has them."""
    return [
        {
            "name": tool.name,
            **({"title": tool.title} if getattr(tool, "title", None) else {}),
            "description": tool.description or tool.name,
            "inputSchema": schema(tool.parameters or []),
        }
        for tool in driver.list_tools()
    ]


def schema(parameters: list[Any]) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments."""
    properties = {}
    for one in parameters:
        own = dict(getattr(one, "schema", None) or {"type": "string"})
        if one.description:
            own["description"] = one.description
        properties[one.name] = own
    required = [one.name for one in parameters if one.required]
    closed = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**closed, "required": required} if required else closed


def call(driver: Any, params: dict[str, Any]) -> dict[str, Any]:
    """Carry out one call."""
    try:
        value = driver.execute_tool(params["name"], params.get("arguments") or {})
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)
    except Exception as error:  # noqa: BLE001 - somebody's driver; its failure is told
        return {"content": [{"type": "text", "text": f"{type(error).__name__}: {error}"}], "isError": True}
    return {"content": [{"type": "text", "text": text}], "isError": False}


def answer(driver: Any, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result of a request; ``None`` for a method that there is not."""
    if method == "initialize":
        asked = params.get("protocolVersion")
        meta = getattr(driver, "meta", None)
        info = {"name": str(getattr(meta, "name", "mcs")), "version": str(getattr(meta, "version", "0"))}
        version = asked if asked in VERSIONS else VERSIONS[0]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": listed(driver)}
    if method == "tools/call":
        return call(driver, params)
    return {} if method == "ping" else None


def replied(driver: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Return the reply to one request."""
    try:
        result = answer(driver, request["method"], request.get("params") or {})
    except Exception as error:  # noqa: BLE001 - the driver's own list may fail
        return {"error": {"code": -32603, "message": f"{type(error).__name__}: {error}"}}
    return {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}


def protocol() -> BinaryIO:
    """Return what was stdout, and put stderr in its place."""
    own = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(own, "wb", buffering=0)


def main() -> None:
    """Answer until EOF."""
    out = protocol()
    sys.path[:0] = [str(PLACE / "source")]
    provide_interface()
    driver = made(sys.argv[1], json.loads(sys.argv[2]))
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        if "id" in request and "method" in request:
            reply = {"jsonrpc": "2.0", "id": request["id"], **replied(driver, request)}
            data = memoryview(json.dumps(reply, separators=(",", ":")).encode() + b"\n")
            while data:
                data = data[out.write(data) :]


if __name__ == "__main__":
    main()
