"""What goes to a client on one HTTP response: messages in order, some kept for a client that comes back.

A stream is written by a session and read by at most one response at a time. Notifications that nobody reads are
dropped beyond a bound; an answer never is, and there is at most one on a response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from sandbox.serve.http.bounds import MAX_KEPT_BYTES, MAX_KEPT_EVENTS, MAX_WAITING_BYTES
from sandbox.wire.jsonrpc import Message, encode


@dataclass(frozen=True, slots=True)
class Sent:
    """One message on a stream: its number, from 1, and its bytes without a line feed."""

    number: int
    data: bytes
    message: Message


class Stream:
    """One response's messages.

    Args:
        key: names the stream within its session; empty for one that cannot be resumed.
        ended: called when its last message is there.

    Attributes:
        over: nothing follows what is there.
        read: number of the last message that a response has taken.
        dropped: notifications that were not kept.
        reader: somebody reads it now.
        told: an event of it went out with its id, so that a client may come back for what follows.
    """

    def __init__(self, key: str = "", ended: Callable[[], None] = lambda: None) -> None:
        self.key = key
        self._ended = ended
        self.over = False
        self.read = 0
        self.dropped = 0
        self.reader = False
        self.told = False
        self._count = 0
        self._events: list[Sent] = []
        self._bytes = 0
        self._unread = 0
        self._news = asyncio.Event()

    def put(self, message: Message, *, last: bool = False, keep: bool = False) -> None:
        """Add a message; nothing follows the ``last`` one, and that and one to ``keep`` are never dropped."""
        if self.over:
            return
        data = encode(message)[:-1]
        if not (last or keep) and self._unread + len(data) > MAX_WAITING_BYTES:
            self.dropped += 1
            return
        self._count += 1
        self._events.append(Sent(self._count, data, message))
        self._bytes += len(data)
        self._unread += len(data)
        self._forget()
        self.over = last
        self._news.set()
        if last:
            self._ended()

    def end(self) -> None:
        """Say that nothing follows."""
        self.over = True
        self._news.set()

    def back_to(self, number: int) -> None:
        """Read again from after a message, as far as it is kept."""
        self.read = min(number, self._count)
        self._unread = sum(len(one.data) for one in self._events if one.number > self.read)
        self._news.set()

    def take(self) -> list[Sent]:
        """Return what has not been read, and count it as read."""
        fresh = [one for one in self._events if one.number > self.read]
        if fresh:
            self.read, self._unread = fresh[-1].number, 0
        self._forget()
        if not self.over:
            self._news.clear()
        return fresh

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - a heartbeat, not an error
        """Return whether there is news within ``timeout`` seconds."""
        try:
            await asyncio.wait_for(self._news.wait(), timeout)
        except TimeoutError:
            return False
        return True

    @property
    def drained(self) -> bool:
        """Whether nothing is left to read, now and later."""
        return self.over and self.read >= self._count

    @property
    def waiting(self) -> int:
        """Bytes that nobody has read yet."""
        return self._unread

    @property
    def size(self) -> int:
        """Bytes that it keeps."""
        return self._bytes

    def _waiting(self) -> int:
        return sum(len(one.data) for one in self._events if one.number > self.read) if self._bytes else 0

    def _forget(self) -> None:
        """Drop what has been read and need not be kept; the newest stays on a stream that can be resumed."""
        keep = 1 if self.key else 0
        while len(self._events) > keep and self._events[0].number <= self.read and self._too_much():
            self._bytes -= len(self._events.pop(0).data)

    def _too_much(self) -> bool:
        return not self.key or len(self._events) > MAX_KEPT_EVENTS or self._bytes > MAX_KEPT_BYTES
