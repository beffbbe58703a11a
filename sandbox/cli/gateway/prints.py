"""What a gateway was made from, as digests: driver folders, policy, rules, ``gateway.toml``; blocking.

A file's bytes are read when its size, times or inode differ from those it was read with, so that looking every second
costs a ``stat`` for each file. What is compared are digests: a file that was only touched has not changed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sandbox.cli import options
from sandbox.limits import MAX_DRIVER_FILES
from sandbox.mcpkg.intact import INFO

ENDINGS: Final = (".md", ".json", ".lock", ".toml", ".kno")
"""Endings of the files in a driver folder that what is served can depend on."""

CONFIG: Final = "gateway.toml"
POLICY: Final = "policy"
RULES: Final = "rules"

ABSENT: Final = "absent"


@dataclass(frozen=True, slots=True)
class Prints:
    """Digests at one moment.

    Attributes:
        shared: ``gateway.toml``, ``policy`` and ``rules`` → digest.
        drivers: driver folder → digest of everything that it is served from.
    """

    shared: Mapping[str, str] = field(default_factory=dict)
    drivers: Mapping[Path, str] = field(default_factory=dict)

    def digest(self) -> str:
        """Return one digest for all of it."""
        parts = [sorted(self.shared.items()), sorted((str(path), one) for path, one in self.drivers.items())]
        return "sha256:" + hashlib.sha256(repr(parts).encode()).hexdigest()


class Printer:
    """Takes digests, and remembers those of files that are as they were.

    Args:
        arguments: of the command.

    Attributes:
        folder: of the drivers.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self.folder: Path = arguments.drivers
        self._known: dict[str, tuple[tuple[int, ...], str]] = {}

    def take(self, outside: Mapping[Path, Iterable[str]]) -> Prints:
        """Return the digests of now.

        Args:
            outside: driver folder → files elsewhere that it is served from, such as shared contracts.
        """
        own = self._arguments
        policy = getattr(own, "policy", None) or options.CONFIG / "policy.toml"
        rules = getattr(own, "rules", None) or options.CONFIG / "rules"
        shared = {
            CONFIG: self._files([own.config] if own.config else []),
            POLICY: self._files([policy]),
            RULES: self._files(sorted(rules.glob("*.cedar")) if rules.is_dir() else []),
        }
        folders = found_folders(own.drivers)
        return Prints(shared, {one: self._files([*_inside(one), *map(Path, outside.get(one, ()))]) for one in folders})

    def _files(self, paths: Iterable[Path]) -> str:
        whole = hashlib.sha256()
        for path in paths:
            whole.update(f"{path}\0{self._file(path)}\0".encode("utf-8", "surrogateescape"))
        return whole.hexdigest()

    def _file(self, path: Path) -> str:
        try:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode):
                return "no file"
            signature = (found.st_ino, found.st_dev, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode)
            known = self._known.get(str(path))
            if known is None or known[0] != signature:
                with path.open("rb") as file:
                    known = (signature, hashlib.file_digest(file, "sha256").hexdigest())
                self._known[str(path)] = known
        except OSError as error:
            return ABSENT if isinstance(error, FileNotFoundError) else f"unreadable {error.errno}"
        return f"{known[1]} {found.st_mode & 0o111:o}"


def found_folders(folder: Path) -> list[Path]:
    """Return the driver folders that are there now, none when there are none; chains and entities have no DRIVER.md."""
    if (folder / "DRIVER.md").is_file():
        return [folder]
    return sorted({one.parent for name in ("DRIVER.md", INFO, "*.kno") for one in folder.glob(f"*/{name}")})


def _inside(folder: Path) -> list[Path]:
    """Return the manifests below a folder, as many as a driver may have; links are not followed."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        found += [Path(place, one) for one in sorted(names) if one.endswith(ENDINGS)]
        if len(found) > MAX_DRIVER_FILES:
            return found[:MAX_DRIVER_FILES]
    return found
