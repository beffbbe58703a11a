"""Small drivers and surfaces for tests of what lies behind the spec stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.spec.model import BinaryServer, Binding, DriverSpec, Origin, ToolContract
from sandbox.vet.model import ServerSurface


def contract_of(**parts: Any) -> ToolContract:
    """Return a contract; ``parts`` replace its fields."""
    fields = {
        "id": "tool",
        "name": "Tool",
        "description": "A tool.",
        "version": "1.0.0",
        "inputs": {"type": "object"},
        "outputs": {"type": "object"},
        "origin": Origin(file="tools/tool/TOOL.md", line=1),
        "digest": "sha256:0",
    }
    return ToolContract(**{**fields, **parts})


def spec_of(contract: ToolContract, tool_name: str = "server_tool", **binding: Any) -> DriverSpec:
    """Return a driver with one binding."""
    bound = Binding(
        contract=contract,
        version_range="^1.0.0",
        tool_name=tool_name,
        origin=Origin(file="DRIVER.md", line=12),
        **binding,
    )
    return DriverSpec(
        folder="/driver",
        file="DRIVER.md",
        digest="sha256:0",
        id="test-mcp",
        name="Test",
        description="A test.",
        version="1.0.0",
        server=BinaryServer(kind="binary", path="/server"),
        transport="stdio",
        bindings=(bound,),
    )


def surface_of(spec: DriverSpec, **tools: Mapping[str, Any]) -> ServerSurface:
    """Return a surface that offers what the driver binds, or exactly ``tools``."""
    names = tools or {binding.tool_name: {"name": binding.tool_name} for binding in spec.bindings}
    return ServerSurface(
        era="handshake",
        protocol_version="2025-11-25",
        server_info={"name": "s"},
        capabilities={"tools": {}},
        tools=names,
    )
