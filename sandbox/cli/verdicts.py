"""Earlier admissions of servers: what was proved about the same bytes by the same program stands (ADR 0016).

One small file for each, under a digest of everything that judging looks at. The folder is as private as that of kept
reviews, and checked in the same way.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sandbox import jsontext
from sandbox.cli.hostfacts import CACHE
from sandbox.cli.prepared import check_private, code

PLACE: Final = CACHE.parent / "verdicts"
"""Where admissions are kept."""

MAX_KEPT: Final = 512
"""Admissions that are kept; a driver has one for each state of its server."""

PARTS: Final = ("vet", "spec", "policy")
"""Packages of this program that judge."""


class KeptVerdicts:
    """Implements :class:`sandbox.vet.model.Verdicts` with files.

    Args:
        folder: of the files.
    """

    def __init__(self, folder: Path = PLACE) -> None:
        self._folder = folder

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Return what was recorded of an admission of the same, ``None`` when there was none."""
        place = self._file(key)
        try:
            check_private(place)
            found = jsontext.parse(place.read_bytes())
        except (OSError, jsontext.JsonTextError):
            return None
        shaped = isinstance(found, dict) and "vet.fit" in found and all(isinstance(one, dict) for one in found.values())
        return found if shaped else None

    def keep(self, key: str, recorded: Mapping[str, Any]) -> None:
        """Remember an admission; failing to is no error."""
        place = self._file(key)
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh = place.with_suffix(f".{os.getpid()}")
            fresh.write_bytes(jsontext.canonical(recorded))
            fresh.chmod(0o600)
            fresh.replace(place)
            self._prune()

    def _file(self, key: str) -> Path:
        return self._folder / f"{hashlib.sha256(f'{code(PARTS)} {key}'.encode()).hexdigest()}.json"

    def _prune(self) -> None:
        """Forget the oldest beyond the bound."""
        kept = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in kept[:-MAX_KEPT]:
            path.unlink(missing_ok=True)
