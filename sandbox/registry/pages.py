"""The pages of a gateway that are no MCP endpoint: registry, manifest, texts for agents and people, health.

Every answer depends on who asks: what somebody may not know of is answered as what does not exist (404, never 403).
"""

from __future__ import annotations

import html
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import orjson
from starlette.types import Receive, Scope, Send

from sandbox.errors import UsageError
from sandbox.registry.catalog import Catalog
from sandbox.registry.entity import ServerEntity
from sandbox.registry.project import digest, llms_txt, manifest

Audience = Callable[[Mapping[str, str]], Awaitable[str]]
"""Says who asks: ``""``, ``user`` or ``admin``; see :data:`sandbox.registry.catalog.SEEN_BY`."""

SECURITY: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'"),
)
OPEN: Final = ((b"access-control-allow-origin", b"*"), (b"vary", b"authorization"))
"""Anybody's page may read what anybody may read (S4-67); credentials are never part of such a request."""

PUBLIC: Final = ("/v0.1/", "/.well-known/", "/llms.txt")
MAX_PARAMETERS: Final = 16


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
            await _send(send, Answer(204, b"", open=True), headers, body=False, preflight=True)
            return
        if scope["method"] not in ("GET", "HEAD"):
            answer = _json(405, {"error": "Method not allowed"})
        else:
            audience = await self._audience(headers)
            local = (scope.get("client") or ("", 0))[0] in ("127.0.0.1", "::1")
            answer = self._answer(scope, audience, local=local)
        await _send(send, answer, headers, body=scope["method"] != "HEAD")

    def _answer(self, scope: Scope, audience: str, *, local: bool) -> Answer:
        raw = scope.get("raw_path") or scope["path"].encode()
        parts = [unquote(part) for part in raw.decode("latin-1").split("?")[0].split("/")[1:]]
        try:
            query = dict(parse_qsl(scope["query_string"].decode("latin-1"), max_num_fields=MAX_PARAMETERS))
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
                return self._server(rest, audience)
            case [".well-known", "integration"]:
                return _json(200, manifest(catalog.shown(audience), catalog.base_url), open=True)
            case ["llms.txt"]:
                text = llms_txt(catalog.shown(), catalog.base_url)
                return Answer(200, text.encode(), "text/markdown; charset=utf-8", open=True)
            case ["docs", "mcp"]:
                return _page("MCP servers", _listing(catalog.shown(audience)))
            case ["docs", "mcp", slug]:
                entity = catalog.by_slug(slug, audience)
                return _page(entity.title or entity.name, _detail(entity, catalog.base_url)) if entity else None
        return None

    def _own(self, parts: list[str], audience: str, *, local: bool) -> Answer | None:
        """Return what tells of the gateway itself."""
        match parts:
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

    def _server(self, rest: list[str], audience: str) -> Answer:
        """Answer below ``/v0.1/servers/``; the slash of a name may be written as it is or as ``%2F``."""
        found: dict[str, Any] | None = None
        if "versions" in rest:
            place = len(rest) - 1 - rest[::-1].index("versions")
            name, after = "/".join(rest[:place]), rest[place + 1 :]
            if not after:
                found = self._catalog().versions(name, audience)
            elif len(after) == 1:
                found = self._catalog().version(name, after[0], audience)
        return _json(404, {"error": "Server not found"}, open=True) if found is None else _json(200, found, open=True)


def _json(status: int, value: Any, *, open: bool = False) -> Answer:  # noqa: A002 - the word for it
    return Answer(status, orjson.dumps(value), open=open)


async def _send(send: Send, answer: Answer, asked: Mapping[str, str], *, body: bool, preflight: bool = False) -> None:
    etag = f'"{digest(answer.body.decode("utf-8"))}"'
    headers = [*SECURITY, (b"content-type", answer.kind.encode()), (b"cache-control", b"no-cache, private")]
    if answer.open:
        headers += OPEN
    if preflight:
        headers += [
            (b"access-control-allow-methods", b"GET"),
            (b"access-control-allow-headers", b"authorization, content-type"),
        ]
    status, data = answer.status, answer.body
    if status == 200:  # noqa: PLR2004 - OK
        headers.append((b"etag", etag.encode()))
        if asked.get("if-none-match") == etag:
            status, data = 304, b""
    if status not in (204, 304):
        headers.append((b"content-length", str(len(data)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data if body else b"", "more_body": False})


def _page(title: str, body: str) -> Answer:
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title></head><body><main><h1>{html.escape(title)}</h1>{body}</main></body></html>"
    )
    return Answer(200, text.encode(), "text/html; charset=utf-8")


def _listing(entities: list[ServerEntity]) -> str:
    rows = "".join(
        f'<li><a href="/docs/mcp/{html.escape(one.slug)}">{html.escape(one.title or one.name)}</a>: '
        f"{html.escape(one.description)}</li>"
        for one in entities
    )
    return f"<ul>{rows}</ul>" if rows else "<p>Nothing is open to you here; sign in to see more.</p>"


def _detail(entity: ServerEntity, base_url: str) -> str:
    facts = {
        "Name": entity.name,
        "Version": entity.version,
        "Address": base_url + entity.endpoint_path,
        "Transport": "Streamable HTTP",
        "Sign in": "not needed" if entity.auth == "none" else "bearer token",
        "Scopes": " ".join(entity.required_scopes) or "none",
        "Tools": ", ".join(entity.tools),
    }
    rows = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in facts.items())
    return f"<p>{html.escape(entity.description)}</p><dl>{rows}</dl>"
