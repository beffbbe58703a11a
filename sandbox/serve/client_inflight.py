"""The requests of one client that wait for an answer: their ids, their progress tokens, and how many there may be."""

from __future__ import annotations

import asyncio
import contextlib

from sandbox.errors import CallRefused
from sandbox.serve.client_model import CallInfo
from sandbox.serve.client_replies import ProtocolMisuse, invalid_params
from sandbox.serve.client_streams import Streams
from sandbox.transport.pending import OWN_PREFIX
from sandbox.wire import logs
from sandbox.wire.jsonrpc import RequestId, is_id


class InFlight:
    """Keeps what is in flight.

    Args:
        most: requests and open streams at once.
        streams: the open streams.
    """

    def __init__(self, most: int, streams: Streams) -> None:
        self._most = most
        self._streams = streams
        self._calls: dict[RequestId, CallInfo] = {}
        self._tokens: set[RequestId] = set()
        self._idle = asyncio.Event()

    def __len__(self) -> int:
        return len(self._calls)

    def check_id(self, request_id: RequestId) -> None:
        """Refuse an id that would make an answer ambiguous, and more requests than are carried at once.

        Raises:
            ProtocolMisuse: ``SESS-007`` an id of ours, ``SESS-008`` one in flight.
            CallRefused: ``SESS-009``, too many.
        """
        if isinstance(request_id, str) and request_id.startswith(OWN_PREFIX):
            raise ProtocolMisuse("SESS-007", f"ids that begin with {OWN_PREFIX!r} are reserved", "choose another id")
        if request_id in self._calls or request_id in self._streams:
            raise ProtocolMisuse("SESS-008", "the id is that of a request in flight", "use an id once")
        if len(self._calls) + len(self._streams) >= self._most:
            raise CallRefused(
                "SESS-009", f"{self._most} requests are in flight", "wait for answers before sending more"
            )

    def add(self, call: CallInfo) -> None:
        """Keep a request.

        Raises:
            ProtocolMisuse: ``SESS-014``, its progress token is none, or that of another request.
        """
        token = call.progress_token
        if token is not None:
            if not is_id(token):
                message = "the progress token is neither a short string nor an exact integer"
                raise invalid_params("SESS-014", message, "send one of them")
            if token in self._tokens:
                raise invalid_params("SESS-014", "the progress token is that of a request in flight", "use it once")
            self._tokens.add(token)
        self._calls[call.request_id] = call

    def remove(self, call: CallInfo) -> None:
        """Forget a request."""
        if self._calls.get(call.request_id) is call:  # the id of a parked call may be another's by now
            del self._calls[call.request_id]
        if call.progress_token is not None:
            self._tokens.discard(call.progress_token)
        if not self._calls:
            self._idle.set()

    def cancel(self, request_id: RequestId) -> bool:
        """Cancel a request; false when it is not in flight."""
        call = self._calls.get(request_id)
        if call is None or call.task is None:
            return False
        call.task.cancel()
        return True

    def cancel_all(self) -> list[asyncio.Task[None]]:
        """Cancel every request and return the tasks that end with it."""
        tasks = [call.task for call in self._calls.values() if call.task is not None]
        for task in tasks:
            task.cancel()
        return tasks

    async def drained(self, grace: float) -> None:
        """Return when nothing is in flight, or after ``grace`` seconds."""
        if self._calls:
            self._idle.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), grace)

    def wants_log(self, level: object) -> bool:
        """Return whether some request in flight asked for messages of a severity."""
        return any(call.log_level and logs.reaches(level, call.log_level) for call in self._calls.values())
