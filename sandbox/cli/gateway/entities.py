"""Driver folders that have an entity and no DRIVER.md: the folder that stands for one, made in the cache.

Its name is the digest of everything it was made from, so that what was reviewed is what is there. Copied are the
entity's contracts, its ``driver.lock`` and its SECRETS.md; links are not followed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sandbox.cli.hostfacts import CACHE
from sandbox.cli.options import read_file
from sandbox.cli.prepared import check_private
from sandbox.errors import PlatformError, Problem, SpecError, UsageError
from sandbox.limits import MIB
from sandbox.registry.kno.driver import Contract, driver_md
from sandbox.registry.kno.read import read_kno
from sandbox.spec import frontmatter

PLACE: Final = CACHE.parent / "entities"
"""Where such folders are made."""

MAX_CONTRACTS: Final = 1000
BESIDE: Final = ("driver.lock", "SECRETS.md")
MAX_LOCK: Final = 16 * MIB


def alone(folder: Path) -> Path | None:
    """Return the entity of a folder without DRIVER.md, ``None`` where there is no such."""
    if (folder / "DRIVER.md").exists():
        return None
    return next(iter(sorted(folder.glob("*.kno"))), None)


def manifest_of(folder: Path) -> Path:
    """Return the DRIVER.md of a driver folder, made of its entity where it has none of its own; blocking.

    Raises:
        SpecError: the entity is not valid, or cannot be run by itself (``KNO-020`` … ``KNO-025``).
        PlatformError: ``GATE-095``, the folder cannot be made.
    """
    entity = alone(folder)
    if entity is None:
        return folder / "DRIVER.md"
    files = files_of(entity)
    mark = hashlib.sha256(str(folder.resolve()).encode())
    for name, data in sorted(files.items()):
        mark.update(f"\0{name}\0{len(data)}\0".encode() + data)
    made = PLACE / mark.hexdigest()[:32] / folder.resolve().name
    try:
        if not made.exists():
            write(made, files)
        check_private(made.parent)
        check_private(made / "DRIVER.md")
    except OSError as error:
        text = f"the driver folder of {entity} cannot be made: {error}"
        raise PlatformError("GATE-095", text, "see the cache folder, or write DRIVER.md") from None
    return made / "DRIVER.md"


def files_of(entity: Path) -> dict[str, bytes]:
    """Return path → contents of the driver folder that an entity stands for.

    Raises:
        SpecError: as :func:`manifest_of`.
    """
    folder = entity.parent
    if len(list(folder.glob("*.kno"))) > 1:
        message = "two `.kno` files in one driver folder"
        raise SpecError((Problem("KNO-014", str(entity), 0, "", message, mend="keep one"),))
    kno = read_kno(entity)
    errors = tuple(problem for problem in kno.problems if problem.severity == "error")
    if errors:
        raise SpecError(errors)
    tools = {
        str(path.relative_to(folder)): _bytes(path) for path in sorted(folder.glob("tools/*/TOOL.md"))[:MAX_CONTRACTS]
    }
    contracts = [_contract(name, data, folder) for name, data in tools.items()]
    text = driver_md(kno.values, str(entity), contracts)
    others = {name: _bytes(folder / name) for name in BESIDE if os.path.lexists(folder / name)}
    return {"DRIVER.md": text.encode(), **tools, **others}


def _bytes(path: Path) -> bytes:
    if path.is_symlink() or path.parent.is_symlink():
        raise _unreadable(path, "it is a link")
    try:
        return read_file(path, MAX_LOCK)
    except UsageError as error:
        raise _unreadable(path, error.message) from None


def _contract(name: str, data: bytes, folder: Path) -> Contract:
    try:
        values = frontmatter.parse(data).values
    except frontmatter.FrontMatterError as error:
        raise _unreadable(folder / name, str(error)) from None
    found = values.get("id"), values.get("version")
    if not all(isinstance(one, str) and one for one in found):
        raise _unreadable(folder / name, "it has no `id` and `version`")
    return Contract(name, str(found[0]), str(found[1]))


def _unreadable(path: Path, why: str) -> SpecError:
    problem = Problem("KNO-026", str(path), 0, "", f"it cannot be taken into the driver: {why}", mend="mend the file")
    return SpecError((problem,))


def write(place: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder as a whole or not at all.

    Raises:
        OSError: it cannot be written, or somebody else has it.
    """
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".made-", dir=place.parent))
    try:
        for name, data in files.items():
            (fresh / name).parent.mkdir(parents=True, exist_ok=True)
            (fresh / name).write_bytes(data)
            (fresh / name).chmod(0o600)
        fresh.rename(place)
    except OSError:
        if not place.exists():
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
