"""Front matter as our own reader reads it: block YAML with texts as JSON strings, which mean themselves (ADR 0010)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

WIDTH: Final = 100
"""Characters of a value that still stands on one line."""

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_-]*")
_PLAIN_VALUE: Final = re.compile(r"[A-Za-z^][A-Za-z0-9 _.,/@^()-]*(?<! )")
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "~"})


def manifest(matter: Mapping[str, Any], body: str) -> str:
    """Return the text of a manifest: front matter and what people read below it."""
    return "---\n" + "".join(f"{line}\n" for line in _members(matter)) + f"---\n\n{body.strip()}\n"


def scalar(value: Any) -> str:
    """Return a scalar, or a small value, as it stands on one line; texts are quoted where they could mean else."""
    if isinstance(value, str) and _PLAIN_VALUE.fullmatch(value) and value.lower() not in _WORDS:
        return value if ", " not in value or len(value) > WIDTH else json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)


def _members(value: Mapping[str, Any]) -> Iterator[str]:
    for key, member in value.items():
        name = key if _PLAIN_KEY.fullmatch(key) and key.lower() not in _WORDS else json.dumps(key, ensure_ascii=False)
        yield from _entry(f"{name}:", member)


def _entry(head: str, value: Any) -> Iterator[str]:
    """Yield a key or dash with its value: on the same line when short, else below and indented."""
    flow = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str | int | float) or value is None:
        yield f"{head} {scalar(value)}"
    elif not value or (len(flow) <= WIDTH and not _nested(value)):
        yield f"{head} {flow}"
    elif isinstance(value, Mapping):
        yield head
        yield from (f"  {line}" for line in _members(value))
    else:
        yield head
        for item in value:
            lines = list(_entry("-", item))
            yield from (f"  {line}" for line in _joined(lines))


def _joined(lines: list[str]) -> list[str]:
    """Put the first member of a mapping on the line of its dash."""
    if len(lines) > 1 and lines[0] == "-" and not lines[1].lstrip().startswith("-"):
        return [f"- {lines[1].removeprefix('  ')}", *lines[2:]]
    return lines


def _nested(value: Any) -> bool:
    items = value.values() if isinstance(value, Mapping) else value
    return any(isinstance(item, Mapping | list) and item for item in items)
