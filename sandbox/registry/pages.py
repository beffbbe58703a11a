"""The pages of a gateway that are no MCP endpoint: registry, manifest, texts for agents and people, health.

Every answer depends on who asks: what somebody may not know of is answered as what does not exist (404, never 403).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import orjson
from starlette.types import Receive, Scope, Send

from sandbox.errors import UsageError
from sandbox.registry.catalog import Catalog, malformed, with_deleted
from sandbox.registry.openapi import document
from sandbox.registry.people import HTML, detail, listing
from sandbox.registry.project import digest, llms_txt, manifest

Audience = Callable[[Mapping[str, str], Scope], Awaitable[str]]
"""Says who asks: ``""``, ``user`` or ``admin``; see :data:`sandbox.registry.catalog.SEEN_BY`."""

SECURITY: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'"),
)
OPEN: Final = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"GET, HEAD, OPTIONS"),
    (b"access-control-allow-headers", b"authorization, content-type"),
    (b"vary", b"authorization"),
)
"""Anybody's page may read what anybody may read (S4-67); credentials are never part of such a request."""

PUBLIC: Final = ("/v0.1/", "/.well-known/", "/llms.txt", "/openapi.json")
READING: Final = (b"allow", b"GET, HEAD, OPTIONS")
MAX_PARAMETERS: Final = 16

LOOPBACK: Final = frozenset(("127.0.0.1", "::1", "localhost"))
PASSED_ON: Final = frozenset(("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"))
"""Fields of requests that a proxy passes on: whoever asks it may be anywhere."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer."""

    status: int
    body: bytes
    kind: str = "application/json"
    open: bool = False


@dataclass(frozen=True, slots=True)
class Health:
    """What is known of the gateway itself; called for each question.

    Attributes:
        ready: whether new work is taken.
        metadata: summary for ``/metadata`` (S1-43).
        metrics: Prometheus text.
    """

    ready: Callable[[], bool]
    metadata: Callable[[str], dict[str, Any]]
    metrics: Callable[[], bytes]


class Pages:
    """Answers what is no endpoint.

    Args:
        catalog: gives the register as it is now.
        audience: says who asks.
        health: of the gateway.
    """

    def __init__(self, catalog: Callable[[], Catalog], audience: Audience, health: Health) -> None:
        self._catalog = catalog
        self._audience = audience
        self._health = health

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - nothing is read
        """Answer one request."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if scope["method"] == "OPTIONS" and scope["path"].startswith(PUBLIC):
            await _send(send, Answer(204, b"", open=True), headers, body=False)
            return
        audience = await self._audience(headers, scope)
        answer = self._answer(scope, audience, local=_is_local(scope, headers))
        nowhere = answer.status == 404 and scope["path"].startswith("/mcp")  # noqa: PLR2004 - an endpoint that is not
        if scope["method"] not in ("GET", "HEAD") and not nowhere:
            answer = _json(405, {"error": "Method not allowed"}, open=answer.open)
        await _send(send, answer, headers, body=scope["method"] != "HEAD")

    def _answer(self, scope: Scope, audience: str, *, local: bool) -> Answer:
        raw = scope.get("raw_path") or scope["path"].encode()
        parts = [unquote(part) for part in raw.decode("latin-1").split("?")[0].split("/")[1:]]
        try:
            query = _query(scope["query_string"].decode("latin-1"))
            found = self._told(parts, query, audience) or self._own(parts, audience, local=local)
        except (UsageError, ValueError) as error:
            return _json(400, {"error": str(error)}, open=True)
        return found or _json(404, {"error": "Not found"})

    def _told(self, parts: list[str], query: Mapping[str, str], audience: str) -> Answer | None:
        """Return what tells of servers."""
        catalog = self._catalog()
        match parts:
            case ["v0.1", "servers"]:
                return _json(200, catalog.page(query, audience), open=True)
            case ["v0.1", "servers", *rest]:
                return self._server(rest, query, audience)
            case [".well-known", "integration"]:
                return _json(200, manifest(catalog.shown(audience), catalog.base_url), open=True)
            case ["llms.txt"]:
                text = llms_txt(catalog.shown(), catalog.base_url)
                return Answer(200, text.encode(), "text/markdown; charset=utf-8", open=True)
            case ["openapi.json"]:
                return _json(200, document(catalog.base_url), open=True)
            case ["docs", "mcp"]:
                return Answer(200, listing(catalog.shown(audience)), HTML)
            case ["docs", "mcp", slug]:
                entity = catalog.by_slug(slug, audience)
                return Answer(200, detail(entity, catalog.base_url), HTML) if entity else None
        return None

    def _own(self, parts: list[str], audience: str, *, local: bool) -> Answer | None:
        """Return what tells of the gateway itself."""
        match parts:
            case ["v0.1", "health"]:
                return _json(200, {"status": "ok"}, open=True)
            case ["v0.1", "ping"]:
                return _json(200, {"pong": True}, open=True)
            case ["v0.1", "version"]:
                return _json(200, {"version": self._health.metadata("")["version"]}, open=True)
            case ["metadata"]:
                return _json(200, self._health.metadata(audience))
            case ["healthz"]:
                return _json(200, {"status": "ok"})
            case ["readyz"]:
                ready = self._health.ready()
                return _json(200 if ready else 503, {"status": "ready" if ready else "ending"})
            case ["metrics"] if local or audience == "admin":
                return Answer(200, self._health.metrics(), "text/plain; version=0.0.4; charset=utf-8")
        return None

    def _server(self, rest: list[str], query: Mapping[str, str], audience: str) -> Answer:
        """Answer below ``/v0.1/servers/``; the slash of a name may be written as it is or as ``%2F``."""
        found: dict[str, Any] | None = None
        deleted = with_deleted(query)
        if "versions" in rest:
            place = len(rest) - 1 - rest[::-1].index("versions")
            name, after = "/".join(rest[:place]), rest[place + 1 :]
            if not after:
                found = self._catalog().versions(name, audience, deleted=deleted)
            elif len(after) == 1:
                found = self._catalog().version(name, after[0], audience, deleted=deleted)
        return _json(404, {"error": "Server not found"}, open=True) if found is None else _json(200, found, open=True)


def _is_local(scope: Scope, headers: Mapping[str, str]) -> bool:
    """Return whether somebody on this machine asks, and not a proxy on it for somebody else."""
    if (scope.get("client") or ("", 0))[0] not in LOOPBACK or not PASSED_ON.isdisjoint(headers):
        return False
    try:
        return "host" not in headers or urlsplit(f"//{headers['host']}").hostname in LOOPBACK
    except ValueError:
        return False


def _query(text: str) -> dict[str, str]:
    """Return the parameters of a request.

    Raises:
        UsageError: ``REG-001``, one is given twice, and nobody can say which of them counts.
        ValueError: there are too many.
    """
    found: dict[str, str] = {}
    for name, value in parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_PARAMETERS):
        if name in found:
            raise malformed(name[:40], "it once")
        found[name] = value
    return found


def _known(named: str, etag: str) -> bool:
    """Return whether ``If-None-Match`` names an answer, in its weak form too (RFC 9110 §13.1.2)."""
    return named.strip() == "*" or etag in [one.strip().removeprefix("W/") for one in named.split(",")]


def _json(status: int, value: Any, *, open: bool = False) -> Answer:  # noqa: A002 - the word for it
    return Answer(status, orjson.dumps(value), open=open)


async def _send(send: Send, answer: Answer, asked: Mapping[str, str], *, body: bool) -> None:
    etag = f'"{digest(answer.body.decode("utf-8"))}"'
    headers = [*SECURITY, (b"content-type", answer.kind.encode()), (b"cache-control", b"no-cache, private")]
    if answer.open:
        headers += OPEN
    if answer.status == 405:  # noqa: PLR2004 - another method
        headers.append(READING)
    status, data = answer.status, answer.body
    if status == 200:  # noqa: PLR2004 - OK
        headers.append((b"etag", etag.encode()))
        if _known(asked.get("if-none-match", ""), etag):
            status, data = 304, b""
    if status not in (204, 304):
        headers.append((b"content-length", str(len(data)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data if body else b"", "more_body": False})
