"""A server of the dialect in a few lines of Python, for authors (S1-57, S1-58).

::

    from sandbox.dialect import MCPServer

    server = MCPServer(id="com.example/words", version="1.0.0", capabilities=["async"])

    @server.tool("count_words", description="Count words.")
    def count(text: str) -> dict[str, int]:
        return {"words": len(text.split())}

    server.start()

The schemas come from the signature (pydantic); arguments and results are held to them. ``start`` answers on standard
input and output until the client closes its side, each line one JSON object. A first line that is JSON-RPC is answered
as MCP instead, so the same program runs under DRIVER.md in a sandbox. It decides nothing about callers: that is for
whoever starts it, which is ``mcp-sandbox run`` or ``serve``.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, get_type_hints

import pydantic

from sandbox import jsontext
from sandbox.dialect.bounds import MAX_MESSAGE
from sandbox.dialect.files import file_of, plain
from sandbox.dialect.handshake import Offer, agree
from sandbox.dialect.model import (
    Costs,
    Descriptor,
    Handshake,
    Limits,
    Measured,
    ToolRequest,
    ToolResponse,
    convert,
    to_json,
)
from sandbox.dialect.refusals import DialectRefused, response, said
from sandbox.dialect.rpc import Speaker
from sandbox.errors import CallRefused, SandboxError, ServerFault

F = TypeVar("F", bound=Callable[..., Any])

MAX_JOBS: Final = 256
"""Jobs that one server keeps, the oldest ended ones forgotten; they live as long as the process."""

POLL: Final = 0.5


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: its function, and the shapes of what goes in and out."""

    id: str
    description: str
    work: Callable[..., Any]
    inputs: pydantic.TypeAdapter[Any]
    outputs: pydantic.TypeAdapter[Any]
    costs: Costs

    def descriptor(self) -> Descriptor:
        """Return it as a file of the view."""
        return Descriptor(
            tool_id=self.id,
            name=self.id,
            description=self.description,
            input_schema=self.inputs.json_schema(),
            output_schema=self.outputs.json_schema(mode="serialization"),
            metadata=self.costs,
        )

    async def call(self, given: Mapping[str, Any]) -> Any:
        """Return the result of a call.

        Raises:
            CallRefused: ``DIA-051``, the arguments do not fit.
            ServerFault: ``DIA-018``, it failed.
        """
        try:
            arguments = self.inputs.validate_python(dict(given), strict=False)
        except pydantic.ValidationError as error:
            why = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:3])
            raise CallRefused("DIA-051", f"the arguments of {self.id} do not fit: {why}", "correct them") from None
        try:
            named = {name: getattr(arguments, name) for name in type(arguments).model_fields}
            slow = inspect.iscoroutinefunction(self.work)
            value = await (self.work(**named) if slow else asyncio.to_thread(self.work, **named))
            return self.outputs.dump_python(self.outputs.validate_python(value), mode="json")
        except Exception as error:  # noqa: BLE001 - a tool may raise anything, and its caller is told what
            raise ServerFault("DIA-018", f"{type(error).__name__}: {error}"[:2000], "see the server's log") from None


@dataclass(slots=True)
class Job:
    """A call that goes on."""

    request_id: uuid.UUID
    task: asyncio.Task[ToolResponse]
    began: float = field(default_factory=time.monotonic)


class MCPServer:
    """A server with its tools.

    Args:
        id: what the server calls itself.
        version: of the server.
        transports: only ``stdio``; behind ``mcp-sandbox serve`` it has all of them.
        capabilities: of the document's; ``async`` lets calls become jobs.
    """

    def __init__(
        self,
        id: str,  # noqa: A002 - the document's word
        version: str,
        transports: Sequence[str] = ("stdio",),
        capabilities: Sequence[str] = (),
    ) -> None:
        if tuple(transports) != ("stdio",):
            raise ServerFault(
                "DIA-055",
                "an author's server speaks over stdio",
                "let `mcp-sandbox serve` give it the other transports",
            )
        self.id, self.version = id, version
        self.tools: dict[str, Tool] = {}
        limits = Limits(calls_per_second=1000.0, calls_at_once=1000, jobs=MAX_JOBS, message_bytes=MAX_MESSAGE)
        self._offer = Offer(id, tuple(capabilities), limits, frozenset((id,)))
        self._jobs: dict[str, Job] = {}

    def tool(
        self,
        id: str = "",  # noqa: A002 - the document's word
        *,
        description: str = "",
        latency: str | None = None,
        cost_estimate: float | None = None,
    ) -> Callable[[F], F]:
        """Return what makes a tool of a function; its schemas come from the signature.

        Raises:
            ServerFault: ``DIA-055``, the signature has parameters that no JSON object names, or the id is taken.
        """

        def added(work: F) -> F:
            name = id or work.__name__
            if name in self.tools:
                raise ServerFault("DIA-055", f"two tools are called {name!r}", "name one of them otherwise")
            text = description or inspect.getdoc(work) or ""
            costs = Costs(latency=latency, cost_estimate=cost_estimate, version=self.version)
            self.tools[name] = Tool(name, text, work, _inputs(name, work), _outputs(work), costs)
            return work

        return added

    def start(self) -> None:
        """Answer until the client closes its side."""
        asyncio.run(self.serve())

    async def serve(self) -> None:
        """Answer on standard input and output; what tools print goes to standard error."""
        loop = asyncio.get_running_loop()
        talk_in, talk_out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)
        speaker: Speaker | None = None
        agreed = False
        answering: set[asyncio.Task[None]] = set()

        async def say(answer: Awaitable[dict[str, Any] | None]) -> None:
            value = await answer
            if value is not None:
                talk_out.write(jsontext.dump(value) + b"\n")

        while line := await loop.run_in_executor(None, talk_in.readline, MAX_MESSAGE + 1):
            try:
                message = jsontext.parse(line)
            except jsontext.JsonTextError as error:
                await say(
                    _value(response(DialectRefused("DIA-004", f"no strict JSON: {error}", "send one JSON object")))
                )
                continue
            if speaker is None and not agreed and isinstance(message, dict) and "jsonrpc" in message:
                speaker = Speaker(self)
            answer: Awaitable[dict[str, Any] | None]
            if speaker is not None:
                answer = speaker.answer(message)
            else:
                agreed, answer = self._answer(message, agreed=agreed)
            task = asyncio.ensure_future(say(answer))
            answering.add(task)
            task.add_done_callback(answering.discard)
        await asyncio.gather(*answering, return_exceptions=True)

    def _answer(self, message: Any, *, agreed: bool) -> tuple[bool, Awaitable[dict[str, Any]]]:
        """Return whether the handshake is done, and the answer to a message of the dialect."""
        try:
            if not agreed:
                return True, _value(to_json(agree(convert(Handshake, message), self._offer, "stdio")))
            if isinstance(message, dict) and set(message) == {"import"}:
                return True, _value(self._file(str(message["import"])))
            if isinstance(message, dict) and set(message) in ({"resume"}, {"cancel"}):
                return True, self._job(str(next(iter(message.values()))), cancel="cancel" in message)
            return True, self._invoked(convert(ToolRequest, message))
        except SandboxError as error:
            return agreed, _value(response(error))

    def _file(self, path: str) -> dict[str, Any]:
        view = {f"tools/{plain(name)}.json": to_json(tool.descriptor()) for name, tool in self.tools.items()}
        view["tools/"] = {"folder": "tools/", "folders": [], "files": [{"path": one} for one in sorted(view)]}
        if path not in view:
            raise DialectRefused("DIA-022", "there is no such file", "use a name that `tools/` lists")
        return {"import": path, "etag": file_of(view[path]).etag, "file": view[path]}

    async def _invoked(self, request: ToolRequest) -> dict[str, Any]:
        tool = self.tools.get(request.tool_id)
        if tool is None:
            refusal = DialectRefused("DIA-012", f"unknown tool {request.tool_id[:80]!r}", "use one of `tools/`")
            return response(refusal, str(request.request_id))
        working = asyncio.ensure_future(self._called(tool, request))
        if request.mode == "sync":
            return to_json(await working)
        job = str(uuid.uuid4())
        self._jobs[job] = Job(request.request_id, working)
        while len(self._jobs) > MAX_JOBS:
            ended = next((name for name, one in self._jobs.items() if one.task.done()), next(iter(self._jobs)))
            self._jobs.pop(ended).task.cancel()
        return self._told(job)

    async def _called(self, tool: Tool, request: ToolRequest) -> ToolResponse:
        began = time.perf_counter()
        result, error = None, None
        try:
            result = await tool.call(request.arguments)
        except SandboxError as failure:
            error = said(failure)
        took = int((time.perf_counter() - began) * 1000)
        measured = Measured(duration_ms=took)
        if error is not None:
            return ToolResponse(request_id=request.request_id, status="error", error=error, metadata=measured)
        return ToolResponse(request_id=request.request_id, status="success", result=result, metadata=measured)

    async def _job(self, job: str, *, cancel: bool) -> dict[str, Any]:
        if job not in self._jobs:
            return response(DialectRefused("DIA-013", "there is no such job", "call the tool again"))
        if cancel:
            self._jobs[job].task.cancel()
            await asyncio.wait((self._jobs[job].task,))
        return self._told(job)

    def _told(self, job: str) -> dict[str, Any]:
        one = self._jobs[job]
        if one.task.cancelled():
            refusal = DialectRefused("DIA-016", "the job was cancelled", "call the tool again")
            return response(refusal, str(one.request_id))
        if one.task.done():
            return to_json(one.task.result())
        return to_json(
            ToolResponse(request_id=one.request_id, status="in_progress", job_id=uuid.UUID(job), poll_after=POLL)
        )


def _inputs(name: str, work: Callable[..., Any]) -> pydantic.TypeAdapter[Any]:
    """Return the shape of a function's parameters, all of them named."""
    hints = get_type_hints(work, include_extras=True)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(work).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            text = f"`{parameter.name}` of {name} is no named parameter"
            raise ServerFault("DIA-055", text, "write each parameter with a name and a type")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints.get(parameter.name, Any), default)
    model = pydantic.create_model(name, __config__=pydantic.ConfigDict(extra="forbid"), **fields)
    return pydantic.TypeAdapter(model)


def _outputs(work: Callable[..., Any]) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(get_type_hints(work, include_extras=True).get("return", Any))


async def _value(value: dict[str, Any]) -> dict[str, Any]:
    return value
