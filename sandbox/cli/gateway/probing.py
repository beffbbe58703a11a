"""Asks a gateway, as a stranger, whether it does what an entity advertises (S4-47, the honeypot rule).

Two questions: what the endpoint says to whoever sends no credential, and whether strangers are told of the server.
"""

from __future__ import annotations

from typing import Any, Final

import httpx2

from sandbox.errors import Problem
from sandbox.registry.entity import ServerEntity
from sandbox.wire import meta
from sandbox.wire.versions import LATEST_STATELESS

TIMEOUT: Final = 60.0
"""Seconds: an open endpoint starts its server for the question."""

OK: Final = 200
GONE: Final = 404


def probe(entity: ServerEntity, base_url: str) -> Problem | None:
    """Return what is wrong between an entity and its endpoint, ``None`` when they agree.

    Args:
        entity: linted.
        base_url: of the gateway, without a trailing slash.
    """
    page = f"{base_url}/docs/mcp/{entity.slug}"
    url = base_url + entity.endpoint_path
    try:
        answer = httpx2.post(url, json=_question(), headers=_headers(), timeout=TIMEOUT, trust_env=False)
        told = httpx2.get(page, timeout=TIMEOUT, trust_env=False)
    except httpx2.HTTPError as error:
        return _problem("KNO-016", entity, f"{url} does not answer: {type(error).__name__}", "start the gateway")
    return _signing_in(entity, url, answer.status_code) or _telling(entity, page, told.status_code)


def _signing_in(entity: ServerEntity, url: str, status: int) -> Problem | None:
    """Hold what strangers get at the endpoint against ``auth``."""
    asks = status in (401, 403)
    if entity.auth == "none" and asks:
        text = f"{url} asks for a credential ({status}) and is advertised as open"
        return _problem("KNO-017", entity, text, "write `auth: bearer`, or open the endpoint")
    if entity.auth == "bearer" and status == OK:
        text = f"{url} answers strangers and is advertised as closed"
        return _problem("KNO-017", entity, text, "write `auth: none`, or close the endpoint")
    if status != OK and not asks:
        return _problem("KNO-016", entity, f"{url} answers {status}", "see the gateway's trail")
    return None


def _telling(entity: ServerEntity, page: str, status: int) -> Problem | None:
    """Hold what strangers are told against ``visibility``: public is told, everything else does not exist."""
    if entity.visibility == "public" and status != OK:
        text = f"{page} answers strangers {status}, and the entity is public"
        return _problem("KNO-027", entity, text, "serve this entity, or write another visibility")
    if entity.visibility != "public" and status != GONE:
        text = f"{page} answers strangers {status}, and the entity is {entity.visibility}"
        return _problem("KNO-027", entity, text, "take it out of what strangers are told")
    return None


def _question() -> dict[str, Any]:
    own = {meta.PROTOCOL_VERSION: LATEST_STATELESS, meta.CLIENT_CAPABILITIES: {}}
    return {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": own}}


def _headers() -> dict[str, str]:
    return {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": LATEST_STATELESS,
        "mcp-method": "server/discover",
    }


def _problem(number: str, entity: ServerEntity, message: str, mend: str) -> Problem:
    return Problem(number, entity.source, 0, "auth", message, mend=mend)
