"""What the gateway noted of the versions that it served: one file beside its state, shared by every process of it.

A note is made when a gateway begins to serve, and when its drivers change. The file is locked for that moment, read,
and replaced as a whole. It holds nothing that the register does not tell anyway; who may see an entry is decided when
it is told.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from sandbox.errors import PlatformError
from sandbox.limits import MIB
from sandbox.registry.entity import ServerEntity
from sandbox.registry.history.releases import Release, gone, joined, record
from sandbox.registry.order import descending

MAX_BYTES: Final = 16 * MIB
MAX_SERVERS: Final = 2000
"""Names that are remembered; servers that are gone are forgotten first."""

FORM: Final = 1


@dataclass(frozen=True, slots=True)
class Noted:
    """One server.

    Attributes:
        entity: as it was served last.
        releases: by version.
    """

    entity: ServerEntity
    releases: dict[str, Release]


@dataclass(slots=True)
class Notes:
    """Everything in the file."""

    form: int = FORM
    servers: dict[str, Noted] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Told:
    """What the register tells.

    Attributes:
        served: entries of what is served, with their dates.
        past: entries of what is not.
    """

    served: tuple[ServerEntity, ...]
    past: tuple[ServerEntity, ...] = ()


def remember(
    place: Path | None, served: Sequence[ServerEntity], old: Mapping[str, Mapping[str, Release]], now: datetime
) -> Told:
    """Return what the register tells of every version, and note it for later.

    Args:
        place: the file; ``None`` keeps no notes.
        served: what is served now.
        old: name → versions that git knows.
        now: UTC.

    Raises:
        PlatformError: ``REG-010``, the file cannot be read or written, or is not what we wrote.
    """
    if place is None:
        return _tell(_noted(Notes(), served, old, now), served)
    try:
        with _held(place):
            notes = _noted(_read(place), served, old, now)
            _write(place, notes)
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        text = f"{place}: versions served before are not known: {error}"
        raise PlatformError("REG-010", text, "see the file; moved away, the history begins again") from None
    return _tell(notes, served)


def _noted(
    notes: Notes, served: Sequence[ServerEntity], old: Mapping[str, Mapping[str, Release]], now: datetime
) -> Notes:
    names = {one.name for one in served}
    found = {
        name: Noted(noted.entity, gone(noted.releases, now))
        for name, noted in notes.servers.items()
        if name not in names
    }
    found = dict(list(found.items())[-max(0, MAX_SERVERS - len(names)) :]) if len(names) < MAX_SERVERS else {}
    for entity in _newest(served):
        known = notes.servers[entity.name].releases if entity.name in notes.servers else {}
        found[entity.name] = Noted(entity, joined(entity, known, old.get(entity.name, {}), now))
    return Notes(FORM, found)


def _newest(served: Iterable[ServerEntity]) -> Iterator[ServerEntity]:
    """Yield one entity of each name: the newest."""
    by_name: dict[str, ServerEntity] = {}
    for one in sorted(served, key=lambda one: descending(one.version)):
        by_name.setdefault(one.name, one)
    yield from by_name.values()


def _tell(notes: Notes, served: Sequence[ServerEntity]) -> Told:
    now = {(one.name, one.version): one for one in served}
    every = [record(noted.entity, release) for noted in notes.servers.values() for release in noted.releases.values()]
    known = {(one.name, one.version): one for one in every}
    newest = {(one.name, one.version) for one in _newest(served)}
    return Told(
        tuple(known[key] if key in newest else one for key, one in now.items()),
        tuple(one for key, one in known.items() if key not in now),
    )


@contextlib.contextmanager
def _held(place: Path) -> Iterator[None]:
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(place.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read(place: Path) -> Notes:
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return Notes()
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_size > MAX_BYTES:
            raise ValueError("it is no file of ours")
        found = msgspec.json.decode(file.read(MAX_BYTES), type=Notes)
    if found.form != FORM:
        raise ValueError(f"it has the form {found.form}, and this version writes {FORM}")
    return found


def _write(place: Path, notes: Notes) -> None:
    fresh = place.with_suffix(f".{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(notes))
        file.flush()
        os.fsync(descriptor)
    fresh.replace(place)
