"""Whether an installed package's folder is as it was installed: every command that takes a driver asks (MCPKG §8.1).

``package-info.json`` holds the digest of every file of the package and of the driver folder made from it. What a person
adds beside them (``driver.lock``, locks of installs) is theirs and is not compared. Folders without that file are no
packages, and nothing is asked of them. Light to import: every start comes through here.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

from sandbox import jsontext
from sandbox.errors import InstallRefused, PlatformError

INFO: Final = "package-info.json"
"""Written at the installation."""

PACKAGE: Final = "inside/package"
"""Where the package's own files lie in a driver folder."""


def check_intact(folder: Path) -> None:
    """Hold an installed package against what was installed; return at once for any other driver folder.

    Args:
        folder: a driver folder, or the DRIVER.md in it; links to it are followed, links in it are not.

    Raises:
        InstallRefused: ``PKG-042``, a file was changed, added to the package or taken away.
        PlatformError: ``PKG-041``, ``package-info.json`` cannot be read.
    """
    place = (folder if folder.is_dir() else folder.parent).resolve()
    info = place / INFO
    if not info.is_file():
        return
    try:
        told = jsontext.parse(info.read_bytes())
        files, made = dict(told["files"]), dict(told["made"])
        title = f"{told['toolId']} {told['version']}"
    except (OSError, jsontext.JsonTextError, KeyError, TypeError, ValueError):
        message = f"{info} cannot be read"
        raise PlatformError("PKG-041", message, "uninstall the tool, and install it again") from None
    wanted = {**{f"{PACKAGE}/{name}": digest for name, digest in files.items()}, **made}
    there = {*_below(place, PACKAGE), *made}
    different = sorted(name for name in wanted.keys() | there if _digest(place / name) != wanted.get(name))
    if different:
        shown = ", ".join(repr(name[:80]) for name in different[:5])
        message = f"{title} is not as it was installed: {shown}"
        raise InstallRefused("PKG-042", message, "uninstall it, and install it again from its package")


def _below(place: Path, below: str) -> list[str]:
    found = []
    for path, folders, names in os.walk(place / below):
        linked = [name for name in folders if (Path(path) / name).is_symlink()]
        found += [os.path.relpath(Path(path) / name, place) for name in [*names, *linked]]
    return found


def _digest(path: Path) -> str:
    """Return the digest of a plain file, empty for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):
        return ""
