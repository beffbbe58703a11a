"""Servers that answer a client of the dialect as no server should: for ever, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from sandbox.dialect.links import HttpLink, PipeLink
from sandbox.errors import ServerFault

pytestmark = pytest.mark.anyio

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def hostile(answer: Answer) -> AsyncIterator[str]:
    """Serve HTTP as an answer says, and yield the address."""
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())  # type: ignore[arg-type]
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await reader.readuntil(b"\r\n\r\n")
                await answer(writer)
                await writer.drain()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def test_a_server_that_drips_is_not_waited_for() -> None:
    """A byte now and then is no answer: the time is of the whole."""

    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n")
        for _ in range(3000):
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with asyncio.timeout(40), hostile(drip) as url, HttpLink(url, timeout=1.0) as link:
        with pytest.raises(ServerFault, match="DIA-050"):
            await link.file("tools/")


async def test_a_program_that_does_not_read_is_not_waited_for() -> None:
    """What is sent to a program is sent within the time for its answer, or refused."""
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    async with asyncio.timeout(60), PipeLink(sleeper, timeout=1.0) as link:
        with pytest.raises(ServerFault, match="DIA-050"):
            await link.invoke({"arguments": "x" * 1_000_000})
