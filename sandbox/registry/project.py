"""Projections of entities: the registry's server object, the integration manifest, ``llms.txt``.

Conflicts between the seeds' texts and the pinned schema (2025-12-11) are solved so:

- C1: ``{baseUrl}`` is filled in, since the schema wants addresses that begin with ``http``;
- C2: ``headers`` written as an object become a list of ``{name, value}``;
- C3: ``sizes`` written as one text become a list;
- C4: a ``source`` of repositories that official registries do not check is passed on;
- C5: scopes stand in ``_meta`` of the server, the official block only around it;
- C6: a description that is too long fails the lint, and is never cut here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from sandbox.registry.entity import ServerEntity
from sandbox.registry.kno.rules import OFFICIAL
from sandbox.registry.kno.server import OWN

SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
SCOPES: Final = "space.possibility/scopes"
STATUS: Final = "local.mcp-sandbox/status"
"""When a status became what it is. The changelog of the API names ``statusChangedAt`` in the official block; its
OpenAPI document does not, and forbids what it does not name there."""

MAX_MESSAGE: Final = 500
"""Characters of ``statusMessage`` (MCP Registry API v0.1)."""

ICON_TYPES: Final = frozenset(("image/png", "image/jpeg", "image/jpg", "image/svg+xml", "image/webp"))


def server_json(entity: ServerEntity, base_url: str) -> dict[str, Any]:
    """Return a server as server.schema.json 2025-12-11 wants it.

    Args:
        entity: the server.
        base_url: where this gateway is reached, without a trailing slash.
    """
    found: dict[str, Any] = {
        "$schema": SCHEMA,
        "name": entity.name,
        "description": entity.description,
        "title": entity.title or entity.name[:100],
        "version": entity.version,
        "remotes": [_remote(one, base_url) for one in entity.remotes] or [_own_remote(entity, base_url)],
    }
    if entity.repository:
        found["repository"] = dict(entity.repository)
    icons = [icon for icon in map(_icon, entity.icons) if icon]
    if icons:
        found["icons"] = icons
    if entity.website:
        found["websiteUrl"] = entity.website
    meta = {key: value for key, value in entity.meta.items() if key != OFFICIAL and not key.startswith(OWN)}
    if entity.required_scopes:
        meta[SCOPES] = {"required": list(entity.required_scopes)}
    return {**found, "_meta": meta} if meta else found


def _own_remote(entity: ServerEntity, base_url: str) -> dict[str, Any]:
    """Return the endpoint itself.

    That a token is needed is no header field here: clients find out where to sign in from the answer (RFC 9728), and
    those that read a field ask their user to type a token instead.
    """
    return {"type": "streamable-http", "url": base_url + entity.endpoint_path}


def _remote(written: Mapping[str, Any], base_url: str) -> dict[str, Any]:
    remote: dict[str, Any] = {"type": written["type"], "url": str(written["url"]).replace("{baseUrl}", base_url)}
    headers = written.get("headers", {})
    if headers:
        remote["headers"] = [{"name": str(name), "value": str(value)} for name, value in headers.items()]
    variables = {name: value for name, value in written.get("variables", {}).items() if name != "baseUrl"}
    if variables:
        remote["variables"] = variables
    return remote


def _icon(written: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an icon in the registry's form, ``None`` for one that it cannot have: not over https, or another type."""
    source = str(written["src"])
    source = f"https:{source}" if source.startswith("//") else source
    kind = written.get("mimeType")
    if not source.startswith("https://") or (kind is not None and kind not in ICON_TYPES):
        return None
    icon: dict[str, Any] = {"src": source}
    if kind:
        icon["mimeType"] = kind
    if "sizes" in written:
        icon["sizes"] = str(written["sizes"]).split()
    if "theme" in written:
        icon["theme"] = written["theme"]
    return icon


def response(entity: ServerEntity, base_url: str, *, latest: bool = True) -> dict[str, Any]:
    """Return a server with what this registry says about its record."""
    official: dict[str, Any] = {"status": entity.status}
    if entity.status_message:
        official["statusMessage"] = entity.status_message[:MAX_MESSAGE]
    official |= {"publishedAt": entity.published, "updatedAt": entity.updated, "isLatest": latest}
    own = {STATUS: {"changedAt": entity.status_changed}} if entity.status_changed else {}
    return {"server": server_json(entity, base_url), "_meta": {OFFICIAL: official, **own}}


def manifest(entities: Iterable[ServerEntity], base_url: str) -> dict[str, Any]:
    """Return the integration manifest (S4-21)."""
    servers = [
        {
            "slug": entity.slug,
            "name": entity.name,
            "title": entity.title or entity.name,
            "description": entity.description,
            "endpoint": base_url + entity.endpoint_path,
            "transport": "streamable-http",
            "auth": entity.auth,
            "required_scopes": list(entity.required_scopes),
            "version": entity.version,
        }
        for entity in entities
    ]
    return {"protocols": {"mcp": {"registry": f"{base_url}/v0.1/servers", "servers": servers}}}


def llms_txt(entities: Sequence[ServerEntity], base_url: str) -> str:
    """Return ``llms.txt``: what is open to everybody, one line each."""
    lines = [
        "# MCP servers",
        "",
        f"> Served at {base_url}; the register is {base_url}/v0.1/servers.",
        "",
        "## Servers",
        "",
    ]
    lines += [
        f"- [{_line(entity.title or entity.name)}]({base_url}{entity.endpoint_path}): {_line(entity.description)}"
        for entity in entities
    ]
    return "\n".join(lines) + "\n"


def _line(text: str) -> str:
    """Return text that cannot break out of its line or link."""
    return "".join(char if char.isprintable() and char not in "[]()<>`" else " " for char in text).strip()


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value in one form, for ``ETag``."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()
