"""MCP clients that are known: where their configuration lies and how they write a server.

Each client has a table of servers by name; what differs is the file, the table's name and the members of an entry.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ClientKind:
    """One client.

    Attributes:
        title: for people.
        table: member that holds servers by name.
        place: gives the person's file.
        command: makes the entry of a command with arguments.
        remote: makes the entry of a URL; ``None`` when the client's file knows none.
        toml: the file is TOML, else JSON.
    """

    title: str
    table: str
    place: Callable[[], Path]
    command: Callable[[str, list[str]], Entry]
    remote: Callable[[str], Entry] | None
    toml: bool = False


def _application(name: str) -> Path:
    """Return the folder of an application's settings."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / name
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA", str(Path.home()))) / name
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / name


def _plain(command: str, args: list[str]) -> Entry:
    return {"command": command, "args": args}


def _typed(command: str, args: list[str]) -> Entry:
    return {"type": "stdio", "command": command, "args": args}


KINDS: Final[Mapping[str, ClientKind]] = {
    "claude-desktop": ClientKind(
        "Claude Desktop", "mcpServers", lambda: _application("Claude") / "claude_desktop_config.json", _plain, None
    ),
    "claude-code": ClientKind(
        "Claude Code",
        "mcpServers",
        lambda: Path.home() / ".claude.json",
        _typed,
        lambda url: {"type": "http", "url": url},
    ),
    "cursor": ClientKind(
        "Cursor", "mcpServers", lambda: Path.home() / ".cursor" / "mcp.json", _plain, lambda url: {"url": url}
    ),
    "vscode": ClientKind(
        "VS Code",
        "servers",
        lambda: _application("Code") / "User" / "mcp.json",
        _typed,
        lambda url: {"type": "http", "url": url},
    ),
    "codex": ClientKind(
        "Codex",
        "mcp_servers",
        lambda: Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex") / "config.toml",
        _plain,
        lambda url: {"url": url},
        toml=True,
    ),
    "gemini": ClientKind(
        "Gemini CLI",
        "mcpServers",
        lambda: Path.home() / ".gemini" / "settings.json",
        _plain,
        lambda url: {"httpUrl": url},
    ),
}
"""Word of the command line → client."""
