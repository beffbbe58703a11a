"""Calls installed packages through the same pipeline as any driver: plan, sandbox, vetting, policy, audit."""

from __future__ import annotations

import argparse
import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from sandbox.cli.approved import opening
from sandbox.cli.bench import Bench, bench
from sandbox.cli.call import call_once
from sandbox.cli.progress import quiet_progress
from sandbox.errors import CallRefused, SandboxError, ServerFault
from sandbox.events import Fact, Recorder, Scope, Trace
from sandbox.mcpkg.cases import judge
from sandbox.mcpkg.chain import run_chain
from sandbox.mcpkg.chainserver import ChainBackend
from sandbox.mcpkg.chainspec import plan_of, spec_of
from sandbox.mcpkg.metrics import Outcome
from sandbox.mcpkg.model import Case, Manifest, Step
from sandbox.mcpkg.store import Store
from sandbox.serve.extract import first_text
from sandbox.supervisor import open_server
from sandbox.transport.interface import Channel

Call = Callable[[dict[str, Any]], Awaitable[Any]]

MAX_NESTING: Final = 4
"""Chains within chains."""

_MILLISECONDS: Final = 1000


class Below:
    """A recorder that puts the traces of several runs below one span, so that a chain is one trace."""

    def __init__(self, recorder: Recorder, trace: Trace) -> None:
        self._recorder, self._trace = recorder, trace

    def record(self, fact: Fact) -> None:
        """Record a fact with the common trace id."""
        own = fact.trace
        trace = Trace(self._trace.trace_id, own.span_id, own.parent_id or self._trace.span_id)
        self._recorder.record(replace(fact, trace=trace))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recorder, name)


@asynccontextmanager
async def opened(arguments: argparse.Namespace, recorder: Recorder, folder: Path, tool: str) -> AsyncIterator[Call]:
    """Start the driver of an installed or staged package and yield what calls its tool.

    A call returns the result value; a failed one raises.

    Raises:
        SandboxError: it cannot be planned, started or vetted.
    """
    own = argparse.Namespace(**{**vars(arguments), "driver": folder, "names": "server"})
    async with (
        bench(own, recorder, quiet_progress()) as ready,
        open_server(ready.backend, ready.spec, ready.plan, ready.scope, ready.secrets, opening(own)) as live,
    ):

        async def call(given: dict[str, Any]) -> Any:
            return value_of(await call_once(live, ready, own, tool, given))

        yield call


def value_of(result: dict[str, Any]) -> Any:
    """Return what a call gave.

    Raises:
        ServerFault: ``PKG-053``, it failed.
    """
    if result.get("isError"):
        why = first_text(result) or "it does not say why"
        raise ServerFault("PKG-053", f"the tool failed: {why}", "see its arguments, and its records in the audit trail")
    structured = result.get("structuredContent")
    return structured if structured is not None else first_text(result)


async def call_tool(
    arguments: argparse.Namespace, recorder: Recorder, store: Store, manifest: Manifest, given: dict[str, Any]
) -> Any:
    """Return what a tool makes of its arguments; a chain's steps run one after another, in one trace.

    Args:
        arguments: of the command.
        recorder: where facts go.
        store: where the tool, or the tools of the chain's steps, are installed.
        manifest: of the tool; that of a chain need not be installed.
        given: the tool's arguments.

    Raises:
        SandboxError: a tool is not installed, was refused or failed.
    """
    trace = Trace.new()
    calls = _Calls(arguments, Below(recorder, trace), Scope(recorder, trace, driver=manifest.tool_id), store)
    return await calls.call(manifest, given, 0)


def steps_of(
    arguments: argparse.Namespace, scope: Scope, store: Store
) -> Callable[[Manifest, dict[str, Any]], Awaitable[Any]]:
    """Return what runs a chain for whoever the arguments name; its steps are recorded below a scope.

    Args:
        arguments: of the command, with tenant and user.
        scope: of the chain's instance.
        store: where the tools of its steps are installed.
    """
    calls = _Calls(arguments, Below(scope.recorder, scope.trace), scope, store)

    async def run(manifest: Manifest, given: dict[str, Any]) -> Any:
        return await calls.call(manifest, given, 0)

    return run


@dataclass(frozen=True, slots=True)
class _Calls:
    """The calls of one trace."""

    arguments: argparse.Namespace
    recorder: Recorder
    scope: Scope
    store: Store

    async def call(self, manifest: Manifest, given: dict[str, Any], depth: int) -> Any:
        if manifest.chain:
            return await self._chain(manifest, given, depth)
        folder = self.store.link(manifest.tool_id)
        async with opened(self.arguments, self.recorder, folder, manifest.tool_id) as call:
            return _unwrapped(manifest, await call(given))

    async def _chain(self, manifest: Manifest, given: dict[str, Any], depth: int) -> Any:
        if depth >= MAX_NESTING:
            message = f"{manifest.tool_id}: chains nest deeper than {MAX_NESTING}"
            raise CallRefused("PKG-054", message, "call the inner tools directly")
        return await run_chain(manifest, given, functools.partial(self._step, manifest.tool_id, depth))

    async def _step(self, chain: str, depth: int, step: Step, made: dict[str, Any]) -> Any:
        self.scope.intent("pkg.step", chain=chain, step=step.step, tool=step.tool)
        status = "failed"
        try:
            tool, _ = self.store.current(step.tool).read()
            value = await self.call(tool, made, depth + 1)
            status = "ok"
        finally:
            self.scope.outcome("pkg.step", chain=chain, step=step.step, status=status)
        return value


def _unwrapped(manifest: Manifest, value: Any) -> Any:
    """Return the tool's own value: MCP wraps what is no object."""
    wrapped = manifest.output_schema.get("type") != "object"
    return value["result"] if wrapped and isinstance(value, dict) and set(value) == {"result"} else value


async def serve_chain(
    arguments: argparse.Namespace,
    recorder: Recorder,
    store: Store,
    folder: str,
    manifest: Manifest,
    channel: Channel,
) -> int:
    """Serve a chain to one client until it closes its side; every step is a sandbox of its own.

    Raises:
        SandboxError: as for any server.
    """
    from sandbox.cli.serving import serve  # heavy

    trace = Trace.new()
    scope = Scope(recorder, trace, tenant=arguments.tenant, driver=manifest.tool_id)
    calls = _Calls(arguments, Below(recorder, trace), scope, store)
    spec = spec_of(manifest, folder)
    plan = plan_of(spec)
    backend = ChainBackend(manifest, lambda given: calls.call(manifest, given, 0))
    ready = Bench(spec, plan, backend, scope, {})
    async with open_server(backend, spec, plan, scope, {}, opening(arguments)) as live:
        return await serve(live, ready, arguments, channel)


async def run_cases(
    arguments: argparse.Namespace,
    recorder: Recorder,
    store: Store,
    folder: Path,
    manifest: Manifest,
    cases: tuple[Case, ...],
) -> list[Outcome]:
    """Return how the tests of a package end: one sandbox and one call each, or one run each of a chain.

    Args:
        arguments: of the command.
        recorder: where facts go.
        store: where the tools of a chain's steps are installed.
        folder: the package's driver folder, installed or staged.
        manifest: of the package.
        cases: its tests.

    Raises:
        SandboxError: the sandbox cannot be had; a failing call is a failing test.
    """
    if manifest.chain:
        chain = functools.partial(call_tool, arguments, recorder, store, manifest)
        return [await outcome_of(case, chain) for case in cases]
    async with opened(arguments, recorder, folder, manifest.tool_id) as call:
        return [await outcome_of(case, functools.partial(_value, manifest, call)) for case in cases]


async def _value(manifest: Manifest, call: Call, given: dict[str, Any]) -> Any:
    return _unwrapped(manifest, await call(given))


async def outcome_of(case: Case, call: Call) -> Outcome:
    """Return how one test ends under its time-out."""
    began = time.perf_counter()
    try:
        async with asyncio.timeout(case.timeout_ms / _MILLISECONDS):
            wrong = judge(case, await call(dict(case.input)))
    except TimeoutError:
        wrong = [f"it took longer than {case.timeout_ms} ms"]
    except SandboxError as error:
        wrong = [str(error)]
    return Outcome(case.name, tuple(wrong), round((time.perf_counter() - began) * _MILLISECONDS, 3))
