# ruff: noqa: ASYNC109 - the deadline of a request is part of the protocol: the server is told when it passes
"""What a client session is made of: the handler that carries calls, what it is told about each, and the options."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from sandbox.events import Scope
from sandbox.limits import CALL_TIMEOUT, DRAIN_GRACE, MAX_IN_FLIGHT
from sandbox.serve.client_lasting import Lasting
from sandbox.serve.client_replies import Clean, harmless
from sandbox.serve.client_tasks import Tasks
from sandbox.transport.interface import Channel
from sandbox.transport.peer import ServerPeer
from sandbox.transport.rounds import Questions
from sandbox.vet.model import ExposedTool
from sandbox.wire import meta, tracing
from sandbox.wire.jsonrpc import Message, Notification, Request, RequestId
from sandbox.wire.versions import Era

if TYPE_CHECKING:
    from sandbox.serve.asking import Asking
    from sandbox.serve.calls import Caller

MAX_NOTED_ID: Final = 64
"""Characters of a client's request id that are recorded."""

NOTHING: Final[frozenset[str]] = frozenset()
"""What a client that cannot be asked can be asked for."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """What one request says about its client: per-request fields, or what ``initialize`` said for all of them."""

    era: Era
    version: str
    client_info: Mapping[str, Any]
    log_level: str
    capabilities: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Route:
    """The way of one session's requests to the server, and of their progress back.

    Attributes:
        noted: what records say about the way itself, see :attr:`SessionOptions.noted`.
    """

    peer: ServerPeer
    channel: Channel
    clean: Clean
    noted: Mapping[str, str] = field(default_factory=dict)


class CallInfo:
    """One request of a client, as its handler sees it, and as the session keeps it while it is in flight.

    Attributes:
        request_id: JSON-RPC id, as the client chose it.
        method: of the protocol.
        params: as the client sent them.
        meta: the client's ``_meta`` without protocol-owned keys and without ``baggage``; not forwarded by itself.
        remote: the client's span, when it named one.
        progress_token: the client's token, ``None`` when it wants no progress. :meth:`forward` takes care of it.
        log_level: level of this request, empty when it wants no log messages.
        deadline: event loop time until which the call may take.
        scope: the call's own span.
        task: carries the request; the session's own.
        questions: how a server asks this client while it carries the request; ``None``: it may not.
        parked: answered with ``input_required``, and not yet repeated.
        turn: held by the round of questions that it waits for, where others wait for it; ``None``: there was none yet.
        unsent: what it ended with while it was parked: nobody could be told.
    """

    __slots__ = (
        "_envelope",
        "_route",
        "deadline",
        "log_level",
        "meta",
        "method",
        "params",
        "parked",
        "progress_token",
        "questions",
        "remote",
        "request_id",
        "scope",
        "task",
        "turn",
        "unsent",
    )

    def __init__(self, request: Request, envelope: Envelope, route: Route, scope: Scope, deadline: float) -> None:
        own = meta.of(request.params)
        self.request_id = request.id
        self.method = request.method
        self.params = request.params
        self.meta: Mapping[str, Any] = meta.cleaned(own) if own else own
        self.remote = tracing.read(own) if own else None
        self.progress_token: RequestId | None = own.get(meta.PROGRESS_TOKEN) if own else None
        self.log_level = envelope.log_level
        self.deadline = deadline
        self.scope = scope
        self.task: asyncio.Task[None] | None = None
        self.questions: Questions | None = None
        self.parked = False
        self.turn: asyncio.Lock | None = None
        self.unsent: Message | None = None
        self._envelope = envelope
        self._route = route

    @property
    def era(self) -> Era:
        """Era of the client."""
        return self._envelope.era

    @property
    def protocol_version(self) -> str:
        """Protocol version of the client, for this request."""
        return self._envelope.version

    @property
    def client_info(self) -> Mapping[str, Any]:
        """What the client calls itself; never trusted."""
        return self._envelope.client_info

    def towards(self, peer: ServerPeer, scope: Scope) -> CallInfo:
        """Return the same request on its way to another server, recorded with that server's driver and instance."""
        other = copy.copy(self)
        other._route = replace(self._route, peer=peer)  # noqa: SLF001 - the same class
        other.scope = self.scope.within(driver=scope.driver, tenant=scope.tenant, instance=scope.instance)
        return other

    def identity(self) -> dict[str, Any]:
        """Return what a record says about the request itself: id, protocol version, the client's span."""
        said: dict[str, Any] = {"request_id": str(self.request_id)[:MAX_NOTED_ID], "protocol": self.protocol_version}
        said |= self._route.noted
        if self.remote is not None:
            said["traceparent"] = self.remote.parent
            if self.remote.state:
                said["tracestate"] = self.remote.state
        return said

    @property
    def client_capabilities(self) -> Mapping[str, Any]:
        """What the client says that it can be asked for."""
        return self._envelope.capabilities

    def remaining(self) -> float:
        """Return the seconds left, never less than zero."""
        return max(0.0, self.deadline - asyncio.get_running_loop().time())

    async def forward(self, method: str, params: Mapping[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """Send a request to the server under the client's id and return the neutral result.

        Args:
            method: of the protocol.
            params: without the client's ``_meta``.
            timeout: seconds; never more than what is left of the call.

        Raises:
            SandboxError: as :meth:`~sandbox.transport.peer.ServerPeer.request` says.
        """
        peer, left, trace = self._route.peer, self.remaining(), self.scope.trace
        told = tracing.upstream(self.remote, trace.trace_id, trace.span_id, exported=self.scope.exported)
        if told:
            params = {**params, "_meta": {**params.get("_meta", {}), **told}}
        if self.log_level and peer.era == "handshake":
            await peer.set_log_level(self.log_level, timeout=left)
        return await peer.request(
            method,
            params,
            timeout=left if timeout is None else min(left, timeout),
            id=self.request_id,
            on_progress=None if self.progress_token is None else self._progress,
            progress_token=self.progress_token,
            log_level=self.log_level,
            questions=self.questions,
            offers=NOTHING if self.questions is None else self.questions.offers,
        )

    def _progress(self, params: dict[str, Any]) -> None:
        """Pass progress on under the client's own token."""
        said = harmless(self._route.clean, params)
        if said is not None:
            whole = {"progressToken": self.progress_token, **said}
            self._route.channel.send(Notification("notifications/progress", whole))


class Handler(Protocol):
    """Carries the requests that need the server. Results are neutral: without ``resultType`` and caching hints.

    Every method may raise :class:`~sandbox.errors.CallRefused` (of ``tools/call`` it becomes a result with
    ``isError``, which a model can read; elsewhere an error), and lets errors of ``call.forward`` pass.
    """

    async def call_tool(self, tool: ExposedTool, arguments: dict[str, Any], call: CallInfo) -> dict[str, Any]:
        """Return a ``CallToolResult``."""

    async def get_prompt(self, name: str, arguments: dict[str, Any], call: CallInfo) -> dict[str, Any]:
        """Return a ``GetPromptResult`` of a declared prompt."""

    async def read_resource(self, uri: str, call: CallInfo) -> dict[str, Any]:
        """Return a ``ReadResourceResult``; the URI is the client's and has not been judged."""

    async def watch_resource(self, uri: str, call: CallInfo) -> None:
        """Return when the client may read, and so watch, a resource; raise CallRefused otherwise."""

    async def complete(self, params: dict[str, Any], call: CallInfo) -> dict[str, Any]:
        """Return a ``CompleteResult``; the reference is to a declared prompt or resource template."""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Choices of whoever serves.

    Attributes:
        server_info: MCP ``Implementation`` shown to the client: the driver's name and version, not the server's words.
        call_timeout: longest life of one request, seconds; a contract may ask for less.
        max_in_flight: requests of this client that may wait for an answer.
        drain_grace: seconds that requests in flight may still take after the client closed its side.
        clean: applied to whatever of the server reaches the client beside the handler's results (log messages,
            progress, errors); removes secrets and control characters. What it raises ``SandboxError`` for is dropped.
        noted: what records of requests say about how they came: ``transport`` (``http``; stdio says nothing) and
            ``session_id``, a digest of the protocol session's id, which itself would open the session.
        asking: judges what the server asks of this client; ``None``: it may ask nothing.
        asker: for whom it is judged.
        tasks: keeps calls as tasks of 2025-11-25; ``None``: none are offered.
        lasting: keeps calls that last as tasks of the extension of 2026-07-28; ``None``: it is not offered.
    """

    server_info: Mapping[str, Any] = field(default_factory=lambda: {"name": "mcp-sandbox", "version": "0"})
    call_timeout: float = CALL_TIMEOUT
    max_in_flight: int = MAX_IN_FLIGHT
    drain_grace: float = DRAIN_GRACE
    clean: Clean = lambda params: params
    noted: Mapping[str, str] = field(default_factory=dict)
    asking: Asking | None = None
    asker: Caller | None = None
    tasks: Tasks | None = None
    lasting: Lasting | None = None
