"""Which versions of a server there are, and what became of them; pure.

Three sources, the later of which fills in what the earlier do not say: the driver that is served now, the commits that
its folder has in git, and what the gateway noted when it served earlier versions.

The endpoint serves one version. An older one is therefore ``deprecated`` (its record stays, and its address answers
with the newer server), one that is newer than what is served was withdrawn and is ``deleted``, and so is everything of
a server that is no longer served. A change of status is an update: who asks for ``updated_since`` hears of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Final

from sandbox.registry.entity import MAX_TEXT, ServerEntity, short, stamp
from sandbox.registry.history.gitlog import Revision
from sandbox.registry.kno.fields import SEMVER
from sandbox.registry.order import descending
from sandbox.registry.project import digest
from sandbox.spec import frontmatter

MAX_RELEASES: Final = 200
"""Versions of one server that are remembered; the oldest go first."""

MAX_VERSION: Final = 255
"""Characters (server.schema.json 2025-12-11)."""


@dataclass(frozen=True, slots=True)
class Release:
    """One version of one server.

    Attributes:
        published: RFC 3339, when it was first there.
        updated: RFC 3339, when anything of its record last changed.
        status: ``active``, ``deprecated`` or ``deleted``.
        message: why, for people.
        changed: RFC 3339, when the status became what it is.
        digest: of what was told of it; empty where only git knew it.
    """

    version: str
    title: str
    description: str
    published: str
    updated: str
    status: str = "active"
    message: str = ""
    changed: str = ""
    digest: str = ""


def committed(revisions: Iterable[Revision], now: datetime) -> dict[str, Release]:
    """Return the versions that commits had, by version.

    Args:
        revisions: of DRIVER.md or the entity; whoever commits chooses their dates.
        now: no date is later.
    """
    found: dict[str, Release] = {}
    for revision in revisions:
        said = _said(revision.files)
        if said is None:
            continue
        version, title, description = said
        day = stamp(min(revision.moment, now))
        known = found.get(version)
        if known is None:
            found[version] = Release(version, title, description, day, day)
        else:
            found[version] = replace(known, published=min(known.published, day), updated=max(known.updated, day))
    return found


def _said(files: Mapping[str, bytes]) -> tuple[str, str, str] | None:
    """Return version, title and description as the files of one commit said them, DRIVER.md before the entity."""
    values: dict[str, Any] = {}
    for name in sorted(files, key=lambda one: one == "DRIVER.md"):
        if name.endswith((".kno", ".md")):
            values |= {key: value for key, value in _values(files[name]).items() if isinstance(value, str)}
    version = values.get("version", "")
    if len(version) > MAX_VERSION or not SEMVER.fullmatch(version):
        return None
    title = str(values.get("title") or values.get("name") or "")[:MAX_TEXT]
    return version, title, short(str(values.get("description", "")), title)


def _values(data: bytes) -> Mapping[str, Any]:
    marked = data if data.startswith(b"---") else b"---\n" + data.rstrip() + b"\n---\n"
    try:
        return frontmatter.parse(marked).values
    except frontmatter.FrontMatterError:
        return {}


def joined(
    entity: ServerEntity, known: Mapping[str, Release], old: Mapping[str, Release], now: datetime
) -> dict[str, Release]:
    """Return every version of a server that is served.

    Args:
        entity: as it is served now.
        known: noted earlier.
        old: from git.
        now: for what changes.
    """
    today, mark = stamp(now), digest(_told(entity))
    found = {**old, **{version: _dated(release, old.get(version)) for version, release in known.items()}}
    past = found.get(entity.version)
    dates = (past.published, past.updated) if past else (entity.published, entity.updated)
    own = Release(
        entity.version, entity.title, entity.description, *dates,
        status="active" if past is None else past.status,
        message="" if past is None else past.message,
        changed=dates[0] if past is None else past.changed,
        digest=mark,
    )  # fmt: skip
    if past is not None and past.digest not in ("", mark):
        own = replace(own, updated=today)
    found[entity.version] = own
    served = descending(entity.version)
    for version, release in found.items():
        if version == entity.version:
            wanted = (entity.status, entity.status_message)
        elif descending(version) > served:
            wanted = ("deprecated", f"the endpoint serves {entity.version}")
        else:
            wanted = ("deleted", f"withdrawn; the endpoint serves {entity.version}")
        found[version] = _become(release, *wanted, today)
    newest = sorted(found, key=descending)
    kept = [version for version in newest if version != entity.version][: MAX_RELEASES - 1]
    return {version: found[version] for version in newest if version in {entity.version, *kept}}


def _dated(release: Release, old: Release | None) -> Release:
    """Return a release that is as old as its first commit."""
    return release if old is None else replace(release, published=min(release.published, old.published))


def gone(known: Mapping[str, Release], now: datetime) -> dict[str, Release]:
    """Return the versions of a server that is no longer served."""
    text = "no longer served here"
    return {version: _become(release, "deleted", text, stamp(now)) for version, release in known.items()}


def _become(release: Release, status: str, message: str, today: str) -> Release:
    if release.status == "deleted" == status:
        return release
    if (release.status, release.message) == (status, message):
        return release if release.changed else replace(release, changed=release.published)
    now = today if release.digest or release.changed else release.updated  # of what only git knew, nobody was told
    changed = release.changed if release.status == status else now
    return replace(release, status=status, message=message, changed=changed or now, updated=max(release.updated, now))


def _told(entity: ServerEntity) -> dict[str, Any]:
    """Return what is told of a server, without dates."""
    return {**asdict(entity), "published": "", "updated": "", "source": ""}


def record(entity: ServerEntity, release: Release) -> ServerEntity:
    """Return the entry of one version: what the server is now, where it has not its own words.

    Who may see and use it is as it is now: a server that was once public and is not any more has no public past.
    """
    own = {"tools": entity.tools} if release.version == entity.version else {"tools": ()}
    return replace(
        entity, version=release.version, title=release.title, description=release.description or entity.description,
        published=release.published, updated=release.updated, status=release.status,
        status_message=release.message, status_changed=release.changed, **own,
    )  # fmt: skip
