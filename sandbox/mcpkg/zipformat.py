"""The members of a ZIP archive, read strictly from its bytes; pure (APPNOTE 6.3.10).

The theory: a ZIP file says everything twice, in local headers and in the central directory, and lets bytes lie between
them; readers that believe different parts see different packages. So one reading is made certain: 1 the end record is
the last thing and its directory lies right before it; 2 every entry of the directory is plain; 3 the local headers say
the same; 4 members follow each other without gap or overlap, from the first byte to the directory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sandbox.errors import InstallRefused
from sandbox.mcpkg.bounds import MAX_MEMBERS

STORED: Final = 0
DEFLATED: Final = 8

_END: Final = struct.Struct("<4s4H2LH")
_CENTRAL: Final = struct.Struct("<4s6H3L5H2L")
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_EXTRA: Final = struct.Struct("<2H")
_TRIPLE: Final = struct.Struct("<3L")
_END_MARK, _CENTRAL_MARK, _LOCAL_MARK, _DESCRIPTOR_MARK = b"PK\5\6", b"PK\1\2", b"PK\3\4", b"PK\7\10"

_FULL16: Final = 0xFFFF
_FULL32: Final = 0xFFFFFFFF
_ENCRYPTED: Final = 0x2041
"""Bits 0 (encrypted), 6 (strong encryption) and 13 (masked headers)."""

_DESCRIPTOR: Final = 0x0008
_UTF8: Final = 0x0800
_KNOWN_FLAGS: Final = 0x0006 | _DESCRIPTOR | _UTF8
_DOS_FOLDER: Final = 0x10
_TYPE, _REGULAR, _FOLDER, _LINK = 0o170000, 0o100000, 0o040000, 0o120000
_SET_ID: Final = 0o6000
_ANY_EXECUTE: Final = 0o111

_FOREIGN: Final = {
    0x0001: "64-bit sizes (ZIP64)",
    0x0017: "encryption",
    0x6375: "a second comment",
    0x7075: "a second name",
    0x9901: "encryption",
}
"""Extra fields that change what a member is."""


@dataclass(frozen=True, slots=True)
class Member:
    """One file or folder.

    Attributes:
        name: as written, without the final slash of a folder; not yet judged.
        packed: bytes in the archive from ``start`` on.
        size: bytes it claims to have unpacked.
        executable: some execute bit is set.
    """

    name: str
    folder: bool
    executable: bool
    method: int
    crc: int
    packed: int
    size: int
    start: int


@dataclass(frozen=True, slots=True)
class _Entry:
    """What the directory says of one member."""

    raw: bytes
    flags: int
    member: Member
    offset: int


def members(data: bytes) -> tuple[Member, ...]:
    """Return the members of an archive in the order of its directory.

    Args:
        data: the whole file.

    Raises:
        InstallRefused: ``PKG-001`` no ZIP archive or a damaged one, ``PKG-003`` a link or special file, ``PKG-004`` too
            many members, ``PKG-006`` a feature that is not read, ``PKG-007`` its parts contradict each other.
    """
    start, count = _end(data)  # 1
    entries = list(_directory(data, start, count))  # 2
    found: dict[int, Member] = {}
    position = 0
    for number in sorted(range(len(entries)), key=lambda index: entries[index].offset):
        entry = entries[number]
        if entry.offset != position:  # 4
            raise _contradiction(f"{entry.raw[:120]!r} does not begin where the member before it ends")
        found[number], position = _local(data, entry, start)  # 3
    if position != start:
        raise _contradiction("bytes that belong to no member lie before the directory")
    return tuple(found[number] for number in range(len(entries)))


def _end(data: bytes) -> tuple[int, int]:
    """Return where the directory begins and how many entries it has (step 1)."""
    if len(data) < _END.size or data[-_END.size :][:4] != _END_MARK:
        raise _damaged("it does not end with the end record of a ZIP archive")
    _, disk, first, here, count, size, offset, comment = _END.unpack(data[-_END.size :])
    if disk or first or here != count:
        raise _foreign("several disks")
    if _FULL16 in (count, here) or _FULL32 in (size, offset):
        raise _foreign(_FOREIGN[1])
    if count > MAX_MEMBERS:
        raise InstallRefused("PKG-004", f"it has more than {MAX_MEMBERS} members", "package less")
    if comment or offset + size != len(data) - _END.size:
        raise _contradiction("the directory does not lie right before the end record")
    return offset, count


def _directory(data: bytes, start: int, count: int) -> Iterator[_Entry]:
    """Yield the entries of the directory (step 2)."""
    position, end = start, len(data) - _END.size
    for _ in range(count):
        if position + _CENTRAL.size > end or data[position : position + 4] != _CENTRAL_MARK:
            raise _damaged("its directory is cut off")
        fields = _CENTRAL.unpack_from(data, position)
        after = position + _CENTRAL.size + sum(fields[10:13])
        if after > end:
            raise _damaged("its directory is cut off")
        name_end = position + _CENTRAL.size + fields[10]
        raw = data[position + _CENTRAL.size : name_end]
        _extras(data[name_end : name_end + fields[11]])
        yield _entry(raw, fields)
        position = after
    if position != end:
        raise _contradiction("the directory holds more than its entries")


def _entry(raw: bytes, fields: tuple[int, ...]) -> _Entry:
    _, _, _, flags, method, _, _, crc, packed, size, _, _, _, disk, _, attributes, offset = fields
    shown = raw[:120]
    if flags & _ENCRYPTED:
        raise _foreign(f"encryption, of {shown!r}")
    if flags & ~_KNOWN_FLAGS or method not in (STORED, DEFLATED):
        raise _foreign(f"a packing method other than stored and deflated, of {shown!r}")
    if disk:
        raise _foreign("several disks")
    if _FULL32 in (packed, size, offset):
        raise _foreign(_FOREIGN[1])
    if method == STORED and packed != size:
        raise _contradiction(f"{shown!r} is stored and has two sizes")
    folder = raw.endswith(b"/")
    mode = attributes >> 16
    _plain(shown, mode, folder=folder, marked=bool(attributes & _DOS_FOLDER))
    if folder and (packed or size):
        raise _contradiction(f"the folder {shown!r} has contents")
    name = _text(raw.removesuffix(b"/"), flags)
    member = Member(name, folder, bool(mode & _ANY_EXECUTE), method, crc, packed, size, 0)
    return _Entry(raw, flags, member, offset)


def _plain(shown: bytes, mode: int, *, folder: bool, marked: bool) -> None:
    """Refuse everything that is neither a file nor a folder."""
    kind = mode & _TYPE
    if kind == _LINK:
        raise InstallRefused("PKG-003", f"{shown!r} is a symbolic link", "put the file itself into the package")
    if kind not in (0, _REGULAR, _FOLDER) or mode & _SET_ID:
        raise InstallRefused("PKG-003", f"{shown!r} is a special file", "a package holds plain files and folders")
    if (kind == _FOLDER and not folder) or (kind == _REGULAR and folder) or (marked and not folder):
        raise _contradiction(f"{shown!r} is a folder by one mark and a file by another")


def _local(data: bytes, entry: _Entry, end: int) -> tuple[Member, int]:
    """Return a member with its place, and where it ends (step 3)."""
    shown = entry.raw[:120]
    offset, member = entry.offset, entry.member
    if offset + _LOCAL.size > end or data[offset : offset + 4] != _LOCAL_MARK:
        raise _contradiction(f"{shown!r} has no header at its place")
    _, _, flags, method, _, _, crc, packed, size, name, extra = _LOCAL.unpack_from(data, offset)
    begin = offset + _LOCAL.size + name + extra
    final = begin + member.packed
    if final > end:
        raise _contradiction(f"{shown!r} reaches into the directory")
    name_end = offset + _LOCAL.size + name
    _extras(data[name_end:begin])
    same = data[offset + _LOCAL.size : name_end] == entry.raw and (flags, method) == (entry.flags, member.method)
    said = (member.crc, member.packed, member.size)
    later = bool(flags & _DESCRIPTOR)
    if not same or ((crc, packed, size) != said and not (later and (packed, size) == (0, 0))):
        raise _contradiction(f"{shown!r} is described in two ways")
    if later:
        final = _descriptor(data, final, said, shown)
    placed = Member(
        member.name, member.folder, member.executable, method, member.crc, member.packed, member.size, begin
    )
    return placed, final


def _descriptor(data: bytes, place: int, said: tuple[int, int, int], shown: bytes) -> int:
    """Return where the descriptor behind a member ends."""
    wanted = _TRIPLE.pack(*said)
    for head in (_DESCRIPTOR_MARK, b""):
        if data[place : place + len(head) + _TRIPLE.size] == head + wanted:
            return place + len(head) + _TRIPLE.size
    raise _contradiction(f"{shown!r} is described in two ways")


def _extras(block: bytes) -> None:
    """Refuse extra fields that change what a member is."""
    position = 0
    while position < len(block):
        if position + _EXTRA.size > len(block):
            raise _damaged("an extra field is cut off")
        kind, size = _EXTRA.unpack_from(block, position)
        position += _EXTRA.size + size
        if position > len(block):
            raise _damaged("an extra field is cut off")
        if kind in _FOREIGN:
            raise _foreign(_FOREIGN[kind])


def _text(raw: bytes, flags: int) -> str:
    """Return a name; what is not marked as UTF-8 is ASCII, for everything else depends on the reader's country."""
    try:
        return raw.decode("utf-8" if flags & _UTF8 else "ascii")
    except UnicodeDecodeError:
        raise _foreign(f"a name whose encoding is not said: {raw[:120]!r}") from None


def _damaged(why: str) -> InstallRefused:
    return InstallRefused("PKG-001", f"this is no whole ZIP archive: {why}", "get the package again")


def _contradiction(why: str) -> InstallRefused:
    return InstallRefused("PKG-007", f"the archive contradicts itself: {why}", "build the package again")


def _foreign(what: str) -> InstallRefused:
    return InstallRefused("PKG-006", f"the archive uses {what}, which is not read", "build the package without it")
