"""The file ``driver.lock`` as sections that belong to different stages; whoever writes one keeps the others.

``install`` and ``image`` are :mod:`sandbox.launch.install.lock`'s, ``pins`` is :mod:`sandbox.vet.pins`'s. The text is
canonical, one change is few lines, and characters that people do not see are JSON escapes: what a server put into a
description cannot hide from who reads the file or its difference.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sandbox import jsontext
from sandbox.errors import Problem, SpecError
from sandbox.launch.images.locktext import pretty
from sandbox.limits import MIB

FILE: Final = "driver.lock"
VERSION: Final = 1

MAX_LOCK_BYTES: Final = 16 * MIB
"""Of one lock; a thousand npm packages have 1 MB, a hundred pinned tools 0.3 MB."""

MAX_LOCK_VALUES: Final = 2_000_000
"""JSON values of one lock."""


def path_of(folder: str) -> Path:
    """Return where the lock of a driver folder lies."""
    return Path(folder) / FILE


def read_sections(folder: str) -> dict[str, Any] | None:
    """Return every member of the lock of a driver folder, ``None`` when there is none.

    Raises:
        SpecError: ``INST-002``, the file is not a lock.
    """
    path = path_of(folder)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_LOCK_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(data) > MAX_LOCK_BYTES:
        raise damaged(path, f"larger than {MAX_LOCK_BYTES} bytes")
    try:
        return parse(data)
    except (jsontext.JsonTextError, ValueError) as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from None


def parse(data: bytes) -> dict[str, Any]:
    """Return the members of a lock's text.

    Raises:
        JsonTextError: no strict JSON.
        ValueError: no object, or of another version.
    """
    value = jsontext.parse(data, max_values=MAX_LOCK_VALUES)
    if not isinstance(value, dict):
        raise ValueError("not an object")  # noqa: TRY004 - one sort of damage is as bad as another
    if value.get("version") != VERSION:
        raise ValueError(f"version {value.get('version')!r}; this mcp-sandbox knows {VERSION}")
    return value


def text_of(sections: Mapping[str, Any]) -> bytes:
    """Return the canonical text of a lock's members."""
    text = pretty({**sections, "version": VERSION}).decode()
    return "".join(one if one == "\n" or one.isprintable() else _escape(one) for one in text).encode()


def write_sections(folder: str, sections: Mapping[str, Any]) -> Path:
    """Put members into the lock of a driver folder, keep its other ones, and return its path.

    The file is replaced as a whole: a reader sees the old or the new one, also when this process or the machine stops.

    Raises:
        SpecError: ``INST-002``, the file that is there is not a lock.
    """
    path = path_of(folder)
    body = text_of({**(read_sections(folder) or {}), **sections})
    temporary = path.with_name(f".{FILE}.{os.getpid()}.new")
    try:
        with temporary.open("wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


def damaged(path: Path, why: str, id_: str = "INST-002") -> SpecError:
    """Return the error of a file that is not a lock, or has a section that is not what it should be."""
    message = f"the file is not a lock: {why}"
    mend = "restore it from version control, or delete it and run `mcp-sandbox lock DRIVER.md`"
    return SpecError((Problem(id_, str(path), 0, "", message, mend=mend),))


def _escape(character: str) -> str:
    """Return one character as JSON escapes (RFC 8259 section 7)."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
