"""JSON-RPC error codes, and which of a server's codes may reach a client.

Ours lie outside −32768 … −32000, which JSON-RPC and MCP reserve, so that a platform failure never looks like the
server's answer. The reverse holds too: a server that answers with one of our codes is reported with the plain internal
error, its own code in ``data``. Codes that the client's version forbids are replaced by the one that took their place.
"""

from __future__ import annotations

from typing import Any, Final

from sandbox.wire.versions import V2026_07_28

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603

HEADER_MISMATCH: Final = -32020
MISSING_CLIENT_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022
"""2026-07-28, basic, error codes."""

RESOURCE_NOT_FOUND: Final = -32002
"""Until 2025-11-25; ``INVALID_PARAMS`` since."""

URL_ELICITATION_REQUIRED: Final = -32042
"""2025-11-25 only."""

MODERN_ERRORS: Final = frozenset((HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_VERSION))
"""Errors that only a server of the stateless era gives: to the probe, they rule out ``initialize``."""

OWN_LOWEST: Final = -31999
OWN_HIGHEST: Final = -31000
"""The range of our own codes (sandbox/errors.py)."""

_REPLACED: Final = {RESOURCE_NOT_FOUND: INVALID_PARAMS, URL_ELICITATION_REQUIRED: INVALID_REQUEST}


def for_client(code: int, data: Any, version: str) -> tuple[int, Any]:
    """Return a server's error code and data as a client of ``version`` may see them."""
    if OWN_LOWEST <= code <= OWN_HIGHEST:
        return INTERNAL_ERROR, {"serverCode": code}
    if version >= V2026_07_28 and code in _REPLACED:
        return _REPLACED[code], data
    return code, data
