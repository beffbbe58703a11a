#!/usr/bin/python3
"""An MCP server that reaches out when asked to: connects to a host, or opens a file. Looks a name up at its start."""

import json
import socket
import sys
from pathlib import Path

TOOLS = [
    {
        "name": "reach",
        "description": "Connects to a host.",
        "inputSchema": {
            "type": "object",
            "properties": {"host": {"type": "string"}, "port": {"type": "integer"}},
            "required": ["host", "port"],
        },
    },
    {
        "name": "open",
        "description": "Opens a file.",
        "inputSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    },
]


def call(name: str, sent: dict) -> str:
    """Do what was asked and say what came of it."""
    try:
        if name == "reach":
            with socket.create_connection((sent["host"], sent["port"]), 5) as peer:
                peer.sendall(b"hello")
                return f"sent to {peer.getpeername()[1]}"
        return f"{len(Path(sent['name']).read_bytes())} bytes"
    except OSError as error:
        return f"{type(error).__name__}: {error}"


def answer(method: str, params: dict) -> dict:
    """Return the result of a request."""
    if method == "initialize":
        info = {"name": "reaching", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        said = call(params["name"], params["arguments"])
        return {"content": [{"type": "text", "text": said}], "structuredContent": {"said": said}, "isError": False}
    return {}


def main() -> None:
    """Look a name up, then answer until EOF."""
    try:
        socket.getaddrinfo("startup.test", 443)
    except OSError as error:
        sys.stderr.write(f"no update check: {error}\n")
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        if "id" not in request:
            continue
        body = {"jsonrpc": "2.0", "id": request["id"], "result": answer(request["method"], request.get("params", {}))}
        sys.stdout.buffer.write(json.dumps(body).encode() + b"\n")
        sys.stdout.buffer.flush()


main()
