"""Somebody's tool driver as a sandboxed MCP server (section 8, the reverse bridge).

An MCS driver is unreviewed Python by design: whoever imports it runs it. Here it is never imported by the supervisor.
Its files are copied into a driver folder as data, and a program of ours imports them inside the container::

    DRIVER.md         no network, no folder of the host but those that a person grants
    serve_mcs.py      our program, copied into an image layer by digest
    inside/own.py     the interface, for drivers whose package does not bring the published one
    inside/source/…   the driver's files, mounted read-only at /mcs

A package of the Python package index, with the class or what it needs, is locked and installed in a confined build
container like that of any driver, and the same program imports it from there.

The folder is made as ``init`` makes one: run once in its sandbox, asked what it offers, contracts drafted, pinned.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sandbox import jsontext
from sandbox.cli.drafting.source import Source
from sandbox.errors import UsageError
from sandbox.limits import KIB, MIB

MAX_FILES: Final = 2_000
"""Files of one driver with what it brings along."""

MAX_BYTES: Final = 64 * MIB
"""The same in bytes; the copies are read into memory once."""

MAX_SETTINGS: Final = 64 * KIB
"""Bytes of the constructor's arguments; they are one word of a command line."""

PROGRAM: Final = "serve_mcs.py"

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_.]*")
_LEFT_OUT: Final = frozenset((".git", ".venv", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"))
_HERE: Final = Path(__file__).parent


def bridged(
    name: str,
    source: Path | None,
    settings: Mapping[str, Any],
    read: Mapping[str, str],
    write: Mapping[str, str],
    package: str = "",
) -> Source:
    """Return what ``init`` makes a driver folder from.

    Args:
        name: ``MODULE:CLASS`` of the tool driver; nothing of it is imported here.
        source: folder that Python is to find the module in, ``None`` when a package has it.
        settings: arguments of the class.
        read: folders that are granted for reading, path in the sandbox → path on the host.
        write: the same for writing.
        package: requirement of the Python package index that has the module, or that it needs.

    Raises:
        UsageError: ``CLI-220``, the name, the folder or the settings are not usable.
    """
    if _NAME.fullmatch(name) is None:
        raise UsageError("CLI-220", f"{name[:100]!r} is not MODULE:CLASS", "write package.module:ClassName")
    words = jsontext.dump(dict(settings)).decode()
    if len(words) > MAX_SETTINGS:
        raise UsageError("CLI-220", f"the settings are longer than {MAX_SETTINGS} bytes", "grant a file of them")
    program = (_HERE / "inside" / PROGRAM).read_bytes()
    files = {"inside/own.py": (_HERE / "own.py").read_bytes()}
    grants = {**read, "/mcs": "./inside"}
    label = name.rpartition(":")[2].rpartition(".")[2]
    if source is not None:
        files |= {f"inside/source/{path}": data for path, data in copied(source).items()}
    if package:
        files[f"inside/{PROGRAM}"] = program
        note = f"Runs `{name}` of {package} with a program of ours; `server.args` has its settings."
        args = (f"/mcs/{PROGRAM}", name, words)
        return Source(
            "pip", package, "python3", args, read=grants, write=dict(write), label=label, files=files, notes=(note,)
        )
    files[PROGRAM] = program
    note = f"Runs `{name}` from copied files; copy them anew (`mcp-sandbox mcs bridge`) to change them."
    return Source(
        "binary",
        f"./{PROGRAM}",
        "",
        (name, words),
        read=grants,
        write=dict(write),
        label=label,
        files=files,
        notes=(note,),
    )


def copied(source: Path) -> dict[str, bytes]:
    """Return path → contents of a folder's plain files; links are not followed, caches are left out.

    Raises:
        UsageError: ``CLI-220``, it is no folder, or larger than the bounds.
    """
    if not source.is_dir():
        raise UsageError("CLI-220", f"{source} is no folder", "name the folder that holds the module")
    found: dict[str, bytes] = {}
    size = 0
    for folder, names, files in os.walk(source):
        names[:] = sorted(name for name in names if name not in _LEFT_OUT and not (Path(folder) / name).is_symlink())
        for name in sorted(files):
            path = Path(folder) / name
            if path.is_symlink() or not path.is_file():
                continue
            size += path.stat().st_size
            if len(found) >= MAX_FILES or size > MAX_BYTES:
                mend = "name a folder with the driver and what it imports only"
                raise UsageError("CLI-220", f"{source} has over {MAX_FILES} files or {MAX_BYTES} bytes", mend)
            found[path.relative_to(source).as_posix()] = path.read_bytes()
    return found


def digest_of(source: Source) -> str:
    """Return what names a bridged driver: the same files, class, settings and grants have the same."""
    files = {path: hashlib.sha256(data).hexdigest() for path, data in source.files.items()}
    what = [source.name, list(source.args), dict(source.read), dict(source.write), files]
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:24]
