"""How a client of the dialect reaches a server: HTTP requests, or one conversation over a pipe.

A link carries messages and judges nothing but that they are messages: bytes within bounds, one JSON object, in time.
What they mean is for :mod:`sandbox.dialect.client` and :mod:`sandbox.dialect.validate`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Protocol, Self

import httpx2

from sandbox import jsontext
from sandbox.dialect.bounds import MAX_MESSAGE
from sandbox.errors import ServerFault

TIMEOUT: Final = 30.0
"""Seconds in which an answer has to be there, unless a caller gives another time."""

MAX_FILE: Final = 4 * MAX_MESSAGE
"""Bytes of one descriptor that are read."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back.

    Attributes:
        status: of HTTP; over a pipe 200, for there is none.
        body: the JSON value; ``None`` when there is none.
        headers: of HTTP in lower case; empty over a pipe.
        data: the body's bytes; over a pipe those of the file that was asked for.
    """

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)
    data: bytes = b""


class Link(Protocol):
    """Carries messages to one server.

    Attributes:
        transport: as a handshake names it.
    """

    transport: str

    async def handshake(self, body: Mapping[str, Any]) -> Reply:
        """Send a handshake and return its answer."""

    async def invoke(self, body: Mapping[str, Any]) -> Reply:
        """Send an invocation and return its answer."""

    async def job(self, job: str) -> Reply:
        """Ask for a job."""

    async def file(self, path: str, etag: str = "") -> Reply:
        """Read one file of the view, unless the client has it already."""


class HttpLink:
    """Requests below one address.

    Args:
        url: of the endpoint's dialect, such as ``https://host/mcp/files/2025-11``.
        token: bearer token; empty for none.
        http: client to use; one is made when it is left out, and closed with the link.
        timeout: seconds for each answer.
    """

    transport = "http"

    def __init__(
        self, url: str, token: str = "", http: httpx2.AsyncClient | None = None, timeout: float = TIMEOUT
    ) -> None:
        self.url = url.rstrip("/")
        self._token = token
        self._own, self._timeout = http is None, timeout
        self._http = http or httpx2.AsyncClient(timeout=timeout, follow_redirects=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._own:
            await self._http.aclose()

    async def handshake(self, body: Mapping[str, Any]) -> Reply:
        """Send a handshake and return its answer."""
        return await self.send("POST", "handshake", body)

    async def invoke(self, body: Mapping[str, Any]) -> Reply:
        """Send an invocation and return its answer."""
        return await self.send("POST", "invoke", body)

    async def job(self, job: str) -> Reply:
        """Ask for a job."""
        return await self.send("GET", f"jobs/{job}")

    async def file(self, path: str, etag: str = "") -> Reply:
        """Read one file of the view, unless the client has it already."""
        return await self.send("GET", path, headers={"if-none-match": etag} if etag else {})

    async def send(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, *, named: bool = True
    ) -> Reply:
        """Send one request.

        Args:
            method: of HTTP.
            path: below the address.
            body: goes as JSON.
            headers: more of them.
            named: send the token.

        Raises:
            ServerFault: ``DIA-050``, there is no answer, or one beyond the bounds.
        """
        sent = {"accept": "application/json", **(headers or {})}
        if self._token and named:
            sent["authorization"] = f"Bearer {self._token}"
        data = None if body is None else jsontext.dump(body)
        if data is not None:
            sent["content-type"] = "application/json"
        try:
            async with (
                asyncio.timeout(self._timeout),  # of the whole answer: a server may send a byte now and then
                self._http.stream(method, f"{self.url}/{path}", content=data, headers=sent) as answer,
            ):
                got = await _bounded(answer)
                fields = {name.lower(): value for name, value in answer.headers.items()}
                return Reply(answer.status_code, _value(got), fields, got)
        except (httpx2.HTTPError, TimeoutError) as error:
            why = str(error) or type(error).__name__
            raise ServerFault("DIA-050", f"the server did not answer: {why}", "see that it runs there") from None


async def _bounded(answer: httpx2.Response) -> bytes:
    got = bytearray()
    async for piece in answer.aiter_bytes():
        got += piece
        if len(got) > MAX_FILE:
            raise ServerFault(
                "DIA-050", f"an answer is longer than {MAX_FILE} bytes", "report it to the server's author"
            )
    return bytes(got)


def _value(data: bytes) -> Any:
    try:
        return jsontext.parse(data) if data else None
    except jsontext.JsonTextError:
        return None


class PipeLink:
    """One conversation with a program, JSON objects by line; ended with the link.

    Args:
        argv: the program; what it prints to its standard error is this process's.
        timeout: seconds for each answer.
    """

    transport = "stdio"

    def __init__(self, argv: Sequence[str], timeout: float = TIMEOUT) -> None:
        self._argv, self._timeout = tuple(argv), timeout
        self._process: asyncio.subprocess.Process | None = None
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def _begin(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*self._argv, stdin=pipe, stdout=pipe, limit=MAX_FILE)

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), self._timeout)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def handshake(self, body: Mapping[str, Any]) -> Reply:
        """Begin the conversation anew, for it has one handshake, and return the answer."""
        if next(self._numbers) > 1:
            await self._end()
            await self._begin()
        return await self._said(body)

    async def invoke(self, body: Mapping[str, Any]) -> Reply:
        """Send an invocation and return its answer; the session is the conversation."""
        return await self._said({name: value for name, value in body.items() if name != "session"})

    async def job(self, job: str) -> Reply:
        """Ask for a job."""
        return await self._said({"resume": job})

    async def file(self, path: str, etag: str = "") -> Reply:
        """Read one file of the view; a pipe always gives it whole."""
        del etag
        reply = await self._said({"import": path})
        if not isinstance(reply.body, dict) or "file" not in reply.body:
            return reply
        data = jsontext.canonical(reply.body["file"]) + b"\n"
        return Reply(200, reply.body["file"], {"etag": str(reply.body.get("etag", ""))}, data)

    async def _said(self, body: Mapping[str, Any]) -> Reply:
        """Send one message and return the next that comes.

        Raises:
            ServerFault: ``DIA-050``, none comes, or no JSON.
        """
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise ServerFault("DIA-050", "the conversation is over", "begin another")
        try:
            process.stdin.write(jsontext.dump(dict(body)) + b"\n")
            async with asyncio.timeout(self._timeout):
                await process.stdin.drain()
                line = await process.stdout.readline()
        except (OSError, ValueError, TimeoutError) as error:
            why = str(error) or "no answer in time"
            raise ServerFault("DIA-050", f"the server did not answer: {why}", "read what it wrote to stderr") from None
        value = _value(line)
        if value is None:
            raise ServerFault("DIA-050", "the server ended, or said something that is no JSON", "read its stderr")
        return Reply(200, value, {}, line)
