"""``_meta``: which keys belong to the protocol, and what of a peer's ``_meta`` goes any further.

Keys whose prefix has ``modelcontextprotocol`` or ``mcp`` as second label are reserved for the protocol (MCP 2026-07-28,
basic, ``_meta``). They describe one hop: those of the client say what the client can do, and must never reach the
server as if we could do it; those of the server are consumed by us. ``baggage`` would carry a client's values to a
third party and back, so it stops here; ``traceparent`` and ``tracestate`` identify, and pass.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

PREFIX: Final = "io.modelcontextprotocol/"
PROTOCOL_VERSION: Final = PREFIX + "protocolVersion"
CLIENT_INFO: Final = PREFIX + "clientInfo"
CLIENT_CAPABILITIES: Final = PREFIX + "clientCapabilities"
LOG_LEVEL: Final = PREFIX + "logLevel"
SERVER_INFO: Final = PREFIX + "serverInfo"
SUBSCRIPTION_ID: Final = PREFIX + "subscriptionId"
PROGRESS_TOKEN: Final = "progressToken"  # noqa: S105 - the protocol's word, no secret

_RESERVED: Final = re.compile(r"[^./]+\.(?:modelcontextprotocol|mcp)(?:\.[^/]*)?/", re.IGNORECASE)
_STOPPED: Final = frozenset((PROGRESS_TOKEN, "baggage"))


def is_reserved(key: str) -> bool:
    """Return whether the protocol owns a key."""
    return key in _STOPPED or _RESERVED.match(key) is not None


def cleaned(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``_meta`` without the keys that the protocol owns."""
    return {key: value for key, value in meta.items() if not is_reserved(key)}


def of(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``params._meta``, empty when it is absent or not an object."""
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else {}


def without_reserved(value: dict[str, Any]) -> dict[str, Any]:
    """Return a result or params whose ``_meta`` keeps only what the protocol does not own."""
    meta = value.get("_meta")
    if meta is None:
        return value
    kept = cleaned(meta) if isinstance(meta, dict) else {}
    rest = {key: item for key, item in value.items() if key != "_meta"}
    return {**rest, "_meta": kept} if kept else rest
