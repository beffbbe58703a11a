"""Packages for tests: honest ones as folders, and ZIP archives written byte by byte so that they can lie."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

STORED, DEFLATED = 0, 8
FILE, FOLDER, LINK = 0o100644, 0o040755, 0o120777

ECHO: dict[str, Any] = {
    "toolId": "demo.echo",
    "name": "Echo Tool",
    "version": "0.1.0",
    "description": "Echos back whatever input it receives.",
    "capabilities": ["demo", "echo"],
    "endpoint": {"type": "http", "method": "POST", "url": "https://example.com/mcp/echo", "timeoutMs": 5000},
    "input_schema": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    "output_schema": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    "tests": ["tests/echo.test.json"],
}
"""The minimal example of the specification (MCPKG §9), word for word."""

ECHO_TEST: dict[str, Any] = {
    "name": "simple_echo",
    "description": "Echos back the same message.",
    "input": {"message": "hello"},
    "expected": {"message": "hello"},
    "assertions": [{"path": "$.message", "equals": "hello"}],
}
"""Its test, word for word."""


def folder(place: Path, files: dict[str, Any]) -> Path:
    """Write files below a folder (JSON for what is no text) and return it."""
    for name, content in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
    return place


def echo_folder(place: Path, **changes: Any) -> Path:
    """Write the echo package as a folder, its manifest with other members."""
    return folder(place, {"manifest.json": {**ECHO, **changes}, "tests/echo.test.json": ECHO_TEST})


@dataclass(frozen=True)
class Item:
    """One member as headers describe it; ``None`` takes the truth, or what the directory says for the local header."""

    name: bytes
    data: bytes = b""
    method: int = STORED
    flags: int = 0
    mode: int = FILE
    dos: int = 0
    extra: bytes = b""
    local_extra: bytes = b""
    local_name: bytes | None = None
    local_flags: int | None = None
    local_crc: int | None = None
    local_size: int | None = None
    crc: int | None = None
    size: int | None = None
    packed: int | None = None
    disk: int = 0
    offset: int | None = None
    after: bytes = b""
    raw: bytes | None = None

    def body(self) -> bytes:
        """Return the packed bytes."""
        if self.raw is not None:
            return self.raw
        return deflate(self.data) if self.method == DEFLATED else self.data


def deflate(data: bytes) -> bytes:
    """Return raw deflate."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    return squeeze.compress(data) + squeeze.flush()


def archive(
    items: Iterable[Item],
    *,
    before: bytes = b"",
    between: bytes = b"",
    after: bytes = b"",
    comment: bytes = b"",
    **end: int,
) -> bytes:
    """Return a ZIP archive.

    Args:
        items: its members.
        before: bytes in front of everything, not counted in offsets.
        between: bytes between members and directory.
        after: bytes behind everything.
        comment: of the archive.
        **end: other values for ``disk``, ``first``, ``here``, ``count``, ``size``, ``offset`` of the end record.
    """
    out, central = b"", b""
    for item in items:
        place = len(out) if item.offset is None else item.offset
        body = item.body()
        crc = zlib.crc32(item.data) if item.crc is None else item.crc
        size = len(item.data) if item.size is None else item.size
        packed = len(body) if item.packed is None else item.packed
        flags = item.flags if item.local_flags is None else item.local_flags
        name = item.name if item.local_name is None else item.local_name
        lcrc = crc if item.local_crc is None else item.local_crc
        lsize = size if item.local_size is None else item.local_size
        head = struct.pack("<4s5H3L2H", b"PK\3\4", 20, flags, item.method, 0, 33, lcrc, packed, lsize, len(name),
                           len(item.local_extra))  # fmt: skip
        out += head + name + item.local_extra + body + item.after
        attributes = (item.mode << 16) | item.dos
        central += struct.pack("<4s6H3L5H2L", b"PK\1\2", (3 << 8) | 20, 20, item.flags, item.method, 0, 33, crc, packed,
                               size, len(item.name), len(item.extra), 0, item.disk, 0, attributes, place)  # fmt: skip
        central += item.name + item.extra
    count = central.count(b"PK\1\2")
    said = {"disk": 0, "first": 0, "here": count, "count": count, "size": len(central),
            "offset": len(out) + len(between), **end}  # fmt: skip
    tail = struct.pack("<4s4H2LH", b"PK\5\6", *said.values(), len(comment)) + comment
    return before + out + between + central + tail + after


MANIFEST = Item(b"manifest.json", json.dumps({**ECHO, "tests": []}).encode())
"""A member that makes every archive of the corpus a package, if it were not hostile."""


def with_manifest(*items: Item, **how: Any) -> bytes:
    """Return an archive of the manifest and more."""
    return archive([MANIFEST, *items], **how)


def changed(item: Item, **changes: Any) -> Item:
    """Return a member with other values."""
    return replace(item, **changes)
