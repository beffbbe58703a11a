"""The reviewed contracts of a driver as a description for models; starts nothing and calls nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sandbox.errors import UsageError
from sandbox.mcs.contract import DriverBinding, DriverMeta, Tool
from sandbox.mcs.prompts import Prompts
from sandbox.mcs.settings import Description, Style
from sandbox.mcs.speaking import Speaking
from sandbox.mcs.tools import tool_of
from sandbox.spec.load import load_driver
from sandbox.vet.bind import bind
from sandbox.vet.model import Names, ServerSurface


class Reviewed(Speaking):
    """What a driver folder says that callers may see; a running server can offer less of it, never more.

    Args:
        driver: DRIVER.md or its folder.
        names: contract ids, or the server's own names.
        texts: prompts.
        style: of the system prompt.
        description: format of the description.

    Raises:
        SpecError: the folder is not valid.
    """

    def __init__(
        self,
        driver: Path,
        *,
        names: Names = "contract",
        texts: Prompts | None = None,
        style: Style = "auto",
        description: Description = "json-schema",
    ) -> None:
        spec = load_driver(driver)
        binding = DriverBinding("mcp", spec.transport, "OpenAPI" if description == "openapi" else "JSON-Schema")
        self.meta = DriverMeta(spec.id, spec.name, spec.version, (binding,), ("*",), ("standalone", "tcs"))
        self._definitions = definitions_of(spec, names)
        self.speak(texts or Prompts.load(), style=style, description=description)

    def list_definitions(self) -> list[dict[str, Any]]:
        """Return the exposed tools as MCP definitions."""
        return [dict(one) for one in self._definitions]

    def list_tools(self) -> list[Tool]:
        """Return the exposed tools."""
        return [tool_of(one) for one in self._definitions]

    def execute_tool(self, tool_name: str, arguments: dict[str, Any]) -> Any:  # noqa: ARG002 - the contract's
        """Raise UsageError ``MCS-013``: nothing runs here."""
        raise UsageError("MCS-013", f"`{tool_name[:80]}` is only described here", "use SandboxedDriver")


def definitions_of(spec: Any, names: Names) -> Iterable[dict[str, Any]]:
    """Return the MCP definitions of everything that a driver binds, from its contracts alone."""
    offered = {binding.tool_name: {"name": binding.tool_name} for binding in spec.bindings}
    asked = {prompt.name: {"name": prompt.name} for prompt in spec.prompts}
    surface = ServerSurface("handshake", "", {}, {}, tools=offered, prompts=asked)
    return [dict(tool.definition) for tool in bind(spec, surface, names).tools.values()]
