"""A package as an archive: opened, judged as a whole, and read member by member under its bounds.

Opening is all or nothing: 1 the file is read once, at most so many bytes; 2 its structure is certain (``zipformat``);
3 every path is safe and no two meet (``names``); 4 claimed sizes and their ratio are within bounds. Reading holds each
member to what it claimed: never a byte more is unpacked.
"""

from __future__ import annotations

import os
import stat
import zlib
from pathlib import Path
from typing import Final

from sandbox.errors import InstallRefused, UsageError
from sandbox.mcpkg.bounds import (
    MAX_ARCHIVE_BYTES,
    MAX_MEMBER_BYTES,
    MAX_RATIO,
    MAX_UNPACKED_BYTES,
    RATIO_FREE_BYTES,
)
from sandbox.mcpkg.names import Places, safe
from sandbox.mcpkg.zipformat import DEFLATED, Member, members

SUFFIX: Final = ".mcpkg"
_RAW_DEFLATE: Final = -15


class Archive:
    """An opened package; nothing is unpacked until it is asked for.

    Args:
        data: bytes of the file.
        shown: its name, for messages.

    Raises:
        InstallRefused: ``PKG-001`` … ``PKG-007``.
    """

    def __init__(self, data: bytes, shown: str) -> None:
        self.shown = shown
        self._data = data
        places = Places()
        found = members(data)  # 2
        for member in found:  # 3
            places.take(safe(member.name), folder=member.folder)
        _bounded(found, len(data))  # 4
        self._files = {member.name: member for member in found if not member.folder}

    def names(self) -> tuple[str, ...]:
        """Return the paths of all files, sorted."""
        return tuple(sorted(self._files))

    def executable(self, name: str) -> bool:
        """Return whether a file is marked as a program."""
        return self._files[name].executable

    def size(self, name: str) -> int:
        """Return the bytes that a file has unpacked."""
        return self._files[name].size

    def read(self, name: str) -> bytes:
        """Return the contents of one file.

        Raises:
            KeyError: there is none of that name.
            InstallRefused: ``PKG-007``, the contents are not what the archive says of them.
        """
        member = self._files[name]
        packed = self._data[member.start : member.start + member.packed]
        content = _inflate(packed, member) if member.method == DEFLATED else packed
        if len(content) != member.size or zlib.crc32(content) != member.crc:
            raise _differs(member)
        return content


def open_archive(path: Path) -> Archive:
    """Return a package file, opened.

    Raises:
        UsageError: ``PKG-009``, the file cannot be read or is not called ``….mcpkg``.
        InstallRefused: it is not a sound archive.
    """
    if path.suffix.lower() != SUFFIX:
        raise UsageError("PKG-009", f"{path} is not called …{SUFFIX}", f"name a {SUFFIX} file")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                raise UsageError("PKG-009", f"{path} is no regular file", f"name a {SUFFIX} file")
            data = file.read(MAX_ARCHIVE_BYTES + 1)  # 1
    except OSError as error:
        raise UsageError("PKG-009", f"{path} cannot be read: {error.strerror}", f"name a {SUFFIX} file") from None
    if len(data) > MAX_ARCHIVE_BYTES:
        raise InstallRefused("PKG-004", f"{path} is larger than {MAX_ARCHIVE_BYTES} bytes", "package less")
    return Archive(data, str(path))


def _bounded(found: tuple[Member, ...], packed: int) -> None:
    """Refuse what would unpack to too much, before anything is unpacked (step 4)."""
    for member in found:
        if member.size > MAX_MEMBER_BYTES:
            message = f"{member.name!r} would unpack to more than {MAX_MEMBER_BYTES} bytes"
            raise InstallRefused("PKG-004", message, "package less")
    total = sum(member.size for member in found)
    if total > MAX_UNPACKED_BYTES:
        raise InstallRefused("PKG-004", f"it would unpack to more than {MAX_UNPACKED_BYTES} bytes", "package less")
    if total > max(RATIO_FREE_BYTES, MAX_RATIO * packed):
        message = f"it would unpack to {total} bytes from {packed}, more than {MAX_RATIO} for one"
        raise InstallRefused("PKG-004", message, "package the contents without padding")


def _inflate(packed: bytes, member: Member) -> bytes:
    """Unpack exactly what was claimed; a stream with more, less or something behind it is refused."""
    stream = zlib.decompressobj(_RAW_DEFLATE)
    try:
        content = stream.decompress(packed, member.size + 1)
    except zlib.error:
        raise _differs(member) from None
    if len(content) > member.size or not stream.eof or stream.unused_data or stream.unconsumed_tail:
        raise _differs(member)
    return content


def _differs(member: Member) -> InstallRefused:
    message = f"the contents of {member.name!r} are not what the archive says of them"
    return InstallRefused("PKG-007", message, "get the package again")
