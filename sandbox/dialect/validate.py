"""Whether a server speaks the dialect: what ``mcp-sandbox validate`` asks it, over HTTP or a pipe (S1-59 … S1-63).

Each check asks the server something and holds the answer against the document; none believes what the server says of
itself. A check that could not be made is ``skipped`` with the reason and does not pass. Only the tool that the person
names is called: any other may change things.

=================  =====================================================================================================
``handshake``      a release is agreed, and the answer is a handshake with the fields of the document
``mismatch``       no version, an unknown one and one of long ago are refused, or stepped down from; never agreed
``schema``         every descriptor has its fields and its name; its schemas are JSON Schema 2020-12
``reference``      schemas refer inside themselves or to ``/resources/schemas/``, never to the network
``etag``           the ETag is the SHA-256 of the bytes, and a client that has them is told so (304)
``unknown``        a tool that does not exist, and a job, are refused, with the id of the request
``arguments``      arguments that do not fit the schema are refused
``call``           the named tool answers with the fields of the document, to the request that was made
``async``          it ends as a job too: handle, time to ask again, outcome
``headers``        ``no-store``, ``nosniff``, ``X-MCP-Limit``, HSTS; 401 with ``WWW-Authenticate`` without a token
``transport``      tokens do not go in the clear
``latency``        the median of small requests is below the bound that the person names
=================  =====================================================================================================
"""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from sandbox.dialect import judging
from sandbox.dialect.links import HttpLink, Link, Reply
from sandbox.dialect.versions import CAPABILITIES, DIALECT
from sandbox.errors import SandboxError

Outcome = Literal["pass", "fail", "skip"]
SAMPLES: Final = 9
"""Requests whose median time counts."""

MAX_POLLS: Final = 60


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Attributes:
        check: name of the check.
        outcome: ``skip`` says that it could not be made.
        message: what was found, or why not.
    """

    check: str
    outcome: Outcome
    message: str


@dataclass(slots=True)
class Asked:
    """What a person wants to know.

    Attributes:
        target: release that the server has to speak.
        tool: that may be called; empty for none.
        arguments: for it.
        max_latency: milliseconds; 0 for no bound.
        token: whether the link signs in.
    """

    target: str = DIALECT
    tool: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    max_latency: float = 0.0
    token: bool = False


async def validate(link: Link, asked: Asked) -> tuple[Finding, ...]:
    """Return what every check found, in their order; a check that fails does not stop the others."""
    talk = _Talk(link, asked)
    checks: tuple[tuple[str, Callable[[], Awaitable[str]]], ...] = (
        ("handshake", talk.handshake),
        ("mismatch", talk.mismatch),
        ("schema", talk.schema),
        ("reference", talk.reference),
        ("etag", talk.etag),
        ("unknown", talk.unknown),
        ("arguments", talk.wrong_arguments),
        ("call", talk.call),
        ("async", talk.job),
        ("headers", talk.headers),
        ("transport", talk.transport),
        ("latency", talk.latency),
    )
    return tuple([await _found(name, check) for name, check in checks])


async def _found(name: str, check: Callable[[], Awaitable[str]]) -> Finding:
    try:
        return Finding(name, "pass", await check())
    except judging.Skipped as skipped:
        return Finding(name, "skip", str(skipped))
    except judging.Broken as broken:
        return Finding(name, "fail", str(broken))
    except SandboxError as error:
        return Finding(name, "fail", error.message)


class _Talk:
    """The checks, and what earlier ones found."""

    def __init__(self, link: Link, asked: Asked) -> None:
        self._link, self._asked = link, asked
        self._session = ""
        self._capabilities: tuple[str, ...] = ()
        self._descriptors: dict[str, tuple[Reply, dict[str, Any]]] = {}

    def _shake(self, version: str | None) -> dict[str, Any]:
        body = {
            "client_id": "mcp-sandbox validate",
            "server_id": "",
            "transport": self._link.transport,
            "capabilities": list(CAPABILITIES),
        }
        return body if version is None else {"version": version, **body}

    async def handshake(self) -> str:
        reply = await self._link.handshake(self._shake(self._asked.target))
        said = judging.agreement(reply, self._asked.target, self._link.transport)
        self._session = str(said.get("session", ""))
        self._capabilities = tuple(said["capabilities"])
        return f"{self._asked.target} agreed; capabilities: {', '.join(self._capabilities) or 'none'}"

    async def mismatch(self) -> str:
        for version in (None, "2025-13", "2099-01", "2024-10", "November"):
            judging.not_agreed(await self._link.handshake(self._shake(version)), version, self._asked.target)
        await self._anew()
        return "versions that cannot be spoken are not agreed"

    async def _anew(self) -> None:
        """Shake hands again: a conversation over a pipe has one handshake, and the checks spent it."""
        reply = await self._link.handshake(self._shake(self._asked.target))
        if isinstance(reply.body, dict) and reply.body.get("session"):
            self._session = str(reply.body["session"])

    async def schema(self) -> str:
        paths = judging.listed(await self._link.file("tools/"))
        for path in paths:
            reply = await self._link.file(path)
            self._descriptors[path] = (reply, judging.descriptor(path, reply))
        if not paths:
            raise judging.Broken("`tools/` lists no descriptor")
        return f"{len(paths)} descriptors"

    def _known(self) -> dict[str, tuple[Reply, dict[str, Any]]]:
        if not self._descriptors:
            raise judging.Skipped("there are no descriptors to look at")
        return self._descriptors

    async def reference(self) -> str:
        for path, (_, found) in self._known().items():
            judging.references(path, found)
        return "no schema refers to the network"

    async def etag(self) -> str:
        for path, (reply, _) in self._known().items():
            judging.etag(path, reply)
            if isinstance(self._link, HttpLink):
                judging.unchanged(path, await self._link.file(path, reply.headers["etag"]))
        return "ETags are the SHA-256 of what was sent"

    def _request(self, tool: str, arguments: dict[str, Any], mode: str = "sync") -> dict[str, Any]:
        body = {"request_id": str(uuid.uuid4()), "tool_id": tool, "arguments": arguments, "mode": mode}
        return {**body, "session": self._session} if self._session else body

    async def unknown(self) -> str:
        request = self._request(f"no-such-tool-{uuid.uuid4().hex[:8]}", {})
        judging.refused(await self._link.invoke(request), request["request_id"], "a tool that does not exist")
        judging.refused(await self._link.job(str(uuid.uuid4())), None, "a job that does not exist")
        return "refused, with the id of the request"

    async def wrong_arguments(self) -> str:
        for _, found in self._known().values():
            wrong = judging.misfit(found["input_schema"])
            if wrong is not None:
                request = self._request(str(found["tool_id"]), wrong)
                told = f"arguments of {found['tool_id']} that do not fit its schema"
                judging.refused(await self._link.invoke(request), request["request_id"], told)
                return f"{found['tool_id']} refuses what does not fit"
        raise judging.Skipped("no schema refuses anything")

    async def call(self) -> str:
        request = self._request(self._tool(), self._asked.arguments)
        began = time.perf_counter()
        reply = await self._link.invoke(request)
        judging.success(reply, request["request_id"])
        judging.result(reply, self._output(self._tool()))
        return f"{self._tool()} answered in {(time.perf_counter() - began) * 1000:.0f} ms"

    async def job(self) -> str:
        if "async" not in self._capabilities:
            raise judging.Skipped("the server does not offer `async`")
        request = self._request(self._tool(), self._asked.arguments, "async")
        handle = judging.handle(await self._link.invoke(request), request["request_id"])
        for _ in range(MAX_POLLS):
            reply = await self._link.job(handle.job)
            if judging.over(reply):
                judging.success(reply, request["request_id"])
                return f"the job {handle.job} ended"
            await judging.pause(handle.poll_after)
        raise judging.Broken(f"the job {handle.job} did not end while it was asked for {MAX_POLLS} times")

    def _tool(self) -> str:
        if not self._asked.tool:
            raise judging.Skipped("no tool may be called: name one with --call")
        return self._asked.tool

    def _output(self, tool: str) -> dict[str, Any]:
        found = [one["output_schema"] for _, one in self._descriptors.values() if one["tool_id"] == tool]
        return dict(found[0]) if found else {}

    async def headers(self) -> str:
        link = self._http()
        judging.answer_headers(await link.handshake(self._shake(self._asked.target)), link.url)
        if self._asked.token:
            judging.challenge(await link.send("GET", "tools/", named=False))
        return "answers are kept by nobody and name their limits"

    async def transport(self) -> str:
        judging.clear(self._http().url, token=self._asked.token)
        return "nothing secret goes in the clear"

    def _http(self) -> HttpLink:
        if not isinstance(self._link, HttpLink):
            raise judging.Skipped("a pipe has no header fields and no network")
        return self._link

    async def latency(self) -> str:
        times = []
        for _ in range(SAMPLES):
            began = time.perf_counter()
            await self._link.file("tools/")
            times.append((time.perf_counter() - began) * 1000)
        median = statistics.median(times)
        if self._asked.max_latency and median > self._asked.max_latency:
            raise judging.Broken(f"median {median:.1f} ms, and {self._asked.max_latency:g} ms are allowed")
        return f"median {median:.1f} ms"
