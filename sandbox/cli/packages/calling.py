"""Calls installed packages through the same pipeline as any driver: plan, sandbox, vetting, policy, audit."""

from __future__ import annotations

import argparse
import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from sandbox.cli import options
from sandbox.cli.approved import opening
from sandbox.cli.bench import bench
from sandbox.cli.call import call_once
from sandbox.cli.progress import quiet_progress
from sandbox.cli.run import add_serving_options
from sandbox.errors import CallRefused, SandboxError, ServerFault
from sandbox.events import Fact, Recorder, Scope, Trace
from sandbox.mcpkg.cases import judge
from sandbox.mcpkg.chain import run_chain
from sandbox.mcpkg.metrics import Outcome
from sandbox.mcpkg.model import Case, Manifest, Step
from sandbox.mcpkg.store import Store
from sandbox.serve.extract import first_text
from sandbox.supervisor import open_server

Call = Callable[[dict[str, Any]], Awaitable[Any]]

MAX_NESTING: Final = 4
"""Chains within chains."""

_MILLISECONDS: Final = 1000


def add_calling(parser: argparse.ArgumentParser) -> None:
    """Declare what concerns starting a sandbox and calling it."""
    options.add_plan_options(parser)
    options.add_audit_options(parser)
    add_serving_options(parser)
    parser.set_defaults(names="server")


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
    arguments: argparse.Namespace, recorder: Recorder, store: Store, tool_id: str, given: dict[str, Any]
) -> Any:
    """Return what an installed tool makes of its arguments; a chain's steps run one after another, in one trace.

    Raises:
        SandboxError: the tool is not installed, was refused or failed.
    """
    trace = Trace.new()
    return await _call(arguments, Below(recorder, trace), Scope(recorder, trace, driver=tool_id), store, tool_id, given)


async def _call(
    arguments: argparse.Namespace,
    recorder: Recorder,
    scope: Scope,
    store: Store,
    tool_id: str,
    given: dict[str, Any],
    depth: int = 0,
) -> Any:
    installed = store.current(tool_id)
    manifest, _ = installed.read()
    if not manifest.chain:
        async with opened(arguments, recorder, store.link(tool_id), tool_id) as call:
            return _unwrapped(manifest, await call(given))
    if depth >= MAX_NESTING:
        message = f"{tool_id}: chains nest deeper than {MAX_NESTING}"
        raise CallRefused("PKG-054", message, "call the inner tools directly")

    async def step(one: Step, made: dict[str, Any]) -> Any:
        scope.intent("pkg.step", chain=tool_id, step=one.step, tool=one.tool)
        outcome = "failed"
        try:
            value = await _call(arguments, recorder, scope, store, one.tool, made, depth + 1)
            outcome = "ok"
        finally:
            scope.outcome("pkg.step", chain=tool_id, step=one.step, status=outcome)
        return value

    return await run_chain(manifest, given, step)


def _unwrapped(manifest: Manifest, value: Any) -> Any:
    """Return the tool's own value: MCP wraps what is no object."""
    wrapped = manifest.output_schema.get("type") != "object"
    return value["result"] if wrapped and isinstance(value, dict) and set(value) == {"result"} else value


async def run_cases(
    arguments: argparse.Namespace, recorder: Recorder, folder: Path, manifest: Manifest, cases: tuple[Case, ...]
) -> list[Outcome]:
    """Return how the tests of a package end: one sandbox, one call each.

    Raises:
        SandboxError: the sandbox cannot be had; a failing call is a failing test.
    """
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
