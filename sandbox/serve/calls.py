"""One ``tools/call``, step by step. The numbers are those of ``docs/calls.md`` and of the audit trail.

 1. frame and envelope            (wire)
 2. method allowed in this state  (session)
 3. identity and tenant           (whoever made the :class:`Caller`)
 4. exposed tool                  (session: anything else is unknown)
 5. contract input
 6. client-supplied context refused
 7. URI and path arguments confined
 8. policy decision
 9. rate and concurrency
10. intent recorded
11. arguments mapped, tenant context injected
12. forwarded under a deadline
13. result bounded, cleaned, extracted, validated
14. outcome recorded
15. returned                      (session)

A refusal of steps 5–9 and a fault of steps 12–13 come back as a tool result with ``isError``, which a model can read;
nothing of the server's answer reaches the client when it does not fit the contract.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Protocol

from sandbox import jsontext
from sandbox.errors import CallRefused, SandboxError, ServerFault
from sandbox.events import Scope
from sandbox.serve.codes import error_meta, upstream_meta
from sandbox.serve.extract import Extractor
from sandbox.tenant import TenantContext
from sandbox.vet.bind import RESULT_KEY, exposed_inputs, is_wrapped
from sandbox.vet.model import ExposedTool, Exposure
from sandbox.vet.validators import SchemaValidator

MAX_REFUSAL_TEXT: Final = 500
"""Characters of a refusal that a model reads."""

Forward = Callable[[str, dict[str, Any]], Awaitable[Mapping[str, Any]]]
"""Sends one request to the server under its deadline and returns the result object."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls (step 3), established before any message is read.

    Attributes:
        tenant: verified identity.
        client: what the client calls itself; never trusted, only recorded.
    """

    tenant: TenantContext
    client: str = ""


class ArgumentGuard(Protocol):
    """Steps 6 and 7 for one tool."""

    def check(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments to use, or raise CallRefused."""


class Decider(Protocol):
    """Step 8."""

    def decide_call(self, caller: Caller, tool: ExposedTool, arguments: Mapping[str, Any]) -> Sequence[str]:
        """Return the ids of the rules that allow the call, or raise CallRefused with the rule only in its record."""


class Limiter(Protocol):
    """Step 9."""

    def slot(self, caller: Caller, tool: ExposedTool) -> AbstractAsyncContextManager[None]:
        """Return a context in which the call runs, or raise CallRefused when it would exceed a rate."""


class Injector(Protocol):
    """Second half of step 11."""

    def inject(self, arguments: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """Return the arguments with the declared context added."""


class Cleaner(Protocol):
    """First half of step 13."""

    def clean(self, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the result without control characters and secrets, or raise ServerFault."""


During = Callable[[str], AbstractContextManager[None]]
"""Gives a context in which what the server does elsewhere is recorded with a call, named by its span."""


def _unnamed(_span: str) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(slots=True)
class BoundTool:
    """One exposed tool with everything that its calls need, compiled once."""

    tool: ExposedTool
    inputs: SchemaValidator
    outputs: SchemaValidator
    extractor: Extractor
    guard: ArgumentGuard | None = None
    injector: Injector | None = None
    identity: bool = field(init=False)

    def __post_init__(self) -> None:
        self.identity = self.tool.binding.result_extract == "$"


def compile_tool(tool: ExposedTool) -> BoundTool:
    """Return a tool compiled for calling.

    Raises:
        VetRefused: a schema cannot be compiled.
    """
    contract = tool.binding.contract
    return BoundTool(
        tool=tool,
        inputs=SchemaValidator(exposed_inputs(tool.binding), f"the inputs of {contract.id}"),
        outputs=SchemaValidator(contract.outputs, f"the outputs of {contract.id}", masked=True),
        extractor=Extractor(tool.binding),
    )


@dataclass(frozen=True, slots=True)
class Collaborators:
    """The parts of the pipeline that others provide; each is asked for every call.

    Attributes:
        during: what the server does on the network meanwhile is recorded with the call.
    """

    decider: Decider
    limiter: Limiter | None = None
    cleaner: Cleaner | None = None
    during: During = _unnamed


class Pipeline:
    """Carries calls of one exposure from callers to its server.

    Args:
        exposure: what may be called.
        collaborators: policy, limits, cleaning.
        equip: adds the argument guard and the injector of one tool.
    """

    def __init__(
        self,
        exposure: Exposure,
        collaborators: Collaborators,
        equip: Callable[[BoundTool], BoundTool] = lambda bound: bound,
    ) -> None:
        self._bound: dict[str, BoundTool] = {}
        self._equip = equip
        self._with = collaborators
        self.prepare(exposure)

    def prepare(self, exposure: Exposure) -> None:
        """Make ready the tools of an exposure that are not yet, such as one that was approved while the server lives.

        Raises:
            VetRefused: a schema cannot be compiled.
        """
        for name, tool in exposure.tools.items():
            if name not in self._bound:
                self._bound[name] = self._equip(compile_tool(tool))

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        caller: Caller,
        scope: Scope,
        forward: Forward,
        about: Mapping[str, Any] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """Carry one call and return its ``CallToolResult``.

        Args:
            name: exposed tool name; step 4 has found it.
            arguments: as the client sent them.
            caller: step 3.
            scope: the call's own span.
            forward: sends ``tools/call`` to the server; raises ServerFault or ServerTimeout.
            about: what records say about the request itself (:meth:`~sandbox.serve.client_model.CallInfo.identity`).

        Raises:
            AuditUnavailable: the call could not be recorded, so it did not happen.
        """
        bound = self._bound[name]
        started = time.perf_counter_ns()
        try:
            allowed, rules = self._admit(bound, arguments, caller)
            if self._with.limiter is None:
                return await self._carry(bound, allowed, caller, scope, forward, rules, started, about)
            async with self._with.limiter.slot(caller, bound.tool):  # 9
                return await self._carry(bound, allowed, caller, scope, forward, rules, started, about)
        except CallRefused as refusal:
            record = {**about, "decision": "deny", **getattr(refusal, "record", {})}
            given = shape(arguments)
            scope.fact("call.decide", tool=name, reason=refusal.id, client=caller.client, arguments=given, **record)
            return refused(refusal)

    def _admit(
        self, bound: BoundTool, arguments: Mapping[str, Any], caller: Caller
    ) -> tuple[Mapping[str, Any], Sequence[str]]:
        """Steps 5 to 8: return the arguments to use and the rules that allow the call, or raise CallRefused."""
        tool = bound.tool
        if bound.guard is not None:
            arguments = bound.guard.check(arguments)  # 6, 7: before 5, so that a refusal names what was tried
        mismatch = bound.inputs.mismatch(arguments)  # 5
        if mismatch is not None:
            message = f"arguments of `{tool.name}` do not fit its contract: {mismatch}"
            raise CallRefused("CALL-001", message, "correct the arguments")
        return arguments, self._with.decider.decide_call(caller, tool, arguments)  # 8

    async def _carry(
        self,
        bound: BoundTool,
        arguments: Mapping[str, Any],
        caller: Caller,
        scope: Scope,
        forward: Forward,
        rules: Sequence[str],
        started: int,
        about: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Steps 10 to 14."""
        tool = bound.tool
        sent = self._map(bound, arguments, caller)  # 11, worked out first: an intent is only what will be done
        scope.intent(  # 10
            "call.forward",
            tool=tool.name,
            mcp_tool_name=tool.server_name,
            decision="allow",
            rules=list(rules),
            client=caller.client,
            arguments=shape(arguments),
            **about,
            **scope.kept(tool.name, arguments),
        )
        before = time.perf_counter_ns()
        try:
            with self._with.during(scope.trace.span_id):
                result = await forward(tool.server_name, sent)  # 12
            after = time.perf_counter_ns()
            answer, outcome = self._answer(bound, result), {}  # 13
        except ServerFault as fault:
            after = time.perf_counter_ns()
            answer, outcome = failed(tool, fault), {"error": fault.id}
        except SandboxError as error:
            scope.outcome("call.forward", tool=tool.name, status="error", error=error.id)
            raise
        done = time.perf_counter_ns()
        scope.outcome(  # 14
            "call.forward",
            tool=tool.name,
            status="error" if answer.get("isError") else "ok",
            duration_us=(done - started) // 1000,
            overhead_us=(done - started - (after - before)) // 1000,
            **outcome,
        )
        return answer

    def _map(self, bound: BoundTool, arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Rename contract keys to server arguments, then add the declared context (step 11)."""
        mapping = bound.tool.binding.argument_mapping
        sent = {mapping.get(key, key): value for key, value in arguments.items()} if mapping else dict(arguments)
        return bound.injector.inject(sent, caller) if bound.injector is not None else sent

    def _answer(self, bound: BoundTool, result: Mapping[str, Any]) -> dict[str, Any]:
        """Turn the server's result into the contract's (step 13)."""
        if self._with.cleaner is not None:
            result = self._with.cleaner.clean(result)
        if result.get("isError"):
            own = upstream_meta(idempotent=bound.tool.binding.contract.idempotent)
            return {"content": list(result.get("content") or ()), "isError": True, "_meta": own}
        value = bound.extractor.value(result)
        mismatch = bound.outputs.mismatch(value)
        if mismatch is not None:
            raise ServerFault(
                "CALL-022",
                f"the result of `{bound.tool.name}` does not fit its contract: {mismatch}",
                "correct the contract's `outputs` or `result_extract`, or report the server",
            )
        structured = {RESULT_KEY: value} if is_wrapped(bound.tool.binding.contract) else value
        if bound.identity and result.get("content"):
            content = list(result["content"])
            if result.get("structuredContent") is not None:  # the contract has seen that, and no text beside it
                content = [_said(value), *(block for block in content if block.get("type") != "text")]
        else:
            content = [_said(value)]
        return {"content": content, "structuredContent": structured, "isError": False}


def _said(value: Any) -> dict[str, Any]:
    """Return a value that fits its contract as the text block that a model reads."""
    return {"type": "text", "text": value if isinstance(value, str) else jsontext.dump(value).decode()}


def shape(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return argument keys with the kind and size of their values; never the values (B0-8)."""
    return {key[:128]: _kind(value) for key, value in arguments.items()}


def _kind(value: Any) -> str:
    match value:
        case str():
            return f"string({len(value)})"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case None:
            return "null"
        case list():
            return f"array({len(value)})"
        case _:
            return f"object({len(value)})"


def refused(refusal: CallRefused) -> dict[str, Any]:
    """Return a refusal as a tool result that a model can read; the rule that decided is only in the audit trail."""
    text = f"Refused by mcp-sandbox ({refusal.id}): {refusal.message}"
    content = [{"type": "text", "text": text[:MAX_REFUSAL_TEXT]}]
    return {"content": content, "isError": True, "_meta": error_meta(refusal)}


def failed(tool: ExposedTool, fault: ServerFault) -> dict[str, Any]:
    """Return a server's fault as a tool result; nothing of the server's own text is in it."""
    text = f"The server behind `{tool.name}` failed ({fault.id}): {fault.message}"
    own = error_meta(fault, idempotent=tool.binding.contract.idempotent)
    return {"content": [{"type": "text", "text": text[:MAX_REFUSAL_TEXT]}], "isError": True, "_meta": own}


class BoundOnly:
    """The decision of a driver without an operator policy: exactly what the driver binds, and nothing else."""

    RULE: Final = ("bound-by-driver",)

    def decide_call(self, caller: Caller, tool: ExposedTool, arguments: Mapping[str, Any]) -> Sequence[str]:  # noqa: ARG002
        """Return the one rule: step 4 admitted only bound tools."""
        return self.RULE
