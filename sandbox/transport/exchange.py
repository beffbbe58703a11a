"""Requests to one server and their answers: sent, matched by exact id, timed out, cancelled, failed together."""

from __future__ import annotations

import asyncio
import math
from typing import Any, Final

from sandbox.errors import SandboxError, ServerTimeout
from sandbox.transport.interface import Channel
from sandbox.transport.outcomes import RemoteError
from sandbox.transport.pending import Pending, PendingTable, Progress
from sandbox.wire.jsonrpc import Failure, Notification, Request, RequestId, Result

CANCELLED: Final = "notifications/cancelled"

NEVER: Final = math.inf
"""When no alarm is set."""

Watcher = tuple[RequestId, Progress]
"""Progress token of a request, and who wants its progress."""


class Exchange:
    """What is in flight towards one server.

    Args:
        channel: to the server.

    Attributes:
        pending: requests in flight.
        over: why nothing more can be asked, ``None`` while it can.
    """

    def __init__(self, channel: Channel) -> None:
        self.pending = PendingTable()
        self.over: SandboxError | None = None
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = NEVER

    async def ask(
        self, method: str, params: dict[str, Any], patience: float, request_id: RequestId, watcher: Watcher | None
    ) -> dict[str, Any]:
        """Send a request and return the result as the server wrote it.

        Args:
            method: of the protocol.
            params: complete.
            patience: until the answer, seconds; then the request is cancelled.
            request_id: from ``pending.free_id``.
            watcher: for progress.

        Raises:
            RemoteError: the server answered with an error.
            ServerTimeout: ``WIRE-043``.
            SandboxError: the connection is over.
        """
        if self.over is not None:
            raise self.over.with_traceback(None)  # otherwise it would keep the frames of all who were told
        deadline = self._loop.time() + patience
        token, on_progress = watcher or (None, None)
        entry = Pending(method, token, on_progress, deadline, self._loop.create_future())
        self.pending.add(request_id, entry)
        if deadline < self._alarm_at:
            self._set_alarm(deadline)
        self._channel.send(Request(request_id, method, params))
        try:
            answer = await entry.future
        except asyncio.CancelledError:
            self.give_up(request_id, "the client cancelled it")
            raise
        if isinstance(answer, Failure):
            raise RemoteError(answer.code, answer.message, answer.data)
        return answer.result

    def take(self, answer: Result | Failure) -> bool:
        """Hand an answer to its request; false when nobody asked, and nobody cancelled either."""
        entry = self.pending.take(answer.id) if answer.id is not None else None
        if entry is None:
            return self.pending.was_abandoned(answer.id)
        if not entry.future.done():
            entry.future.set_result(answer)
        return True

    def fail(self, request_id: RequestId | None, error: SandboxError) -> None:
        """End one request with an error."""
        entry = self.pending.take(request_id) if request_id is not None else None
        if entry is not None:
            _fail(entry, error)

    def end(self, error: SandboxError) -> None:
        """End every request, and each one to come, with an error."""
        self.over = self.over or error
        if self._alarm is not None:
            self._alarm.cancel()
        for entry in self.pending.drain():
            _fail(entry, self.over)

    def give_up(self, request_id: RequestId, reason: str) -> Pending | None:
        """Stop waiting for an answer and tell the server, except about ``initialize``, which cannot be cancelled."""
        entry = self.pending.abandon(request_id)
        if entry is not None and entry.method != "initialize":
            params = {"requestId": request_id, "reason": reason} if reason else {"requestId": request_id}
            self._channel.send(Notification(CANCELLED, params))
        return entry

    def _set_alarm(self, deadline: float) -> None:
        """Wake at a deadline; one alarm for all requests, since most are answered long before theirs."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = deadline
        self._alarm = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        """Give up what is due, and wait for the next."""
        for request_id in self.pending.due(self._loop.time()):
            entry = self.give_up(request_id, "deadline")
            if entry is not None:
                message = f"the server did not answer `{entry.method}` in time"
                mend = "raise the time limit or report the server"
                _fail(entry, ServerTimeout("WIRE-043", message, mend))
        self._alarm, self._alarm_at = None, NEVER
        upcoming = self.pending.next_deadline()
        if upcoming is not None:
            self._set_alarm(upcoming)


def _fail(entry: Pending, error: SandboxError) -> None:
    if not entry.future.done():
        entry.future.set_exception(error)
        entry.future.exception()  # somebody may have stopped waiting: no warning then
