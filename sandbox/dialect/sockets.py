"""The dialect over WebSocket at ``ENDPOINT/2025-11/ws``: identity before the connection, the handshake before all else.

Before a connection is accepted: ``Host`` and ``Origin`` as for every request, the credential as for every request, the
number of connections. A page of another origin gets none, so no browser can be made to speak for its user. After it:
text messages of bounded size and rate, the handshake within ten seconds, then what :mod:`sandbox.dialect.talk` says.
The credential is looked at again with every message, so a connection lasts no longer than what it was admitted with.
Messages are not compressed: an inflated one is bounded only after it was inflated, and compression beside a secret
leaks it by size.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import orjson
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from sandbox import jsontext
from sandbox.dialect import bounds
from sandbox.dialect.refusals import DialectRefused, response
from sandbox.dialect.service import Place
from sandbox.dialect.site import HSTS, ROOT, Site, check_plain, http_refusal
from sandbox.dialect.talk import Talk
from sandbox.errors import SandboxError
from sandbox.serve.http import fields
from sandbox.serve.http.bounds import WRITE_TIMEOUT
from sandbox.serve.http.refusals import HttpRefused
from sandbox.serve.identity.model import Identity
from sandbox.transport.limiter import TokenBucket

PATH: Final = "ws"

ENDING: Final = 1001
"""Close codes of RFC 6455 §7.4.1: going away; no text; the policy is broken; too large."""
NO_TEXT: Final = 1003
BROKEN: Final = 1008
TOO_LARGE: Final = 1009


class Sockets:
    """Answers WebSockets, and hands on everything else.

    Args:
        app: the gateway.
        site: of the dialect.
    """

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app = app
        self._site = site
        self._open: Counter[str] = Counter()
        self._closing = asyncio.Event()

    def end(self) -> None:
        """Close every connection in an orderly way."""
        self._closing.set()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer one connection or request."""
        if scope["type"] != "websocket":
            await self._app(scope, receive, send)
            return
        tenant = ""
        try:
            place, identity = await self._admitted(scope)
            tenant = identity.tenant.tenant
            self._room(tenant)
        except SandboxError as error:
            refusal = http_refusal(error)
            self._note(scope, refusal, tenant)
            await self._refuse(scope, receive, send, refusal)
            return
        self._open[tenant] += 1
        try:
            await self._serve(scope, receive, send, place, identity)
        finally:
            self._open[tenant] -= 1
            if not self._open[tenant]:
                del self._open[tenant]

    async def _admitted(self, scope: AsgiScope) -> tuple[Place, Identity]:
        headers = fields.folded(scope["headers"])
        fields.check_place(headers, self._site.app.gateway.places)
        place, rest = self._site.place(scope["path"])
        if place is None or rest != PATH:
            raise HttpRefused(404, "GATE-036", "there is nothing here", f"connect to ENDPOINT{ROOT}/{PATH}")
        check_plain(scope)
        if self._site.app.draining:
            raise HttpRefused(503, "GATE-035", "this gateway is ending", "connect again")
        identity = await self._site.admitted(scope, place, headers)
        await self._site.service.quotas.count_by(identity.tenant.tenant, place.door)
        return place, identity

    async def _check(self, scope: AsgiScope, place: Place, identity: Identity) -> None:
        """Refuse a client whose credential does not count any more, as a request over HTTP would be."""
        now, _ = self._site.place(scope["path"])
        if now is None or now.door is not place.door:
            raise HttpRefused(404, "GATE-036", "this endpoint is not served any more", "connect again")
        if await self._site.admitted(scope, now, fields.folded(scope["headers"])) != identity:
            raise DialectRefused("DIA-020", "the credential means something else now", "connect again")

    def _room(self, tenant: str) -> None:
        if self._open[tenant] >= bounds.MAX_SOCKETS_OF_TENANT or self._open.total() >= bounds.MAX_SOCKETS:
            raise DialectRefused("DIA-021", "too many connections are open", "use one for many requests")

    async def _serve(self, scope: AsgiScope, receive: Receive, send: Send, place: Place, identity: Identity) -> None:
        if (await receive())["type"] != "websocket.connect":
            return
        extra = [(b"strict-transport-security", HSTS.encode())] if self._site.hsts else []
        await send({"type": "websocket.accept", "headers": extra})
        connection = _Connection(receive, send)

        def refusing(error: SandboxError) -> None:
            self._note(scope, http_refusal(error), identity.tenant.tenant)

        async def still() -> None:
            await self._check(scope, place, identity)

        talk = Talk(place, identity, self._site.service, "ws", connection.say, refusing, still)
        ending = asyncio.create_task(self._closing.wait())
        talking = asyncio.create_task(connection.talk(talk))
        try:
            await asyncio.wait((ending, talking), return_when=asyncio.FIRST_COMPLETED)
            if not talking.done():
                talking.cancel()
                await connection.close(ENDING)
            else:
                why = talking.result()
                if why is not None:
                    refusing(why)
        finally:
            for task in (ending, talking):
                task.cancel()
            await asyncio.gather(ending, talking, return_exceptions=True)
            await talk.close()

    def _note(self, scope: AsgiScope, refusal: HttpRefused, tenant: str) -> None:
        try:
            self._site.note(scope, refusal, tenant)
        except SandboxError:  # it cannot be recorded, and is a refusal all the same
            return

    async def _refuse(self, scope: AsgiScope, receive: Receive, send: Send, refusal: HttpRefused) -> None:
        """Refuse the upgrade with an HTTP answer (the extension of ASGI for it), where the server can."""
        await receive()
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": BROKEN})
            return
        data = orjson.dumps(response(refusal))
        raw = self._site.raw_headers(refusal.headers, len(data))
        await send({"type": "websocket.http.response.start", "status": refusal.status, "headers": raw})
        await send({"type": "websocket.http.response.body", "body": data, "more_body": False})


class _Connection:
    """One accepted connection: messages in, within their bounds, and messages out, one at a time."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._writing = asyncio.Lock()
        self._closed = False
        self._bucket = TokenBucket(bounds.MESSAGES_PER_SECOND, bounds.MESSAGES_AT_ONCE)

    async def say(self, message: Mapping[str, Any]) -> None:
        """Send one message; a client that does not read loses its connection."""
        async with self._writing:
            if self._closed:
                return
            try:
                event = {"type": "websocket.send", "text": jsontext.dump(message).decode()}
                await asyncio.wait_for(self._send(event), WRITE_TIMEOUT)
            except (TimeoutError, OSError, RuntimeError):
                self._closed = True

    async def close(self, code: int) -> None:
        """Close."""
        async with self._writing:
            if not self._closed:
                self._closed = True
                await self._send({"type": "websocket.close", "code": code})

    async def talk(self, talk: Talk) -> SandboxError | None:
        """Hand on messages until the connection ends; return why we ended it."""
        first = True
        while not self._closed:
            try:
                event = await asyncio.wait_for(self._receive(), bounds.HANDSHAKE_TIMEOUT if first else None)
            except TimeoutError:
                return await self._end(BROKEN, "no handshake came in time")
            if event["type"] != "websocket.receive":
                self._closed = True
                return None
            text = event.get("text")
            if text is None:
                return await self._end(NO_TEXT, "a message is no text")
            data = text.encode()
            if len(data) > bounds.MAX_MESSAGE:
                return await self._end(TOO_LARGE, "a message is too large")
            if not self._bucket.take(time.monotonic()):
                return await self._end(BROKEN, "messages come too fast")
            if not await talk.take(data):
                await self.close(BROKEN)
                return None
            first = False
        return None

    async def _end(self, code: int, why: str) -> SandboxError:
        error = DialectRefused("DIA-020", why, "send fewer, smaller messages of text")
        await self.say(response(error))
        await self.close(code)
        return error
