"""One MCP endpoint over Streamable HTTP, both protocol eras.

A request goes through these steps, in this order:

 1. the place: ``Host`` and ``Origin``, once each (:mod:`sandbox.serve.http.fields`)
 2. identity: a verified credential, or nobody where the endpoint allows it; nothing of the body has been read
 3. media types and protocol version
 4. the body within its bounds of size and time; one JSON-RPC message
 5. fields and body say the same (2026-07-28)
 6. rate, and number of requests in progress
 7. the session: found by id and owner (handshake), or one for this request alone (stateless)
 8. the answer, as JSON or as an event stream

A handshake client that disconnects has not cancelled its request; a stateless one has.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final

from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from sandbox import jsontext
from sandbox.errors import CallRefused, SandboxError
from sandbox.serve import client_lasting, client_opening
from sandbox.serve.client_lasting import Lasting
from sandbox.serve.client_replies import failure
from sandbox.serve.http import fields
from sandbox.serve.http.alone import Alone, WaitingRoom
from sandbox.serve.http.answering import STATELESS_STATUS, ClientGone, Response, Writer
from sandbox.serve.http.bounds import RETRY_AFTER, HttpBounds
from sandbox.serve.http.doors import Behind, Door
from sandbox.serve.http.moving import moving
from sandbox.serve.http.quotas import Quotas
from sandbox.serve.http.refusals import HttpRefused, malformed
from sandbox.serve.http.sessions import HttpSession, Sessions, noting
from sandbox.serve.http.streams import Stream
from sandbox.serve.identity.model import Identity
from sandbox.serve.session import LISTEN
from sandbox.wire import meta, tasks
from sandbox.wire.codes import HEADER_MISMATCH, PARSE_ERROR
from sandbox.wire.errors import WireError
from sandbox.wire.jsonrpc import Failure, Message, Notification, Request, Result, envelope
from sandbox.wire.results import dressed
from sandbox.wire.versions import HANDSHAKE_VERSIONS, STATELESS_VERSIONS, V2025_11_25, V2026_07_28

SESSION: Final = "mcp-session-id"
ALLOWED: Final = {"Allow": "GET, POST, DELETE"}
MAX_CAUSE: Final = 1000
"""Characters of what went wrong behind a refusal that are recorded."""


@dataclass(slots=True)
class Arrival:
    """One HTTP request at an endpoint, admitted."""

    headers: Mapping[str, str]
    identity: Identity
    receive: Receive
    send: Send


class Endpoint:
    """Answers the admitted requests of one door.

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
        self._listening: set[Alone] = set()
        self._waiting = WaitingRoom()

    def end_streams(self) -> None:
        """End what stays open for as long as its client likes, in an orderly way."""
        for alone in list(self._listening):
            alone.end()
        self._waiting.end()

    async def answer(self, scope: AsgiScope, arrival: Arrival) -> None:
        """Answer one request; steps 3 to 8.

        Raises:
            HttpRefused: it is refused and nothing has been sent.
        """
        match scope["method"]:
            case "POST":
                await self._post(arrival)
            case "GET":
                await self._get(arrival)
            case "DELETE":
                await self._delete(arrival)
            case _:
                raise HttpRefused(405, "GATE-010", "that method is not used here", "use POST", headers=ALLOWED)

    # --- POST ------------------------------------------------------------------------------------------------------
    async def _post(self, arrival: Arrival) -> None:
        fields.check_post(arrival.headers)  # 3
        body = await read_body(arrival, self._bounds)  # 4
        message = read_message(body)
        if fields.is_stateless(arrival.headers, message):
            if isinstance(message, Request):
                fields.check_agreement(arrival.headers, message)  # 5
                await self._bounded(arrival, message, len(body), self._stateless)
                return
            await accepted(arrival.send)  # the era has no notifications of clients over HTTP
            return
        fields.check_version(arrival.headers, getattr(message, "id", None))
        await self._bounded(arrival, message, len(body), self._handshake)

    async def about_task(self, arrival: Arrival) -> None:
        """Answer one request whose fields say that it is about a task; steps 3 to 6, and 8.

        Raises:
            HttpRefused: it is refused and nothing has been sent; also when its body says something else.
        """
        fields.check_post(arrival.headers)  # 3
        body = await read_body(arrival, self._bounds)  # 4
        message = read_message(body)
        if not isinstance(message, Request):
            raise malformed("GATE-007", "the fields are those of a request", "send one", code=HEADER_MISMATCH)
        fields.check_agreement(arrival.headers, message, tasks.METHODS)  # 5
        await self._bounded(arrival, message, len(body), self._about_task)

    async def _bounded(self, arrival: Arrival, message: Message, size: int, carry: Any) -> None:
        """Step 6 around the rest."""
        tenant = arrival.identity.tenant.tenant
        headers = await self._quotas.count(tenant, self.door, message)
        with self._quotas.running(tenant, message):
            try:
                await carry(arrival, message, size, headers)
            except ClientGone:
                return
            except HttpRefused:
                raise
            except CallRefused as refusal:
                raise no_server(refusal, message) from None
            except SandboxError as error:
                raise failed(error, message) from None

    # --- stateless ---------------------------------------------------------------------------------------------------
    async def _stateless(self, arrival: Arrival, message: Request, size: int, headers: dict[str, str]) -> None:
        alone = self._waiting.take(message, arrival.identity.owner)  # 7
        begun = alone is None
        alone = alone or Alone(arrival.identity.owner, self._waiting)
        lasting = self._lasting(arrival)
        try:
            if begun:
                await self._begin(arrival, alone, message, lasting)
            writer = Writer(arrival.receive, arrival.send, self._bounds)
            await alone.carry(writer, message, size, headers, lasting)  # 8
        except BaseException:
            if not (alone.carried or alone.told):
                await alone.close()
            raise
        finally:
            self._listening.discard(alone)
        if alone.over:
            await alone.close()

    async def _begin(self, arrival: Arrival, alone: Alone, message: Request, lasting: Lasting | None) -> None:
        behind = await alone.lend(self._lent(arrival.identity, message))
        tool = behind.exposure.tools.get(str(message.params.get("name", "")))
        if message.method == "tools/call" and tool is not None:
            fields.check_parameters(arrival.headers, message, tool.definition.get("inputSchema", {}))
        alone.begin(behind, noting(behind.options, lasting=lasting))
        if message.method == LISTEN:
            self._listening.add(alone)

    def _lasting(self, arrival: Arrival) -> Lasting | None:
        made = self._sessions.lasting
        return made(arrival.identity, self.door) if made is not None else None

    async def _about_task(self, arrival: Arrival, message: Request, _size: int, headers: dict[str, str]) -> None:
        """Answer what is asked of a task; that needs no server."""
        lasting, stream = self._lasting(arrival), Stream()
        assert lasting is not None  # noqa: S101 - there are such methods only with it
        stream.put(await answer_about_task(message, lasting, self.door.info), last=True)
        writer = Writer(arrival.receive, arrival.send, self._bounds)
        await writer.answer(stream, Response(headers=headers, statuses=STATELESS_STATUS))  # 8

    def _lent(self, identity: Identity, message: Request) -> AbstractAsyncContextManager[Behind]:
        """Return what lends the server of one request; one that stays open goes wherever the door leads."""
        return moving(self.door, identity) if message.method == LISTEN else self.door.open(identity, message)

    # --- handshake ---------------------------------------------------------------------------------------------------
    async def _handshake(self, arrival: Arrival, message: Message, size: int, headers: dict[str, str]) -> None:
        session_id = arrival.headers.get(SESSION)
        if session_id is None:
            await self._open(arrival, message, size)
            return
        session = await self._sessions.seek(session_id, self.door, arrival.identity)  # 7
        self._check_session_version(arrival, session, message)
        if not isinstance(message, Request):
            session.feed(message, size, None)
            if isinstance(message, Notification) and message.method == "notifications/cancelled":
                session.channel.forget(message.params.get("requestId", ""))
            await accepted(arrival.send)
            return
        stream = session.stream()
        session.feed(message, size, stream)
        await self._reply(arrival, session, stream, headers)

    async def _open(self, arrival: Arrival, message: Message, size: int) -> None:
        """Open a session with ``initialize``."""
        if not isinstance(message, Request) or message.method != "initialize":
            text = "the request belongs to no session"
            mend = f"open one with `initialize`, or name {STATELESS_VERSIONS[-1]} in `MCP-Protocol-Version`"
            raise malformed("GATE-011", text, mend, request_id=getattr(message, "id", None))
        session = await self._sessions.open(self.door, arrival.identity)
        stream = session.stream()
        session.feed(message, size, stream)
        await stream.wait(self._bounds.json_wait)
        first = stream.take()
        stream.back_to(0)
        if not first or isinstance(first[0].message, Failure):
            await self._sessions.fail(session)
            await self._reply(arrival, session, stream, {})
            return
        session.version = str(getattr(first[0].message, "result", {}).get("protocolVersion", ""))
        await self._sessions.opened(session, message)
        await self._reply(arrival, session, stream, {"Mcp-Session-Id": session.id})

    async def _reply(self, arrival: Arrival, session: HttpSession, stream: Stream, headers: dict[str, str]) -> None:
        how = Response(headers=headers, priming=session.version >= V2025_11_25)
        try:
            await Writer(arrival.receive, arrival.send, self._bounds).answer(stream, how)
        finally:
            session.answered(stream)

    def _check_session_version(self, arrival: Arrival, session: HttpSession, message: Message | None) -> None:
        named = arrival.headers.get("mcp-protocol-version")
        if named is not None and named not in HANDSHAKE_VERSIONS:
            fields.check_version(arrival.headers, getattr(message, "id", None))
            text = f"the session speaks {session.version or 'another version'}"
            raise malformed("GATE-006", text, "stay in one era", request_id=getattr(message, "id", None))

    # --- GET and DELETE ----------------------------------------------------------------------------------------------
    async def _get(self, arrival: Arrival) -> None:
        session = await self._sessions.seek(self._named(arrival), self.door, arrival.identity)
        if not fields.accepts(arrival.headers, "text/event-stream"):
            raise malformed(
                "GATE-004", "the client does not take event streams", "accept `text/event-stream`", status=406
            )
        last = arrival.headers.get("last-event-id", "")
        stream = session.resumed(last) if last else session.standing
        if stream.reader:
            raise malformed("GATE-018", "the stream is read already", "read it once at a time", status=409)
        try:
            how = Response(priming=session.version >= V2025_11_25 and not last, events=True)
            await Writer(arrival.receive, arrival.send, self._bounds).answer(stream, how)
        except ClientGone:
            return

    async def _delete(self, arrival: Arrival) -> None:
        await self._sessions.remove(self._named(arrival), self.door, arrival.identity)
        await plain(arrival.send, 200)

    def _named(self, arrival: Arrival) -> str:
        session_id = arrival.headers.get(SESSION)
        if session_id is None or arrival.headers.get("mcp-protocol-version") in STATELESS_VERSIONS:
            raise HttpRefused(405, "GATE-010", "that method needs a session", "use POST", headers={"Allow": "POST"})
        fields.check_version(arrival.headers)
        return session_id


async def answer_about_task(message: Request, lasting: Lasting, info: Mapping[str, Any]) -> Result | Failure:
    """Return the answer to a request about a task; refusals are recorded."""
    try:
        said = client_opening.stateless_envelope(meta.of(message.params))
        result = await client_lasting.answered(message.method, message.params, said.capabilities, lasting)
    except SandboxError as error:
        lasting.refused(message.method, error)
        return failure(message.id, error, V2026_07_28)
    return Result(message.id, dressed(result, message.method, V2026_07_28, info))


async def read_body(arrival: Arrival, bounds: HttpBounds) -> bytes:
    """Return the body of a request.

    Raises:
        HttpRefused: ``GATE-031`` (413) too large, ``GATE-032`` (408) too slow.
        ClientGone: it closed its connection.
    """
    length = arrival.headers.get("content-length", "")
    if length.isdecimal() and (len(length) > 9 or int(length) > bounds.body):  # noqa: PLR2004 - digits
        raise _too_large(bounds)
    body = bytearray()
    try:
        async with asyncio.timeout(bounds.body_timeout):
            while True:
                part = await arrival.receive()
                if part["type"] == "http.disconnect":
                    raise ClientGone
                body += part.get("body", b"")
                if len(body) > bounds.body:
                    raise _too_large(bounds)
                if not part.get("more_body"):
                    return bytes(body)
    except TimeoutError:
        raise malformed("GATE-032", "the body did not come in time", "send it at once", status=408) from None


def _too_large(bounds: HttpBounds) -> HttpRefused:
    mend = f"send at most {bounds.body} bytes"
    return malformed("GATE-031", "the body is too large", mend, status=413, headers={"Connection": "close"})


def read_message(body: bytes) -> Message:
    """Return the one message of a body.

    Raises:
        HttpRefused: ``GATE-033``, it is none; the message says why.
    """
    try:
        return envelope(jsontext.parse(body))
    except (jsontext.JsonBoundError, jsontext.JsonTextError) as error:
        raise malformed(
            "GATE-033", f"the body is no strict JSON: {error}", "send one object", code=PARSE_ERROR
        ) from None
    except WireError as error:
        raise malformed("GATE-033", f"the body is {error.message}", error.mend, request_id=error.request_id) from None


def no_server(refusal: CallRefused, message: Message) -> HttpRefused:
    """Return what a client is told whose server cannot be had now: come back (503), and not too early."""
    again = {"Retry-After": str(max(RETRY_AFTER, math.ceil(refusal.retry)))}
    return HttpRefused(
        503, refusal.id, refusal.message, refusal.mend, headers=again, code=refusal.rpc_code,
        request_id=getattr(message, "id", None),
    )  # fmt: skip


def failed(error: SandboxError, message: Message) -> HttpRefused:
    """Return what a client is told whose server could not be started; the reason is for the operator (502)."""
    text = "the server behind this endpoint could not be started"
    mend = f"ask who runs this gateway to look for {error.id} in its trail"
    return HttpRefused(
        502, "GATE-034", text, mend, code=error.rpc_code, request_id=getattr(message, "id", None),
        cause=str(error)[:MAX_CAUSE],
    )  # fmt: skip


async def accepted(send: Send) -> None:
    """Answer 202 without a body."""
    await plain(send, 202)


async def plain(send: Send, status: int) -> None:
    """Answer without a body."""
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
