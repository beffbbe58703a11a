# ruff: noqa: ASYNC109 - the deadline of a request is part of the protocol: the server is told when it passes
"""The server as a peer: one process, one era, requests and their answers.

The supervisor is a true endpoint here: nothing of a client's bytes reaches the server and nothing of the server's
reaches a client unread. :class:`ServerPeer` negotiates the era before any client is served, matches answers to
requests by exact id, bounds what the server may send on its own, and turns whatever breaks the protocol into one
:class:`~sandbox.errors.ServerFault`, after which every request fails with it.

What the server sends on its own is the matter of :mod:`sandbox.transport.unasked`, requests and answers that of
:mod:`sandbox.transport.exchange`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from sandbox.errors import AuditUnavailable, SandboxError, ServerFault
from sandbox.events import Scope
from sandbox.limits import HANDSHAKE_TIMEOUT, STOP_GRACE
from sandbox.transport.exchange import Exchange
from sandbox.transport.interface import Channel
from sandbox.transport.listing import list_all
from sandbox.transport.negotiate import Agreement, explain_loss, negotiate, request_meta
from sandbox.transport.pending import Progress
from sandbox.transport.questions import ServerQuestions
from sandbox.transport.rounds import Questions, answered_rounds
from sandbox.transport.unasked import OnRequest, Unasked
from sandbox.transport.watches import Watches
from sandbox.wire import logs, meta
from sandbox.wire.errors import WireError
from sandbox.wire.jsonrpc import Failure, Message, Notification, RequestId, Result
from sandbox.wire.results import neutral
from sandbox.wire.versions import Era


class PeerListener(Protocol):
    """Hears what the server does on its own."""

    def server_notified(self, method: str, params: dict[str, Any]) -> None:
        """Take one notification: log message, list change, resource update."""

    def server_pressure(self, full: bool) -> None:
        """Stop or go on sending requests: the server reads slower than it is written to."""

    def server_closed(self, error: SandboxError) -> None:
        """Take note that the server is gone; called once."""


class ServerPeer:
    """One server process. Made by :meth:`connect`.

    Attributes:
        agreement: era, version and what the server said about itself.
        fault: why it is gone, ``None`` while it is there.
        on_notification: called with method and params of every notification that listeners get.
        watches: change notifications, in the terms of the server's era.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        client_info: Mapping[str, Any],
        capabilities: Mapping[str, Any],
        scope: Scope,
        roots: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.agreement = Agreement("")
        self.fault: SandboxError | None = None
        self.on_notification: Callable[[str, dict[str, Any]], None] | None = None
        self.watches = Watches(self)
        self._channel = channel
        self._scope = scope
        self._roots = [dict(root) for root in roots]
        self._client_info = dict(client_info)
        self._capabilities = {**capabilities, **({"roots": {}} if roots else {})}
        self._exchange = Exchange(channel)
        self._pending = self._exchange.pending
        self._unasked = Unasked(self, self._pending, self._roots, scope)
        self._questions = ServerQuestions(channel.send)
        self._unasked.on_ask = self._questions.take
        self._listeners: list[PeerListener] = []
        self._log_level = ""
        self._closing = False
        self._orderly = False

    @classmethod
    async def connect(
        cls,
        channel: Channel,
        *,
        client_info: Mapping[str, Any],
        capabilities: Mapping[str, Any],
        scope: Scope,
        protocol_version: str = "",
        timeout: float = HANDSHAKE_TIMEOUT,
        roots: Sequence[Mapping[str, Any]] = (),
    ) -> ServerPeer:
        """Return the peer at the other end of a channel, its era settled.

        Args:
            channel: not yet started.
            client_info: MCP ``Implementation`` that we introduce ourselves with.
            capabilities: MCP ``ClientCapabilities`` that the server may rely on; empty offers nothing. ``roots`` is
                added when there are roots.
            scope: where faults and refusals are recorded.
            protocol_version: what the driver names; empty to find out.
            timeout: until the server is ready, seconds.
            roots: MCP ``Root`` objects that ``roots/list`` is answered with.

        Raises:
            UsageError: ``WIRE-052``.
            ServerFault: it does not speak the protocol; the channel is closed.
            ServerTimeout: ``WIRE-043``.
        """
        peer = cls(channel, client_info=client_info, capabilities=capabilities, scope=scope, roots=roots)
        channel.start(peer)
        try:
            peer.agreement = await negotiate(
                peer,
                client_info=peer._client_info,
                capabilities=peer._capabilities,
                wanted=protocol_version,
                timeout=timeout,
            )
            await peer.watches.open_lists()
        except SandboxError as error:
            channel.abort()
            raise explain_loss(error) from None
        except BaseException:
            channel.abort()
            raise
        scope.fact("transport.negotiate", era=peer.era, version=peer.protocol_version)
        return peer

    # --- what the server is --------------------------------------------------------------------------------------
    @property
    def era(self) -> Era:
        """Era of the server."""
        return self.agreement.era

    @property
    def protocol_version(self) -> str:
        """Version that was settled."""
        return self.agreement.version

    @property
    def server_info(self) -> Mapping[str, Any]:
        """What the server calls itself; untrusted."""
        return self.agreement.server_info

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """MCP ``ServerCapabilities``."""
        return self.agreement.capabilities

    @property
    def instructions(self) -> str:
        """What the server says to models; untrusted."""
        return self.agreement.instructions

    @property
    def client_capabilities(self) -> Mapping[str, Any]:
        """What was declared to the server."""
        return self._capabilities

    @property
    def on_request(self) -> OnRequest | None:
        """Who is asked first about every request of a handshake server."""
        return self._unasked.on_request

    @on_request.setter
    def on_request(self, answer: OnRequest | None) -> None:
        self._unasked.on_request = answer

    # --- requests ------------------------------------------------------------------------------------------------
    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float,
        id: RequestId | None = None,  # noqa: A002 - the protocol's word
        on_progress: Progress | None = None,
        progress_token: RequestId | None = None,
        log_level: str = "",
        questions: Questions | None = None,
        offers: frozenset[str] | None = None,
    ) -> dict[str, Any]:
        """Send a request and return its neutral result (see :mod:`sandbox.wire.results`).

        Args:
            method: of the protocol.
            params: without protocol-owned ``_meta`` keys; those are added here.
            timeout: until the answer, seconds; then the request is cancelled.
            id: the client's id, kept unless that would be ambiguous.
            on_progress: called with each progress notification of this request.
            progress_token: the client's token, kept unless another request has it.
            log_level: for this request, in the stateless era.
            questions: who is asked what the server wants of the client while it carries this request.
            offers: names of the capabilities for which the client of this very request can be asked; a stateless server
                is told of no others. ``None``, for what is requested in no client's name, tells it of all.

        Raises:
            RemoteError: the server answered with an error.
            InputRequired: it asks for input that it may not have.
            ServerTimeout: ``WIRE-043``; ``notifications/cancelled`` was sent.
            ServerFault: it broke the protocol or is gone.
        """
        token = None if on_progress is None else (progress_token, on_progress)
        level = log_level or self._log_level
        first = dict(params or {})
        asking = self._questions.enter(questions)
        try:
            outcome, result = neutral(
                await self._ask(method, first, timeout, id, token, level, offers), method, self.agreement.era
            )
            if outcome == "complete":
                return result

            async def again(more: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
                answer = await self._ask(method, {**first, **more}, timeout, None, token, level, offers)
                return neutral(answer, method, self.agreement.era)

            return await answered_rounds(again, result, self._roots, questions)
        except WireError as error:
            raise error.as_server_fault() from None
        finally:
            self._questions.leave(asking)

    async def ask(self, method: str, params: dict[str, Any], *, timeout: float) -> dict[str, Any]:
        """Send a request as it stands, with an id of our own, and return its result as it stands."""
        return await self._exchange.ask(method, params, timeout, self._pending.free_id(None), None)

    def own_id(self) -> RequestId:
        """Return a fresh id of our own."""
        return self._pending.free_id(None)

    def tell(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification as it stands."""
        self._channel.send(Notification(method, params))

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification."""
        self._channel.send(Notification(method, dict(params or {})))

    def cancel(self, id: RequestId, reason: str = "") -> bool:  # noqa: A002 - the protocol's word
        """Cancel a request; whoever waits for it gets ``CancelledError``. False when it is not in flight."""
        entry = self._exchange.give_up(id, reason)
        return entry is not None and entry.future.cancel()

    async def list_all(self, method: str, *, timeout: float = HANDSHAKE_TIMEOUT) -> tuple[dict[str, Any], ...]:
        """Return the items of every page of ``tools/list`` and its like.

        Raises:
            ServerFault: ``WIRE-046`` pages or items beyond the bounds, ``WIRE-047`` not a list; and as :meth:`request`.
        """
        return await list_all(self.request, method, timeout)

    async def set_log_level(self, level: str, *, timeout: float) -> None:
        """Ask for log messages from ``level`` on, by whatever means the server's era has."""
        if not logs.is_level(level) or level == self._log_level:
            return
        if self.era == "handshake" and "logging" in self.capabilities:
            await self.request("logging/setLevel", {"level": level}, timeout=timeout)
        self._log_level = level

    def record_in(self, scope: Scope) -> None:
        """Record in another scope from now on: the instance has been given to a tenant."""
        self._scope = scope
        self._unasked.record_in(scope)

    # --- listeners and the end -----------------------------------------------------------------------------------
    def add_listener(self, listener: PeerListener) -> None:
        """Tell ``listener`` what the server does on its own, from now on."""
        self._listeners.append(listener)

    def remove_listener(self, listener: PeerListener) -> None:
        """Undo :meth:`add_listener`."""
        self._listeners.remove(listener)

    def pause(self) -> None:
        """Leave what the server writes in the kernel; pauses nest."""
        self._channel.pause_reading()

    def resume(self) -> None:
        """Undo one pause."""
        self._channel.resume_reading()

    async def close(self, grace: float = STOP_GRACE) -> None:
        """Close the server's stdin, give it ``grace`` seconds to end, and close the channel (MCP, stdio shutdown)."""
        self._closing = True
        self._channel.finish()
        try:
            await asyncio.wait_for(self._channel.wait_closed(), grace)
        except TimeoutError:
            self._channel.abort()
            await self._channel.wait_closed()

    async def wait_closed(self) -> SandboxError | None:
        """Return why the server is gone, when it is; ``None`` after :meth:`close`."""
        await self._channel.wait_closed()
        return None if self._orderly else self.fault

    # --- Receiver ------------------------------------------------------------------------------------------------
    def message_received(self, message: Message) -> None:
        """Sort one message."""
        if isinstance(message, Result | Failure):
            if not self._exchange.take(message):
                self._unasked.drop("WIRE-044", "an answer to a request that was never sent or is answered already")
            return
        answer = self._unasked.take(message, self._channel.last_size)
        if answer is not None:
            self._channel.send(answer)

    def line_refused(self, error: WireError) -> None:
        """Count a line that is no message; fail the request that it was to answer, when that can be read."""
        if error.id == "WIRE-002":  # the end that follows says it better
            return
        if error.fatal or error.severe:
            self.fail(error.as_server_fault())
            return
        self._exchange.fail(error.answer_id, error.as_server_fault())
        self._unasked.drop(error.id, str(error.message))

    def request_failed(self, request_id: RequestId, error: SandboxError) -> None:
        """End one request whose answer will not come, while the server lives on (HTTP)."""
        self._exchange.fail(request_id, error)

    def request_waits(self, request_id: RequestId) -> bool:
        """Return whether a request still waits for its answer."""
        return self._pending.has(request_id)

    def input_ended(self) -> None:
        """Take note that nothing can be answered any more."""
        self.fail(ServerFault("WIRE-040", "the server closed its output", "read its stderr for the reason"))

    def channel_closed(self, error: SandboxError | None) -> None:
        """Fail every request."""
        self._orderly = self._closing and self.fault is None
        gone = ServerFault("WIRE-040", "the server is gone", "read its stderr for the reason")
        self.fault = self.fault or error or gone
        self._exchange.end(self.fault)
        for listener in list(self._listeners):
            listener.server_closed(self.fault)
        dropped, refused = self._unasked.dropped, self._unasked.refused
        if dropped or refused:
            with contextlib.suppress(AuditUnavailable):  # it announces nothing, and the trail says itself that it ended
                self._scope.fact("transport.totals", dropped=dropped, refused_requests=refused)

    def pressure_changed(self, full: bool) -> None:
        """Pass on that the server reads slowly."""
        for listener in list(self._listeners):
            listener.server_pressure(full)

    # --- what `unasked` needs ------------------------------------------------------------------------------------
    def publish(self, method: str, params: dict[str, Any]) -> None:
        """Tell whoever listens about a notification."""
        if self.on_notification is not None:
            self.on_notification(method, params)
        for listener in list(self._listeners):
            listener.server_notified(method, params)

    def consume(self, method: str, params: dict[str, Any]) -> bool:
        """Return whether a notification concerns a subscription, and stops here."""
        return self.watches.consume(method, params)

    def fail(self, fault: ServerFault) -> None:
        """End the connection: the server broke the protocol or is gone."""
        if self.fault is None and not self._closing:
            self.fault = fault
            self._scope.fact("transport.fault", reason=fault.id, message=fault.message)
        self._channel.abort(fault)

    # --- requests ------------------------------------------------------------------------------------------------
    async def _ask(
        self,
        method: str,
        params: dict[str, Any],
        timeout: float,
        wanted: RequestId | None,
        token: tuple[RequestId | None, Progress] | None,
        log_level: str,
        offers: frozenset[str] | None,
    ) -> dict[str, Any]:
        """Add the per-request fields, choose id and token, and wait for the answer."""
        request_id = self._pending.free_id(wanted)
        own: dict[str, Any] = {}
        if self.era == "stateless":
            told = self._capabilities
            if offers is not None and len(told) > ("roots" in told):  # it is told of more than roots
                told = {name: value for name, value in told.items() if name == "roots" or name in offers}
            own = request_meta(self.protocol_version, self._client_info, told)
            if log_level:
                own[meta.LOG_LEVEL] = log_level
        watcher = None
        if token is not None:
            own[meta.PROGRESS_TOKEN] = self._pending.free_token(token[0], request_id)
            watcher = (own[meta.PROGRESS_TOKEN], token[1])
        if own:
            params = {**params, "_meta": {**params.get("_meta", {}), **own}}
        return await self._exchange.ask(method, params, timeout, request_id, watcher)
