"""A corpus of entities: every ``.kno`` file of some places, linted alone and against one another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from sandbox.errors import UsageError
from sandbox.registry.kno.read import Kno, read_kno
from sandbox.registry.kno.rules import across

MAX_FILES: Final = 2000
"""Entities of one corpus."""


def files_of(places: Sequence[Path]) -> list[Path]:
    """Return the ``.kno`` files that places are or hold, at any depth.

    Raises:
        UsageError: ``CLI-188``, a place has none, or there are too many.
    """
    found: list[Path] = []
    for place in places:
        here = [place] if place.is_file() else sorted(place.rglob("*.kno")) if place.is_dir() else []
        if not here:
            raise UsageError("CLI-188", f"{place} is and has no `.kno` file", "name entities, or a folder of them")
        found += here
    if len(found) > MAX_FILES:
        raise UsageError("CLI-188", f"more than {MAX_FILES} entities", "name a smaller folder")
    return list(dict.fromkeys(found))


def linted(files: Iterable[Path], owned: Sequence[str] = ()) -> list[Kno]:
    """Return every entity with its problems, those between entities too.

    Args:
        files: to read.
        owned: namespaces that names may be under; none stands for any.
    """
    found = [read_kno(path, *owned) for path in files]
    by_file = {kno.file: kno for kno in found}
    for problem in across([(kno.file, kno.values) for kno in found]):
        by_file[problem.file].problems.append(problem)
    return found
