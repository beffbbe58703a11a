"""A server as it is told of, whether a ``.kno`` entity, DRIVER.md or the operator's file says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sandbox.errors import Problem, SpecError
from sandbox.registry.kno.read import Kno, read_kno
from sandbox.registry.kno.rules import invariants
from sandbox.registry.kno.server import disagreements
from sandbox.spec.model import DriverSpec

MAX_TEXT: Final = 100
"""Characters of a title or description (server.schema.json 2025-12-11)."""


@dataclass(frozen=True, slots=True)
class ServerEntity:
    """One server.

    Attributes:
        slug: key of the manifest.
        name: reverse-DNS identity of the registry.
        title: for people; empty stands for the name.
        endpoint_path: below the base URL.
        version: of the server.
        auth: ``none`` or ``bearer``.
        visibility: ``public``, ``authenticated``, ``internal`` or ``restricted``.
        required_scopes: of a token.
        remotes: as written in an entity; empty stands for the endpoint.
        meta: reverse-DNS keys that are passed on.
        published: RFC 3339.
        updated: RFC 3339.
        tools: names that are exposed, where they are known.
        source: file it was read from.
        status: ``active``, ``deprecated`` or ``deleted``.
        status_message: why, for people.
        status_changed: RFC 3339.
    """

    slug: str
    name: str
    title: str
    description: str
    endpoint_path: str
    version: str
    auth: str = "bearer"
    visibility: str = "authenticated"
    required_scopes: tuple[str, ...] = ()
    remotes: tuple[Mapping[str, Any], ...] = ()
    repository: Mapping[str, Any] = field(default_factory=dict)
    icons: tuple[Mapping[str, Any], ...] = ()
    website: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    published: str = ""
    updated: str = ""
    tools: tuple[str, ...] = ()
    source: str = ""
    status: str = "active"
    status_message: str = ""
    status_changed: str = ""


def entity_of(folder: Path, spec: DriverSpec, namespace: str, said: Mapping[str, Any]) -> ServerEntity:
    """Return the entity of a driver folder: its ``.kno`` file where it has one, under what the operator says.

    Args:
        folder: of the driver.
        spec: the driver.
        namespace: of names that nobody gives.
        said: fields that the operator's file sets.

    Raises:
        SpecError: the ``.kno`` file is not valid, or visibility and auth contradict each other; ``KNO-018``,
            ``KNO-019``: it and DRIVER.md disagree.
    """
    files = sorted(folder.glob("*.kno"))
    if len(files) > 1:
        message = "two `.kno` files in one driver folder"
        raise SpecError((Problem("KNO-014", str(files[1]), 0, "", message, mend="keep one"),))
    tools = tuple(sorted(binding.contract.id for binding in spec.bindings))
    if files:
        kno = read_kno(files[0], namespace)
        errors = tuple(problem for problem in kno.problems if problem.severity == "error")
        if errors:
            raise SpecError(errors)
        apart = disagreements(kno.values, kno.file, spec)
        if apart:
            raise SpecError(tuple(apart))
        found = replace(from_kno(kno, namespace), tools=tools)
    else:
        found = replace(from_driver(spec, namespace, said), tools=tools)
    merged = replace(found, **said)
    merged = replace(merged, remotes=tuple(one for one in merged.remotes if _own(one, merged.endpoint_path)))
    wrong = invariants(merged.visibility, merged.auth, merged.source, 0)
    if wrong:
        raise SpecError(tuple(wrong))
    return merged


def _own(remote: Mapping[str, Any], path: str) -> bool:
    """Return whether a remote is of this gateway's endpoint; past the gateway there would be no rules and no trail."""
    rest = str(remote["url"]).removeprefix("{baseUrl}" + path)
    return rest != remote["url"] and (not rest or rest.startswith(("/", "?")))


def from_driver(spec: DriverSpec, namespace: str, said: Mapping[str, Any]) -> ServerEntity:
    """Return what DRIVER.md alone says; nobody is let in without signing in unless the operator says so."""
    made = timestamp(Path(spec.file).stat().st_mtime)
    open_to_all = said.get("auth") == "none"
    return ServerEntity(
        slug=spec.id,
        name=f"{namespace}/{spec.id}",
        title=spec.name[:MAX_TEXT],
        description=short(spec.description, spec.name),
        endpoint_path=f"/mcp/{spec.id}",
        version=spec.version,
        visibility="public" if open_to_all else "authenticated",
        published=made,
        updated=made,
        source=spec.file,
    )


def short(text: str, otherwise: str) -> str:
    """Return the first sentence where it fits, else the name: a cut sentence can say the opposite."""
    first = " ".join(text.split()).split(". ")[0].rstrip(".") + "."
    return first if 1 < len(first) <= MAX_TEXT else otherwise[:MAX_TEXT]


def timestamp(seconds: float) -> str:
    """Return a Unix time in RFC 3339."""
    return stamp(datetime.fromtimestamp(seconds, UTC))


def stamp(moment: datetime) -> str:
    """Return a moment in RFC 3339, UTC, to the second."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def moment_of(text: str) -> datetime | None:
    """Return the moment that a text of ISO 8601 names, UTC where it names no zone; ``None`` for another text."""
    try:
        found = datetime.fromisoformat(text.upper())
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def from_kno(kno: Kno, namespace: str) -> ServerEntity:
    """Return the entity of a ``.kno`` file that has no errors."""
    values = kno.values
    history = values.get("_history") if isinstance(values.get("_history"), dict) else {}
    assert isinstance(history, dict)  # noqa: S101 - narrowed above
    said = moment_of(str(history.get("created", "")))
    created = stamp(said) if said else timestamp(Path(kno.file).stat().st_mtime)
    name = str(values.get("name") or derived_name(str(values["slug"]), namespace))
    return ServerEntity(
        slug=str(values["slug"]),
        name=name,
        title=str(values.get("title", "")),
        description=str(values["description"]),
        endpoint_path=str(values["endpoint_path"]),
        version=str(values["version"]),
        auth=str(values.get("auth", "bearer")),
        visibility=str(values.get("visibility", "public")),
        required_scopes=tuple(values["required_scopes"]),
        remotes=tuple(values.get("remotes", ())),
        repository=values.get("repository", {}),
        icons=tuple(values.get("icons", ())),
        website=str(values.get("websiteUrl", "")),
        meta=values.get("_meta", {}),
        published=created,
        updated=last_change(history, created),
        source=kno.file,
    )


def derived_name(slug: str, namespace: str) -> str:
    """Return ``NAMESPACE/X-mcp`` for ``pspace-X-mcp`` (S4-7)."""
    return f"{namespace}/{slug.removeprefix('pspace-')}"


def last_change(history: Mapping[str, Any], created: str) -> str:
    """Return the date of the last change that has one, as in ``v0.2.0 (2026-04-21): …``, else when it was made."""
    changes = history.get("changes")
    dates = [created]
    for line in changes if isinstance(changes, list) else []:
        _, opening, rest = str(line).partition("(")
        day = moment_of(rest[:10]) if opening else None
        if day is not None:
            dates.append(stamp(day))
    return max(dates)
