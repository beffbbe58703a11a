"""Fuzz target: any bytes become JSON values with a line for each, or faults with ids; nothing else is raised.

What is accepted is stable: written again as JSON front matter it gives the same values, and no key or text in it holds
a control or invisible character.

Run: ``python tests/fuzz/fuzz_frontmatter.py -max_total_time=60 tests/fuzz/corpus/frontmatter``
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import atheris

with atheris.instrument_imports(include=["sandbox", "frontmatter", "yaml"]):
    from sandbox.limits import MAX_YAML_DEPTH, MAX_YAML_NODES
    from sandbox.spec.frontmatter import Document, FrontMatterError, parse


def walk(value: Any, depth: int = 1) -> Iterator[tuple[Any, int]]:
    """Yield every value with its depth, keys included."""
    yield value, depth
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, depth
            yield from walk(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner, depth + 1)


def read(data: bytes, lines: int) -> Document | None:
    """Return the document, or hold its faults to the invariant."""
    try:
        return parse(data)
    except FrontMatterError as error:
        faults = error.faults
    assert faults
    assert all(fault.id.startswith("SPEC-") and 0 <= fault.line <= lines for fault in faults)
    return None


def one(data: bytes) -> None:
    """Parse one manifest and hold the result to the invariant."""
    if not data.startswith(b"---"):
        data = b"---\n" + data + b"\n---\n"
    lines = data.count(b"\n") + 1
    document = read(data, lines)
    if document is None:
        return
    found = list(walk(document.values))
    assert len(found) <= 2 * MAX_YAML_NODES
    assert max(depth for _, depth in found) <= MAX_YAML_DEPTH
    assert all(1 <= line <= lines for line in document.lines.values())
    if document.faults:
        return
    for value, _ in found:
        assert value is None or isinstance(value, str | int | float | bool | list | dict)
        assert not isinstance(value, str) or all(char in "\n\t" or ord(char) >= 0x20 for char in value)
    again = "".join(f"{json.dumps(key)}: {json.dumps(value)}\n" for key, value in document.values.items())
    assert len(again) > 200_000 or parse(f"---\n{again}---\n".encode()).values == document.values


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
