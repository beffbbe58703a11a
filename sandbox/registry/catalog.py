"""The register of one gateway: which servers a caller may know of, searched, filtered and cut into pages.

Source: MCP Registry API v0.1 (openapi.yaml, 2025-12-01). Cursors are opaque to clients: the name and version after
which the next page begins, so that a page is right whatever was added meanwhile.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from sandbox.errors import UsageError
from sandbox.registry.entity import ServerEntity
from sandbox.registry.project import response

DEFAULT_LIMIT: Final = 30
MAX_LIMIT: Final = 100
MAX_QUERY: Final = 200
"""Characters of one parameter."""

SEEN_BY: Final = {
    "": frozenset(("public",)),
    "user": frozenset(("public", "authenticated")),
    "admin": frozenset(("public", "authenticated", "internal", "restricted")),
}
"""Who asks → visibilities that are shown (S4-39 … S4-41)."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """Every server of a gateway, the newest version of each first.

    Attributes:
        entities: all of them; several may share a name and differ in version.
        base_url: where the gateway is reached.
    """

    entities: tuple[ServerEntity, ...]
    base_url: str

    def shown(self, audience: str = "") -> list[ServerEntity]:
        """Return what somebody may know of, by name, the newest version first.

        Args:
            audience: ``""`` anonymous, ``user`` signed in, ``admin`` with the operator's role.
        """
        allowed = SEEN_BY[audience]
        found = [entity for entity in self.entities if entity.visibility in allowed]
        return sorted(found, key=lambda one: (one.name, _descending(one.version)))

    def page(self, query: Mapping[str, str], audience: str = "") -> dict[str, Any]:
        """Return one page of ``/v0.1/servers``.

        Raises:
            UsageError: ``REG-001``, a parameter is malformed.
        """
        return _paged(self._selected(query, self.shown(audience)), query, self)

    def versions(self, name: str, audience: str = "") -> dict[str, Any] | None:
        """Return every version of a server, the newest first; ``None`` when there is none to know of."""
        found = [one for one in self.shown(audience) if one.name == name]
        if not found:
            return None
        servers = [response(one, self.base_url, latest=place == 0) for place, one in enumerate(found)]
        return {"servers": servers, "metadata": {"count": len(servers)}}

    def version(self, name: str, version: str, audience: str = "") -> dict[str, Any] | None:
        """Return one version of a server; ``latest`` stands for the newest."""
        found = [one for one in self.shown(audience) if one.name == name]
        for place, one in enumerate(found):
            if version in (one.version, "latest"):
                return response(one, self.base_url, latest=place == 0)
        return None

    def by_slug(self, slug: str, audience: str = "") -> ServerEntity | None:
        """Return a server by its slug."""
        return next((one for one in self.shown(audience) if one.slug == slug), None)

    def is_latest(self, entity: ServerEntity) -> bool:
        """Return whether no newer version of its name is here."""
        same = [one.version for one in self.entities if one.name == entity.name]
        return min(same, key=_descending) == entity.version

    def _selected(self, query: Mapping[str, str], found: list[ServerEntity]) -> list[ServerEntity]:
        search, version, since = query.get("search", ""), query.get("version", ""), query.get("updated_since", "")
        for name in ("search", "version", "updated_since", "cursor"):
            if len(query.get(name, "")) > MAX_QUERY:
                raise _malformed(name, f"at most {MAX_QUERY} characters")
        if search:
            found = [one for one in found if search.lower() in one.name.lower()]
        if version == "latest":
            found = [one for one in found if self.is_latest(one)]
        elif version:
            found = [one for one in found if one.version == version]
        if since:
            moment = _moment(since)
            found = [one for one in found if _moment(one.updated) >= moment]
        return found


def _paged(found: Sequence[ServerEntity], query: Mapping[str, str], catalog: Catalog) -> dict[str, Any]:
    limit = query.get("limit", str(DEFAULT_LIMIT))
    if not (limit.isascii() and limit.isdecimal() and len(limit) < 7 and int(limit) > 0):  # noqa: PLR2004 - digits
        raise _malformed("limit", "a positive number")
    size = min(int(limit), MAX_LIMIT)
    start = 0
    if query.get("cursor"):
        after = _read_cursor(query["cursor"])
        start = next(
            (place for place, one in enumerate(found) if (one.name, _descending(one.version)) > after), len(found)
        )
    page = found[start : start + size]
    servers = [response(one, catalog.base_url, latest=catalog.is_latest(one)) for one in page]
    metadata: dict[str, Any] = {"count": len(servers)}
    if start + size < len(found):
        metadata["nextCursor"] = _cursor(page[-1])
    return {"servers": servers, "metadata": metadata}


def _cursor(entity: ServerEntity) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([entity.name, entity.version])).decode().rstrip("=")


def _read_cursor(text: str) -> tuple[str, tuple[Any, ...]]:
    try:
        name, version = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError, TypeError):
        raise _malformed("cursor", "one that an earlier page gave") from None
    return str(name), _descending(str(version))


def _descending(version: str) -> tuple[Any, ...]:
    """Return what orders versions from the newest (Semantic Versioning 2.0.0 §11)."""
    core, _, pre = version.partition("+")[0].partition("-")
    numbers = tuple(-int(part) if part.isdecimal() else 0 for part in core.split("."))
    parts = tuple(map(_identifier, pre.split("."))) if pre else ()
    return (*numbers, 1 if pre else 0, (*parts, (2, 0, ())))


def _identifier(part: str) -> tuple[int, int, tuple[int, ...]]:
    """Return what orders identifiers of a pre-release from the newest; of two, the longer text is the newer."""
    return (1, -int(part), ()) if part.isdecimal() else (0, 0, (*(-ord(char) for char in part), 1))


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise _malformed("updated_since", "a time such as 2025-08-07T13:15:04Z") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _malformed(name: str, allowed: str) -> UsageError:
    return UsageError("REG-001", f"`{name}` is malformed", f"send {allowed}")
