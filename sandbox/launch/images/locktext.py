"""The text form of lock files: canonical, and broken into lines so that a difference of one package is one line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

WIDTH: Final = 240
"""Columns up to which an object stays on one line: a package with its SHA-512 needs about 200."""


def pretty(value: Any) -> bytes:
    """Return UTF-8 JSON with sorted members, two blanks of indentation and a newline at the end."""
    return (_lines(value, 0) + "\n").encode()


def _lines(value: Any, depth: int) -> str:
    flat = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if not isinstance(value, Mapping | list) or not value:
        return flat
    nested = any(isinstance(item, Mapping | list) and item for item in _items(value))
    if not nested and (isinstance(value, list) or len(flat) + 2 * depth <= WIDTH):
        return flat
    pad = "  " * (depth + 1)
    if isinstance(value, Mapping):
        parts = [f"{json.dumps(key, ensure_ascii=False)}: {_lines(value[key], depth + 1)}" for key in sorted(value)]
        return "{\n" + ",\n".join(pad + part for part in parts) + "\n" + pad[2:] + "}"
    return "[\n" + ",\n".join(pad + _lines(item, depth + 1) for item in value) + "\n" + pad[2:] + "]"


def _items(value: Mapping[str, Any] | list[Any]) -> list[Any]:
    return list(value.values()) if isinstance(value, Mapping) else value
