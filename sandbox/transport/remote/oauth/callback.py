"""The address on loopback at which a browser comes back from a login (RFC 8252 §7.3): one answer, for one login.

Any page and any program of this host may call it. So an answer counts only with the login's ``state``, compared in
constant time; others are turned away and change nothing. The ``Host`` must be the address itself, so that no name
leads here. It listens on 127.0.0.1 only, as long as the login lasts, and reads bounded requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import AsyncIterator, Mapping
from typing import Final
from urllib.parse import parse_qsl

from sandbox.errors import PlatformError, ServerFault
from sandbox.limits import KIB

ADDRESS: Final = "127.0.0.1"
PATH: Final = "/callback"

MAX_HEAD: Final = 32 * KIB
"""One request; browsers send 1 KiB beside the code, which issuers keep below 8 KiB."""

MAX_OPEN: Final = 32
"""Connections at the same time; browsers open one to three."""

READ_TIMEOUT: Final = 10.0
"""Seconds in which a request must have come."""

_HEAD: Final = (
    "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {size}\r\nConnection: close\r\n"
    "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n"
    "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n\r\n"
)
_PAGE: Final = "<!doctype html><title>mcp-sandbox</title><p>{text}</p>"


class Callback:
    """Awaits one answer; made by :func:`listening`.

    Attributes:
        url: what the issuer sends the browser to.
        turned_away: requests that were not the answer.
    """

    def __init__(self, state: str) -> None:
        self.url = ""
        self.turned_away = 0
        self._state, self._host = state, ""
        self._open = 0
        self._answer: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()

    def begin(self, port: int) -> None:
        """Know the port that is listened on."""
        self._host = f"{ADDRESS}:{port}"
        self.url = f"http://{self._host}{PATH}"

    async def answer(self, timeout: float) -> Mapping[str, str]:  # noqa: ASYNC109 - the person's time, with its own error
        """Return the parameters with which the browser came back.

        Raises:
            PlatformError: ``OAU-022``, nobody did within ``timeout`` seconds.
            ServerFault: ``OAU-023``, an answer with the right state that names something twice.
        """
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(self._answer)
        except TimeoutError:
            others = f"; {self.turned_away} requests were not the answer" if self.turned_away else ""
            message = f"nobody came back from the login within {timeout:g} s{others}"
            raise PlatformError("OAU-022", message, "run it again, and open the address that it prints") from None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        self._open += 1
        try:
            if self._open <= MAX_OPEN:
                async with asyncio.timeout(READ_TIMEOUT):
                    head = await reader.readuntil(b"\r\n\r\n")
                    status, text = self._judged(head)
                    page = _PAGE.format(text=text).encode()
                    writer.write(_HEAD.format(status=status, size=len(page)).encode() + page)
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever it was can come again
        finally:
            self._open -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _judged(self, head: bytes) -> tuple[str, str]:
        """Take a request when it is the answer; return status and text of the page."""
        first, *rest = head.decode("latin-1").split("\r\n")
        hosts = [line.partition(":")[2].strip() for line in rest if line[:5].lower() == "host:"]
        method, _, target = first.partition(" ")
        path, _, query = target.partition(" ")[0].partition("?")
        if path != PATH or method != "GET":
            return "404 Not Found", "There is nothing here."
        pairs = _pairs(query)
        states = [value for name, value in pairs if name == "state"]
        right = len(states) == 1 and hmac.compare_digest(states[0].encode(), self._state.encode())
        if hosts != [self._host] or not right:
            self.turned_away += 1
            return "400 Bad Request", "This is not the answer to the login that mcp-sandbox waits for."
        if self._answer.done():
            return "400 Bad Request", "The login was answered already."
        if len({name for name, _ in pairs}) != len(pairs):
            message = "the answer to the login names something twice"
            self._answer.set_exception(ServerFault("OAU-023", message, "log in again; report it to the issuer"))
            return "400 Bad Request", "The answer names something twice."
        self._answer.set_result(dict(pairs))
        return "200 OK", "mcp-sandbox has the answer and goes on in your terminal. You can close this page."


def _pairs(query: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query, keep_blank_values=True, max_num_fields=32, errors="strict")
    except ValueError:
        return []


@contextlib.asynccontextmanager
async def listening(state: str, port: int = 0) -> AsyncIterator[Callback]:
    """Listen for one answer.

    Args:
        state: that it must have.
        port: to listen on; 0: one that is free.

    Raises:
        PlatformError: ``OAU-024``, the port is not to be had.
    """
    found = Callback(state)
    try:
        server = await asyncio.start_server(found.serve, ADDRESS, port, limit=MAX_HEAD)
    except OSError as error:
        message = f"port {port} of {ADDRESS} cannot be listened on: {error.strerror}"
        raise PlatformError("OAU-024", message, "choose another --port, or none") from None
    try:
        found.begin(server.sockets[0].getsockname()[1])
        yield found
    finally:
        server.close()
