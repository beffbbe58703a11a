"""The dialect over HTTP, below ``ENDPOINT/2025-11/``: the same callers, credentials and limits as the endpoint's.

=====================================  =================================================================================
``POST handshake``                     agree on release and capabilities; the answer names the session
``POST invoke``                        call a tool; with ``Accept: text/event-stream`` progress comes first, as events
``GET jobs/ID``, ``DELETE jobs/ID``    ask for a job; cancel it (``POST jobs/ID/cancel`` does too)
``GET jobs/``                          the caller's jobs
``GET tools/…``, ``GET resources/…``   descriptors as files (:mod:`sandbox.dialect.files`)
``GET metadata``                       health, capabilities, digest of the descriptors, limits
=====================================  =================================================================================

A request goes through these steps: the place (the gateway has checked ``Host`` and ``Origin``), the identity, the rate
of its tenant at the endpoint, and then what it asks for. What is granted says where the tenant stands
(``X-MCP-Limit``), as does the refusal of what came too fast; no answer is stored by anybody (files may be kept, and are
asked for again by ETag) or read as another type.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from sandbox import jsontext
from sandbox.dialect.fleet import Fleet
from sandbox.dialect.handshake import Agreements, Offer, OwnAgreements, SharedAgreements
from sandbox.dialect.refusals import DialectRefused, response
from sandbox.dialect.service import Place, Service
from sandbox.dialect.versions import DIALECT
from sandbox.errors import SandboxError
from sandbox.serve.http import fields
from sandbox.serve.http.answering import ClientGone
from sandbox.serve.http.app import App
from sandbox.serve.http.bounds import RETRY_AFTER
from sandbox.serve.http.doors import Door
from sandbox.serve.http.endpoint import Arrival, Endpoint
from sandbox.serve.http.refusals import HttpRefused, malformed
from sandbox.serve.identity.certificates import certificate_of
from sandbox.serve.identity.model import Identity, Unauthorized
from sandbox.tenant import TenantId

ROOT: Final = f"/{DIALECT}"
"""Follows the path of an endpoint."""

HSTS: Final = "max-age=31536000"
"""Said where TLS ends in front of the gateway (RFC 6797)."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One admitted request.

    Attributes:
        place: the endpoint.
        arrival: header fields, identity, ``receive`` and ``send``.
        method: of HTTP.
        rest: path below the endpoint's base, without a leading slash.
        limit: header fields that say where the tenant stands.
        scope: of ASGI.
    """

    place: Place
    arrival: Arrival
    method: str
    rest: str
    limit: Mapping[str, str]
    scope: AsgiScope


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back: a status, bytes and further header fields."""

    status: int
    data: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


Route = Callable[[Ask], Awaitable["Answer | None"]]
"""Answers what lies below one word of the path; ``None``: it has sent its answer itself."""


class Site:
    """Answers below the endpoints, and hands on what is not below one.

    Args:
        app: the gateway.
        offer: what a door brings to a handshake.
        service: answers admitted clients.
        otherwise: the gateway's other pages.
        hsts: TLS ends in front of the gateway, and answers say that it stays so.
        fleet: where several gateways share their state; ``None``: this one is alone.

    Attributes:
        agreements: over HTTP.
        otherwise: see above.
        routes: first word of the path below a base → what answers it; others add theirs.
    """

    def __init__(
        self,
        app: App,
        offer: Callable[[Door], Offer],
        service: Service,
        otherwise: ASGIApp | None,
        *,
        hsts: bool = False,
        fleet: Fleet | None = None,
    ) -> None:
        self.app = app
        self.hsts = hsts
        self._offer = offer
        self.service = service
        self.fleet = fleet
        self.agreements: Agreements = OwnAgreements(time.monotonic)
        if fleet is not None:
            self.agreements = SharedAgreements(fleet.store)
        self.routes: dict[str, Route] = {}
        self.otherwise = otherwise

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer one request whose ``Host`` and ``Origin`` have been checked."""
        place, rest = self.place(scope["path"])
        if place is None:
            await self._elsewhere(scope, receive, send)
            return
        tenant = [TenantId("")]
        try:
            await self._answer(scope, receive, send, place, rest, tenant)
        except ClientGone:
            raise
        except SandboxError as error:
            refusal = http_refusal(error)
            self.note(scope, refusal, tenant[0])
            data = orjson.dumps(response(error if isinstance(error, DialectRefused) else refusal))
            await self.send(send, Answer(refusal.status, data, refusal.headers), {})

    def place(self, path: str) -> tuple[Place | None, str]:
        """Return the endpoint of the dialect that a path lies below, and the rest of the path."""
        before, found, rest = path.partition(ROOT + "/")
        endpoint = self.app.endpoints.get(before) if found else None
        if not isinstance(endpoint, Endpoint):
            return None, ""
        return Place(endpoint.door, before + ROOT, self._offer(endpoint.door)), rest

    async def _elsewhere(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if self.otherwise is None:
            raise HttpRefused(404, "GATE-036", "there is nothing here", "see `/docs/mcp`")
        await self.otherwise(scope, receive, send)

    async def _answer(
        self, scope: AsgiScope, receive: Receive, send: Send, place: Place, rest: str, tenant: list[TenantId]
    ) -> None:
        headers = fields.folded(scope["headers"])
        if self.app.draining and scope["method"] == "POST":
            again = {"Retry-After": str(RETRY_AFTER), "Connection": "close"}
            raise HttpRefused(503, "GATE-035", "this gateway is ending", "connect again", headers=again)
        identity = await self.admitted(scope, place, headers)
        tenant[0] = identity.tenant.tenant
        word = rest.partition("/")[0]
        arrival = Arrival(headers, identity, receive, send)
        if self.fleet is not None:
            check_plain(scope)
            if await self.fleet.passed(scope, arrival, place.door, rest):  # rates are counted where it is answered
                return
        limit = {}
        if word != "invoke":  # which is counted with its tool
            limit = {"X-MCP-Limit": (await self.service.quotas.count_by(tenant[0], place.door)).header()}
        check_plain(scope)
        route = self.routes.get(word)
        if route is None:
            raise DialectRefused("DIA-010", "there is nothing here", "see docs/dialect.md for the paths")
        ask = Ask(place, arrival, scope["method"], rest, limit, scope)
        answer = await route(ask)
        if answer is not None:
            await self.send(send, answer, limit)

    async def admitted(self, scope: AsgiScope, place: Place, headers: Mapping[str, str]) -> Identity:
        """Return who sends a request.

        Raises:
            HttpRefused: nobody who may; with where to sign in. ``GATE-074``, a token stands in the address.
        """
        door = place.door
        if b"access_token=" in scope["query_string"]:
            text = "a token stands in the address, where logs and histories keep it"
            raise malformed("GATE-074", text, "send `Authorization: Bearer …`, and let this token be revoked")
        try:
            own = certificate_of(scope)
            return await self.app.gateway.keeper.admit(headers, door.path, door.access, own)
        except Unauthorized as error:
            raise self.app.unauthorized(error, door) from None

    def note(self, scope: AsgiScope, error: HttpRefused, tenant: str) -> None:
        """Record a refusal; a flood is counted."""
        peer = (scope.get("client") or ("", 0))[0]
        method = scope.get("method", "GET")
        self.app.refusals.note(error, time.monotonic(), path=scope["path"], method=method, peer=peer, tenant=tenant)

    async def send(self, send: Send, answer: Answer, limit: Mapping[str, str]) -> None:
        """Send an answer with the header fields that every answer has."""
        raw = self.raw_headers({**limit, **answer.headers}, len(answer.data))
        await send({"type": "http.response.start", "status": answer.status, "headers": raw})
        await send({"type": "http.response.body", "body": answer.data, "more_body": False})

    def raw_headers(self, more: Mapping[str, str], length: int | None) -> list[tuple[bytes, bytes]]:
        """Return the header fields of an answer; ``more`` goes before the defaults."""
        found = {"content-type": "application/json", "cache-control": "no-store", "x-content-type-options": "nosniff"}
        if self.hsts:
            found["strict-transport-security"] = HSTS
        if length is not None:
            found["content-length"] = str(length)
        found |= {name.lower(): value for name, value in more.items()}
        return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in found.items()]


def http_refusal(error: SandboxError) -> HttpRefused:
    """Return any refusal as one of HTTP, as it is recorded."""
    match error:
        case HttpRefused():
            return error
        case DialectRefused():
            headers = {"Allow": str(error.data["allow"])} if "allow" in error.data else {}
            if error.status in (429, 503):
                headers["Retry-After"] = str(RETRY_AFTER)
            return HttpRefused(error.status, error.id, error.message, error.mend, headers=headers)
        case _ if error.id == "DIA-019":
            return HttpRefused(503, error.id, "jobs cannot be taken now", "try again later", cause=str(error)[:1000])
        case _:
            mend = f"ask its operator to look for {error.id}"
            return HttpRefused(500, "GATE-037", "this gateway cannot do that now", mend, cause=str(error)[:1000])


def check_plain(scope: AsgiScope) -> None:
    """Refuse a path that is written in any other way than its plain one.

    Raises:
        DialectRefused: ``DIA-022``; nothing of it was resolved.
    """
    raw = scope.get("raw_path") or b""
    if raw != scope["path"].encode("utf-8", "replace") or b"//" in raw or b"/." in raw or b"\\" in raw:
        raise DialectRefused("DIA-022", "that path is written in disguise", "write it plainly")


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """Return a JSON value as an answer."""
    return Answer(status, jsontext.dump(value), dict(headers or {}))


def only(ask: Ask, *methods: str) -> None:
    """Refuse other methods.

    Raises:
        DialectRefused: ``DIA-011``.
    """
    if ask.method not in methods:
        allowed = ", ".join(methods)
        raise DialectRefused(
            "DIA-011", f"{ask.method[:16]} is not used here", f"use {allowed}", data={"allow": allowed}
        )
