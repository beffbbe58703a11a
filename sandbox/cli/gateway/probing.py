"""Asks an endpoint, as a stranger, whether it does what its entity advertises (S4-47, the honeypot rule)."""

from __future__ import annotations

from typing import Any, Final

import httpx2

from sandbox.errors import Problem
from sandbox.registry.entity import ServerEntity
from sandbox.wire import meta
from sandbox.wire.versions import LATEST_STATELESS

TIMEOUT: Final = 60.0
"""Seconds: an open endpoint starts its server for the question."""


def probe(entity: ServerEntity, base_url: str) -> Problem | None:
    """Return what is wrong between an entity and its endpoint, ``None`` when they agree.

    Args:
        entity: linted.
        base_url: of the gateway, without a trailing slash.
    """
    url = base_url + entity.endpoint_path
    try:
        answer = httpx2.post(url, json=_question(), headers=_headers(), timeout=TIMEOUT, trust_env=False)
    except httpx2.HTTPError as error:
        return _problem("KNO-016", entity, f"{url} does not answer: {type(error).__name__}", "start the gateway")
    if entity.auth == "none" and answer.status_code in (401, 403):
        text = f"{url} asks for a credential ({answer.status_code}) and is advertised as open"
        return _problem("KNO-017", entity, text, "write `auth: bearer`, or open the endpoint")
    if entity.auth == "bearer" and answer.status_code not in (401, 403):
        text = f"{url} answers strangers ({answer.status_code}) and is advertised as closed"
        return _problem("KNO-017", entity, text, "write `auth: none`, or close the endpoint")
    if entity.auth == "none" and answer.status_code != 200:  # noqa: PLR2004 - OK
        return _problem("KNO-016", entity, f"{url} answers {answer.status_code}", "see the gateway's trail")
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
