"""What a server sends on its own: notifications, requests, and what is no use at all.

- Notifications of the protocol are sorted: progress to its request, subscriptions to their stream, the rest to whoever
  listens. A vendor's own are dropped: nobody here understands them.
- Requests exist in the handshake era only. ``ping`` is answered, ``roots/list`` from the roots we were given,
  everything else is refused: sampling and elicitation are never offered.
- Everything counts against a rate, in messages and in bytes; useless things are counted over the whole life of the
  server. What is recorded is bounded with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from sandbox.errors import ServerFault
from sandbox.events import Scope
from sandbox.limits import (
    MAX_NOTIFICATIONS_PER_SECOND,
    MAX_OWN_BYTES_AT_ONCE,
    MAX_OWN_BYTES_PER_SECOND,
    MAX_SERVER_GARBAGE_LINES,
)
from sandbox.transport.limiter import TokenBucket
from sandbox.transport.negotiate import Agreement
from sandbox.transport.pending import PendingTable
from sandbox.wire import meta, methods
from sandbox.wire.codes import INVALID_PARAMS, METHOD_NOT_FOUND
from sandbox.wire.jsonrpc import Failure, Message, Notification, Request, Result
from sandbox.wire.versions import LATEST_HANDSHAKE

OnRequest = Callable[[str, dict[str, Any]], dict[str, Any] | None]
"""Answers a request of the server, or returns ``None`` to leave it to the defaults. Must not block."""

_CONSUMED: Final = frozenset(("notifications/cancelled", "notifications/subscriptions/acknowledged"))
"""Notifications that concern one request and go no further than its owner."""


class Surroundings(Protocol):
    """The parts of a peer that this needs."""

    agreement: Agreement

    def publish(self, method: str, params: dict[str, Any]) -> None:
        """Tell whoever listens."""

    def consume(self, method: str, params: dict[str, Any]) -> bool:
        """Return whether a notification concerns a subscription, and stops here."""

    def fail(self, fault: ServerFault) -> None:
        """End the server."""


class Unasked:
    """Takes what one server sends on its own.

    Args:
        around: the peer.
        pending: whose progress is wanted.
        roots: what ``roots/list`` is answered with.
        scope: where what is dropped and refused is recorded.

    Attributes:
        on_request: asked first about every request of a handshake server.
        on_ask: takes a question for a client, and returns whether it will be answered.
        dropped: things that were of no use.
        refused: requests that were refused.
    """

    def __init__(
        self, around: Surroundings, pending: PendingTable, roots: Sequence[Mapping[str, Any]], scope: Scope
    ) -> None:
        self.on_request: OnRequest | None = None
        self.on_ask: Callable[[Request], bool] | None = None
        self.dropped = 0
        self.refused = 0
        self._around = around
        self._pending = pending
        self._roots = roots
        self._scope = scope
        self._messages = TokenBucket(MAX_NOTIFICATIONS_PER_SECOND)
        self._bytes = TokenBucket(MAX_OWN_BYTES_PER_SECOND, MAX_OWN_BYTES_AT_ONCE)
        self._now = asyncio.get_running_loop().time

    def record_in(self, scope: Scope) -> None:
        """Record in another scope from now on."""
        self._scope = scope

    def take(self, message: Request | Notification, size: int) -> Message | None:
        """Take one message of ``size`` bytes; return what it is to be answered with."""
        now = self._now()
        if not (self._messages.take(now) and self._bytes.take(now, size)):
            flood = (
                f"the server sent more of its own than {MAX_NOTIFICATIONS_PER_SECOND} messages in a second, or than "
                f"{MAX_OWN_BYTES_PER_SECOND} bytes a second after a burst of {MAX_OWN_BYTES_AT_ONCE}"
            )
            self._around.fail(ServerFault("WIRE-045", flood, "report the flood to the server's author"))
            return None
        if isinstance(message, Notification):
            self._notification(message.method, message.params)
            return None
        agreement = self._around.agreement
        if agreement.version and agreement.era == "stateless":
            self.drop("WIRE-048", "a request, which servers of its protocol version must not send")
            return None
        return self._answer(message)

    def drop(self, number: str, what: str) -> None:
        """Drop something of no use, record it, and lose patience in the end."""
        self.dropped += 1
        if self.dropped > MAX_SERVER_GARBAGE_LINES:
            message = f"the server sent {what}, and {MAX_SERVER_GARBAGE_LINES} things before that were no use either"
            self._around.fail(ServerFault("WIRE-041", message, "report it to the server's author"))
        else:
            self._scope.fact("transport.drop", reason=number, what=what)

    def _notification(self, method: str, params: dict[str, Any]) -> None:
        version = self._around.agreement.version
        if method == "notifications/progress":
            self._progress(params)
        elif version and method not in methods.FROM_SERVER[version]:
            return
        elif not self._around.consume(method, params) and method not in _CONSUMED:
            self._around.publish(method, meta.without_reserved(params))

    def _progress(self, params: dict[str, Any]) -> None:
        callback = self._pending.progress(params.get("progressToken"))
        if callback is not None and type(params.get("progress")) in (int, float):
            kept = ("progress", "total", "message")
            callback({name: params[name] for name in kept if name in params})

    def _answer(self, request: Request) -> Message | None:
        """Return the answer to a request of a handshake server, ``None`` when it will come later."""
        method = request.method
        if self.on_ask is not None and self.on_ask(request):
            return None
        result = self.on_request(method, request.params) if self.on_request is not None else None
        if result is None and method == "ping":
            result = {}
        elif result is None and method == "roots/list" and self._roots:
            result = {"roots": list(self._roots)}
        if result is not None:
            return Result(request.id, result)
        self.refused += 1
        if self.refused <= MAX_SERVER_GARBAGE_LINES:
            self._scope.fact("transport.refuse", method=method[:64])
        known = method in methods.FROM_SERVER[self._around.agreement.version or LATEST_HANDSHAKE]
        text = f"{method[:64]} is not offered to this server" if known else "unknown method"
        return Failure(request.id, INVALID_PARAMS if method == "elicitation/create" else METHOD_NOT_FOUND, text)
