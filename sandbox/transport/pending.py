"""Requests that wait for the server: by id and by progress token, and the ids that may still be answered late.

Ids are compared with their type: ``1`` and ``"1"`` are two requests (probe J06). An id is used towards the server as
the client chose it. Only when that would be ambiguous, because another client uses it or because an earlier request
with it was cancelled and may still be answered, one of our own takes its place: an answer must never reach the wrong
request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from sandbox.limits import MAX_ABANDONED_IDS
from sandbox.wire.jsonrpc import Failure, RequestId, Result

OWN_PREFIX: Final = "mcp-sandbox:"
"""What the ids of our own requests begin with; a client may not use it."""

Progress = Callable[[dict[str, Any]], None]
"""Takes the parameters of one progress notification, without its token."""


class Pending:
    """One request in flight."""

    __slots__ = ("deadline", "future", "method", "on_progress", "token")

    def __init__(
        self,
        method: str,
        token: RequestId | None,
        on_progress: Progress | None,
        deadline: float,
        future: asyncio.Future[Result | Failure],
    ) -> None:
        self.method = method
        self.token = token
        self.on_progress = on_progress
        self.deadline = deadline
        self.future = future


class PendingTable:
    """Every request in flight of one server."""

    def __init__(self) -> None:
        self._by_id: dict[RequestId, Pending] = {}
        self._by_token: dict[RequestId, Pending] = {}
        self._abandoned: dict[RequestId, None] = {}
        self._counter = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def free_id(self, wanted: RequestId | None) -> RequestId:
        """Return the id to use towards the server: the wanted one unless that would be ambiguous."""
        if wanted is not None and wanted not in self._by_id and wanted not in self._abandoned:
            return wanted
        self._counter += 1
        return f"{OWN_PREFIX}{self._counter}"

    def free_token(self, wanted: RequestId | None, request_id: RequestId) -> RequestId:
        """Return the progress token to use: the wanted one, or the request's id when another request has it."""
        return request_id if wanted is None or wanted in self._by_token else wanted

    def add(self, request_id: RequestId, entry: Pending) -> None:
        """Remember a request that is about to be sent."""
        self._by_id[request_id] = entry
        if entry.token is not None:
            self._by_token[entry.token] = entry

    def has(self, request_id: RequestId) -> bool:
        """Return whether a request waits for an answer."""
        return request_id in self._by_id

    def progress(self, token: Any) -> Progress | None:
        """Return who wants the progress of a token, or ``None``."""
        entry = self._by_token.get(token) if type(token) in (str, int) else None
        return entry.on_progress if entry is not None else None

    def take(self, request_id: RequestId) -> Pending | None:
        """Remove and return the request of an id, or ``None``."""
        entry = self._by_id.pop(request_id, None)
        if entry is not None and entry.token is not None:
            self._by_token.pop(entry.token, None)
        return entry

    def abandon(self, request_id: RequestId) -> Pending | None:
        """Remove a request that nobody waits for any more; its late answer will be known as one."""
        entry = self.take(request_id)
        if entry is not None:
            self._abandoned[request_id] = None
            if len(self._abandoned) > MAX_ABANDONED_IDS:
                del self._abandoned[next(iter(self._abandoned))]
        return entry

    def was_abandoned(self, request_id: RequestId | None) -> bool:
        """Return whether an answer is the late one of an abandoned request; true once for each."""
        if request_id is None or request_id not in self._abandoned:
            return False
        del self._abandoned[request_id]
        return True

    def drain(self) -> list[Pending]:
        """Remove and return every request."""
        entries = list(self._by_id.values())
        self._by_id.clear()
        self._by_token.clear()
        return entries

    def due(self, now: float) -> list[RequestId]:
        """Return the ids of requests whose deadline has passed."""
        return [request_id for request_id, entry in self._by_id.items() if entry.deadline <= now]

    def next_deadline(self) -> float | None:
        """Return the earliest deadline, ``None`` when nothing is in flight."""
        return min((entry.deadline for entry in self._by_id.values()), default=None)
