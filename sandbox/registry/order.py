"""The order of versions (Semantic Versioning 2.0.0 §11), the newest first."""

from __future__ import annotations

from typing import Any


def descending(version: str) -> tuple[Any, ...]:
    """Return what sorts versions from the newest; texts that are no semantic versions have a place too.

    Build metadata, which SemVer gives no order, is compared as text, so that no two versions have one place.
    """
    rest, _, build = version.partition("+")
    core, _, pre = rest.partition("-")
    numbers = tuple(-_number(part) for part in core.split("."))
    parts = tuple(map(_identifier, pre.split("."))) if pre else ()
    return (*(*numbers, 0, 0, 0)[:3], 1 if pre else 0, (*parts, (2, 0, ())), build)


def _number(part: str) -> int:
    return int(part) if _decimal(part) else 0


def _decimal(part: str) -> bool:
    """Return whether a part is a number that is not absurdly long: converting takes the square of its digits."""
    return part.isascii() and part.isdecimal() and len(part) < 20  # noqa: PLR2004 - digits of 64 bits


def _identifier(part: str) -> tuple[int, int, tuple[int, ...]]:
    """Return what orders identifiers of a pre-release from the newest; of two, the longer text is the newer."""
    return (1, -int(part), ()) if _decimal(part) else (0, 0, (*(-ord(char) for char in part), 1))
