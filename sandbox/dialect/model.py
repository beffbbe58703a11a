"""The shapes of the dialect, each read strictly: known members only, their types, bounded lengths.

The same shapes serve both sides and every transport. :func:`read` turns bytes into one of them, :func:`to_json` the
reverse; :func:`schema` gives the JSON Schema (2020-12) that says the same, for others.
"""

from __future__ import annotations

import re
import uuid
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from sandbox import jsontext
from sandbox.dialect.refusals import DialectRefused
from sandbox.dialect.versions import DIALECT

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Version = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])$")]
Words = Annotated[tuple[Word, ...], msgspec.Meta(max_length=32)]
Transport = Literal["stdio", "http", "ws"]
Status = Literal["success", "error", "in_progress"]
Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]

_LATENCY: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|us)")
_UNIT: Final = {"us": 0.001, "ms": 1.0, "s": 1000.0}


class Shape(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, omit_defaults=True):
    """Base of every shape."""


class Handshake(Shape, kw_only=True, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """First message of a client, on every transport (S1-9).

    Attributes:
        version: release that the client prefers; ``mcp_version`` is another name for it.
        client_id: what the client calls itself; recorded, never trusted.
        server_id: the server that it means; empty for whichever answers.
        transport: on which it says so.
        capabilities: that the client has.
        metadata: anything; ignored.
    """

    client_id: Name
    server_id: Annotated[str, msgspec.Meta(max_length=256)] = ""
    transport: Transport
    capabilities: Words = ()
    version: Version | None = None
    mcp_version: Version | None = None
    metadata: dict[str, Any] = {}

    @property
    def wanted(self) -> str:
        """Return the release.

        Raises:
            DialectRefused: ``DIA-004``, none, or two different ones.
        """
        if self.version and self.mcp_version and self.version != self.mcp_version:
            raise DialectRefused("DIA-004", "`version` and `mcp_version` differ", "send one of them")
        wanted = self.version or self.mcp_version
        if not wanted:
            raise DialectRefused("DIA-004", "the handshake names no `version`", f"send {DIALECT}")
        return wanted


class Limits(Shape, kw_only=True, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """What a server lets one tenant do.

    Attributes:
        calls_per_second: of one tool, sustained.
        calls_at_once: of one tool, after a pause.
        jobs: that may be unfinished at a time.
        message_bytes: of one message.
    """

    calls_per_second: float
    calls_at_once: int
    jobs: int
    message_bytes: int


class Agreement(Shape, kw_only=True, forbid_unknown_fields=True, frozen=True, omit_defaults=False):
    """Answer to a handshake: a handshake itself, with what is agreed.

    Attributes:
        version: agreed release; ``mcp_version`` says the same.
        how: ``same`` or ``downgraded``.
        client_id: as the client said.
        server_id: who answers.
        transport: as the client said.
        capabilities: that both sides have.
        session: names this agreement in requests over HTTP; it belongs to whoever made the handshake.
        limits: what the server allows.
    """

    version: Version
    mcp_version: Version
    how: Literal["same", "downgraded"]
    client_id: Name
    server_id: Name
    transport: Transport
    capabilities: Words
    session: uuid.UUID
    limits: Limits


class Context(Shape, kw_only=True, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """Where a request comes from.

    Attributes:
        trace_id: becomes the trace of the call.
        client_name: what the caller calls itself; recorded, never trusted.
    """

    trace_id: uuid.UUID | None = None
    client_name: Annotated[str, msgspec.Meta(max_length=256)] = ""


class ToolRequest(Shape, kw_only=True, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """One invocation (S1-17).

    Attributes:
        request_id: of the client; one in use cannot be used again.
        tool_id: name of the tool.
        arguments: as its input schema says.
        session: of the handshake; needed over HTTP only.
        mode: ``async`` asks for a job.
    """

    request_id: uuid.UUID
    tool_id: Name
    arguments: dict[str, Any] = {}
    session: uuid.UUID | None = None
    mode: Literal["sync", "async"] = "sync"
    context: Context = Context()


class Progress(Shape, kw_only=True, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """How far a call is.

    Attributes:
        percent: 0 to 100, where the server says how much there is in all.
        message: the server's own words, cleaned.
    """

    percent: Percent | None = None
    message: str = ""


class Measured(Shape, kw_only=True, forbid_unknown_fields=True, frozen=True, omit_defaults=False):
    """What an invocation took.

    Attributes:
        duration_ms: milliseconds.
        tokens_used: an estimate: a quarter of the bytes of arguments and result, rounded up.
    """

    duration_ms: int = 0
    tokens_used: int = 0


class ToolResponse(Shape, kw_only=True, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """Answer to an invocation, and what a job says when it is asked for (S1-18, S1-19).

    Attributes:
        request_id: of the request; ``None`` where it could not be read.
        status: ``in_progress`` comes with ``progress``, and with a handle when it is a job.
        result: of the tool, as its output schema says.
        progress: how far it is.
        error: see :mod:`sandbox.dialect.refusals`.
        job_id: handle of a job.
        poll_after: seconds after which it should be asked for again.
        metadata: what it took.
    """

    request_id: uuid.UUID | None
    status: Status
    result: Any = None
    progress: Progress | None = None
    error: dict[str, Any] | None = None
    job_id: uuid.UUID | None = None
    poll_after: float | None = None
    metadata: Measured = Measured()


class Costs(Shape, kw_only=True, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """What a tool is said to cost.

    Attributes:
        cost_estimate: in no unit that the document names.
        latency: such as ``50ms``.
        version: of the tool's contract (ours).
        digest: of the contract (ours).
        input_schema: path of the same schema as a file (ours).
        output_schema: the same (ours).
    """

    cost_estimate: Annotated[float, msgspec.Meta(ge=0)] | None = None
    latency: str | None = None
    version: str = ""
    digest: str = ""
    input_schema: str = ""
    output_schema: str = ""


class Descriptor(Shape, kw_only=True, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """One tool as a file (S1-15). What the document calls “JSON Schema 1.1” is read as JSON Schema 2020-12."""

    tool_id: Name
    name: str
    description: str = ""
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    metadata: Costs = Costs()


S = TypeVar("S", bound=Shape)


def read(kind: type[S], data: bytes) -> S:
    """Return a shape from bytes.

    Raises:
        DialectRefused: ``DIA-004``, they are not strict JSON or do not fit; the message has the place.
    """
    try:
        value = jsontext.parse(data)
    except jsontext.JsonTextError as error:
        raise DialectRefused("DIA-004", f"no strict JSON: {error}", "send one JSON object") from None
    return convert(kind, value)


def convert(kind: type[S], value: Any) -> S:
    """Return a shape from a JSON value.

    Raises:
        DialectRefused: ``DIA-004``, it does not fit.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        named = value.get("request_id") if isinstance(value, dict) else None
        raise DialectRefused(
            "DIA-004", f"no {kind.__name__}: {str(error)[:300]}", "correct what the message names",
            request_id=named if isinstance(named, str) and len(named) <= 64 else None,  # noqa: PLR2004 - a uuid is 36
        ) from None  # fmt: skip


def to_json(shape: Shape) -> dict[str, Any]:
    """Return a shape as a JSON value."""
    value = msgspec.to_builtins(shape)
    if isinstance(shape, ToolResponse):  # said in any case
        value["metadata"] = msgspec.to_builtins(shape.metadata)
    return {name: list(one) if isinstance(one, tuple) else one for name, one in value.items()}


def schema(kind: type[Shape]) -> dict[str, Any]:
    """Return the JSON Schema of a shape."""
    return msgspec.json.schema(kind)


def milliseconds(latency: str) -> float:
    """Return the milliseconds that a latency such as ``50ms`` names.

    Raises:
        DialectRefused: ``DIA-004``, it names none.
    """
    found = _LATENCY.fullmatch(latency.strip())
    if found is None:
        raise DialectRefused("DIA-004", f"{latency[:40]!r} is no latency", "write a number with us, ms or s")
    return float(found[1]) * _UNIT[found[2]]


def trace_parent(request: ToolRequest) -> str:
    """Return the ``traceparent`` of a request that names its trace, else nothing (S1-17)."""
    trace = request.context.trace_id
    if trace is None or not trace.int:
        return ""
    span = request.request_id.hex[:16]
    return f"00-{trace.hex}-{span}-01" if int(span, 16) else ""
