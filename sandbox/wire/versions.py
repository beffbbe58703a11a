"""The protocol versions that we speak, and the two eras they fall into.

Handshake era: ``initialize`` opens a session that has a version and capabilities. Stateless era: every request carries
them in ``_meta`` (MCP 2026-07-28, basic/versioning). An era is a property of a peer, never of one message.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

Era: TypeAlias = Literal["handshake", "stateless"]

V2024_11_05: Final = "2024-11-05"
V2025_03_26: Final = "2025-03-26"
V2025_06_18: Final = "2025-06-18"
V2025_11_25: Final = "2025-11-25"
V2026_07_28: Final = "2026-07-28"

HANDSHAKE_VERSIONS: Final = (V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25)
"""Oldest first. Versions are dates, so that comparing the text orders them."""

STATELESS_VERSIONS: Final = (V2026_07_28,)
VERSIONS: Final = HANDSHAKE_VERSIONS + STATELESS_VERSIONS

LATEST_HANDSHAKE: Final = HANDSHAKE_VERSIONS[-1]
LATEST_STATELESS: Final = STATELESS_VERSIONS[-1]


def era_of(version: str) -> Era | None:
    """Return the era of a version that we speak, or ``None``."""
    if version in HANDSHAKE_VERSIONS:
        return "handshake"
    return "stateless" if version in STATELESS_VERSIONS else None


def agreed_handshake(requested: object) -> str:
    """Return the version to answer ``initialize`` with: the requested one when we speak it, else our latest.

    MCP 2025-11-25, basic/lifecycle, version negotiation.
    """
    return requested if isinstance(requested, str) and requested in HANDSHAKE_VERSIONS else LATEST_HANDSHAKE


def newest_stateless(supported: object) -> str | None:
    """Return the newest stateless version among those a server says it supports, or ``None``."""
    if not isinstance(supported, list):
        return None
    return max((version for version in STATELESS_VERSIONS if version in supported), default=None)
