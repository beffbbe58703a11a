"""Installed tools for those who show them to a model: ``tools.json``, MCP and OpenAI tool lists, text for retrieval.

Only the logical tool is shown, never which implementation runs (MCPKG §10.4). Text of packages is shown without hidden
characters.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

from sandbox.mcpkg.contents import Contents
from sandbox.mcpkg.metrics import Summary
from sandbox.mcpkg.model import Case, Manifest
from sandbox.mcpkg.names import plain

FORMATS: Final = ("tools", "mcp", "openai", "context")
_OPENAI_NAME: Final = 64
_HASH: Final = 8


class Entry:
    """One installed tool with everything that an export may show."""

    def __init__(self, manifest: Manifest, cases: tuple[Case, ...], contents: Contents, tested: Summary) -> None:
        self.manifest, self.cases, self.tested = manifest, cases, tested
        self.examples = {name: contents.read(name).decode("utf-8", "replace") for name in manifest.examples}


def tools_json(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return ``tools.json`` (T3-4)."""
    return [
        {
            "name": entry.manifest.tool_id,
            "description": plain(entry.manifest.description),
            "input_schema": entry.manifest.input_schema,
            "capabilities": list(entry.manifest.capabilities),
            "examples": [plain(text) for text in entry.examples.values()],
            "test_summary": asdict(entry.tested),
        }
        for entry in entries
    ]


def mcp_tools(entries: Iterable[Entry]) -> dict[str, Any]:
    """Return a result of ``tools/list``."""
    tools = []
    for entry in entries:
        tool: dict[str, Any] = {
            "name": entry.manifest.tool_id,
            "title": plain(entry.manifest.name),
            "description": plain(entry.manifest.description),
            "inputSchema": entry.manifest.input_schema,
        }
        if entry.manifest.output_schema.get("type") == "object":
            tool["outputSchema"] = entry.manifest.output_schema
        tools.append(tool)
    return {"tools": tools}


def openai_tools(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return function definitions; ids are written as :func:`openai_name` does."""
    return [
        {
            "type": "function",
            "function": {
                "name": openai_name(entry.manifest.tool_id),
                "description": plain(entry.manifest.description),
                "parameters": entry.manifest.input_schema,
            },
        }
        for entry in entries
    ]


def openai_name(tool_id: str) -> str:
    """Return a tool id as a function's name (letters, digits, ``_`` and ``-``, 64 at most); two ids never meet.

    Dots become ``__``; an id that has two underscores itself, or is too long, ends in a digest of it.
    """
    name = re.sub(r"[^A-Za-z0-9_-]", "_", tool_id.replace(".", "__"))
    if "__" not in tool_id and len(name) <= _OPENAI_NAME:
        return name
    return f"{name[: _OPENAI_NAME - _HASH - 1]}-{hashlib.sha256(tool_id.encode()).hexdigest()[:_HASH]}"


def context(entries: Iterable[Entry]) -> str:
    """Return Markdown for retrieval: what each tool does, its examples, its passing tests as further ones."""
    return "\n".join(_section(entry) for entry in entries)


def _section(entry: Entry) -> str:
    manifest = entry.manifest
    lines = [f"# {manifest.tool_id}", "", plain(manifest.description), ""]
    lines += [f"Capabilities: {', '.join(map(plain, manifest.capabilities)) or 'none'}", ""]
    ways = [f"{one.id} ({one.language or one.runtime or 'http'})" for one in manifest.implementations]
    lines += [f"Implementations: {', '.join(map(plain, ways))}", ""] if ways else []
    lines += [f"Chain: {' → '.join(step.tool for step in manifest.chain)}", ""] if manifest.chain else []
    if entry.tested.total:
        lines += [f"Tests: {entry.tested.passed} of {entry.tested.total} passed.", ""]
    for text in entry.examples.values():
        lines += ["## Example", "", plain(text), ""]
    for case in entry.cases:
        lines += [f"## Test {plain(case.name)}", "", "Arguments:", "", _json(case.input), ""]
        lines += ["Result contains:", "", _json(case.expected), ""] if case.has_expected else []
    return "\n".join(lines)


def _json(value: Any) -> str:
    return "```json\n" + plain(json.dumps(value, indent=1, ensure_ascii=False)) + "\n```"
