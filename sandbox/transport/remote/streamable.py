"""Streamable HTTP of both eras (MCP 2025-03-26 … 2026-07-28, basic/transports).

Every message of ours is a POST. Its answer is one JSON object or a stream of events.

- *Handshake era*: the server may name a session in its answer to ``initialize``, and nowhere else; every later request
  carries it. After ``notifications/initialized`` a GET is tried, for what the server sends on its own. A stream that
  breaks is resumed after its last event id, a bounded number of times.
- *Stateless era*: no session, no GET, no resumption. Header fields repeat parts of the body
  (:mod:`sandbox.wire.headers`). Closing the answer's stream cancels a request.

The era of a message is in the message: only requests of the stateless era name their protocol version.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import Final

from sandbox.errors import PlatformError, SandboxError, ServerFault
from sandbox.limits import MAX_SESSION_ID, MAX_STREAM_RETRIES, STREAM_RETRY_MAX, STREAM_RETRY_MIN
from sandbox.transport.remote.address import Target
from sandbox.transport.remote.channel import EVENTS, JSON, RemoteChannel, unanswered, wrong_kind
from sandbox.transport.remote.http import HttpClient, Response
from sandbox.wire import headers, meta
from sandbox.wire.jsonrpc import Message, Notification, Request, RequestId, Result, encode
from sandbox.wire.sse import EventDecoder
from sandbox.wire.versions import V2025_06_18

CANCELLED: Final = "notifications/cancelled"
INITIALIZED: Final = "notifications/initialized"

_OK: Final = 200
_ACCEPTED: Final = (200, 202, 204)
_NOT_FOUND: Final = 404
_SESSION: Final = re.compile(r"[\x21-\x7e]+")


class StreamableChannel(RemoteChannel):
    """A channel to one MCP endpoint.

    Args:
        client: to the server.
        endpoint: URL of the driver.
    """

    def __init__(self, client: HttpClient, endpoint: Target) -> None:
        super().__init__(client)
        self._endpoint = endpoint
        self._session = ""
        self._version = ""
        self._opening: set[RequestId] = set()
        self._listing: set[RequestId] = set()
        self._params: dict[str, dict[headers.Path, str]] = {}
        self._asked: dict[RequestId, tuple[bool, asyncio.Task[None]]] = {}
        self._ready = asyncio.Event()
        self._ready.set()

    def send(self, message: Message) -> None:
        """Send one message; a cancellation in the stateless era closes the stream of the request instead."""
        if isinstance(message, Request):
            stateless = meta.PROTOCOL_VERSION in meta.of(message.params)
            task = self.spawn(self._request(message, stateless))
            if task is not None:
                self._asked[message.id] = (stateless, task)
                task.add_done_callback(lambda _: self._asked.pop(message.id, None))
            return
        if isinstance(message, Notification) and message.method == CANCELLED:
            asked = self._asked.get(message.params.get("requestId", ""))
            if asked is None:
                return
            asked[1].cancel()
            if asked[0]:
                return
        if isinstance(message, Notification) and message.method == INITIALIZED:
            self._ready.clear()
            self.spawn(self._initialized(message))
            return
        self.spawn(self._tell(message))

    def seen(self, message: Message) -> None:
        """Take note of the version, and of the arguments that header fields repeat."""
        if not isinstance(message, Result):
            return
        if message.id in self._opening:
            self._opening.discard(message.id)
            version = message.result.get("protocolVersion")
            self._version = version if isinstance(version, str) else ""
        elif message.id in self._listing:
            self._listing.discard(message.id)
            self._learn(message.result)

    def _learn(self, result: dict[str, object]) -> None:
        """Note which arguments are repeated; take out the tools that ask for it wrongly (SEP-2243)."""
        tools = result.get("tools")
        if not isinstance(tools, list):
            return
        kept = []
        for tool in tools:
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                try:
                    self._params[tool["name"]] = headers.repeated(tool.get("inputSchema"))
                except ValueError:
                    continue
            kept.append(tool)
        result["tools"] = kept

    # --- one request ------------------------------------------------------------------------------------------------
    async def _request(self, request: Request, stateless: bool) -> None:
        """Send a request and hand on what comes, until its answer has come or will not."""
        if request.method == "initialize":
            self._opening.add(request.id)
        elif request.method == "tools/list" and stateless:
            self._listing.add(request.id)
        try:
            response = await self._post(request)
            self._check_session(request, response)
            if not await self._lost_session(response) and not await self.refused(response, request):
                await self._answer(response, request, stateless)
        except SandboxError as error:
            self.failed(request.id, error)
        else:
            self.failed(request.id, unanswered())  # nothing, when it has its answer
        finally:
            self._opening.discard(request.id)
            self._listing.discard(request.id)

    async def _answer(self, response: Response, request: Request, stateless: bool) -> None:
        if response.status == _OK and response.kind == JSON:
            self.deliver(await self.body(response))
        elif response.status == _OK and response.kind == EVENTS:
            decoder = EventDecoder()
            with contextlib.suppress(PlatformError) if not stateless else contextlib.nullcontext():
                await self.events(response, decoder)
            if not stateless and decoder.last_id and request.id in self._asked and self._waiting(request):
                await self._follow(decoder)
        else:
            response.close()
            raise wrong_kind(response)

    def _waiting(self, request: Request) -> bool:
        return self._receiver is not None and not self._over and self._receiver.request_waits(request.id)

    async def _post(self, message: Message) -> Response:
        fields = {"Accept": f"{JSON}, {EVENTS}", "Content-Type": JSON}
        if isinstance(message, Request | Notification):
            name = message.params.get("name")
            fields |= headers.of_message(message, self._params.get(name, {}) if isinstance(name, str) else {})
            if message.method not in {"initialize", INITIALIZED}:
                await self._ready.wait()
        body = encode(message).rstrip(b"\n")
        return await self._client.send("POST", self._endpoint, self._versioned(fields), self._private(), body)

    def _versioned(self, fields: dict[str, str]) -> dict[str, str]:
        if self._version >= V2025_06_18 and "MCP-Protocol-Version" not in fields:
            fields["MCP-Protocol-Version"] = self._version
        return fields

    def _private(self) -> dict[str, str]:
        return {"Mcp-Session-Id": self._session} if self._session else {}

    async def _initialized(self, message: Notification) -> None:
        try:
            await self._tell(message)
        finally:
            self._ready.set()
        await self._listen()

    async def _tell(self, message: Message) -> None:
        """Send what expects no answer. A server that does not take it has had its chance."""
        try:
            response = await self._post(message)
        except SandboxError:
            if isinstance(message, Notification) and message.method == INITIALIZED:
                raise
            return
        response.close() if response.status not in _ACCEPTED else await self._drain(response)

    async def _drain(self, response: Response) -> None:
        with contextlib.suppress(SandboxError):
            await self.body(response, 0)

    # --- sessions ---------------------------------------------------------------------------------------------------
    def _check_session(self, request: Request, response: Response) -> None:
        """Take a session from the answer to ``initialize``; another one later would be somebody else's."""
        named = response.headers.get("mcp-session-id", "")
        if not named or meta.PROTOCOL_VERSION in meta.of(request.params):
            return
        if request.method == "initialize" and not self._session and response.status == _OK:
            if len(named) > MAX_SESSION_ID or not _SESSION.fullmatch(named):
                response.close()
                message = f"the server named a session that is not at most {MAX_SESSION_ID} visible ASCII characters"
                raise ServerFault("WIRE-070", message, "report it to the server's author")
            self._session = named
        elif named != self._session:
            response.close()
            fault = ServerFault("WIRE-070", "the server named another session than its own", "report it to its author")
            self.abort(fault)
            raise fault

    async def _lost_session(self, response: Response) -> bool:
        """End the channel when the server has forgotten the session (404; MCP 2025-11-25, session management)."""
        if response.status != _NOT_FOUND or not self._session:
            return False
        response.close()
        self.abort(ServerFault("WIRE-071", "the server has ended the session", "start it again"))
        return True

    async def goodbye(self) -> None:
        """End the session on the server, if it lets us."""
        if self._session:
            response = await self._client.send("DELETE", self._endpoint, self._versioned({}), self._private())
            response.close()

    # --- streams of the handshake era ---------------------------------------------------------------------------------
    async def _listen(self) -> None:
        """Hear what the server sends on its own, where it offers that; a GET that fails is no failure of the server."""
        with contextlib.suppress(SandboxError):
            await self._follow(EventDecoder(), first=True)

    async def _follow(self, decoder: EventDecoder, *, first: bool = False) -> None:
        """Read a stream and resume it after its last event id, until the server no longer has anything new.

        Args:
            decoder: of the stream so far.
            first: whether there was no stream yet.
        """
        failures = 0
        while failures < MAX_STREAM_RETRIES and not self._over:
            if not first:
                asked = (decoder.retry or 0) / 1000
                await asyncio.sleep(min(max(asked, STREAM_RETRY_MIN, 2.0**failures / 4), STREAM_RETRY_MAX))
            first = False
            fields = {"Accept": EVENTS}
            if decoder.last_id:
                fields["Last-Event-ID"] = decoder.last_id
            before = decoder.last_id
            response = await self._client.send("GET", self._endpoint, self._versioned(fields), self._private())
            if response.status != _OK or response.kind != EVENTS:
                response.close()
                return
            fresh = EventDecoder()  # what was torn is sent again
            fresh.last_id, fresh.retry = decoder.last_id, decoder.retry
            decoder = fresh
            with contextlib.suppress(PlatformError):
                await self.events(response, decoder)
            failures = 0 if decoder.last_id != before else failures + 1
