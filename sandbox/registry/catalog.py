"""The register of one gateway: which servers a caller may know of, searched, filtered and cut into pages.

Source: MCP Registry API v0.1 (openapi.yaml, 2025-12-01). Cursors are opaque to clients: the name and version after
which the next page begins. The order is total and does not depend on what else is there, so that whoever pages while
drivers come and go meets everything that stays exactly once.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sandbox.errors import UsageError
from sandbox.registry.entity import ServerEntity, moment_of
from sandbox.registry.order import descending
from sandbox.registry.project import response

DEFAULT_LIMIT: Final = 30
MAX_LIMIT: Final = 100
MAX_QUERY: Final = {"search": 200, "version": 255, "updated_since": 64, "cursor": 456}
"""Characters of each parameter; a cursor is a name, a colon and a version."""

CURSOR: Final = re.compile(r"[a-zA-Z0-9.-]{1,199}/[a-zA-Z0-9._-]{1,199}:[0-9A-Za-z.~-]{1,255}", re.ASCII)
"""Clients put a cursor into an address as it is; ``+`` would arrive as a space, so ``~`` stands for it."""

RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
"""What OpenAPI's ``date-time`` allows (RFC 3339 §5.6)."""

SEEN_BY: Final = {
    "": frozenset(("public",)),
    "user": frozenset(("public", "authenticated")),
    "admin": frozenset(("public", "authenticated", "internal", "restricted")),
}
"""Who asks → visibilities that are shown (S4-39 … S4-41)."""


@dataclass(frozen=True, slots=True)
class _View:
    """What somebody may know of, put in order once: questions are asked by strangers, and answered often.

    Attributes:
        every: by name, the newest version first, what was deleted too.
        latest: place of the version of each name that no newer one replaces; what was deleted counts only where all
            of it was.
    """

    every: tuple[ServerEntity, ...]
    latest: frozenset[tuple[str, str]]


class Catalog:
    """Every server of a gateway; a new one is made when anything changes.

    Args:
        entities: those that are served; several may share a name and differ in version.
        base_url: where the gateway is reached.
        past: versions that are not served any more, with their status (:mod:`sandbox.registry.history`).
    """

    def __init__(self, entities: Iterable[ServerEntity], base_url: str, past: Iterable[ServerEntity] = ()) -> None:
        self.entities, self.base_url, self.past = tuple(entities), base_url, tuple(past)
        self._served = {id(one) for one in self.entities}
        every = sorted((*self.entities, *self.past), key=lambda one: (one.name, descending(one.version)))
        self._views = {audience: _view(every, allowed) for audience, allowed in SEEN_BY.items()}

    def shown(self, audience: str = "") -> list[ServerEntity]:
        """Return what is served and somebody may know of, by name, the newest version first.

        Args:
            audience: ``""`` anonymous, ``user`` signed in, ``admin`` with the operator's role.
        """
        return [one for one in self._views[audience].every if id(one) in self._served]

    def listed(self, audience: str = "", *, deleted: bool = False) -> list[ServerEntity]:
        """Return every version that somebody may know of, in the same order, those that were deleted only if asked."""
        return [one for one in self._views[audience].every if deleted or one.status != "deleted"]

    def page(self, query: Mapping[str, str], audience: str = "") -> dict[str, Any]:
        """Return one page of ``/v0.1/servers``.

        Raises:
            UsageError: ``REG-001``, a parameter is malformed.
        """
        found, following = _paged(self._selected(query, audience), query)
        servers = [self._response(one, audience) for one in found]
        metadata: dict[str, Any] = {"count": len(servers)}
        if following:
            metadata["nextCursor"] = _cursor(found[-1])
        return {"servers": servers, "metadata": metadata}

    def versions(self, name: str, audience: str = "", *, deleted: bool = False) -> dict[str, Any] | None:
        """Return every version of a server, the newest first; ``None`` when there is none to know of."""
        found = [one for one in self.listed(audience, deleted=deleted) if one.name == name]
        servers = [self._response(one, audience) for one in found]
        return {"servers": servers, "metadata": {"count": len(servers)}} if servers else None

    def version(self, name: str, version: str, audience: str = "", *, deleted: bool = False) -> dict[str, Any] | None:
        """Return one version of a server; ``latest`` stands for the newest that was not deleted, if there is one."""
        found = [one for one in self.listed(audience, deleted=deleted) if one.name == name]
        wanted = [one for one in found if one.version == version]
        if version == "latest":
            wanted = [one for one in found if self.is_latest(one, audience)]
        return self._response(wanted[0], audience) if wanted else None

    def _response(self, entity: ServerEntity, audience: str) -> dict[str, Any]:
        return response(entity, self.base_url, latest=self.is_latest(entity, audience))

    def by_slug(self, slug: str, audience: str = "") -> ServerEntity | None:
        """Return a server by its slug."""
        return next((one for one in self.shown(audience) if one.slug == slug), None)

    def is_latest(self, entity: ServerEntity, audience: str = "admin") -> bool:
        """Return whether no newer version of its name is known to somebody."""
        return (entity.name, entity.version) in self._views[audience].latest

    def _selected(self, query: Mapping[str, str], audience: str) -> list[ServerEntity]:
        search, version, since = query.get("search", ""), query.get("version", ""), query.get("updated_since")
        for name, most in MAX_QUERY.items():
            if len(query.get(name, "")) > most:
                raise malformed(name, f"at most {most} characters")
        deleted = with_deleted(query)
        if since is not None and query.get("include_deleted") == "false":
            raise malformed("include_deleted", "`true`, or leave it out: `updated_since` tells of what was deleted too")
        found = self.listed(audience, deleted=deleted or since is not None)
        if search:
            found = [one for one in found if search.lower() in one.name.lower()]
        if version == "latest":
            found = [one for one in found if self.is_latest(one, audience)]
        elif version:
            found = [one for one in found if one.version == version]
        if since is not None:
            moment = _moment(since)
            found = [one for one in found if _updated(one) >= moment]
        return found


def with_deleted(query: Mapping[str, str]) -> bool:
    """Return whether somebody asks for deleted versions too.

    Raises:
        UsageError: ``REG-001``, it is neither ``true`` nor ``false``.
    """
    asked = query.get("include_deleted", "false")
    if asked not in ("true", "false"):
        raise malformed("include_deleted", "`true` or `false`")
    return asked == "true"


def _view(ordered: Iterable[ServerEntity], allowed: frozenset[str]) -> _View:
    every = tuple(one for one in ordered if one.visibility in allowed)
    latest: dict[str, str] = {}
    for alive in (True, False):
        for one in every:
            if not alive or one.status != "deleted":
                latest.setdefault(one.name, one.version)
    return _View(every, frozenset(latest.items()))


def _paged(found: Sequence[ServerEntity], query: Mapping[str, str]) -> tuple[Sequence[ServerEntity], bool]:
    """Return the entries of one page, and whether another follows."""
    limit = query.get("limit", str(DEFAULT_LIMIT))
    if not (limit.isascii() and limit.isdecimal() and len(limit) < 7 and int(limit) > 0):  # noqa: PLR2004 - digits
        raise malformed("limit", "a positive number")
    size = min(int(limit), MAX_LIMIT)
    start = 0
    if query.get("cursor"):
        after = _read_cursor(query["cursor"])
        start = bisect.bisect_right(found, after, key=lambda one: (one.name, descending(one.version)))
    return found[start : start + size], start + size < len(found)


def _cursor(entity: ServerEntity) -> str:
    return f"{entity.name}:{entity.version}".replace("+", "~")


def _read_cursor(text: str) -> tuple[str, tuple[Any, ...]]:
    if not CURSOR.fullmatch(text):
        raise malformed("cursor", "one that an earlier page gave")
    name, _, version = text.partition(":")
    return name, descending(version.replace("~", "+"))


def _moment(text: str) -> datetime:
    found = moment_of(text) if RFC3339.fullmatch(text) else None
    if found is None:
        raise malformed("updated_since", "a time such as 2025-08-07T13:15:04Z")
    return found


def _updated(entity: ServerEntity) -> datetime:
    """Return when an entity changed; what has no time that can be read has always been so."""
    return moment_of(entity.updated) or datetime.min.replace(tzinfo=UTC)


def malformed(name: str, allowed: str) -> UsageError:
    """Return the error of one parameter."""
    return UsageError("REG-001", f"`{name}` is malformed", f"send {allowed}")
