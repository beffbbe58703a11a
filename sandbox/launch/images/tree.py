"""Paths and contents of a layer, as values, with the rules that every layer obeys.

Invariants of a :class:`Tree`, whoever filled it:

1. a path is relative, normal (no ``..``, no empty part), UTF-8 and at most ``MAX_PATH_BYTES`` long;
2. an entry is a directory, a regular file or a symbolic link: no devices, no pipes, no hard links;
3. the parent of an entry is a directory, never a link: nothing is written through a link;
4. there are no set-id or sticky bits except on ``tmp``, and nothing but the owner may write;
5. owner is root, time is :data:`EPOCH`: the same content is the same bytes.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from sandbox.errors import InstallRefused
from sandbox.limits import MIB

EPOCH: Final = 1_767_225_600
"""2026-01-01T00:00:00Z, the modification time of every file in every image (seconds)."""

MAX_PATH_BYTES: Final = 1024
"""Of one path. The kernel takes 4096; npm's deepest known trees stay below 400."""

CHUNK: Final = MIB
"""Read at once when a blob is copied."""

_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f\\]")

Kind = Literal["dir", "file", "link"]


@dataclass(frozen=True, slots=True)
class Blob:
    """The contents of a file: bytes in memory, or ``size`` bytes at ``offset`` of a file on disk."""

    size: int
    data: bytes = b""
    file: Path | None = None
    offset: int = 0

    @classmethod
    def of(cls, data: bytes) -> Blob:
        """Return a blob of bytes in memory."""
        return cls(len(data), data)

    @classmethod
    def at(cls, file: Path) -> Blob:
        """Return a blob of a whole file."""
        return cls(file.stat().st_size, file=file)

    def chunks(self) -> Iterator[bytes]:
        """Yield the contents in pieces of at most ``CHUNK`` bytes.

        Raises:
            OSError: the file has gone or has become shorter.
        """
        if self.file is None:
            yield from (self.data[at : at + CHUNK] for at in range(0, self.size, CHUNK))
            return
        with self.file.open("rb") as source:
            source.seek(self.offset)
            left = self.size
            while left:
                piece = source.read(min(CHUNK, left))
                if not piece:
                    raise OSError(f"{self.file} ended {left} bytes early")
                left -= len(piece)
                yield piece

    def read(self) -> bytes:
        """Return the contents."""
        return b"".join(self.chunks())

    def sha256(self) -> str:
        """Return the lower-case hex digest of the contents."""
        digest = hashlib.sha256()
        for piece in self.chunks():
            digest.update(piece)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of a layer.

    Attributes:
        path: relative, without leading or trailing slash.
        mode: permission bits.
        blob: contents of a file, else ``None``.
        target: where a link points, else empty.
    """

    path: str
    kind: Kind
    mode: int
    blob: Blob | None = None
    target: str = ""


@dataclass(slots=True)
class Tree:
    """A mutable set of entries that obeys the invariants of this module.

    Attributes:
        entries: path → entry.
        renames: first path component → what it becomes (merged ``/usr``: ``bin`` → ``usr/bin``).
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    renames: dict[str, str] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        """Put an entry in, replacing a former one of the same kind, and make its parents.

        Raises:
            InstallRefused: ``INST-020`` the path breaks rule 1, ``INST-021`` it goes through a link (rule 3).
        """
        path = self._renamed(clean_path(entry.path))
        if not path:
            return
        self._make_parents(path)
        former = self.entries.get(path)
        if former is not None and former.kind != entry.kind and "dir" in {former.kind, entry.kind}:
            if former.kind == "link" and entry.kind == "dir":
                raise _through_link(path)
            raise InstallRefused(
                "INST-021",
                f"`{path}` is a {former.kind} and a {entry.kind} at once",
                "report this to the package's author",
            )
        self.entries[path] = replace(entry, path=path, mode=_safe_mode(path, entry))

    def file(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Add a file from bytes."""
        self.add(Entry(path, "file", mode, Blob.of(data)))

    def folder(self, path: str, mode: int = 0o755) -> None:
        """Add a directory."""
        self.add(Entry(path, "dir", mode))

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self.add(Entry(path, "link", 0o777, target=target))

    def drop(self, path: str) -> None:
        """Take out one path and everything below it."""
        for name in [name for name in self.entries if name == path or name.startswith(path + "/")]:
            del self.entries[name]

    def get(self, path: str) -> Entry | None:
        """Return the entry that a path leads to after following links, or ``None``."""
        for _ in range(40):  # as many links as the kernel follows
            entry = self.entries.get(path)
            if entry is None:
                parent = self._linked_parent(path)
                if parent is None:
                    return None
                path = parent
            elif entry.kind == "link":
                path = resolve_link(entry)
            else:
                return entry
        return None

    def ordered(self) -> Iterator[Entry]:
        """Yield the entries, parents first, in an order that depends on the paths only."""
        for path in sorted(self.entries, key=lambda name: name.split("/")):
            yield self.entries[path]

    def total_bytes(self) -> int:
        """Return the sum of all file sizes."""
        return sum(entry.blob.size for entry in self.entries.values() if entry.blob is not None)

    def _make_parents(self, path: str) -> None:
        parent = posixpath.dirname(path)
        if not parent:
            return
        known = self.entries.get(parent)
        if known is None:
            self._make_parents(parent)
            self.entries[parent] = Entry(parent, "dir", 0o755)
        elif known.kind != "dir":
            raise _through_link(path)

    def _linked_parent(self, path: str) -> str | None:
        """Return ``path`` with its first linked ancestor replaced by that link's target."""
        parts = path.split("/")
        for count in range(1, len(parts)):
            entry = self.entries.get("/".join(parts[:count]))
            if entry is not None and entry.kind == "link":
                return "/".join([resolve_link(entry), *parts[count:]]).strip("/")
        return None

    def _renamed(self, path: str) -> str:
        first, slash, rest = path.partition("/")
        return self.renames.get(first, first) + slash + rest


def clean_path(path: str) -> str:
    """Return a relative, normal path (rule 1); the root itself is the empty string.

    Raises:
        InstallRefused: ``INST-020``.
    """
    if path in {".", "./", ""}:
        return ""
    trimmed = path.removeprefix("./").rstrip("/")
    try:
        size = len(trimmed.encode())
    except UnicodeEncodeError:
        size = 0
    parts = trimmed.split("/")
    normal = not {"", ".", ".."}.intersection(parts) and not _UNPRINTABLE.search(trimmed)
    if not normal or not 0 < size <= MAX_PATH_BYTES:
        raise InstallRefused(
            "INST-020",
            f"path {path[:120]!r} is absolute, leaves its tree, is not UTF-8, has control characters or is too long",
            "do not use this package; report it to its author",
        )
    return trimmed


def resolve_link(entry: Entry) -> str:
    """Return the path, relative to the root, that a link means; ``..`` at the root stays there, as in the kernel."""
    base = "/" + posixpath.dirname(entry.path)
    return posixpath.normpath(posixpath.join(base, entry.target)).lstrip("/")


def link_stays_in(entry: Entry) -> bool:
    """Return whether a link is relative and does not climb out of the tree it is part of."""
    if entry.target.startswith("/") or not entry.target:
        return False
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(entry.path), entry.target))
    return joined != ".." and not joined.startswith("../")


def _safe_mode(path: str, entry: Entry) -> int:
    """Return the mode that an entry gets (rule 4): readable by all, writable by root, executable as it was."""
    if entry.kind == "link":
        return 0o777
    if entry.kind == "dir":
        return 0o1777 if path == "tmp" else 0o755
    return 0o755 if entry.mode & 0o111 else 0o644


def _through_link(path: str) -> InstallRefused:
    return InstallRefused(
        "INST-021",
        f"`{path}` would be written through a link or below a file",
        "do not use this package; report it to its author",
    )
