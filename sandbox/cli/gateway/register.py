"""The register of a gateway: what is mounted, and the versions that git and earlier runs remember; blocking."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sandbox.cli import options
from sandbox.cli.gateway.mounts import Mounted
from sandbox.cli.report import line_of, say
from sandbox.errors import PlatformError
from sandbox.registry.catalog import Catalog
from sandbox.registry.history.gitlog import revisions
from sandbox.registry.history.notes import Told, remember
from sandbox.registry.history.releases import Release, committed

FILES: Final = ("DRIVER.md", "driver.lock")
"""Files of a driver folder whose commits are versions or changes of one, beside its entity."""

HISTORY_TIME: Final = 15.0
"""Seconds for the git history of all drivers together: no start waits for a repository with a million commits."""

AT_ONCE: Final = 4
"""Drivers whose history is read at the same time; each waits for a process of its own."""


def notes_of(drivers: Path, namespace: str) -> Path:
    """Return the file with the notes of a gateway: one for each folder of drivers and namespace."""
    mark = hashlib.sha256(f"{drivers.resolve()}\0{namespace}".encode()).hexdigest()[:24]
    return options.STATE / "gateway" / mark / "register.json"


def catalog_of(mounted: Sequence[Mounted], base_url: str, notes: Path | None) -> Catalog:
    """Return the register, and note what is in it; without notes that can be kept, the history is git's alone.

    Args:
        mounted: what is served.
        base_url: where.
        notes: file of earlier versions; ``None`` keeps none.
    """
    now = datetime.now(UTC)
    served = [one.entity for one in mounted]
    until = time.monotonic() + HISTORY_TIME
    with ThreadPoolExecutor(AT_ONCE) as readers:
        found = readers.map(lambda one: _committed(one.folder, now, until), mounted)
        old = {one.entity.name: releases for one, releases in zip(mounted, found, strict=True)}
    told: Told
    try:
        told = remember(notes, served, old, now)
    except PlatformError as error:
        say(line_of(f"mcp-sandbox: {error}"))
        told = remember(None, served, old, now)
    return Catalog(told.served, base_url, told.past)


def _committed(folder: Path, now: datetime, until: float) -> dict[str, Release]:
    if time.monotonic() >= until:
        return {}
    entities = sorted(file.name for file in folder.glob("*.kno"))[:1]
    return committed(revisions(folder, (*FILES, *entities)), now)
