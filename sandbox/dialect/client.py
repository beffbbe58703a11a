"""A client of the dialect: hands shakes, keeps descriptors, calls tools, waits for jobs, keeps to the server's limits.

::

    async with HttpLink("https://host/mcp/files/2025-11", token) as link:
        client = Client(link, cache=ManifestCache(path))
        await client.connect()
        result = await client.call("fs-read", {"path": "/workspace/a.txt"})

A call, step by step: the descriptor, asked for again by its ETag (S1-34); the arguments against its input schema
(S1-38); the limit that the server last told (``X-MCP-Limit``, S1-41); the request; a job is asked for until it ends, no
sooner than ``poll_after`` says (S1-39). Each step is told to ``notice`` (S1-40).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from sandbox.dialect.cache import ManifestCache
from sandbox.dialect.links import Link, Reply
from sandbox.dialect.model import ToolResponse, convert
from sandbox.dialect.refusals import DialectRefused
from sandbox.dialect.versions import CAPABILITIES, DIALECT, Agreed, OnMismatch, settle
from sandbox.errors import CallRefused, ServerFault
from sandbox.serve.ratelimit import Standing, parse_header
from sandbox.vet.validators import SchemaValidator

LONGEST_POLL: Final = 30.0
"""Seconds between two questions for a job, whatever the server says."""

SHORTEST_POLL: Final = 0.05
MAX_WAIT: Final = 60.0
"""Seconds that a client waits for a limit to pass by itself; beyond it the call fails at once."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a client did, for whoever measures it.

    Attributes:
        what: ``handshake``, ``descriptor``, ``call``, ``poll`` or ``wait``.
        tool: that it is about; empty for none.
        milliseconds: it took.
        ok: it gave what was asked for.
    """

    what: str
    tool: str
    milliseconds: float
    ok: bool


class Client:
    """One client of one server.

    Args:
        link: to the server.
        client_id: what the client calls itself.
        cache: keeps descriptors between runs; ``None`` keeps them in this object.
        on_mismatch: what to do with a server of a release more than one away (S1-12).
        notice: is told of each step.
    """

    def __init__(
        self,
        link: Link,
        client_id: str = "mcp-sandbox",
        cache: ManifestCache | None = None,
        on_mismatch: OnMismatch = "downgrade",
        notice: Callable[[Notice], None] = lambda _notice: None,
    ) -> None:
        self.link = link
        self.agreed: Agreed | None = None
        self.capabilities: tuple[str, ...] = ()
        self._id = client_id
        self._cache = cache or ManifestCache(None)
        self._on_mismatch = on_mismatch
        self._notice = notice
        self._session = ""
        self._server = ""
        self._standing: dict[str, tuple[float, Standing]] = {}

    async def connect(self, version: str = DIALECT) -> Agreed:
        """Shake hands; a server that is more than one release away is asked again in a release it names.

        Raises:
            DialectRefused: ``DIA-003``, they do not agree; any other refusal of the server.
        """
        began = time.perf_counter()
        reply = await self.link.handshake(self._handshake(version))
        supported = _supported(reply)
        if supported and self._on_mismatch == "downgrade":
            reply = await self.link.handshake(self._handshake(supported[-1]))
        self._tell("handshake", "", began, ok=not _refused(reply))
        _check(reply)
        said = reply.body
        self.agreed = settle(
            str(said.get("version") or said.get("mcp_version")), version, on_mismatch=self._on_mismatch
        )
        self._session, self._server = str(said.get("session", "")), str(said.get("server_id", ""))
        self.capabilities = tuple(str(one) for one in _list(said, "capabilities"))
        return self.agreed

    def _handshake(self, version: str) -> dict[str, Any]:
        return {
            "version": version,
            "client_id": self._id,
            "server_id": "",
            "transport": self.link.transport,
            "capabilities": list(CAPABILITIES),
        }

    async def tools(self) -> tuple[str, ...]:
        """Return the paths of the descriptors."""
        files = _list(_check(await self.link.file("tools/")).body, "files")
        if not all(isinstance(one, dict) and isinstance(one.get("path"), str) for one in files):
            raise _formless("files")
        return tuple(str(one["path"]) for one in files)

    async def descriptor(self, path: str) -> dict[str, Any]:
        """Return the descriptor at a path; one that is kept is asked for by its ETag."""
        began = time.perf_counter()
        kept = self._cache.find(self._server, path)
        reply = await self.link.file(path, kept[0] if kept else "")
        self._tell("descriptor", path, began, ok=reply.status < 400)  # noqa: PLR2004 - HTTP's errors
        if reply.status == 304 and kept:  # noqa: PLR2004 - not modified
            return kept[1]
        found = _check(reply).body
        self._cache.keep(self._server, path, reply.headers.get("etag", ""), found)
        return dict(found)

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        mode: Literal["sync", "async"] = "sync",
        patience: float = 300.0,
    ) -> Any:
        """Return the result of a tool; a job is waited for, ``patience`` seconds at most.

        Raises:
            CallRefused: ``DIA-051``, the arguments do not fit the descriptor; ``DIA-052``, the server's limit.
            ServerFault: ``DIA-053``, the tool failed, or its job took too long.
        """
        path = f"tools/{tool}.json"
        schema = (await self.descriptor(path)).get("input_schema")
        if not isinstance(schema, dict):
            raise _formless("input_schema")
        wrong = SchemaValidator(schema, "input_schema").mismatch(dict(arguments))
        if wrong is not None:
            raise CallRefused("DIA-051", f"the arguments of {tool} do not fit: {wrong}", "correct them")
        return (
            _result(await self.submit(tool, arguments, mode=mode), tool)
            if mode == "sync"
            else await self.resume(
                str((await self.submit(tool, arguments, mode=mode)).job_id), tool=tool, patience=patience
            )
        )

    async def submit(
        self, tool: str, arguments: Mapping[str, Any], *, mode: Literal["sync", "async"] = "sync"
    ) -> ToolResponse:
        """Send one request and return its answer, which for a job is its handle."""
        await self._within_limits(tool)
        request: dict[str, Any] = {
            "request_id": str(uuid.uuid4()),
            "tool_id": tool,
            "arguments": dict(arguments),
            "mode": mode,
            "context": {"client_name": self._id},
        }
        if self._session:
            request["session"] = self._session
        began = time.perf_counter()
        reply = await self.link.invoke(request)
        self._tell("call", tool, began, ok=not _refused(reply))
        with contextlib.suppress(ValueError):  # a limit in another grammar is none that one could keep to
            self._standing[tool] = (time.monotonic(), parse_header(reply.headers.get("x-mcp-limit", "")))
        answer = convert(ToolResponse, reply.body)
        if str(answer.request_id) != request["request_id"]:
            raise ServerFault("DIA-053", "the answer is to another request", "report it to the server's author")
        return answer

    async def resume(self, job: str, *, tool: str = "", patience: float = 300.0) -> Any:
        """Wait for a job, also one that an earlier run began (S1-20).

        Raises:
            ServerFault: ``DIA-053``, it failed or took too long.
        """
        until = time.monotonic() + patience
        while True:
            began = time.perf_counter()
            reply = _check(await self.link.job(job))
            self._tell("poll", tool, began, ok=True)
            answer = convert(ToolResponse, reply.body)
            if answer.status != "in_progress":
                return _result(answer, tool)
            pause = min(LONGEST_POLL, max(SHORTEST_POLL, answer.poll_after or 1.0))
            if time.monotonic() + pause > until:
                raise ServerFault(
                    "DIA-053", f"the job {job} took longer than {patience:.0f} s", "ask for it again later"
                )
            await asyncio.sleep(pause)

    async def _within_limits(self, tool: str) -> None:
        """Wait until the server's own limit lets a call pass, as it last told.

        Raises:
            CallRefused: ``DIA-052``, that is too long.
        """
        at, standing = self._standing.get(tool, (0.0, None))
        if standing is None or standing.remaining:
            return
        wait = at + standing.window - time.monotonic()
        if wait > MAX_WAIT:
            raise CallRefused("DIA-052", f"the server's limit for {tool} lasts {wait:.0f} s more", "call again then")
        if wait > 0:
            self._notice(Notice("wait", tool, wait * 1000, ok=True))
            await asyncio.sleep(wait)

    def _tell(self, what: str, tool: str, began: float, *, ok: bool) -> None:
        self._notice(Notice(what, tool, (time.perf_counter() - began) * 1000, ok))


def _refused(reply: Reply) -> bool:
    return not isinstance(reply.body, dict) or reply.status >= 400 or reply.body.get("status") == "error"  # noqa: PLR2004


def _supported(reply: Reply) -> list[str]:
    """Return the releases that a refusal of a handshake names, oldest first."""
    error = reply.body.get("error") if isinstance(reply.body, dict) else None
    named = error.get("supported", ()) if isinstance(error, dict) else ()
    return sorted(one for one in named if isinstance(one, str))


def _check(reply: Reply) -> Reply:
    """Return a reply that is none of refusal.

    Raises:
        DialectRefused: it is one, in the server's words.
    """
    if not _refused(reply):
        return reply
    body = reply.body if isinstance(reply.body, dict) else {}
    error = body.get("error") if isinstance(body.get("error"), dict) else {}
    said = str((error or {}).get("message", f"HTTP {reply.status}"))[:300]
    raise DialectRefused(
        "DIA-054", f"the server refused: {said}", str((error or {}).get("mend", "see its documentation"))
    )


def _list(said: Mapping[str, Any], member: str) -> list[Any]:
    found = said.get(member, [])
    if not isinstance(found, list):
        raise _formless(member)
    return found


def _formless(member: str) -> ServerFault:
    return ServerFault("DIA-053", f"`{member}` of the server's answer is not of its form", "report it to its author")


def _result(answer: ToolResponse, tool: str) -> Any:
    if answer.status == "success":
        return answer.result
    error = answer.error or {}
    message = f"{tool or 'the call'} failed: {str(error.get('message', 'the server does not say why'))[:300]}"
    raise ServerFault("DIA-053", message, str(error.get("mend", "see the server's log")))
