"""Code of a caller, run outside the model's context: the capability ``code_exec`` (S1-23, S1-29 … S1-33, ADR 0123).

Instead of full descriptors a model names files, ``{"import": "tools/run_analysis.json"}``, and sends code::

    rows = query(sql="select …")["rows"]          # a function for each import, named like its tool
    result = {"rows": len(rows)}                  # what comes back

A run, step by step:

 1. Each import is a file of the caller's own view; the code may call these tools and no others.
 2. A sandbox is started for this run alone: no network, no files, no child process (``inside/code-runner-mcp``). It is
    a server like any other, planned, vetted and recorded.
 3. The code runs until it asks for a tool. That call is the caller's: rate, contract, policy, tenant, record and the
    cleaning of results are those of any invocation.
 4. It goes on until it ends, fails, or reaches a bound: calls, time, size. The sandbox is removed.

The answer tells what the model was spared: the tokens of descriptors, arguments and results that would have passed
through its context otherwise, beside those of code and result. Both are estimates of a quarter of the bytes.
"""

from __future__ import annotations

import asyncio
import keyword
import math
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import msgspec

from sandbox import jsontext
from sandbox.dialect.files import FileView
from sandbox.dialect.invoke import BYTES_PER_TOKEN
from sandbox.dialect.model import Context, Measured, Shape, ToolRequest, ToolResponse
from sandbox.dialect.refusals import DialectRefused, said
from sandbox.dialect.service import Service, Who
from sandbox.errors import SandboxError, ServerFault
from sandbox.events import Scope
from sandbox.serve.identity.model import Identity

MAX_CODE: Final = 256 * 1024
"""Characters of one piece of code; as the runner's contract says."""

MAX_IMPORTS: Final = 64
MAX_CALLS: Final = 200
"""Tools that one run may call; more is a loop that nobody watches."""

MAX_SECONDS: Final = 300.0
"""Seconds of one run, its sandbox's start among them."""

MAX_RUNS: Final = 4
"""Runs of one tenant at once: each is a container."""

MAX_RUNS_IN_ALL: Final = 16
"""Runs of all tenants at once: their containers are beside the pool's and may take 256 MiB each."""

Step = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Carries a run one step further, in its sandbox."""

Open = Callable[[Identity], AbstractAsyncContextManager[Step]]
"""Starts a sandbox for one run of a caller, and removes it."""

_IMPORT: Final = re.compile(r"tools/[^/\x00]{1,200}\.json")


class Import(Shape, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """A tool that the code may call, as a model names it: ``{"import": "tools/x.json"}``."""

    path: Annotated[str, msgspec.Meta(max_length=256)] = msgspec.field(name="import")


class CodeRequest(Shape, kw_only=True, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """Code to be run.

    Attributes:
        request_id: of the client.
        code: Python; what it calls ``result`` comes back.
        imports: the tools that it may call.
        session: of the handshake.
        context: as of an invocation.
    """

    request_id: uuid.UUID
    code: Annotated[str, msgspec.Meta(max_length=MAX_CODE)]
    imports: Annotated[tuple[Import, ...], msgspec.Meta(max_length=MAX_IMPORTS)] = ()
    session: uuid.UUID | None = None
    context: Context = Context()


@dataclass(slots=True)
class Tally:
    """What a run did, and what it kept out of the model's context.

    Attributes:
        direct: bytes that would have passed through the context: descriptors, arguments, results.
        used: bytes that do: imports, code, result, what was printed.
    """

    calls: int = 0
    direct: int = 0
    used: int = 0
    began: float = field(default_factory=time.perf_counter)

    def told(self) -> dict[str, Any]:
        """Return the figures as a response has them."""
        used, direct = (math.ceil(size / BYTES_PER_TOKEN) for size in (self.used, self.direct))
        saved = round(100 * (1 - used / direct), 1) if direct else 0.0
        return {"used": used, "direct": direct, "saved_percent": saved}


class Code:
    """Runs code for admitted clients.

    Args:
        service: carries the calls.
        opener: starts sandboxes.
        scope: where runs are recorded.
    """

    def __init__(self, service: Service, opener: Open, scope: Scope) -> None:
        self._service, self._opener, self._scope = service, opener, scope
        self._running: dict[str, int] = {}

    async def run(self, who: Who, request: CodeRequest) -> ToolResponse:
        """Return what some code gave.

        Raises:
            DialectRefused: ``DIA-060`` an import is no tool of the caller's, ``DIA-061`` two have one name, ``DIA-062``
                too many runs.
        """
        tenant = who.identity.tenant.tenant
        if self._running.get(tenant, 0) >= MAX_RUNS:
            raise DialectRefused("DIA-062", f"{MAX_RUNS} runs of this tenant are in progress", "wait for one to end")
        if sum(self._running.values()) >= MAX_RUNS_IN_ALL:
            raise DialectRefused("DIA-062", "too many runs are in progress here", "try again later")
        self._running[tenant] = self._running.get(tenant, 0) + 1
        try:
            return await self._recorded(who, request)
        finally:
            self._running[tenant] -= 1
            if not self._running[tenant]:
                del self._running[tenant]

    async def _recorded(self, who: Who, request: CodeRequest) -> ToolResponse:
        view = await self._service.view(who.place, who.identity)
        tally = Tally()
        tools = _imported(view, request, tally)
        scope = self._scope.child().within(driver=who.place.door.name, tenant=who.identity.tenant.tenant)
        scope.intent("code.run", code=jsontext.digest(request.code), tools=sorted(tools.values()))
        status = "failed"
        try:
            async with asyncio.timeout(MAX_SECONDS):
                done = await self._stepped(who, request, tools, tally)
            status = "ok" if done["state"] == "done" else "failed"
            return _answer(request, done, tally)
        except TimeoutError:
            text = f"the code took longer than {MAX_SECONDS:.0f} s"
            return _failed(request, ServerFault("DIA-063", text, "do less at a time"), tally)
        except ServerFault as error:
            return _failed(request, error, tally)
        finally:
            scope.outcome("code.run", status=status, calls=tally.calls, **tally.told())

    async def _stepped(self, who: Who, request: CodeRequest, tools: Mapping[str, str], tally: Tally) -> dict[str, Any]:
        """Run the code to its end, its calls between the steps."""
        async with self._opener(who.identity) as step:
            wants = await step({"begin": {"code": request.code, "tools": dict(tools)}})
            while wants["state"] == "call":
                tally.calls += 1
                if tally.calls > MAX_CALLS:
                    raise ServerFault("DIA-063", f"the code called more than {MAX_CALLS} tools", "do less at a time")
                wants = await step({"go": await self._called(who, request, tools, wants, tally)})
            return wants

    async def _called(
        self, who: Who, request: CodeRequest, tools: Mapping[str, str], wants: Mapping[str, Any], tally: Tally
    ) -> dict[str, Any]:
        """Return what a tool gave, or why it did not; the code may go on after either."""
        tool, arguments = str(wants.get("tool", "")), dict(wants.get("arguments") or {})
        if tool not in tools.values():  # whatever the sandbox says: it may have been taken over
            return {"ok": False, "message": "that tool was not imported"}
        asked = ToolRequest(request_id=uuid.uuid4(), tool_id=tool, arguments=arguments, context=request.context)
        try:
            await self._service.rated(who, asked)
            answer = await self._service.invoke(who, asked, lambda _progress: None)
        except SandboxError as error:
            return {"ok": False, "message": str(said(error).get("message", ""))}
        tally.direct += len(jsontext.dump(arguments)) + len(jsontext.dump(answer.result or answer.error or {}))
        if answer.status == "success":
            return {"ok": True, "value": answer.result}
        return {"ok": False, "message": str((answer.error or {}).get("message", "the tool failed"))}


def _imported(view: FileView, request: CodeRequest, tally: Tally) -> dict[str, str]:
    """Return name in the code → tool, for the files that a request imports.

    Raises:
        DialectRefused: ``DIA-060``, ``DIA-061``.
    """
    tools: dict[str, str] = {}
    tally.used += len(request.code.encode())
    for one in request.imports:
        found = view.files.get(one.path) if _IMPORT.fullmatch(one.path) else None
        if found is None:
            raise DialectRefused(
                "DIA-060", f"{one.path[:80]!r} is no tool of yours", "import files that `tools/` lists"
            )
        tool = str(jsontext.parse(found.data)["tool_id"])
        name = name_of(tool)
        if name in tools:
            raise DialectRefused("DIA-061", f"two imports are called {name}", "import one of them")
        tools[name] = tool
        tally.direct += len(found.data)
        tally.used += len(one.path) + len('{"import":""}')
    return tools


def name_of(tool: str) -> str:
    """Return how code calls a tool: its id with ``_`` for what no name of Python has."""
    name = re.sub(r"\W", "_", tool, flags=re.ASCII)
    return f"_{name}" if not name.isidentifier() or keyword.iskeyword(name) or name in ("tools", "result") else name


def _answer(request: CodeRequest, done: Mapping[str, Any], tally: Tally) -> ToolResponse:
    if done["state"] != "done":
        text = str(done.get("message", "it does not say why"))
        return _failed(request, ServerFault("DIA-064", f"the code failed: {text}", "correct it"), tally)
    printed = str(done.get("printed", ""))
    tally.used += len(jsontext.dump(done.get("value"))) + len(printed.encode("utf-8", "replace"))
    result = {"value": done.get("value"), "printed": printed, "calls": tally.calls, "tokens": tally.told()}
    return ToolResponse(request_id=request.request_id, status="success", result=result, metadata=_measured(tally))


def _failed(request: CodeRequest, error: SandboxError, tally: Tally) -> ToolResponse:
    return ToolResponse(request_id=request.request_id, status="error", error=said(error), metadata=_measured(tally))


def _measured(tally: Tally) -> Measured:
    took = int((time.perf_counter() - tally.began) * 1000)
    return Measured(duration_ms=took, tokens_used=math.ceil(tally.used / BYTES_PER_TOKEN))
