"""What later steps see of a package: named files, whether they come from an archive or from a folder on disk."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Protocol

from sandbox.errors import InstallRefused, UsageError
from sandbox.mcpkg.archive import SUFFIX, Archive, open_archive
from sandbox.mcpkg.bounds import MAX_MEMBER_BYTES, MAX_MEMBERS, MAX_UNPACKED_BYTES
from sandbox.mcpkg.names import Places, safe


class Contents(Protocol):
    """Named files of a package.

    Attributes:
        shown: where they come from, for messages.
    """

    shown: str

    def names(self) -> tuple[str, ...]:
        """Return the paths of all files, sorted."""

    def executable(self, name: str) -> bool:
        """Return whether a file is marked as a program."""

    def size(self, name: str) -> int:
        """Return the bytes of a file."""

    def read(self, name: str) -> bytes:
        """Return the contents of a file; ``KeyError`` when there is none."""


class FolderContents:
    """A package as a folder: what an author works on, or what was installed.

    Args:
        folder: its path.
        tidy: leave out what an author does not mean to package: hidden names, byte code and packages themselves.

    Attributes:
        left_out: paths that were left out so.

    Raises:
        UsageError: ``PKG-009``, there is no such folder.
        InstallRefused: ``PKG-002`` … ``PKG-005``, it holds something that no package may hold.
    """

    def __init__(self, folder: Path, *, tidy: bool = False) -> None:
        if not folder.is_dir():
            raise UsageError("PKG-009", f"{folder} is no folder", "name a folder with manifest.json")
        self.shown = str(folder)
        self.left_out: list[str] = []
        self._folder = folder
        self._tidy = tidy
        self._files: dict[str, os.stat_result] = {}
        self._read: dict[str, bytes] = {}
        places = Places()
        self._walk(folder, "", places)
        if sum(facts.st_size for facts in self._files.values()) > MAX_UNPACKED_BYTES:
            raise InstallRefused("PKG-004", f"{folder} holds more than {MAX_UNPACKED_BYTES} bytes", "package less")

    def _walk(self, folder: Path, prefix: str, places: Places) -> None:
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if self._tidy and (entry.name.startswith(".") or entry.name == "__pycache__" or _packaged(entry.name)):
                self.left_out.append(prefix + entry.name)
                continue
            name = safe(prefix + entry.name)
            facts = entry.stat(follow_symlinks=False)
            directory = stat.S_ISDIR(facts.st_mode)
            if not directory and not stat.S_ISREG(facts.st_mode):
                message = f"{name!r} is a link or special file"
                raise InstallRefused("PKG-003", message, "a package holds plain files and folders")
            places.take(name, folder=directory)
            if directory:
                self._walk(Path(entry.path), f"{name}/", places)
                continue
            self._files[name] = facts
            if len(self._files) > MAX_MEMBERS or facts.st_size > MAX_MEMBER_BYTES:
                raise InstallRefused("PKG-004", f"{self.shown} has too many or too large files", "package less")

    def names(self) -> tuple[str, ...]:
        """Return the paths of all files, sorted."""
        return tuple(sorted(self._files))

    def executable(self, name: str) -> bool:
        """Return whether a file is marked as a program."""
        return bool(self._files[name].st_mode & stat.S_IXUSR)

    def size(self, name: str) -> int:
        """Return the bytes of a file."""
        return self._files[name].st_size

    def read(self, name: str) -> bytes:
        """Return the contents of a file, the same each time; no link is followed.

        Raises:
            KeyError: there is none of that name.
            InstallRefused: ``PKG-007``, it is not what was read before: what was judged is what is used.
        """
        limit = self._files[name].st_size
        descriptor = os.open(self._folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(max(limit, 1) + 1)
        digest = hashlib.sha256(content).digest()
        if self._read.setdefault(name, digest) != digest:
            raise InstallRefused("PKG-007", f"{name!r} changed while it was read", "let nobody write to the folder")
        return content


def _packaged(name: str) -> bool:
    return name.lower().endswith(SUFFIX)


def open_contents(path: Path) -> Archive | FolderContents:
    """Return the contents of a package file or folder.

    Raises:
        UsageError: there is neither.
        InstallRefused: it is not sound.
    """
    return FolderContents(path) if path.is_dir() else open_archive(path)


def digests(contents: Contents) -> dict[str, str]:
    """Return path → ``sha256:<hex>`` of every file."""
    return {name: "sha256:" + hashlib.sha256(contents.read(name)).hexdigest() for name in contents.names()}
