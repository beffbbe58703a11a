"""The supervisor's end of the broker's stream: commands with answers, and events in order.

The stream is the broker's standard input and output, attached through the engine; it works wherever the engine does.
When this end closes, whether on purpose or because the supervisor died, the broker ends.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable
from typing import Any, Final, cast

from sandbox import jsontext
from sandbox.errors import PlatformError
from sandbox.limits import KIB, MIB
from sandbox.wire.attach import STDOUT, AttachDecoder

MAX_EVENT_BYTES: Final = 1 * MIB
"""One event of the broker; they have a few hundred bytes."""

MAX_WORDS: Final = 4 * KIB
"""Of the broker's standard error kept to say why it died."""

COMMAND_TIMEOUT: Final = 30.0
"""Seconds for the broker to answer; attaching waits up to 15 for a holder that is starting."""

Event = dict[str, Any]


class Channel(asyncio.Protocol):
    """One broker's stream; made by :func:`open_channel`.

    Args:
        event: called for each event that is no answer, in order.
        ended: called once, when the stream is over.
    """

    def __init__(self, event: Callable[[Event], None], ended: Callable[[], None]) -> None:
        self._event, self._ended = event, ended
        self._frames = AttachDecoder()
        self._partial = bytearray()
        self._words = bytearray()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Event]] = {}
        self._transport: asyncio.Transport | None = None
        self._over = False

    async def ask(self, op: str, **parts: Any) -> Event:
        """Send a command and return the broker's answer.

        Raises:
            PlatformError: ``EGR-203`` the broker has ended or does not answer; ``EGR-204`` it could not do it;
                ``EGR-211`` a holder did not do its part.
        """
        number = next(self._numbers)
        answer: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            self.tell(op, id=number, **parts)
            async with asyncio.timeout(COMMAND_TIMEOUT):
                told = await answer
        except TimeoutError:
            raise self.gone(f"no answer to {op}") from None
        finally:
            self._waiting.pop(number, None)
        if told.get("of") == "holder":
            raise PlatformError(
                "EGR-211",
                f"the holder of a network namespace failed: {told.get('error')}",
                "start the server again; `mcp-sandbox doctor` tries broker and holder and shows why",
            )
        if not told.get("ok"):
            raise PlatformError(
                "EGR-204",
                f"the egress broker could not {op}: {told.get('error')}",
                "`mcp-sandbox doctor` says whether the image mcp-sandbox/egress is the one of this version",
            )
        return told

    def tell(self, op: str, **parts: Any) -> None:
        """Send a command that has no answer.

        Raises:
            PlatformError: ``EGR-203``, the broker has ended.
        """
        if self._transport is None or self._over:
            raise self.gone("its stream is closed")
        self._transport.write(jsontext.dump({"op": op, **parts}) + b"\n")

    def close(self) -> None:
        """Close this end, which ends the broker."""
        if self._transport is not None:
            self._transport.abort()

    def gone(self, why: str) -> PlatformError:
        """Return the error for a broker that has ended, with its last words."""
        words = bytes(self._words).decode("utf-8", "replace").strip()
        return PlatformError(
            "EGR-203",
            f"the egress broker has ended ({why})" + (f"; it wrote: {words[-400:]}" if words else ""),
            "nothing gets out meanwhile; see the engine's log, and `mcp-sandbox doctor`",
        )

    # --- asyncio.Protocol ---
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Take frames apart, then lines."""
        try:
            for stream, piece in self._frames.feed(data):
                if stream == STDOUT:
                    self._lines(piece)
                else:
                    self._words += piece
                    del self._words[:-MAX_WORDS]
        except (PlatformError, jsontext.JsonTextError, KeyError, TypeError) as error:
            self._words += str(error).encode()
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who waits."""
        del exc
        self._over = True
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(self.gone("before it answered"))
        self._ended()

    def _lines(self, piece: bytes) -> None:
        self._partial += piece
        *lines, self._partial = self._partial.split(b"\n")
        if len(self._partial) > MAX_EVENT_BYTES:
            raise PlatformError("EGR-203", "the egress broker sent an event without an end", "report this")
        for line in lines:
            self._take(dict(jsontext.parse(bytes(line))))

    def _take(self, event: Event) -> None:
        if event["ev"] != "answer":
            self._event(event)
            return
        answer = self._waiting.get(event["id"])
        if answer is not None and not answer.done():
            answer.set_result(event)


async def open_channel(sock: socket.socket, event: Callable[[Event], None], ended: Callable[[], None]) -> Channel:
    """Return the channel over an attached socket, which it owns from now on."""
    loop = asyncio.get_running_loop()
    _, channel = await loop.create_unix_connection(lambda: Channel(event, ended), sock=sock)
    return channel
