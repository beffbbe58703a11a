"""Reads the manifests of a driver folder, and nothing else (the only file access of this stage).

Theory: whoever wrote the folder is not trusted, and may change it while it is read. A :class:`Tree` holds a descriptor
of one directory and opens every further path component relative to it, without following links, so no name decides
twice and nothing outside the directory is reached. A file is opened once; what is checked (regular file, size) is the
descriptor that is read.

Opening, in this order:

1. the path is relative, has no empty, ``.`` or ``..`` component and no control character;
2. each directory is opened with ``O_DIRECTORY | O_NOFOLLOW`` relative to the one before;
3. what stands there is a regular file, so that no FIFO, socket or device is opened;
4. it is opened with ``O_NOFOLLOW | O_NONBLOCK`` and, should it have been exchanged meanwhile, is a regular file still;
5. at most ``limits.MAX_MANIFEST_BYTES`` are read, and at most ``limits.MAX_DRIVER_BYTES`` and
   ``limits.MAX_DRIVER_FILES`` in one folder.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from sandbox.jsontext import digest
from sandbox.limits import MAX_DRIVER_BYTES, MAX_DRIVER_FILES, MAX_MANIFEST_BYTES

MAX_PATH_CHARS: Final = 1024
"""A path inside a driver folder; Linux allows 4096 bytes for a whole path, folder included."""

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def sha256(data: bytes) -> str:
    """Return ``sha256:<hex>`` of a file's bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Unreadable(Exception):
    """A manifest cannot be read; ``id``, ``message`` and ``mend`` become a problem at the field that named it."""

    def __init__(self, id: str, message: str, mend: str, *, missing: bool = False) -> None:  # noqa: A002
        super().__init__(message)
        self.id = id
        self.message = message
        self.mend = mend
        self.missing = missing


@dataclass(slots=True)
class Budget:
    """What one load may still read, and the digest of everything it did read."""

    files: int = MAX_DRIVER_FILES
    size: int = MAX_DRIVER_BYTES
    digests: dict[str, str] = field(default_factory=dict)

    def take(self, name: str, data: bytes) -> None:
        """Count one file.

        Raises:
            Unreadable: ``SPEC-012``, when the folder is larger than one load may read.
        """
        if name not in self.digests:
            self.files -= 1
            self.size -= len(data)
        self.digests[name] = sha256(data)
        if self.files < 0 or self.size < 0:
            raise Unreadable(
                "SPEC-012",
                f"the manifests of one driver exceed {MAX_DRIVER_FILES} files or {MAX_DRIVER_BYTES} bytes",
                "split the driver",
            )

    def digest(self) -> str:
        """Return ``sha256:…`` over the names and digests of all files, independent of their order and place."""
        return digest(sorted(self.digests.items()))


class Tree:
    """One directory below which manifests are read; close it, or use it as a context.

    Args:
        root: the directory; links in the path to it are followed, below it none is.
        shown: how messages name the directory.
        name: how digests name it, ``driver`` or ``workspace``: the digest must not depend on where the folder lies.
    """

    def __init__(self, root: Path, shown: str, name: str, budget: Budget) -> None:
        self.root = root
        self.shown = shown
        self._name = name
        self._budget = budget
        self._descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def label(self, relative: str) -> str:
        """Return how messages name a file of this tree."""
        return relative if self.shown in ("", ".") else f"{self.shown.rstrip('/')}/{relative}"

    def owner(self) -> tuple[int, bool]:
        """Return the directory's owner, and whether everybody may write to it."""
        status = os.fstat(self._descriptor)
        return status.st_uid, bool(status.st_mode & stat.S_IWOTH)

    def has(self, relative: str) -> bool:
        """Return whether something stands at a path that can be reached, whatever it is."""
        return self.obstacle(relative) is None

    def obstacle(self, relative: str) -> Unreadable | None:
        """Return why nothing can be reached at a path; ``None`` when something can."""
        try:
            with self._opened_parent(clean(relative)) as (directory, name):
                os.stat(name, dir_fd=directory, follow_symlinks=False)
        except Unreadable as error:
            return error
        except OSError as error:
            return self._explain(relative, error)
        return None

    def same(self, relative: str, other: Tree, other_relative: str) -> bool:
        """Return whether two paths are one file."""
        try:
            with (
                self._opened_parent(clean(relative)) as (here, name),
                other._opened_parent(clean(other_relative)) as (there, other_name),
            ):
                return os.path.samestat(
                    os.stat(name, dir_fd=here, follow_symlinks=False),
                    os.stat(other_name, dir_fd=there, follow_symlinks=False),
                )
        except (Unreadable, OSError):
            return False

    def names(self, relative: str) -> list[str]:
        """Return the names of the directories below a path, sorted, at most ``MAX_DRIVER_FILES``; empty when absent."""
        try:
            with self._opened_parent([*([] if relative == "" else clean(relative)), "."]) as (directory, _):
                entries = os.scandir(directory)
                with entries:
                    found = [
                        entry.name
                        for _, entry in zip(range(MAX_DRIVER_FILES), entries, strict=False)
                        if entry.is_dir(follow_symlinks=False)
                    ]
        except (Unreadable, OSError):
            return []
        return sorted(found)

    def read(self, relative: str) -> bytes:
        """Return the bytes of one manifest (steps 1–5 of the module).

        Raises:
            Unreadable: ``SPEC-010`` absent, ``SPEC-011`` not a plain path or file, ``SPEC-012`` too large,
                ``SPEC-013`` the operating system refuses.
        """
        parts = clean(relative)
        try:
            with self._opened_parent(parts) as (directory, name):
                self._require_file(relative, os.stat(name, dir_fd=directory, follow_symlinks=False))  # step 3
                descriptor = os.open(name, _FILE, dir_fd=directory)  # step 4
        except OSError as error:
            raise self._explain(relative, error) from None
        with os.fdopen(descriptor, "rb", buffering=0):
            self._require_file(relative, os.fstat(descriptor))
            data = _bounded(descriptor, self.label(relative))  # step 5
        self._budget.take(f"{self._name}:{'/'.join(parts)}", data)
        return data

    @contextlib.contextmanager
    def _opened_parent(self, parts: list[str]) -> Iterator[tuple[int, str]]:
        """Open the directory that holds the last component (step 2)."""
        with contextlib.ExitStack() as opened:
            directory = self._descriptor
            for part in parts[:-1]:
                directory = os.open(part, _DIRECTORY, dir_fd=directory)
                opened.callback(os.close, directory)
            yield directory, parts[-1]

    def _require_file(self, relative: str, status: os.stat_result) -> None:
        if stat.S_ISLNK(status.st_mode):
            raise self._explain(relative, OSError(errno.ELOOP, ""))
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable(
                "SPEC-011",
                f"{self.label(relative)} is not a regular file",
                "put a plain file there; FIFOs, sockets, devices and directories are never opened",
            )

    def _explain(self, relative: str, error: OSError) -> Unreadable:
        label = self.label(relative)
        if error.errno == errno.ENOENT:
            return Unreadable("SPEC-010", f"{label} does not exist", "create it, or correct the path", missing=True)
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
            return Unreadable(
                "SPEC-011",
                f"{label} is or passes through a symbolic link, or something that is not a directory",
                "put a copy of the file there; links are not followed below a driver folder",
            )
        return Unreadable("SPEC-013", f"{label} cannot be opened: {error.strerror}", "make it readable")


def clean(relative: str) -> list[str]:
    """Return the components of a relative path (step 1).

    Raises:
        Unreadable: ``SPEC-011``.
    """
    parts = relative.split("/")
    while len(parts) > 1 and parts[0] == ".":
        parts = parts[1:]
    bad = any(part in ("", ".", "..") or not part.isprintable() or "\\" in part for part in parts)
    if bad or len(relative) > MAX_PATH_CHARS:
        raise Unreadable(
            "SPEC-011",
            f"{relative!r:.80} is not a plain relative path",
            "write it without a leading `/`, `..`, empty parts, backslashes or control characters",
        )
    return parts


def _bounded(descriptor: int, label: str) -> bytes:
    chunks: list[bytes] = []
    left = MAX_MANIFEST_BYTES + 1
    while left > 0 and (chunk := os.read(descriptor, left)):
        chunks.append(chunk)
        left -= len(chunk)
    if left <= 0:
        raise Unreadable("SPEC-012", f"{label} is larger than {MAX_MANIFEST_BYTES} bytes", "shorten it")
    return b"".join(chunks)
