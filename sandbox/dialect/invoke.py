"""One call of a tool, carried through the same door, session and pipeline as a call over MCP.

A request of the dialect becomes the ``tools/call`` of a stateless client, fed to a
:class:`~sandbox.serve.session.ClientSession` of its own. So nothing is decided here: what is exposed, the contract, the
confinement of paths, policy, limits, tenant context, records and the cleaning of results are those of every other call.
``context.trace_id`` arrives as the caller's trace, ``client_name`` as what the client calls itself.
"""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sandbox import jsontext
from sandbox.dialect.model import Measured, Progress, ToolRequest, ToolResponse, trace_parent
from sandbox.dialect.refusals import said
from sandbox.errors import CallRefused, SandboxError, ServerFault
from sandbox.serve.client_model import CallInfo, SessionOptions
from sandbox.serve.codes import ERROR_META
from sandbox.serve.http import endpoint
from sandbox.serve.http.channel import HttpChannel
from sandbox.serve.http.doors import Behind, Door
from sandbox.serve.http.refusals import HttpRefused
from sandbox.serve.http.streams import Stream
from sandbox.serve.identity.model import Identity
from sandbox.serve.session import ClientSession
from sandbox.wire import meta, tracing
from sandbox.wire.jsonrpc import Failure, Notification, Request, Result
from sandbox.wire.versions import LATEST_STATELESS

CLOSING: Final = 2.0
"""Seconds in which the session of one call has to end after its answer."""

NEWS: Final = 3600.0
"""Seconds between looks at a quiet stream; the session ends a call by its own deadline long before."""

BYTES_PER_TOKEN: Final = 4
"""What a token of English text or JSON takes, roughly; the number we give is an estimate and called one."""

Hear = Callable[[Progress], None]
"""Is told how far a call is."""

Ready = Callable[[Behind], Awaitable[None]]


AskOwner = Callable[[Mapping[str, Any], CallInfo | None], Awaitable[Mapping[str, Mapping[str, Any]] | None]]
"""Puts the questions of a call that waits (name → ``method``, ``params``) to whoever it is made for, and returns the
answers by name; ``None`` when the call has ended before they were there."""


async def _at_once(_behind: Behind) -> None:
    """Let the call go out."""


async def _nobody(_requests: Mapping[str, Any], _call: CallInfo | None) -> None:
    """Ask nobody: a client without capabilities is not asked."""


@dataclass(slots=True)
class Course:
    """One call on its way.

    Attributes:
        message: the call, without what answers its questions.
        channel: what its messages are fed to.
        stream: where they come back.
        session: carries it.
    """

    message: Request
    channel: HttpChannel
    stream: Stream
    session: ClientSession


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one call, in the terms of MCP; a job keeps this.

    Attributes:
        result: ``CallToolResult``, or ``None`` with a failure.
        failure: ``id``, ``message``, ``code`` and so on: the ``error`` of a response.
        rpc: JSON-RPC code and data of the failure, for clients of MCP.
        duration_ms: milliseconds.
    """

    result: Mapping[str, Any] | None = None
    failure: Mapping[str, Any] | None = None
    rpc: Mapping[str, Any] | None = None
    duration_ms: int = 0


def message_of(request: ToolRequest) -> Request:
    """Return the ``tools/call`` that a request of the dialect means."""
    own: dict[str, Any] = {
        meta.PROTOCOL_VERSION: LATEST_STATELESS,
        meta.CLIENT_CAPABILITIES: {},
        meta.CLIENT_INFO: {"name": request.context.client_name or "unnamed", "version": ""},
        meta.PROGRESS_TOKEN: str(request.request_id),
    }
    parent = trace_parent(request)
    if parent:
        own[tracing.TRACEPARENT] = parent
    params = {"name": request.tool_id, "arguments": dict(request.arguments), "_meta": own}
    return Request(str(request.request_id), "tools/call", params)


async def carry(
    door: Door,
    identity: Identity,
    message: Request,
    transport: str,
    hear: Hear,
    ready: Ready = _at_once,
    ask: AskOwner = _nobody,
) -> Outcome:
    """Return what came of one call.

    Args:
        door: whose server carries it; rates have been taken.
        identity: verified.
        message: see :func:`message_of`.
        transport: for the record.
        hear: progress.
        ready: is waited for when the server is there, before the call goes out.
        ask: puts questions, where the message says that its client can be asked.

    Raises:
        HttpRefused: there is no server to be had; the call did not happen.
    """
    started = time.perf_counter()
    try:
        async with door.open(identity, message) as behind:
            await ready(behind)
            answer = await _through(behind, message, transport, hear, ask)
    except CallRefused as refusal:
        raise endpoint.no_server(refusal, message) from None
    except HttpRefused:
        raise
    except SandboxError as error:
        raise endpoint.failed(error, message) from None
    return outcome_of(answer, int((time.perf_counter() - started) * 1000))


def outcome_of(answer: Result | Failure, took: int) -> Outcome:
    """Return the outcome that an answer is, after some milliseconds."""
    if isinstance(answer, Failure):
        return Outcome(failure=_described(answer), rpc={"code": answer.code, "data": answer.data}, duration_ms=took)
    return Outcome(result=answer.result, duration_ms=took)


async def _through(behind: Behind, message: Request, transport: str, hear: Hear, ask: AskOwner) -> Result | Failure:
    channel, stream = HttpChannel(), Stream()
    options = _noting(behind.options, transport)
    session = ClientSession(channel, behind.exposure, behind.peer, behind.handler, behind.scope, options)
    unfollow = behind.follow(session.replace_exposure)
    running = asyncio.create_task(session.run())
    channel.feed(message, 0, stream)
    try:
        return await to_the_end(Course(message, channel, stream, session), hear, ask)
    except asyncio.CancelledError:
        channel.lost()  # so that the server is told that nobody waits any more
        raise
    finally:
        unfollow()
        session.end()
        await asyncio.wait((running,), timeout=CLOSING)
        running.cancel()


async def to_the_end(course: Course, hear: Hear, ask: AskOwner) -> Result | Failure:
    """Return the answer to a call; what its server asks on the way is asked and answered (2026-07-28, mrtr).

    Raises:
        ServerFault: ``GATE-019``, there is none.
    """
    while True:
        answer = await _answer(course.stream, hear)
        if isinstance(answer, Failure) or answer.result.get("resultType") != "input_required":
            return answer
        state = str(answer.result["requestState"])
        call = course.session.waiting.get(state)
        given = await ask(answer.result["inputRequests"], call)
        if given is None:
            return _unasked(course.message, call)
        params = {**course.message.params, "requestState": state, "inputResponses": given}
        course.stream = Stream()
        course.channel.feed(Request(course.message.id, course.message.method, params), 0, course.stream)


def _unasked(message: Request, call: CallInfo | None) -> Result | Failure:
    """Return what became of a call that ended while its questions were open."""
    if call is not None and isinstance(call.unsent, Result | Failure):
        return call.unsent
    refusal = CallRefused("CALL-093", "the client did not answer", "answer in time")
    return Failure(message.id, refusal.rpc_code, refusal.message, {"id": refusal.id})


async def _answer(stream: Stream, hear: Hear) -> Result | Failure:
    while True:
        await stream.wait(NEWS)
        for one in stream.take():
            if isinstance(one.message, Result | Failure):
                return one.message
            if isinstance(one.message, Notification) and one.message.method == "notifications/progress":
                hear(_progress(one.message.params))
        if stream.drained:
            raise ServerFault("GATE-019", "the server ended before it answered", "try again")


def _progress(params: Mapping[str, Any]) -> Progress:
    done, total = params.get("progress"), params.get("total")
    percent = None
    if isinstance(done, int | float) and isinstance(total, int | float) and total > 0:
        percent = min(100.0, max(0.0, 100.0 * done / total))
    text = params.get("message")
    return Progress(percent=percent, message=text if isinstance(text, str) else "")


def _noting(options: SessionOptions, transport: str) -> SessionOptions:
    return replace(options, noted={"transport": transport})


# --- responses ------------------------------------------------------------------------------------------------------
def respond(request_id: uuid.UUID | None, outcome: Outcome, sent: Mapping[str, Any]) -> ToolResponse:
    """Return the response for what came of a call.

    Args:
        request_id: of the request.
        outcome: of the call.
        sent: arguments, for the estimate of tokens.
    """
    result, error = _result(outcome)
    size = len(jsontext.dump(sent)) + len(jsontext.dump(result if error is None else error))
    return ToolResponse(
        request_id=request_id,
        status="success" if error is None else "error",
        result=result,
        error=error,
        metadata=Measured(duration_ms=outcome.duration_ms, tokens_used=math.ceil(size / BYTES_PER_TOKEN)),
    )


def _result(outcome: Outcome) -> tuple[Any, dict[str, Any] | None]:
    """Return the result as the tool's output schema has it, or why there is none."""
    if outcome.result is None:
        return None, dict(outcome.failure or {})
    if outcome.result.get("isError"):
        return None, _tool_error(outcome.result)
    structured = outcome.result.get("structuredContent")
    if structured is not None:
        return structured, None
    return {"content": list(outcome.result.get("content") or ())}, None


def _tool_error(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the error of a tool result: a refusal of ours under its id, else what the tool says (``DIA-018``)."""
    own = result.get("_meta")
    known = own.get(ERROR_META) if isinstance(own, Mapping) else None
    texts = [str(one.get("text", "")) for one in result.get("content") or () if one.get("type") == "text"]
    text = "\n".join(texts) or "the tool failed without a word"
    if isinstance(known, Mapping) and known.get("id") != "CALL-080":
        return {"id": known["id"], "code": known["code"], "message": text, "retryable": bool(known.get("retryable"))}
    again = bool(known.get("retryable")) if isinstance(known, Mapping) else False
    return {"id": "DIA-018", "code": "upstream_error", "message": text, "retryable": again}


def _described(failure: Failure) -> dict[str, Any]:
    data = failure.data if isinstance(failure.data, Mapping) else {}
    number = str(data.get("id", "")) or "DIA-018"
    mend = {"mend": str(data["mend"])} if data.get("mend") else {}
    code = _FAILURES.get(number, "upstream_error" if number == "DIA-018" else "internal")
    return {"id": number, "code": code, "message": failure.message, **mend, "retryable": False}


_FAILURES: Final[Mapping[str, str]] = {"SESS-015": "not_found", "SESS-017": "input_invalid"}
"""Protocol errors of a call → their word; others are ours (``internal``) or the server's."""


def refused(error: SandboxError) -> Outcome:
    """Return the outcome of a call that was refused before any session saw it."""
    return Outcome(failure=said(error), rpc={"code": error.rpc_code, "data": {"id": error.id}})
