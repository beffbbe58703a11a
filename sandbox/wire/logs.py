"""Log levels (RFC 5424) in order of severity."""

from __future__ import annotations

from typing import Final

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

_RANK: Final = {level: rank for rank, level in enumerate(LEVELS)}


def is_level(value: object) -> bool:
    """Return whether a value names a log level."""
    return isinstance(value, str) and value in _RANK


def reaches(level: object, wanted: str) -> bool:
    """Return whether a message of ``level`` is at least as severe as ``wanted``; an unknown level never is."""
    return isinstance(level, str) and _RANK.get(level, -1) >= _RANK[wanted]
