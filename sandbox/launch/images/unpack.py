"""Tar and zip files → entries of a tree; for archives whose author may be hostile.

Nothing is written to the host: entries refer to byte ranges of the archive itself, and the layer is written from them.
Rules on top of :mod:`sandbox.launch.images.tree`, in this order for each member:

1. count and total size stay below :class:`Bounds`;
2. devices, pipes and unknown kinds are refused;
3. a hard link becomes a copy of a file that came before it in the same archive;
4. a symbolic link must stay inside the tree when ``confined``; Debian packages, which apt has authenticated, may point
   anywhere in the image.
"""

from __future__ import annotations

import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandbox.errors import InstallRefused
from sandbox.launch.images.tree import Blob, Entry, Tree, clean_path, link_stays_in
from sandbox.limits import GIB

_UNIX: Final = 3
"""``create_system`` of a zip member whose attributes are a Unix mode (APPNOTE 4.4.2)."""

_DAMAGE: Final = (
    zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError, LookupError, struct.error,
    zlib.error, lzma.LZMAError,
)  # fmt: skip
"""What ``zipfile`` raises for damaged, encrypted and lying files."""

_BAD: Final = "do not use this package; report it to its author"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one archive may hold.

    Attributes:
        files: members; npm trees of real servers stay below 20 000.
        size: bytes of all files together; the largest known server tree has 300 MB.
    """

    files: int = 200_000
    size: int = 2 * GIB


def unpack_tar(
    file: Path, into: Tree, *, prefix: str = "", confined: bool = True, bounds: Bounds | None = None
) -> list[str]:
    """Add the members of an uncompressed tar file to a tree and return the paths whose set-id bits were taken away.

    Args:
        file: must stay where it is until the tree has been written.
        into: tree to add to.
        prefix: path below which everything is put.
        confined: rule 4.
        bounds: rule 1.

    Raises:
        InstallRefused: ``INST-020`` … ``INST-025``.
    """
    stripped: list[str] = []
    inner = Tree(renames=dict(into.renames))
    for member in _tar_members(file, bounds or Bounds()):
        entry = _tar_entry(file, member, inner, confined=confined)
        if entry is None:
            continue
        if entry.kind == "file" and member.mode & 0o6000:
            stripped.append(entry.path)
        inner.add(entry)
    _graft(inner, into, prefix)
    return stripped


def unpack_zip(file: Path, into: Tree, *, prefix: str = "", bounds: Bounds | None = None) -> None:
    """Add the members of a zip file to a tree; contents are held in memory, so ``bounds.size`` should be modest.

    Raises:
        InstallRefused: ``INST-020`` … ``INST-025``.
    """
    limits = bounds or Bounds()
    inner = Tree()
    try:
        with zipfile.ZipFile(file) as archive:
            _check_bounds(file.name, limits, len(archive.infolist()), sum(i.file_size for i in archive.infolist()))
            for info in archive.infolist():
                inner.add(_zip_entry(archive, info))
    except _DAMAGE as error:
        raise InstallRefused("INST-025", f"{file.name} is not a sound zip file: {error}", _BAD) from None
    _graft(inner, into, prefix)


def _tar_members(file: Path, bounds: Bounds) -> Iterator[tarfile.TarInfo]:
    """Yield the members of a tar file while they stay within bounds (rule 1)."""
    count = size = 0
    try:
        with tarfile.open(file, "r:", errorlevel=2) as archive:
            for member in archive:
                count += 1
                size += max(member.size, 0)
                _check_bounds(file.name, bounds, count, size)
                yield member
    except (tarfile.TarError, UnicodeError, ValueError, OverflowError) as error:
        raise InstallRefused("INST-025", f"{file.name} is not a sound tar file: {error}", _BAD) from None


def _tar_entry(file: Path, member: tarfile.TarInfo, inner: Tree, *, confined: bool) -> Entry | None:
    """Return the entry of a member after rules 2 to 4, or ``None`` for the root directory."""
    path = clean_path(member.name)
    if not path:
        return None
    if member.isdir():
        return Entry(path, "dir", member.mode)
    if member.issparse():
        raise InstallRefused("INST-022", f"`{path}` is a sparse file", _BAD)
    if member.isreg():
        return Entry(path, "file", member.mode, Blob(member.size, file=file, offset=member.offset_data))
    if member.islnk():  # rule 3
        source = inner.entries.get(inner._renamed(clean_path(member.linkname)))  # noqa: SLF001 - same invariants
        if source is None or source.kind != "file":
            raise InstallRefused("INST-023", f"`{path}` is a hard link to something outside its archive", _BAD)
        return Entry(path, "file", source.mode, source.blob)
    if member.issym():
        entry = Entry(path, "link", 0o777, target=member.linkname)
        if confined and not link_stays_in(entry):  # rule 4
            raise InstallRefused("INST-023", f"`{path}` is a link to `{member.linkname[:120]}`, outside its tree", _BAD)
        return entry
    raise InstallRefused("INST-022", f"`{path}` is a device, a pipe or of unknown kind", _BAD)  # rule 2


def _zip_entry(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Entry:
    mode = info.external_attr >> 16 if info.create_system == _UNIX else 0
    if info.filename.endswith("/"):
        return Entry(info.filename, "dir", 0o755)
    if mode & 0o170000 not in {0, 0o100000}:  # rules 2 and 4: zip links are not worth their risk
        raise InstallRefused("INST-022", f"`{info.filename[:120]}` is neither file nor directory", _BAD)
    with archive.open(info) as source:
        data = source.read(info.file_size + 1)  # not more than it says, however much it inflates to
    if len(data) != info.file_size:
        raise InstallRefused("INST-025", f"`{info.filename[:120]}` is not as long as its archive says", _BAD)
    return Entry(info.filename, "file", mode or 0o644, Blob.of(data))


def _check_bounds(name: str, bounds: Bounds, count: int, size: int) -> None:
    if count > bounds.files or size > bounds.size:
        raise InstallRefused(
            "INST-024",
            f"{name} holds more than {bounds.files} files or {bounds.size} bytes",
            "do not use this package, or raise the bound in the operator's policy",
        )


def _graft(inner: Tree, into: Tree, prefix: str) -> None:
    """Move every entry of one tree below a path of another."""
    for entry in inner.ordered():
        path = f"{prefix}/{entry.path}" if prefix else entry.path
        into.add(Entry(path, entry.kind, entry.mode, entry.blob, entry.target))
