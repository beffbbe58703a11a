"""The dialect over standard input and output: one JSON object on each line, for one client (S1-6, S1-9).

Whoever started the process is the client: there is no credential but the one that ``run --clients`` asks for first.
Standard output is taken away from everything else in the process, so that nothing but messages can be on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from sandbox import jsontext
from sandbox.dialect import bounds
from sandbox.dialect.refusals import DialectRefused, response
from sandbox.dialect.talk import Say, Talk
from sandbox.errors import UsageError
from sandbox.serve.http.bounds import WRITE_TIMEOUT
from sandbox.serve.http.doors import Behind
from sandbox.serve.http.turns import Turn
from sandbox.serve.identity.model import Access, Identity
from sandbox.transport.descriptors import Descriptor, take_stdio
from sandbox.transport.limiter import TokenBucket
from sandbox.wire.jsonrpc import Request


class SingleDoor:
    """An endpoint that one process serves to whoever started it; see :class:`~sandbox.serve.http.doors.Door`.

    Args:
        name: driver id.
        behind: gives what is behind it now.
    """

    def __init__(self, name: str, behind: Callable[[], Behind]) -> None:
        self.name = name
        self.path = f"stdio:{name}"
        self.access = Access(anonymous=True)
        self.info = {"name": name, "version": "1"}
        self.legacy = False
        self.turn = Turn()
        self.stateless = False
        self._behind = behind

    @contextlib.asynccontextmanager
    async def open(self, identity: Identity, request: Request | None = None) -> AsyncIterator[Behind]:  # noqa: ARG002
        """Lend the one server."""
        yield self._behind()

    def limited(self, tool: str) -> str:
        """Return the key of a tool's limit, empty for one that is not exposed."""
        return tool if tool in self._behind().exposure.tools else ""


class Pipe:
    """A client on two descriptors; made by :func:`take_pipe`."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        reading: asyncio.ReadTransport,
        writer: asyncio.StreamWriter,
        ends: tuple[Descriptor, ...],
    ) -> None:
        self._reader = reader
        self._reading = reading
        self._writer = writer
        self._ends = ends
        self._writing = asyncio.Lock()
        self._bucket = TokenBucket(bounds.MESSAGES_PER_SECOND, bounds.MESSAGES_AT_ONCE)
        self._gone = False

    async def converse(self, make: Callable[[Say], Talk]) -> None:
        """Answer the client until it closes its side; what is in progress then is answered first, within its time."""
        talk = make(self._say)
        try:
            while not self._gone:
                line = await self._line()
                if line is None or not await talk.take(line):
                    break
            await talk.drained(bounds.HANDSHAKE_TIMEOUT)
        finally:
            await talk.close()
            with contextlib.suppress(OSError, RuntimeError):
                self._writer.close()
                self._reading.close()
            for end in self._ends:
                end.release()

    async def _line(self) -> bytes | None:
        """Return the next line, ``None`` when nothing more can be read."""
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                return None
            except asyncio.LimitOverrunError:
                await self._refused("a message is too large")
                return None
            if not self._bucket.take(time.monotonic()):
                await self._refused("messages come too fast")
                return None
            if line.strip():
                return line

    async def _refused(self, why: str) -> None:
        await self._say(response(DialectRefused("DIA-020", why, "send fewer, smaller messages")))

    async def _say(self, message: Mapping[str, Any]) -> None:
        async with self._writing:
            if self._gone:
                return
            try:
                self._writer.write(jsontext.dump(message) + b"\n")
                await asyncio.wait_for(self._writer.drain(), WRITE_TIMEOUT)
            except (OSError, TimeoutError):
                self._gone = True


async def take_pipe() -> Pipe:
    """Return the client of this process.

    Raises:
        UsageError: ``CLI-235``, its standard input or output is a file.
    """
    reading, writing = take_stdio()
    if not reading.pollable or not writing.pollable:
        text = "the dialect is spoken over pipes, sockets and terminals"
        raise UsageError("CLI-235", text, "let the client start this command")
    return await pipe_of(reading, writing)


async def pipe_of(reading: Descriptor, writing: Descriptor) -> Pipe:
    """Return the client on two descriptors."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=bounds.MAX_MESSAGE)
    source, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading.fd, "rb", buffering=0)
    )
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(writing.fd, "wb", buffering=0)
    )
    return Pipe(reader, source, asyncio.StreamWriter(transport, protocol, None, loop), (reading, writing))
