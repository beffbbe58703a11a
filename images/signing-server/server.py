"""A small MCP server without dependencies: signs texts with a key that only it holds (HMAC-SHA-256).

The example of `server.kind: docker` and of a secret: the key arrives in SIGNING_KEY; neither a client nor a log ever
sees it. Speaks the handshake era (2025-11-25) on stdio.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import sys
from typing import Any

KEY = os.environ.pop("SIGNING_KEY", "").encode()
TEXT = {"type": "string", "maxLength": 1_000_000}
SIGNATURE = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
TOOLS = [
    {
        "name": "sign",
        "description": "Sign a text.",
        "inputSchema": {"type": "object", "properties": {"text": TEXT}, "required": ["text"]},
        "outputSchema": {"type": "object", "properties": {"signature": SIGNATURE}, "required": ["signature"]},
    },
    {
        "name": "verify",
        "description": "Say whether a signature belongs to a text.",
        "inputSchema": {
            "type": "object",
            "properties": {"text": TEXT, "signature": SIGNATURE},
            "required": ["text", "signature"],
        },
        "outputSchema": {"type": "object", "properties": {"valid": {"type": "boolean"}}, "required": ["valid"]},
    },
]


def signature(text: str) -> str:
    """Return the signature of a text in hexadecimal."""
    return hmac.new(KEY, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def call(params: dict[str, Any]) -> dict[str, Any]:
    """Answer one tools/call."""
    arguments = params.get("arguments") or {}
    match params.get("name"):
        case "sign":
            value: dict[str, Any] = {"signature": signature(arguments["text"])}
        case "verify":
            value = {"valid": hmac.compare_digest(signature(arguments["text"]), arguments["signature"])}
        case name:
            return {"content": [{"type": "text", "text": f"no tool {name!r}"}], "isError": True}
    return {"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": value}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the result or the error of one request."""
    match method:
        case "initialize":
            info = {"name": "signing-server", "version": "1.0.0"}
            return {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}}
        case "ping":
            return {"result": {}}
        case "tools/list":
            return {"result": {"tools": TOOLS}}
        case "tools/call":
            return {"result": call(params)}
        case _:
            return {"error": {"code": -32601, "message": "method not found"}}


def main() -> None:
    """Answer requests until stdin ends."""
    if not KEY:
        sys.exit("SIGNING_KEY is empty")
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            body = answer(message["method"], message.get("params") or {})
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}), flush=True)


if __name__ == "__main__":
    main()
