"""The smallest honest server of the handshake era: what is left of a call's time is the wire's."""

from __future__ import annotations

import json
import sys

TOOL = {
    "name": "echo",
    "description": "Returns its message.",
    "inputSchema": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
}


def answer(method: str, params: dict) -> dict | None:  # type: ignore[type-arg]
    """Return the result of a request, ``None`` for an unknown method."""
    if method == "initialize":
        info = {"name": "echo", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": params["arguments"]["message"]}], "isError": False}
    return {} if method == "ping" else None


def main() -> None:
    """Answer until EOF."""
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        if "id" not in request:
            continue
        reply = {"jsonrpc": "2.0", "id": request["id"]}
        result = answer(request["method"], request.get("params", {}))
        body = {"error": {"code": -32601, "message": "unknown method"}} if result is None else {"result": result}
        sys.stdout.buffer.write(json.dumps({**reply, **body}, separators=(",", ":")).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
