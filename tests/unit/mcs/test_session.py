"""A sandbox held by synchronous code: its thread ends with its holder, and nobody waits for ever. No engine."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from sandbox.errors import (
    AuditUnavailable,
    CallRefused,
    PlatformError,
    SandboxError,
    ServerFault,
    ServerTimeout,
    UsageError,
)
from sandbox.limits import MAX_LINE_BYTES
from sandbox.mcs.client import Client
from sandbox.mcs.session import Session
from sandbox.wire.jsonrpc import Failure, Request, Result, decode, encode


class Stand:
    """Stands for an opened sandbox; counts what was opened and closed."""

    def __init__(self, fail: Exception | None = None) -> None:
        self.fail = fail
        self.opened = self.closed = 0
        self.over = asyncio.Event()
        self.fault: SandboxError = ServerFault("CLI-020", "the server ended")

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Any]:
        self.opened += 1
        if self.fail is not None:
            raise self.fail
        self.over = asyncio.Event()
        try:
            yield self
        finally:
            self.closed += 1

    async def wait_over(self) -> SandboxError:
        await self.over.wait()
        return self.fault


async def thread_of(_stand: Any) -> int:
    """Return where the work runs."""
    return threading.get_ident()


async def end(stand: Any) -> None:
    """Let the sandbox end by itself."""
    stand.over.set()


def names() -> list[str]:
    """Return the threads of sandboxes."""
    return [one.name for one in threading.enumerate() if one.name == "mcp-sandbox-mcs"]


def test_work_runs_in_one_thread_beside_ours() -> None:
    """It is opened once, at the first need, and closed with everything when the holder says so."""
    stand = Stand()
    session = Session(stand.open)
    assert ("new", 0) == (session.state, stand.opened)

    threads = {session.call(thread_of) for _ in range(3)}
    assert (1, False) == (len(threads), threading.get_ident() in threads)
    assert ("open", 1) == (session.state, stand.opened)
    session.close()
    session.close()

    assert ("closed", 1, []) == (session.state, stand.closed, names())
    with pytest.raises(UsageError, match="MCS-006"):
        session.call(thread_of)


def test_a_holder_that_is_forgotten_closes() -> None:
    """Without `close`, the end of the last reference ends the thread and the sandbox."""
    stand = Stand()
    session = Session(stand.open)
    session.call(thread_of)
    del session
    gc.collect()

    assert (1, []) == (stand.closed, names())


def test_a_failed_start_is_raised_and_tried_again() -> None:
    """A missing engine is told as what it is, at each call anew."""
    stand = Stand(PlatformError("LAUNCH-001", "no engine"))
    session = Session(stand.open)
    for _ in range(2):
        with pytest.raises(PlatformError, match="LAUNCH-001"):
            session.call(thread_of)
    stand.fail = None

    assert isinstance(session.call(thread_of), int)
    assert 3 == stand.opened
    session.close()


def test_a_sandbox_that_ended_is_not_started_behind_the_callers_back() -> None:
    """Calls fail with why it ended until somebody asks for a new start."""
    stand = Stand()
    session = Session(stand.open)
    with contextlib.suppress(UsageError):
        session.call(end)
    for one in threading.enumerate():
        if one.name == "mcp-sandbox-mcs":
            one.join(10)

    assert ("ended", "CLI-020") == (session.state, session.fault.id)
    with pytest.raises(ServerFault, match="CLI-020"):
        session.call(thread_of)
    session.open()
    assert ("open", 2) == (session.state, stand.opened)
    session.close()


def test_sandboxes_start_one_at_a_time() -> None:
    """Eight starts at once never overlap: what they stand on is not safe for threads at its first use."""
    going: list[int] = []
    most: list[int] = []

    class Slow(Stand):
        @contextlib.asynccontextmanager
        async def open(self) -> AsyncIterator[Any]:
            going.append(1)
            for _ in range(20):
                await asyncio.to_thread(most.append, len(going))
            going.pop()
            async with super().open() as found:
                yield found

    sessions = [Session(Slow().open) for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        assert 8 == len(list(threads.map(lambda one: one.open(), sessions)))
    for session in sessions:
        session.close()

    assert {1} == set(most)


def test_closing_ends_a_call_in_flight() -> None:
    """A thread that waits is told; it does not wait for ever."""
    session = Session(Stand().open)
    begun = threading.Event()
    caught: list[BaseException] = []

    async def hang(_stand: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    def work() -> None:
        try:
            session.call(hang)
        except BaseException as error:  # noqa: BLE001
            caught.append(error)

    waiting = threading.Thread(target=work)
    waiting.start()
    assert begun.wait(10)
    session.close()
    waiting.join(10)

    assert ["MCS-006"] == [getattr(error, "id", repr(error)) for error in caught]


@pytest.mark.anyio
async def test_a_cancelled_caller_cancels_its_call() -> None:
    """Asynchronous callers wait without blocking, and what they give up is given up inside as well."""
    session = Session(Stand().open)
    seen: list[str] = []
    begun = threading.Event()

    async def hang(_stand: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cancelled")

    calling = asyncio.create_task(session.acall(hang))
    assert await asyncio.to_thread(begun.wait, 10)
    calling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await calling
    assert isinstance(await session.acall(thread_of), int)

    assert ["cancelled"] == seen
    session.close()


def test_a_forked_process_is_refused_and_closes_nothing() -> None:
    """The child has no thread; its end leaves the parent's sandbox alone."""
    stand = Stand()
    session = Session(stand.open)
    session.call(thread_of)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            session.call(thread_of)
        except UsageError as error:
            os.write(writing, error.id.encode())
        session.close()
        os._exit(0)
    os.waitpid(child, 0)

    assert b"MCS-008" == os.read(reading, 100)
    assert isinstance(session.call(thread_of), int)
    session.close()
    os.close(reading)
    os.close(writing)


# --- the client -------------------------------------------------------------------------------------------------------
LOOP: list[Any] = []
LOOP.append(LOOP)


@dataclass
class Script:
    """A scripted session: what it was sent, and a request of each method as it comes."""

    client: Client
    writer: asyncio.StreamWriter
    seen: list[Any]
    came: asyncio.Queue[str]

    async def until(self, method: str) -> Any:
        """Return the message of a method when it has come."""
        while await self.came.get() != method:
            pass
        return next(one for one in self.seen if getattr(one, "method", "") == method)


@contextlib.asynccontextmanager
async def served(**answers: Any) -> AsyncIterator[Script]:
    """Open a client of a scripted session; a tuple is an error, ``None`` no answer."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=theirs, limit=2 * MAX_LINE_BYTES)
    seen: list[Any] = []
    came: asyncio.Queue[str] = asyncio.Queue()

    async def answer() -> None:
        while line := await reader.readline():
            message = decode(line.rstrip(b"\n"))
            seen.append(message)
            came.put_nowait(getattr(message, "method", ""))
            if (
                isinstance(message, Request)
                and (given := answers.get(message.method.replace("/", "_"), {})) is not None
            ):
                failed = isinstance(given, tuple)
                writer.write(encode(Failure(message.id, *given) if failed else Result(message.id, given)))

    answering = asyncio.create_task(answer())
    client = await Client.connect(ours)
    try:
        yield Script(client, writer, seen, came)
    finally:
        await client.close()
        writer.close()
        answering.cancel()
        await asyncio.gather(answering, writer.wait_closed(), return_exceptions=True)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "bad",
    [float("nan"), float("inf"), object(), {1: "a"}, b"x", {1, 2}, "\ud800", LOOP],
    ids=lambda one: type(one).__name__,
)
async def test_what_is_no_json_is_refused_before_it_is_sent(bad: Any) -> None:
    """Nothing is turned into something else on the way: no NaN into null, no key into text."""
    async with served() as script:
        with pytest.raises(UsageError, match="MCS-010"):
            await script.client.request("tools/call", {"arguments": {"a": bad}})
        await script.client.request("ping", {})

        assert ["initialize", "ping"] == [one.method for one in script.seen if isinstance(one, Request)]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (-31004, CallRefused),
        (-31010, ServerFault),
        (-31011, ServerTimeout),
        (-31020, PlatformError),
        (-31021, AuditUnavailable),
        (-31022, PlatformError),
        (-32602, CallRefused),
        (-32603, PlatformError),
        (-1, ServerFault),
    ],
)
async def test_errors_keep_whose_fault_they_are(code: int, kind: type[SandboxError]) -> None:
    """An answer with an error is raised as the class that the session raised, with its id and mend."""
    async with served(tools_call=(code, "no", {"id": "X-1", "mend": "do"})) as script:
        with pytest.raises(kind, match="X-1") as raised:
            await script.client.request("tools/call", {})

    assert "X-1: no — do" == str(raised.value)


@pytest.mark.anyio
async def test_a_session_that_goes_ends_every_request() -> None:
    """What waits fails at once, and so does what comes later."""
    async with served(tools_call=None) as script:
        waiting = asyncio.create_task(script.client.request("tools/call", {}))
        await script.until("tools/call")
        script.writer.close()
        for asking in (waiting, script.client.request("ping", {})):
            with pytest.raises(ServerFault, match="MCS-007"):
                await asking


@pytest.mark.anyio
async def test_a_cancelled_request_is_cancelled_in_the_session() -> None:
    """The session hears of it by its number."""
    async with served(tools_call=None) as script:
        waiting = asyncio.create_task(script.client.request("tools/call", {}))
        asked = await script.until("tools/call")
        waiting.cancel()
        told = await script.until("notifications/cancelled")

    assert asked.id == told.params["requestId"]
