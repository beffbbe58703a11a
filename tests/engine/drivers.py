"""The example drivers as tests use them: what must be set up, one call each, and what it answers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.shared import ROOT

COMMAND = [sys.executable, "-m", "sandbox"]


@dataclass(frozen=True)
class Example:
    """One driver, a call of it and a word of the answer."""

    name: str
    tool: str
    arguments: dict[str, Any]
    answer: str
    root: str = ""
    env: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Path of the driver folder."""
        return str(ROOT / "drivers" / self.name)

    def options(self, scratch: Path) -> list[str]:
        """Return the options after making the folder that the driver's root is re-pointed to."""
        if not self.root:
            return []
        folder = scratch / "root"
        folder.mkdir(exist_ok=True)
        if self.name == "git-mcp" and not (folder / ".git").exists():
            subprocess.run(["git", "init", "-q", str(folder)], check=True)
        (folder / "hello.txt").write_text("hello from inside\n")
        give(folder)
        return ["--root", f"{self.root}={folder}"]


def give(folder: Path) -> None:
    """Let the server's user write a folder when the tests run as root, whose id no server gets (ADR 0015)."""
    if os.getuid() == 0:
        for path in (folder, *folder.rglob("*")):
            shutil.chown(path, 65532, 65532)
        for parent in folder.parents[:3]:
            parent.chmod(parent.stat().st_mode | 0o711)


EXAMPLES = [
    Example("filesystem-mcp", "fs-read", {"path": "/workspace/hello.txt"}, "hello from inside", "/workspace"),
    Example("memory-mcp", "mem-read-graph", {}, "entities", "/data"),
    Example("everything-mcp", "demo-echo", {"message": "hi"}, "hi"),
    Example(
        "sequential-thinking-mcp",
        "think-sequentially",
        {"thought": "one", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
        "thoughtHistoryLength",
    ),
    Example("time-mcp", "time-now", {"timezone": "UTC"}, "UTC"),
    Example("git-mcp", "git-status", {"repo_path": "/repo"}, "hello.txt", "/repo"),
    Example("text-mcp", "text-crc32", {"text": "123456789"}, "cbf43926"),
    Example("signing-mcp", "text-sign", {"text": "a"}, "signature", env={"SIGNING_KEY": "test key"}),
]
"""Every driver that ships."""


def run_argv(example: Example, scratch: Path, *more: str) -> list[str]:
    """Return the command that serves an example with an audit trail of its own."""
    return [*COMMAND, "run", example.path, *example.options(scratch), "--audit-dir", str(scratch / "audit"), *more]
