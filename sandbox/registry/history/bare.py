"""A git directory of our own over the objects of somebody's repository (ADR 0113).

Theory: what a repository's own configuration says can start programs (``core.fsmonitor``, ``gpg.program``, the
``uploadpack`` of a promisor remote, hooks), and git has no switch to ignore it. So git never sees it: it gets an empty
repository of ours whose *object store* is theirs. Objects are data. Which commit the branch is at is read here, from
two small text files.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandbox.limits import KIB, MIB

MAX_UP: Final = 40
"""Folders above a driver that are looked at for ``.git``."""

_HASH: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REF: Final = re.compile(r"refs/[A-Za-z0-9_+@-][A-Za-z0-9._+@/-]{0,250}")
_SHA256: Final = 64
"""Digits of an object name in a repository of the newer format."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A work tree.

    Attributes:
        top: its folder.
        common: git directory with objects and branches.
        commit: that is checked out.
    """

    top: Path
    common: Path
    commit: str

    @property
    def objects(self) -> Path:
        """The object store."""
        return self.common / "objects"


def tree_of(folder: Path) -> Tree | None:
    """Return the work tree that a folder lies in, ``None`` when it lies in none that can be read."""
    place = folder.resolve()
    for top in (place, *place.parents)[:MAX_UP]:
        mark = top / ".git"
        if mark.is_symlink():
            return None
        if mark.is_dir():
            return _tree(top, mark, mark)
        if mark.is_file():
            own = _pointed(mark, "gitdir: ")
            return _tree(top, own, _pointed(own / "commondir", "") or own) if own else None
    return None


def _tree(top: Path, own: Path, common: Path) -> Tree | None:
    commit = _commit(own, common)
    return Tree(top, common, commit) if commit and (common / "objects").is_dir() else None


def _pointed(file: Path, mark: str) -> Path | None:
    text = _text(file, 4 * KIB).strip()
    if not text.startswith(mark) or text == mark or not text.isprintable():
        return None
    return file.parent / text.removeprefix(mark)


def _commit(own: Path, common: Path) -> str:
    head = _text(own / "HEAD", KIB).strip()
    if _HASH.fullmatch(head):
        return head
    ref = head.removeprefix("ref: ")
    if not head.startswith("ref: ") or not _REF.fullmatch(ref) or ".." in ref or ref.endswith("/"):
        return ""
    loose = _text(common / ref, KIB).strip()
    if _HASH.fullmatch(loose):
        return loose
    for line in _text(common / "packed-refs", 8 * MIB).splitlines():
        name, _, found = line.partition(" ")
        if found == ref and _HASH.fullmatch(name):
            return name
    return ""


def _text(file: Path, most: int) -> str:
    """Return a small regular file, empty when it is something else; no FIFO is waited for."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        data = opened.read(most + 1)
    return data.decode("utf-8", "replace") if len(data) <= most else ""


@contextlib.contextmanager
def environment(tree: Tree) -> Iterator[dict[str, str]]:
    """Give the environment in which git reads the objects of a tree and nothing else of it."""
    with tempfile.TemporaryDirectory(prefix="mcp-sandbox-git-") as made:
        own = Path(made)
        for name in ("refs", "objects"):
            (own / name).mkdir()
        newer = len(tree.commit) == _SHA256
        form = "1\n[extensions]\n\tobjectformat = sha256\n" if newer else "0\n"
        (own / "config").write_text(f"[core]\n\tbare = true\n\trepositoryformatversion = {form}")
        (own / "HEAD").write_text("ref: refs/heads/none\n")
        cut = [line for line in _text(tree.common / "shallow", MIB).split() if _HASH.fullmatch(line)]
        if cut:  # else git stops at the first commit whose parents a shallow clone does not have
            (own / "shallow").write_text("\n".join(cut) + "\n")
        yield {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": made,
            "LC_ALL": "C",
            "GIT_DIR": made,
            "GIT_OBJECT_DIRECTORY": str(tree.objects),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
        }
