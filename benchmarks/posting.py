"""A plain MCP client over one kept HTTP connection, both eras: as little of its own cost as Python allows."""

from __future__ import annotations

import asyncio
import json
from typing import Any

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
OPENING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "benchmark", "version": "1"}}


class Refused(Exception):
    """The answer is no result: HTTP status and what was said."""

    def __init__(self, status: int, said: bytes) -> None:
        super().__init__(f"{status}: {said[:300]!r}")
        self.status = status


class Posting:
    """One client.

    Args:
        port: of the server, on loopback.
        path: of its endpoint.
        era: ``stateless`` or ``handshake``.
        token: bearer token, empty for none.
    """

    def __init__(self, port: int, path: str, era: str, token: str = "") -> None:
        self._port, self._path, self._era = port, path, era
        self._auth = f"Authorization: Bearer {token}\r\n" if token else ""
        self._session = ""
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        """Connect, and open a session in the handshake era."""
        self.close()
        self._session = ""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        if self._era == "handshake":
            body = {"jsonrpc": "2.0", "id": "open", "method": "initialize", "params": OPENING}
            headers, _ = await self._post(body, "")
            found = headers.get("mcp-session-id")
            self._session = f"Mcp-Session-Id: {found}\r\n" if found else ""
            await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"}, "")

    def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()

    async def call(self, tool: str, arguments: dict[str, Any], number: Any) -> dict[str, Any]:
        """Return the JSON-RPC answer of one call.

        Raises:
            Refused: the status is not 200.
            OSError: the connection is gone.
        """
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        fields = ""
        if self._era == "stateless":
            params["_meta"] = META
            fields = f"Mcp-Method: tools/call\r\nMcp-Name: {tool}\r\n"
        request = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        headers, body = await self._post(request, fields)
        if not headers.get("content-type", "").startswith("text/event-stream"):
            return dict(json.loads(body))
        events = [json.loads(line[6:]) for line in body.decode().splitlines() if line.startswith("data: {")]
        answers = [dict(one) for one in events if one.get("id") == number]
        if not answers:
            raise ConnectionError("the stream ended without an answer")
        return answers[0]

    async def _post(self, body: dict[str, Any], fields: str) -> tuple[dict[str, str], bytes]:
        assert self._reader is not None
        assert self._writer is not None
        version = "2026-07-28" if self._era == "stateless" else "2025-11-25"
        data = json.dumps(body, separators=(",", ":")).encode()
        head = (
            f"POST {self._path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nContent-Length: {len(data)}\r\n"
            f"MCP-Protocol-Version: {version}\r\n{self._auth}{self._session}{fields}\r\n"
        )
        self._writer.write(head.encode() + data)
        try:
            lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            answer = await self._body(headers)
        except asyncio.IncompleteReadError as error:
            raise ConnectionError("the connection is gone") from error
        status = int(lines[0].split()[1])
        if status not in (200, 202):
            raise Refused(status, answer)
        return headers, answer

    async def _body(self, headers: dict[str, str]) -> bytes:
        assert self._reader is not None
        if headers.get("transfer-encoding") != "chunked":
            return await self._reader.readexactly(int(headers.get("content-length", "0")))
        parts = []
        while size := int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16):
            parts.append((await self._reader.readexactly(size + 2))[:-2])
        await self._reader.readexactly(2)
        return b"".join(parts)
