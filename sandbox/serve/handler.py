"""Connects a client session to the pipeline of one live server.

Prompts and resources go the same way as calls: only what the driver declares, the intent recorded before and the
outcome after.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sandbox.errors import CallRefused
from sandbox.events import Scope
from sandbox.serve.calls import Caller, Cleaner, Pipeline, shape
from sandbox.serve.client_model import CallInfo
from sandbox.serve.paths import Checked
from sandbox.vet.model import ExposedTool


class ResourceGuard(Protocol):
    """Judges the URI of a resource before it is forwarded (S0-70)."""

    def inspect(self, uri: str) -> Checked:
        """Return the judged URI with its parts; its text is forwarded byte for byte. Raises CallRefused."""


class ResourceDecider(Protocol):
    """Policy for what is not a tool."""

    def decide_prompt(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> Sequence[str]:
        """Return the rules that allow a prompt, or raise CallRefused."""

    def decide_resource(self, caller: Caller, checked: Checked, action: str) -> Sequence[str]:
        """Return the rules that allow reading a resource, or raise CallRefused."""


class ServerHandler:
    """The handler of one session in front of one live server.

    Args:
        pipeline: carries tool calls.
        cleaner: cleans what is not a tool's result.
        caller: who uses it.
        resources: judge of resource URIs; without one no resource is read.
        decider: policy for prompts and resources; without one what the driver declares is allowed.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        cleaner: Cleaner,
        caller: Caller,
        resources: ResourceGuard | None = None,
        decider: ResourceDecider | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._cleaner = cleaner
        self._caller = caller
        self._resources = resources
        self._decider = decider

    async def call_tool(self, tool: ExposedTool, arguments: dict[str, Any], call: CallInfo) -> dict[str, Any]:
        """Carry one tool call through the numbered steps."""

        async def forward(name: str, sent: dict[str, Any]) -> Mapping[str, Any]:
            return await call.forward("tools/call", {"name": name, "arguments": sent})

        caller = Caller(self._caller.tenant, str(call.client_info.get("name", ""))[:128])
        return await self._pipeline.call(tool.name, arguments, caller, call.scope, forward, call.identity())

    async def get_prompt(self, name: str, arguments: dict[str, Any], call: CallInfo) -> dict[str, Any]:
        """Fetch one declared prompt."""
        rules = self._decider.decide_prompt(self._caller, name, arguments) if self._decider else ("declared-by-driver",)
        record = {"prompt": name, "arguments": shape(arguments), "rules": list(rules)}
        return await self._recorded(call, "prompts/get", {"name": name, "arguments": arguments}, record)

    async def read_resource(self, uri: str, call: CallInfo) -> dict[str, Any]:
        """Read one resource within the declared templates."""
        checked, rules = self._resource(uri, "read", call.scope)
        return await self._recorded(call, "resources/read", {"uri": checked}, {"uri": checked, "rules": list(rules)})

    async def watch_resource(self, uri: str, call: CallInfo) -> None:
        """Allow a subscription when the resource may be read."""
        checked, rules = self._resource(uri, "subscribe", call.scope)
        call.scope.fact("resource.watch", uri=checked, rules=list(rules))

    async def complete(self, params: dict[str, Any], call: CallInfo) -> dict[str, Any]:
        """Complete an argument of a declared prompt or template."""
        return await self._recorded(call, "completion/complete", params, {})

    def _resource(self, uri: str, action: str, scope: Scope) -> tuple[str, Sequence[str]]:
        try:
            checked = self._judged(uri)
            decided = self._decider.decide_resource(self._caller, checked, action) if self._decider else None
        except CallRefused as refusal:
            scope.fact("call.decide", decision="deny", reason=refusal.id, uri=uri[:512], action=action)
            raise
        return checked.text, decided if decided is not None else ("declared-by-driver",)

    def _judged(self, uri: str) -> Checked:
        if self._resources is None:
            raise CallRefused("CALL-030", "resources are not served here", "declare `resources` in DRIVER.md")
        return self._resources.inspect(uri)

    async def _recorded(
        self, call: CallInfo, method: str, params: dict[str, Any], record: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Forward one request between its intent and its outcome, and clean what comes back."""
        call.scope.intent("call.forward", method=method, decision="allow", **record, **call.identity())
        started = time.perf_counter_ns()
        try:
            answer = await call.forward(method, params)
            answered = time.perf_counter_ns()
            result = dict(self._cleaner.clean(answer))
        except BaseException as error:
            why = getattr(error, "id", type(error).__name__)
            call.scope.outcome("call.forward", method=method, status="error", error=why)
            raise
        done = time.perf_counter_ns()
        call.scope.outcome(
            "call.forward",
            method=method,
            status="ok",
            duration_us=(done - started) // 1000,
            overhead_us=(done - answered) // 1000,
        )
        return result
