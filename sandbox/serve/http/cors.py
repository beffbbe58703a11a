"""What a browser needs to let a page of another origin use an endpoint (Fetch standard, CORS protocol).

Only for origins that the operator names; no credentials of the browser (cookies) are ever used, tokens are sent by the
page itself. A preflight is answered without signing in, since browsers send none with it, and says nothing of any
server.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from starlette.types import Send

EXPOSED: Final = "mcp-session-id, www-authenticate, x-mcp-limit, retry-after"
SENT: Final = (
    "authorization, content-type, accept, last-event-id, mcp-session-id, mcp-protocol-version, mcp-method, mcp-name"
)
PREFLIGHT_AGE: Final = 600
"""Seconds for which a browser need not ask again."""


def is_preflight(method: str, headers: Mapping[str, str]) -> bool:
    """Return whether a browser asks before it sends."""
    return method == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers


def readable(send: Send, origin: str | None) -> Send:
    """Return a ``send`` whose answers a page of an admitted origin may read."""
    if origin is None:
        return send
    fields = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", EXPOSED.encode()),
        (b"vary", b"origin"),
    ]

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *fields]}
        await send(message)

    return sending


async def preflight(send: Send, headers: Mapping[str, str]) -> None:
    """Answer a preflight of an admitted origin; fields for arguments (``Mcp-Param-…``) are those that it asks for."""
    asked = [name.strip().lower() for name in headers.get("access-control-request-headers", "").split(",")]
    extra = [name for name in asked if name.startswith("mcp-param-") and name.replace("-", "").isalnum()]
    raw = [
        (b"access-control-allow-methods", b"GET, POST, DELETE"),
        (b"access-control-allow-headers", ", ".join([SENT, *extra[:32]]).encode("latin-1", "replace")),
        (b"access-control-max-age", str(PREFLIGHT_AGE).encode()),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": raw})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
