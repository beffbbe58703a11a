"""The gateway as an ASGI application: who comes in, which door, and what a refusal looks like.

Everything that is not a door is a page: discovery, health, metrics, made by whoever wires it. Doors and pages alike are
behind the check of ``Host``; ``Origin`` is checked but for pages that everybody may read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import orjson
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from sandbox.errors import SandboxError
from sandbox.events import Scope
from sandbox.serve.http import cors, fields
from sandbox.serve.http.answering import ClientGone
from sandbox.serve.http.bounds import RETRY_AFTER, HttpBounds
from sandbox.serve.http.doors import Door
from sandbox.serve.http.endpoint import Arrival, Endpoint
from sandbox.serve.http.legacy import MESSAGES, STREAM, LegacyEndpoint
from sandbox.serve.http.quotas import Quotas
from sandbox.serve.http.refusals import HttpRefused, RefusalLog, malformed
from sandbox.serve.http.sessions import Sessions
from sandbox.serve.http.sharing import SharedSessions
from sandbox.serve.http.together import Together
from sandbox.serve.identity.certificates import certificate_of
from sandbox.serve.identity.keeper import Gatekeeper
from sandbox.serve.identity.model import METADATA, Unauthorized, challenge, metadata

READING: Final = ("GET", "HEAD", "OPTIONS")


@dataclass(slots=True)
class Gateway:
    """What a gateway is made of.

    Attributes:
        keeper: decides who comes in.
        places: ``Host`` and ``Origin``.
        scope: where facts are recorded.
        quotas: rates and numbers.
        bounds: everything else.
        pages: answers what is no door; ``None`` answers 404.
        public: beginnings of paths that pages of any origin may read.
        together: where several gateways share their state; ``None``: this one is alone.
    """

    keeper: Gatekeeper
    places: fields.Places
    scope: Scope
    quotas: Quotas
    bounds: HttpBounds = field(default_factory=HttpBounds)
    pages: ASGIApp | None = None
    public: tuple[str, ...] = (METADATA,)
    together: Together | None = None


class App:
    """The ASGI application.

    Args:
        gateway: see :class:`Gateway`.
        doors: the endpoints.

    Attributes:
        draining: no new work is taken.
        sessions: of handshake clients.
        refusals: what was refused.
        endpoints: by path.
    """

    def __init__(self, gateway: Gateway, doors: Iterable[Door]) -> None:
        self.gateway = gateway
        self.draining = False
        self.sessions = Sessions(gateway.bounds)
        if gateway.together is not None:
            self.sessions = SharedSessions(gateway.bounds, gateway.together.team, gateway.scope)
        self.refusals = RefusalLog(gateway.scope)
        self.endpoints: dict[str, Endpoint | LegacyEndpoint] = {}
        self.replace(doors)

    def replace(self, doors: Iterable[Door]) -> None:
        """Serve these doors from now on; sessions of a door that stays go on."""
        bounds, quotas = self.gateway.bounds, self.gateway.quotas
        known = {one.door: one for one in self.endpoints.values() if isinstance(one, Endpoint)}
        fresh: dict[str, Endpoint | LegacyEndpoint] = {}
        for door in doors:
            fresh[door.path] = known.get(door) or Endpoint(door, self.sessions, quotas, bounds)
            if door.legacy:
                old = LegacyEndpoint(door, self.sessions, quotas, bounds)
                fresh |= {door.path + STREAM: old, door.path + MESSAGES: old}
        before, self.endpoints = self.endpoints, fresh
        self._end_what_went(before)

    def _end_what_went(self, before: Mapping[str, Endpoint | LegacyEndpoint]) -> None:
        """End streams and sessions of doors that are there no more; what is in progress is answered."""
        kept = {id(one.door) for one in self.endpoints.values()}
        for endpoint in before.values():
            if id(endpoint.door) not in kept:
                endpoint.end_streams()
        self.sessions.drop_where(lambda session: id(session.door) not in kept, self.gateway.bounds.drain)

    @property
    def doors(self) -> tuple[Door, ...]:
        """What is served, in the order of its paths."""
        return tuple(one.door for _, one in sorted(self.endpoints.items()) if isinstance(one, Endpoint))

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError("only HTTP is served")
        begun = False

        async def sending(message: Mapping[str, object]) -> None:
            nonlocal begun
            begun = True
            await send(dict(message))

        tenant, origin = [""], self._origin(scope)
        try:
            await self._answer(scope, receive, cors.readable(sending, origin), tenant)
        except ClientGone:
            return
        except SandboxError as error:
            refusal = error if isinstance(error, HttpRefused) else _internal(error)
            try:
                self._note(scope, refusal, tenant[0])
            except SandboxError as unrecorded:  # a refusal that cannot be recorded is still one
                refusal = _internal(unrecorded)
            if not begun:
                await refuse(cors.readable(send, origin), refusal)

    def _origin(self, scope: AsgiScope) -> str | None:
        """Return the origin whose pages may read the answer of an endpoint: one that is admitted, else none."""
        found = [value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"]
        if len(found) != 1 or scope["path"] not in self.endpoints:
            return None
        return found[0] if found[0].lower() in self.gateway.places.origins else None

    async def _answer(self, scope: AsgiScope, receive: Receive, send: Send, tenant: list[str]) -> None:
        path = scope["path"]
        headers = fields.folded(scope["headers"])
        endpoint = self.endpoints.get(path)
        public = endpoint is None and scope["method"] in READING and path.startswith(self.gateway.public)
        fields.check_place(headers, self.gateway.places, any_origin=public)  # 1
        if endpoint is None:
            await self._page(scope, receive, send)
            return
        if self.draining and scope["method"] == "POST":
            again = {"Retry-After": str(RETRY_AFTER), "Connection": "close"}
            raise HttpRefused(503, "GATE-035", "this gateway is ending", "connect again", headers=again)
        if cors.is_preflight(scope["method"], headers):
            await cors.preflight(send, headers)
            return
        door = endpoint.door
        if b"access_token=" in scope["query_string"]:
            text = "a token stands in the address, where logs and histories keep it"
            raise malformed("GATE-074", text, "send `Authorization: Bearer …`, and let this token be revoked")
        try:
            own = certificate_of(scope)
            identity = await self.gateway.keeper.admit(headers, door.path, door.access, own)  # 2
        except Unauthorized as error:
            raise self.unauthorized(error, door) from None
        tenant[0] = identity.tenant.tenant
        arrival = Arrival(headers, identity, receive, send)
        if self.sessions.lasting is not None and fields.is_about_task(headers):
            await self._about_task(endpoint, scope, arrival)
        elif self.gateway.together is not None:
            await self.gateway.together.answer(endpoint, scope, arrival)
        else:
            await endpoint.answer(scope, arrival)

    async def _about_task(self, endpoint: Endpoint | LegacyEndpoint, scope: AsgiScope, arrival: Arrival) -> None:
        """Answer a request whose fields say that it is about a task: where the task is known, and nowhere else.

        That needs no server, so it is no matter where the tenant's servers run; the endpoint holds the body to the
        fields, so that nothing else gets this way.
        """
        if not isinstance(endpoint, Endpoint):
            raise malformed("GATE-007", "tasks are asked for at the endpoint itself", "use its own path")
        elsewhere = self.sessions.elsewhere
        if elsewhere is None or not await elsewhere(scope, arrival, endpoint.door):
            await endpoint.about_task(arrival)

    async def _page(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        door = self.endpoints.get(path.removeprefix(METADATA))
        if path.startswith(METADATA) and door is not None and scope["method"] in ("GET", "HEAD"):
            keeper, access = self.gateway.keeper, door.door.access
            url = keeper.public_url + door.door.path
            described = metadata(
                url, keeper.issuers, access.scopes, door.door.name, certificates=keeper.certificates
            )  # fmt: skip
            await reply(send, 200, orjson.dumps(described))
        elif self.gateway.pages is not None:
            await self.gateway.pages(scope, receive, send)
        else:
            raise HttpRefused(404, "GATE-036", "there is nothing here", "see `/docs/mcp`")

    def unauthorized(self, error: Unauthorized, door: Door) -> HttpRefused:
        """Return the refusal with where to sign in, in the header and, for people, in ``auth_help`` (S4-45)."""
        where = self.gateway.keeper.public_url + METADATA + door.path
        headers = {"WWW-Authenticate": challenge(where, error, door.access.scopes)}
        if error.status == 503:  # noqa: PLR2004 - nobody can be asked
            headers = {"Retry-After": str(RETRY_AFTER)}
        aid = {
            "resource_metadata": where,
            "authorization_servers": list(self.gateway.keeper.issuers),
            "scopes": list(door.access.scopes),
        }
        return HttpRefused(
            error.status, error.id, error.message, error.mend, headers=headers, code=error.rpc_code,
            data={"auth_help": aid},
        )  # fmt: skip

    def _note(self, scope: AsgiScope, error: HttpRefused, tenant: str) -> None:
        peer = (scope.get("client") or ("", 0))[0]
        self.refusals.note(
            error, time.monotonic(), path=scope["path"], method=scope["method"], peer=peer, tenant=tenant
        )

    # --- life --------------------------------------------------------------------------------------------------------
    async def drain(self) -> None:
        """Take no new work, and return when what is in progress is answered or the time is over; end every session."""
        self.draining = True
        loop = asyncio.get_running_loop()
        until = loop.time() + self.gateway.bounds.drain
        for endpoint in self.endpoints.values():
            endpoint.end_streams()
        while self.gateway.quotas.active and loop.time() < until:  # noqa: ASYNC110 - once in a life
            await asyncio.sleep(0.02)
        await self.sessions.close()


def _internal(error: SandboxError) -> HttpRefused:
    return HttpRefused(500, "GATE-037", "this gateway cannot do that now", f"ask its operator to look for {error.id}")


async def refuse(send: Send, error: HttpRefused) -> None:
    """Send a refusal."""
    await reply(send, error.status, error.body(), error.headers)


async def reply(send: Send, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
    """Send JSON."""
    raw = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    raw += [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
    raw += [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body, "more_body": False})
