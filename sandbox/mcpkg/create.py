"""Folder → ``.mcpkg``: the same files give the same bytes, whenever and wherever they are packaged.

What a ZIP archive would take from its surroundings is fixed: order (code points of the path), time (1980-01-01, the
format's first), owner (none), mode (0644, or 0755 for programs), no extra fields, no comment, deflate at one level.
Names that begin with a dot, and packages themselves, are left out and named to the caller.
"""

from __future__ import annotations

import io
import os
import secrets
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sandbox.mcpkg.contents import Contents

_TIME: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3
_VERSION: Final = 20
_FILE, _PROGRAM = 0o100644, 0o100755
_LEVEL: Final = 9


def pack(contents: Contents, more: Mapping[str, bytes] | None = None, without: frozenset[str] = frozenset()) -> bytes:
    """Return the bytes of a package.

    Args:
        contents: its files.
        more: path → contents of files that are added, or replace one.
        without: paths that are left out.
    """
    added = dict(more or {})
    names = sorted((set(contents.names()) | added.keys()) - without)
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, allowZip64=False, compresslevel=_LEVEL) as archive:
        for name in names:
            data = added[name] if name in added else contents.read(name)
            program = name not in added and contents.executable(name)
            archive.writestr(_info(name, program=program), data, compresslevel=_LEVEL)
    return sink.getvalue()


def _info(name: str, *, program: bool) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _TIME)
    info.create_system, info.create_version, info.extract_version = _UNIX, _VERSION, _VERSION
    info.external_attr = (_PROGRAM if program else _FILE) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def write_file(path: Path, data: bytes) -> None:
    """Put bytes at a path, whole or not at all."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def file_name(tool_id: str, version: str) -> str:
    """Return the recommended name of a package (MCPKG §2)."""
    return f"{tool_id}-{version}.mcpkg"
