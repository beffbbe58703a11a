"""One client's session: its own era, its own state, and nothing of the server that is not exposed.

For each request, in this order; the numbers are those of ``docs/calls.md``:

1. frame and envelope: the channel delivers strict messages only; ids are unique, not ours, and their number is bounded;
2. method allowed in this state: the table of :mod:`sandbox.wire.states`, the version's methods, the offered
  capabilities;
3. identity and tenant: whoever made the handler knows them; nothing of the client's ``_meta`` says who it is;
4. exposed tool, prompt or resource: anything else is unknown, whether the server has it or not;
15. returned: dressed for the client's version, under its own id.

Lists and the opening are answered here from the exposure; the rest goes through the handler (steps 5 to 14). The
session sends requests to its client only for what policy lets a server ask (:mod:`sandbox.serve.asking`).
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from sandbox.errors import AuditUnavailable, CallRefused, SandboxError, UsageError
from sandbox.events import Scope
from sandbox.limits import MAX_CLIENT_GARBAGE_LINES
from sandbox.serve import client_lasting, client_lists, client_opening, client_tasks
from sandbox.serve.asking import ASKABLE
from sandbox.serve.client_asking import ClientAsker
from sandbox.serve.client_forward import Surroundings, perform
from sandbox.serve.client_inflight import InFlight
from sandbox.serve.client_model import CallInfo, Envelope, Handler, Route, SessionOptions
from sandbox.serve.client_replies import (
    ProtocolMisuse,
    failure,
    harmless,
    invalid_params,
    refused_result,
    unknown_method,
)
from sandbox.serve.client_streams import FLAGS, Streams, read_filter
from sandbox.transport.interface import Channel
from sandbox.transport.peer import ServerPeer
from sandbox.transport.rounds import Questions
from sandbox.vet.model import Exposure
from sandbox.wire import logs, meta, methods
from sandbox.wire.errors import WireError
from sandbox.wire.jsonrpc import Message, Notification, Request, Result
from sandbox.wire.results import dressed
from sandbox.wire.states import Event, State, after
from sandbox.wire.versions import STATELESS_VERSIONS

LISTEN: Final = "subscriptions/listen"

SUBSCRIBING: Final = frozenset(("resources/subscribe", "resources/unsubscribe"))
"""Methods that need the sub-capability ``resources.subscribe``."""

MAX_NOTED: Final = 512
"""Characters of an unknown name or URI that are recorded."""


class ClientSession:
    """Speaks to one client.

    Args:
        channel: to the client, not yet started.
        exposure: what the client may see and use.
        peer: the server, connected.
        handler: carries what needs the server.
        scope: where misuse is recorded; each call gets a child of it.
        options: see :class:`~sandbox.serve.client_model.SessionOptions`.

    Attributes:
        state: where the session stands.
        exposure: what the client sees; changed with :meth:`replace_exposure`.
    """

    def __init__(
        self,
        channel: Channel,
        exposure: Exposure,
        peer: ServerPeer,
        handler: Handler,
        scope: Scope,
        options: SessionOptions | None = None,
    ) -> None:
        self.state = State.NEW
        self.exposure = exposure
        self._channel = channel
        self._peer = peer
        self._handler = handler
        self._scope = scope
        self._options = options or SessionOptions()
        self._handshake: Envelope = client_opening.UNOPENED
        self._log_level = ""
        self._route = Route(peer, channel, self._options.clean, self._options.noted)
        self._streams = Streams()
        self._inflight = InFlight(self._options.max_in_flight, self._streams)
        self._offers: dict[str, dict[str, Any]] = {}
        self._garbage = 0
        self._full = False
        self._error: SandboxError | None = None
        self._input_over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._asker = self._make_asker()
        self._own: Mapping[str, Callable[[Request, Envelope], dict[str, Any]]] = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": lambda _request, _envelope: {},
            "logging/setLevel": self._set_level,
        }

    # --- life ----------------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Serve until the client closes its side or is gone.

        Requests in flight then have ``drain_grace`` seconds; what remains is cancelled.

        Raises:
            UsageError: the client broke the protocol beyond repair; it was told.
        """
        self._channel.start(self)
        self._peer.add_listener(self)
        try:
            await self._input_over.wait()
            if self._error is None and self._peer.fault is None:
                await self._inflight.drained(self._options.drain_grace)
        finally:
            self._peer.remove_listener(self)
            await self._clean_up()
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """End the session in an orderly way, as when the client closes its side."""
        self._input_over.set()

    @property
    def waiting(self) -> Mapping[str, CallInfo]:
        """Calls that wait for the client to repeat them, by the state that it repeats them under."""
        return self._asker.parking.calls if self._asker is not None else {}

    def replace_exposure(self, exposure: Exposure) -> None:
        """Show the client another surface, and tell it which lists have changed."""
        before, self.exposure = self.exposure, exposure
        self._offers.clear()
        version = self._handshake.version if self.state is not State.STATELESS else STATELESS_VERSIONS[-1]
        ready = self.state is State.READY
        for name in FLAGS:
            listings = [f"{name}/list"] + (["resources/templates/list"] if name == "resources" else [])
            if any(
                client_lists.answer_list(method, {}, before, version)
                != client_lists.answer_list(method, {}, exposure, version)
                for method in listings
            ):
                for message in self._streams.list_changed(
                    name, handshake_ready=ready and name in self._offered(version)
                ):
                    self._channel.send(message)

    # --- Receiver: what the client sends
    # --------------------------------------------------------------------------------
    def message_received(self, message: Message) -> None:
        """Sort one message of the client."""
        if isinstance(message, Request):
            self._take_request(message)
        elif isinstance(message, Notification):
            self._take_notification(message)
        elif self._asker is None or not self._asker.take(message):
            self._refuse_line("SESS-021", "an answer, though nothing was asked")

    def line_refused(self, error: WireError) -> None:
        """Tell the client what was wrong with a line, and end when nothing after it can be read."""
        self._channel.send(failure(error.request_id, error, self._handshake.version))
        self._refuse_line(error.id, error.message)
        if error.fatal:
            self._break(error.id, error.message)

    def input_ended(self) -> None:
        """Let ``run`` finish."""
        self.state = after(self.state, Event.EOF) or State.CLOSED
        self._input_over.set()

    def channel_closed(self, error: SandboxError | None) -> None:
        """Let ``run`` finish at once: nobody reads the answers."""
        self.state = State.CLOSED
        self._error = self._error or error
        self._inflight.cancel_all()
        self._input_over.set()

    def pressure_changed(self, full: bool) -> None:
        """Stop reading from both sides while the client does not read: nothing may pile up for it."""
        self._full = full
        if full:
            self._channel.pause_reading()
            self._peer.pause()
        else:
            self._channel.resume_reading()
            self._peer.resume()

    # --- PeerListener: what the server does on its own
    # --------------------------------------------------------------------
    def server_notified(self, method: str, params: dict[str, Any]) -> None:
        """Pass on log messages and resource updates that this client wants; list changes come with a new exposure."""
        if self.state in (State.NEW, State.PROBED, State.CLOSED):
            return
        if method == "notifications/message" and self._wants_log(params.get("level")):
            kept: dict[str, Any] = {name: params[name] for name in ("level", "logger", "data") if name in params}
            said = harmless(self._options.clean, kept)
            if said is not None:
                self._channel.send(Notification(method, said))
        elif method == "notifications/resources/updated":
            for message in self._streams.updated(params):
                self._channel.send(message)

    def server_pressure(self, full: bool) -> None:
        """Stop reading from the client while the server does not read."""
        if full:
            self._channel.pause_reading()
        else:
            self._channel.resume_reading()

    def server_closed(self, error: SandboxError) -> None:  # noqa: ARG002 - requests in flight fail with it by themselves
        """End open streams in an orderly way; requests fail one by one."""
        for answer in self._streams.close_all():
            self._channel.send(answer)

    # --- requests ------------------------------------------------------------------------------------------------
    def _take_request(self, request: Request) -> None:
        envelope = self._handshake
        try:
            self._inflight.check_id(request.id)
            envelope = self._opened(request)
            self._check_method(request.method, envelope)
            if self._asker is None or not self._asker.resume(request):
                self._dispatch(request, envelope)
        except SandboxError as error:
            self._answer_misuse(request, error, envelope)

    def _opened(self, request: Request) -> Envelope:
        """Check the state and return what is known of the client (step 2)."""
        own = meta.of(request.params)
        event = client_opening.event_of(request.method, own)
        state = after(self.state, event)
        if state is None:
            raise client_opening.misplaced(self.state, event, request.params)
        envelope = self._handshake
        if event in (Event.ENVELOPED, Event.DISCOVER):
            envelope = client_opening.stateless_envelope(own)
        elif event is Event.INITIALIZE:
            envelope = client_opening.handshake_envelope(request.params)
            self._handshake = envelope
        self.state = state
        return envelope

    def _check_method(self, method: str, envelope: Envelope) -> None:
        """Refuse what the version does not have and what is not offered (step 2)."""
        if method in client_tasks.METHODS and "tasks" in self._offered(envelope.version):
            return
        known = methods.FROM_CLIENT[envelope.version].get(method)
        if known is None or known.kind != "request":
            raise unknown_method(method)
        offered = self._offered(envelope.version)
        if known.capability and known.capability not in offered:
            raise unknown_method(method)
        if method in SUBSCRIBING and not offered["resources"].get("subscribe"):
            raise unknown_method(method)

    def _dispatch(self, request: Request, envelope: Envelope) -> None:
        method = request.method
        own = self._own.get(method)
        if own is not None:
            self._reply(request, own(request, envelope), envelope)
        elif method in client_lists.LISTS:
            listed = client_lists.answer_list(method, request.params, self.exposure, envelope.version)
            if method == "tools/list":
                listed = client_tasks.supporting(listed, envelope.version, self._options.tasks)
            self._reply(request, listed, envelope)
        else:
            self._begin(request, envelope)

    def _begin(self, request: Request, envelope: Envelope) -> None:
        """Start a request that needs the server or time."""
        deadline = self._loop.time() + self._options.call_timeout
        call = CallInfo(request, envelope, self._route, self._scope.child(), deadline)
        call.log_level = call.log_level or self._log_level
        if self._asker is not None and self._asker.offered(call):
            offers = frozenset(ASKABLE[method] for method in self._asker.offered(call))
            call.questions = Questions(self, functools.partial(self._asker.ask, call), offers)
        self._inflight.add(call)
        call.task = self._loop.create_task(self._carry(call))

    async def _carry(self, call: CallInfo) -> None:
        """Carry one request to its answer (steps 4 to 15)."""
        try:
            answer = await self._answer_to(call)
        except CallRefused as refusal:
            answer = self._refused(call, refusal)
        except Exception as error:  # noqa: BLE001 - whatever happens, the client gets an answer and learns nothing internal
            answer = self._failed(call, error)
        finally:
            self._inflight.remove(call)
        if answer is None or call.parked:
            call.unsent = answer
            return
        try:
            self._channel.send(answer)
        except (TypeError, ValueError) as error:  # a handler's result that is not JSON
            self._channel.send(self._failed(call, error))

    async def _answer_to(self, call: CallInfo) -> Message | None:
        if call.method == LISTEN:
            await self._listen(call)
            return None
        tasks = self._options.tasks
        result = await perform(call, Surroundings(self.exposure, self._handler, self._peer, self._streams, tasks))
        whole = dressed(result, call.method, call.protocol_version, self._options.server_info)
        return Result(call.request_id, whole)

    def _failed(self, call: CallInfo, error: Exception) -> Message:
        try:
            self._note_failed(call, error)
        except AuditUnavailable as unavailable:
            error = unavailable
        return failure(call.request_id, error, call.protocol_version, self._options.clean)

    def _note_failed(self, call: CallInfo, error: Exception) -> None:
        """Record what the handler did not: something unknown that was asked for, and a defect of ours."""
        if isinstance(error, ProtocolMisuse):
            target = call.params.get("name", call.params.get("uri"))
            asked = target[:MAX_NOTED] if isinstance(target, str) else ""
            call.scope.fact("session.refuse", reason=error.id, method=call.method, target=asked)
        elif not isinstance(error, SandboxError):
            call.scope.fact("session.defect", method=call.method, error=type(error).__name__)

    def _refused(self, call: CallInfo, refusal: CallRefused) -> Message:
        if call.method != "tools/call":
            return failure(call.request_id, refusal, call.protocol_version)
        whole = dressed(refused_result(refusal), call.method, call.protocol_version, self._options.server_info)
        return Result(call.request_id, whole)

    async def _listen(self, call: CallInfo) -> None:
        """Open a stream of change notifications; the request stays unanswered."""
        lasting = self._options.lasting
        tasks = await client_lasting.followed(call.params, call.client_capabilities, lasting)
        wanted = replace(read_filter(call.params, self._offered(call.protocol_version)), tasks=tasks)
        watched: list[str] = []
        try:
            for uri in wanted.uris:
                await self._handler.watch_resource(uri, call)
                await self._peer.watches.watch(uri, timeout=call.remaining())
                watched.append(uri)
        except BaseException:
            for uri in watched:
                await self._peer.watches.unwatch(uri, timeout=call.remaining())
            raise
        self._channel.send(self._streams.open(call.request_id, wanted))
        if lasting is not None and tasks:
            self._streams.follow(call.request_id, lasting, self._channel.send)

    def _make_asker(self) -> ClientAsker | None:
        options = self._options
        if options.asking is None or options.asker is None:
            return None
        return ClientAsker(self._channel, options.asking, options.asker, options.server_info, self._park, self._unpark)

    def _park(self, call: CallInfo) -> None:
        """Free the id of a call that is answered for now."""
        call.parked = True
        self._inflight.remove(call)

    def _unpark(self, call: CallInfo) -> None:
        """Go on with a call under the id of its repetition."""
        self._inflight.add(call)
        call.parked = False

    # --- answers of our own --------------------------------------------------------------------------------------
    def _initialize(self, _request: Request, envelope: Envelope) -> dict[str, Any]:
        return {
            "protocolVersion": envelope.version,
            "capabilities": self._offered(envelope.version),
            "serverInfo": dict(self._options.server_info),
            **({"instructions": self.exposure.instructions} if self.exposure.instructions else {}),
        }

    def _discover(self, _request: Request, envelope: Envelope) -> dict[str, Any]:
        return {
            "supportedVersions": list(STATELESS_VERSIONS),
            "capabilities": self._offered(envelope.version),
            **({"instructions": self.exposure.instructions} if self.exposure.instructions else {}),
        }

    def _set_level(self, request: Request, _envelope: Envelope) -> dict[str, Any]:
        level = request.params.get("level")
        if not logs.is_level(level):
            raise invalid_params("SESS-011", "the log level is not one", f"use one of {', '.join(logs.LEVELS)}")
        self._log_level = str(level)
        return {}

    def _reply(self, request: Request, result: dict[str, Any], envelope: Envelope) -> None:
        whole = dressed(result, request.method, envelope.version, self._options.server_info)
        self._channel.send(Result(request.id, whole))

    def _offered(self, version: str) -> dict[str, Any]:
        if version not in self._offers:
            approved = self.exposure.capabilities
            server = self._peer.capabilities if approved is None else approved
            own = client_tasks.offered(version, self._options.tasks)
            own |= client_lasting.offered(version, self._options.lasting)
            self._offers[version] = client_lists.capabilities(self.exposure, server, version) | own
        return self._offers[version]

    def _wants_log(self, level: object) -> bool:
        """Return whether the client asked for such messages: for its session, or for a request in flight."""
        if self.state is State.STATELESS:
            return self._inflight.wants_log(level)
        return logs.reaches(level, self._log_level or "debug")

    # --- notifications and misuse
    # ---------------------------------------------------------------------------------------
    def _take_notification(self, message: Notification) -> None:
        if message.method == "notifications/cancelled":
            self._cancel(message.params.get("requestId"))
        elif message.method == "notifications/initialized":
            self.state = after(self.state, Event.INITIALIZED) or self.state
        # Everything else concerns what is not offered to the server (roots) or is not of the protocol, and stops here.

    def _cancel(self, request_id: Any) -> None:
        """Cancel a request in flight; unknown ids are ignored, since an answer may have crossed the notification."""
        if type(request_id) not in (str, int):
            return
        if not self._inflight.cancel(request_id):
            for uri in self._streams.close(request_id):
                self._unwatch_later(uri)

    def _unwatch_later(self, uri: str) -> None:
        task = self._loop.create_task(self._peer.watches.unwatch(uri, timeout=self._options.call_timeout))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _answer_misuse(self, request: Request, error: SandboxError, envelope: Envelope) -> None:
        self._scope.fact("session.refuse", reason=error.id, method=request.method[:64])
        # An error under an id in flight would be taken for the answer of that other request: it goes without an id.
        ambiguous = error.id == "SESS-008"
        self._channel.send(failure(None if ambiguous else request.id, error, envelope.version))

    def _refuse_line(self, number: str, what: str) -> None:
        self._garbage += 1
        if self._garbage <= MAX_CLIENT_GARBAGE_LINES:
            self._scope.fact("session.drop", reason=number, what=what)
        else:
            self._break("SESS-022", f"{self._garbage} lines that are no use, {what} last")

    def _break(self, number: str, what: str) -> None:
        self._error = self._error or UsageError(number, f"the client sent {what}", "correct the client")
        self.state = State.CLOSED
        self._channel.pause_reading()
        self._input_over.set()

    # --- the end
    # --------------------------------------------------------------------------------------------------------
    async def _clean_up(self) -> None:
        if self._asker is not None:
            self._asker.close()
        tasks = self._inflight.cancel_all()
        await asyncio.gather(*tasks, return_exceptions=True)
        for uri in self._streams.all_watched():
            self._unwatch_later(uri)
        for answer in self._streams.close_all():
            self._channel.send(answer)
        if self._full:
            self._peer.resume()
        self.state = State.CLOSED
        self._channel.close()
        try:
            await asyncio.wait_for(self._channel.wait_closed(), self._options.drain_grace)
        except TimeoutError:  # a client that does not read its last answers does not keep us
            self._channel.abort()
