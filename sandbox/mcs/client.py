"""A client of one session, in this process: what a driver asks for crosses the same line as any client's bytes.

A socket pair stands where stdin and stdout of ``run`` stand. Nothing is handed over as Python objects, so arguments
that are no JSON, are too deep or too long are refused by the same reader that refuses them from a stranger.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import socket
from collections.abc import Mapping
from typing import Any, Final

from sandbox import __version__
from sandbox.errors import (
    AuditUnavailable,
    CallRefused,
    PlatformError,
    ReadbackMismatch,
    SandboxError,
    ServerFault,
    ServerTimeout,
    UsageError,
)
from sandbox.limits import MAX_JSON_VALUES, MAX_LINE_BYTES
from sandbox.wire.codes import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND
from sandbox.wire.errors import WireError
from sandbox.wire.jsonrpc import Failure, Notification, Request, Result, decode, encode

VERSION: Final = "2025-11-25"
"""The revision that this client speaks; the server behind the session may speak another one."""

CLIENT_INFO: Final = {"name": "mcp-sandbox-mcs", "version": __version__}

_KINDS: Final[Mapping[int, type[SandboxError]]] = {
    **{kind.rpc_code: kind for kind in (CallRefused, ServerFault, ServerTimeout, PlatformError, AuditUnavailable)},
    ReadbackMismatch.rpc_code: PlatformError,
    INTERNAL_ERROR: PlatformError,
    **dict.fromkeys((INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS), CallRefused),
}
"""JSON-RPC code → error."""


class Client:
    """One client; made by :meth:`connect`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._gone: SandboxError | None = None
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def connect(cls, ours: socket.socket) -> Client:
        """Return a client that has shaken hands.

        Args:
            ours: connected to the session; owned by the client from now on.

        Raises:
            SandboxError: the session refused.
        """
        ours.setblocking(False)
        client = cls(*await asyncio.open_connection(sock=ours, limit=MAX_LINE_BYTES + 2))
        opening = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": CLIENT_INFO}
        await client.request("initialize", opening)
        client._send(Notification("notifications/initialized", {}))
        return client

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the result of one request; when the caller is cancelled, so is the request.

        Raises:
            UsageError: ``MCS-010``, the parameters are no JSON.
            SandboxError: the session answered with an error, or is gone.
        """
        if self._gone is not None:
            raise self._gone.with_traceback(None)
        number = next(self._ids)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            self._send(Request(number, method, params))
            return await answer
        except asyncio.CancelledError:
            if self._gone is None:
                self._send(Notification("notifications/cancelled", {"requestId": number}))
            raise
        finally:
            self._waiting.pop(number, None)

    async def list_tools(self) -> list[dict[str, Any]]:
        """Return the definitions of every exposed tool."""
        found: list[dict[str, Any]] = []
        params: dict[str, Any] = {}
        while True:
            page = await self.request("tools/list", params)
            found += page.get("tools", [])
            if not page.get("nextCursor"):
                return found
            params = {"cursor": page["nextCursor"]}

    async def close(self) -> None:
        """Close our side: the session ends when what is in flight is answered."""
        self._end(UsageError("MCS-006", "the driver is closed", "make another one"))
        self._reading.cancel()
        self._writer.close()
        await asyncio.gather(self._reading, self._writer.wait_closed(), return_exceptions=True)

    def _send(self, message: Request | Notification) -> None:
        try:
            _check_plain(message.params)
            line = encode(message)
        except (TypeError, ValueError, RecursionError) as error:
            why = f"the arguments are no JSON: {error}"
            raise UsageError("MCS-010", why[:300], "pass strings, numbers, lists and dictionaries") from None
        if len(line) > MAX_LINE_BYTES:
            raise UsageError("MCS-010", f"the arguments are longer than {MAX_LINE_BYTES} bytes", "pass less")
        self._writer.write(line)

    async def _read(self) -> None:
        why: SandboxError = ServerFault("MCS-007", "the session ended", "see the audit trail, and start it again")
        try:
            while line := await self._reader.readline():
                self._take(decode(line.rstrip(b"\n")))
        except (OSError, ValueError, WireError) as error:
            why = PlatformError("MCS-007", f"the session broke: {error}", "report it with the audit trail")
        self._end(why)

    def _take(self, message: Request | Notification | Result | Failure) -> None:
        if isinstance(message, Result | Failure) and isinstance(message.id, int):
            waiting = self._waiting.get(message.id)
            if waiting is not None and not waiting.done():
                if isinstance(message, Result):
                    waiting.set_result(message.result)
                else:
                    waiting.set_exception(error_of(message))

    def _end(self, why: SandboxError) -> None:
        self._gone = self._gone or why
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(why)


def _check_plain(value: Any) -> None:
    """Check that a value is JSON as it stands: writers turn NaN into null, dates and keys into texts.

    Raises:
        TypeError: it is not.
        ValueError: a number is not finite, or there are too many values, as in a list that holds itself.
    """
    left, count = [value], 0
    while left:
        one = left.pop()
        count += 1
        if count > MAX_JSON_VALUES:
            raise ValueError(f"more than {MAX_JSON_VALUES} values")
        if isinstance(one, dict):
            if not all(isinstance(key, str) for key in one):
                raise TypeError("a key is no string")
            left += one.values()
        elif isinstance(one, list | tuple):
            left += one
        elif isinstance(one, float):
            if not math.isfinite(one):
                raise ValueError(f"{one} is no number of JSON")
        elif one is not None and not isinstance(one, str | int):
            raise TypeError(f"a {type(one).__name__} is no value of JSON")


def error_of(failure: Failure) -> SandboxError:
    """Return the error that a session answered with, of the kind whose fault it is.

    What has no code of ours or of JSON-RPC is the server's own error, which the session passes on.
    """
    data = failure.data if isinstance(failure.data, dict) else {}
    kind = _KINDS.get(failure.code, ServerFault)
    number = str(data.get("id") or ("MCS-004" if kind is ServerFault else "MCS-009"))
    return kind(number, failure.message, str(data.get("mend") or ""))
