"""The HTTP+SSE transport of 2024-11-05, for endpoints whose operator asks for it; deprecated since 2025-03-26.

``GET PATH/sse`` opens a session and its one stream, whose first event says where to post. Answers come on the stream,
and the session ends with it. Identity, quotas and bounds are those of the endpoint; the session belongs to its holder.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs

from starlette.types import Scope as AsgiScope

from sandbox.errors import CallRefused, SandboxError
from sandbox.serve.http import fields
from sandbox.serve.http.answering import ClientGone, Response, Writer
from sandbox.serve.http.bounds import MAX_WAITING_BYTES, RETRY_AFTER, HttpBounds
from sandbox.serve.http.doors import Door
from sandbox.serve.http.endpoint import Arrival, accepted, failed, no_server, read_body, read_message
from sandbox.serve.http.quotas import Quotas
from sandbox.serve.http.refusals import HttpRefused, malformed
from sandbox.serve.http.sessions import Sessions
from sandbox.wire.jsonrpc import Notification

STREAM: Final = "/sse"
MESSAGES: Final = "/messages"


class LegacyEndpoint:
    """Answers the admitted requests of one door at ``PATH/sse`` and ``PATH/messages``.

    Args:
        door: what is behind it.
        sessions: of the gateway.
        quotas: of the gateway.
        bounds: of the gateway.
    """

    def __init__(self, door: Door, sessions: Sessions, quotas: Quotas, bounds: HttpBounds) -> None:
        self.door = door
        self._sessions = sessions
        self._quotas = quotas
        self._bounds = bounds

    async def answer(self, scope: AsgiScope, arrival: Arrival) -> None:
        """Answer one request.

        Raises:
            HttpRefused: it is refused and nothing has been sent.
        """
        streams = scope["path"].endswith(STREAM)
        if scope["method"] != ("GET" if streams else "POST"):
            allowed = {"Allow": "GET" if streams else "POST"}
            raise HttpRefused(
                405, "GATE-010", "that method is not used here", f"use {allowed['Allow']}", headers=allowed
            )
        await (self._stream(arrival) if streams else self._message(scope, arrival))

    def end_streams(self) -> None:
        """Nothing: streams end with their sessions."""

    async def _stream(self, arrival: Arrival) -> None:
        if not fields.accepts(arrival.headers, "text/event-stream"):
            raise malformed(
                "GATE-004", "the client does not take event streams", "accept `text/event-stream`", status=406
            )
        probe = Notification("sse", {})
        await self._quotas.count(arrival.identity.tenant.tenant, self.door, probe)
        try:
            session = await self._sessions.open(self.door, arrival.identity, one_stream=True)
        except CallRefused as refusal:
            raise no_server(refusal, probe) from None
        except HttpRefused:
            raise
        except SandboxError as error:
            raise failed(error, probe) from None
        where = f"{self.door.path}{MESSAGES}?session={session.id}"
        try:
            opening = f"event: endpoint\ndata: {where}\n\n".encode()
            how = Response(events=True, opening=opening)
            await Writer(arrival.receive, arrival.send, self._bounds).answer(session.standing, how)
        except ClientGone:
            return
        finally:
            self._sessions.drop(session)

    async def _message(self, scope: AsgiScope, arrival: Arrival) -> None:
        named = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=4).get("session", [""])
        session = self._sessions.find(named[0], self.door, arrival.identity)
        if arrival.headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
            raise malformed(
                "GATE-005", "the body is not plain JSON", "send `Content-Type: application/json`", status=415
            )
        body = await read_body(arrival, self._bounds)
        message = read_message(body)
        if session.standing.waiting > MAX_WAITING_BYTES:  # all answers go there, and none is ever dropped
            text, again = "answers of this session wait to be read", {"Retry-After": str(RETRY_AFTER)}
            raise HttpRefused(429, "GATE-013", text, "read its stream", headers=again)
        tenant = arrival.identity.tenant.tenant
        await self._quotas.count(tenant, self.door, message)
        with self._quotas.running(tenant, message):
            session.feed(message, len(body), None)
            await accepted(arrival.send)
