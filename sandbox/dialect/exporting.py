"""Writes the file view of a driver to a real folder: the same bytes each time, and all of them or none.

The folder is made beside its place and then exchanged with what is there in one step of the kernel
(``renameat2(RENAME_EXCHANGE)``), so a reader sees the old view or the new one. Only what an earlier export made, known
by its ``index.json``, is replaced; anything else is left alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sandbox import jsontext
from sandbox.dialect.files import File, FileView, file_of
from sandbox.dialect.versions import DIALECT
from sandbox.errors import PlatformError, UsageError
from sandbox.spec.model import DriverSpec
from sandbox.vet.bind import definition_of
from sandbox.vet.model import ExposedTool, Exposure

INDEX: Final = "index.json"
FORM: Final = "mcp-sandbox/export-tools/1"

_EXCHANGE: Final = 2
_HERE: Final = -100
"""``AT_FDCWD``."""


def view_of(spec: DriverSpec) -> FileView:
    """Return the view of a driver whose server does not run: what its contracts and declarations say."""
    tools = {
        one.contract.id: ExposedTool(one.contract.id, definition_of(one, one.contract.id), one.tool_name, {}, one)
        for one in spec.bindings
    }
    prompts = {one.name: one for one in spec.prompts}
    return FileView(Exposure(tools, prompts, tuple(spec.resources)))


def files_of(views: Mapping[str, FileView]) -> dict[str, bytes]:
    """Return every file of an export by its path.

    Args:
        views: by driver id; a single one stands at the top, several in folders of their own.
    """
    files: dict[str, File] = {}
    for name, view in views.items():
        prefix = "" if len(views) == 1 else f"{name}/"
        files |= {prefix + path: one for path, one in view.files.items()}
    listed = {path: f"sha256:{one.sha256}" for path, one in sorted(files.items())}
    index = {
        "form": FORM,
        "version": DIALECT,
        "drivers": sorted(views),
        "files": listed,
        "digest": jsontext.digest(listed),
    }
    return {INDEX: file_of(index).data, **{path: one.data for path, one in files.items()}}


def write(files: Mapping[str, bytes], place: Path) -> None:
    """Put an export in its place.

    Raises:
        UsageError: ``CLI-232``, something else is there.
        PlatformError: ``CLI-233``, it cannot be written.
    """
    place = place.absolute()
    if os.path.lexists(place) and not _is_export(place):
        text = f"{place} is there and is no export of this command"
        raise UsageError("CLI-232", text, "name a folder that does not exist, or remove it")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
        try:
            _fill(fresh, files)
            if os.path.lexists(place):
                _exchange(fresh, place)
            else:
                fresh.rename(place)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    except OSError as error:
        raise PlatformError("CLI-233", f"{place} cannot be written: {error.strerror}", "choose another") from None


def _fill(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.chmod(0o755)
    for path, data in sorted(files.items()):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        with target.open("xb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        target.chmod(0o644)


def _is_export(place: Path) -> bool:
    if place.is_symlink() or not place.is_dir():
        return False
    if not any(place.iterdir()):
        return True
    with contextlib.suppress(OSError, ValueError):
        said: Any = json.loads((place / INDEX).read_bytes())
        return isinstance(said, dict) and said.get("form") == FORM
    return False


def _exchange(one: Path, other: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
