"""The tools of an author's server to a client of MCP, 2025-11-25 and older: enough for a supervisor in front."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from sandbox import jsontext
from sandbox.errors import SandboxError

if TYPE_CHECKING:
    from sandbox.dialect.server import MCPServer

VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
_NO_METHOD, _INVALID = -32601, -32602


class Speaker:
    """Answers one client.

    Args:
        server: whose tools.
    """

    def __init__(self, server: MCPServer) -> None:
        self._server = server

    async def answer(self, message: Any) -> dict[str, Any] | None:
        """Return the answer to one message; ``None`` for a notification, or for what is no message."""
        if not isinstance(message, dict) or "id" not in message or "method" not in message:
            return None
        params = message.get("params") if isinstance(message.get("params"), dict) else {}
        body = await self._answered(str(message["method"]), params or {})
        return {"jsonrpc": "2.0", "id": message["id"], **body}

    async def _answered(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        match method:
            case "initialize":
                asked = params.get("protocolVersion")
                info = {"name": self._server.id, "version": self._server.version}
                version = asked if asked in VERSIONS else VERSIONS[0]
                return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}}
            case "tools/list":
                return {"result": {"tools": [self._tool(name) for name in self._server.tools]}}
            case "tools/call":
                return await self._call(params)
            case "ping":
                return {"result": {}}
            case _:
                return {"error": {"code": _NO_METHOD, "message": "no such method"}}

    def _tool(self, name: str) -> dict[str, Any]:
        shown = self._server.tools[name].descriptor()
        outputs = shown.output_schema
        own = {"name": name, "description": shown.description, "inputSchema": shown.input_schema}
        return {**own, "outputSchema": outputs} if outputs.get("type") == "object" else own

    async def _call(self, params: Mapping[str, Any]) -> dict[str, Any]:
        tool = self._server.tools.get(str(params.get("name", "")))
        if tool is None:
            return {"error": {"code": _INVALID, "message": "no such tool"}}
        try:
            value = await tool.call(params.get("arguments") or {})
        except SandboxError as error:
            return {"result": {"content": [{"type": "text", "text": error.message}], "isError": True}}
        text = value if isinstance(value, str) else jsontext.dump(value).decode()
        structured = {"structuredContent": value} if isinstance(value, dict) else {}
        return {"result": {"content": [{"type": "text", "text": text}], **structured, "isError": False}}
