"""Which files of a driver folder decide what its server may do, so that no sandbox can write them."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sandbox.spec.model import DriverSpec

NAMES: Final = ("DRIVER.md", "SECRETS.md", "driver.lock", "server.json")
"""Reviewed files with fixed names in a driver folder."""


def manifests(spec: DriverSpec) -> tuple[str, ...]:
    """Return the absolute paths of everything that was reviewed: manifests, contracts, lock, and the program itself.

    Messages carry files as the user named them, relative to where they were started; the folder is absolute. What
    both have in front is cut off.
    """
    folder = spec.folder.rstrip("/")
    named = posixpath.dirname(spec.file)
    contracts = (_absolute(binding.contract.origin.file, named, folder) for binding in spec.bindings)
    program = getattr(spec.server, "path", "")
    programs = (posixpath.normpath(posixpath.join(folder, program)),) if "/" in program else ()
    return tuple(dict.fromkeys((*(f"{folder}/{name}" for name in NAMES), *contracts, *programs)))


def _absolute(file: str, named: str, folder: str) -> str:
    if file.startswith("/"):
        return posixpath.normpath(file)
    relative = posixpath.relpath("/" + file, "/" + named)
    return posixpath.normpath(f"{folder}/{relative}")
