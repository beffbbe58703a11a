"""A handler that forwards and decides nothing: for tests of the protocol, and the parts that every handler shares."""

from __future__ import annotations

from typing import Any

from sandbox.serve.client_model import CallInfo
from sandbox.vet.model import ExposedTool


class ForwardingHandler:
    """Sends every request on as it is, under the server's own tool name; implements ``Handler``."""

    async def call_tool(self, tool: ExposedTool, arguments: dict[str, Any], call: CallInfo) -> dict[str, Any]:
        """Forward ``tools/call``."""
        return await call.forward("tools/call", {"name": tool.server_name, "arguments": arguments})

    async def get_prompt(self, name: str, arguments: dict[str, Any], call: CallInfo) -> dict[str, Any]:
        """Forward ``prompts/get``."""
        return await call.forward("prompts/get", {"name": name, "arguments": arguments})

    async def read_resource(self, uri: str, call: CallInfo) -> dict[str, Any]:
        """Forward ``resources/read``."""
        return await call.forward("resources/read", {"uri": uri})

    async def watch_resource(self, uri: str, call: CallInfo) -> None:
        """Allow every declared resource to be watched."""

    async def complete(self, params: dict[str, Any], call: CallInfo) -> dict[str, Any]:
        """Forward ``completion/complete``."""
        return await call.forward("completion/complete", params)
