"""The committed versions of some files, read with git and without believing the repository (ADR 0113).

Two processes: ``git log`` names the commits that touched the files, ``git cat-file`` gives their contents. Both are
bounded in time and in what they may print; whatever goes wrong ends the history there, and is no error: the register
then knows what it noted itself.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sandbox.limits import MAX_MANIFEST_BYTES, MIB
from sandbox.registry.history.bare import Tree, environment, tree_of

MAX_COMMITS: Final = 200
"""Newest commits of one driver that are read."""

TIMEOUT: Final = 5.0
"""Seconds for each git process; a repository with a million commits takes longer, and then has no history here."""

MAX_BYTES: Final = 8 * MIB
"""Of all contents of one driver."""

_LINE: Final = re.compile(rb"([0-9a-f]{40,64}) ([0-9T:+Z-]{20,30})")
_GIT: Final = (
    "git",
    "--no-pager",
    "--literal-pathspecs",
    "-c",
    "log.showSignature=false",
    "-c",
    "core.bigFileThreshold=1m",
)


@dataclass(frozen=True, slots=True)
class Revision:
    """One commit.

    Attributes:
        moment: when it was committed, UTC.
        files: name → contents, of those that are there.
    """

    moment: datetime
    files: Mapping[str, bytes]


def revisions(folder: Path, names: Sequence[str]) -> list[Revision]:
    """Return the commits that changed files of a folder, the newest first; none where there is no history to read.

    Args:
        folder: perhaps inside a work tree.
        names: of files directly in it.
    """
    tree = tree_of(folder)
    if tree is None:
        return []
    below = folder.resolve().relative_to(tree.top)
    paths = [str(below / name) for name in names]
    if not all(path.isprintable() for path in paths):
        return []
    with environment(tree) as own:
        found = _commits(tree, own, paths)
        contents = _contents(own, [f"{commit}:{path}" for commit, _ in found for path in paths])
    return [
        Revision(
            moment,
            {
                name: contents[f"{commit}:{path}"]
                for name, path in zip(names, paths, strict=True)
                if f"{commit}:{path}" in contents
            },
        )
        for commit, moment in found
    ]


def _commits(tree: Tree, own: Mapping[str, str], paths: Sequence[str]) -> list[tuple[str, datetime]]:
    argv = [*_GIT, "log", "--no-show-signature", "--no-textconv", "--no-ext-diff", f"--max-count={MAX_COMMITS}"]
    out = _run([*argv, "--format=%H %cI", tree.commit, "--", *paths], own)
    found = []
    for line in out.splitlines()[:MAX_COMMITS]:
        parts = _LINE.fullmatch(line)
        moment = _moment(parts[2].decode()) if parts else None
        if parts and moment is not None:
            found.append((parts[1].decode(), moment))
    return found


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _contents(own: Mapping[str, str], asked: Sequence[str]) -> dict[str, bytes]:
    """Return the contents of blobs; what is larger than any manifest is never printed."""
    sizes = _run([*_GIT, "cat-file", "--batch-check=%(objecttype) %(objectsize)"], own, _lines(asked)).splitlines()
    small, room = [], MAX_BYTES
    for name, line in zip(asked, sizes, strict=False):
        kind, _, size = line.partition(b" ")
        if kind == b"blob" and size.isdigit() and int(size) <= min(room, MAX_MANIFEST_BYTES):
            small.append(name)
            room -= int(size)
    found: dict[str, bytes] = {}
    rest = _run([*_GIT, "cat-file", "--batch=%(objectsize)"], own, _lines(small))
    for name in small:
        head, _, rest = rest.partition(b"\n")
        if not head.isdigit():
            break
        found[name], rest = rest[: int(head)], rest[int(head) + 1 :]
    return found


def _lines(names: Sequence[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()


def _run(argv: Sequence[str], own: Mapping[str, str], given: bytes = b"") -> bytes:
    try:
        done = subprocess.run(
            argv, env=own, cwd=own["HOME"], input=given, capture_output=True, timeout=TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return done.stdout
