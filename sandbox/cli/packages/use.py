"""Actions that run installed packages: test, call."""

from __future__ import annotations

import argparse
import functools
import json
from typing import Any

from sandbox.cli import run
from sandbox.cli.bench import run_async
from sandbox.cli.call import parse_arguments
from sandbox.cli.evidence import trail
from sandbox.cli.packages.calling import add_calling, call_tool, run_cases, serve_chain
from sandbox.cli.packages.common import action, add_store, store_of
from sandbox.cli.report import line_of, say
from sandbox.cli.run import until_signalled
from sandbox.errors import ServerFault
from sandbox.events import Recorder, Scope, Trace
from sandbox.mcpkg import metrics
from sandbox.mcpkg.metrics import Outcome
from sandbox.mcpkg.model import Manifest
from sandbox.mcpkg.store import Installed, Store
from sandbox.transport.stdio import serve_stdio


def add_arguments(actions: Any) -> None:
    """Declare the actions."""
    test = action(actions, "test", "run a package's tests in its sandbox; exit status 4 when one fails", _test)
    test.add_argument("tool", metavar="TOOL_ID")
    call = action(actions, "call", "call an installed tool, or run a chain step by step", _call, json=False)
    call.add_argument("tool", metavar="TOOL_ID")
    call.add_argument("--args", default="{}", metavar="JSON", help="arguments as a JSON object; `-` reads stdin")
    serve = action(actions, "run", "serve an installed tool or chain on stdio, for an MCP client", _run, json=False)
    serve.add_argument("tool", metavar="TOOL_ID")
    for parser in (test, call, serve):
        add_store(parser)
        add_calling(parser)


def _call(arguments: argparse.Namespace) -> int:
    given = parse_arguments(arguments.args)
    with trail(arguments) as recorder:
        work = functools.partial(_called, arguments, recorder, given)
        return run_async(functools.partial(until_signalled, work))


async def _called(arguments: argparse.Namespace, recorder: Recorder, given: dict[str, Any]) -> int:
    store = store_of(arguments)
    manifest, _ = store.current(arguments.tool).read()
    value = await call_tool(arguments, recorder, store, manifest, given)
    print(json.dumps(value, indent=1, ensure_ascii=False))
    return 0


def _run(arguments: argparse.Namespace) -> int:
    store = store_of(arguments)
    installed = store.current(arguments.tool)
    manifest, _ = installed.read()
    if not manifest.chain:
        return run.execute(argparse.Namespace(**{**vars(arguments), "driver": store.link(arguments.tool)}))
    with trail(arguments) as recorder:
        return run_async(functools.partial(_served, arguments, recorder, store, installed, manifest))


async def _served(
    arguments: argparse.Namespace, recorder: Recorder, store: Store, installed: Installed, manifest: Manifest
) -> int:
    channel = await serve_stdio()
    return await until_signalled(
        functools.partial(serve_chain, arguments, recorder, store, str(installed.folder), manifest, channel)
    )


def _test(arguments: argparse.Namespace) -> int:
    with trail(arguments) as recorder:
        return run_async(functools.partial(until_signalled, functools.partial(_tested, arguments, recorder)))


async def _tested(arguments: argparse.Namespace, recorder: Recorder) -> int:
    store = store_of(arguments)
    installed = store.current(arguments.tool)
    manifest, cases = installed.read()
    outcomes = await run_cases(arguments, recorder, store, store.link(manifest.tool_id), manifest, cases)
    implementation = str(installed.info.get("implementation", ""))
    worse = metrics.add(store.history(manifest.tool_id), manifest.version, implementation, outcomes)
    run = metrics.run_of(manifest.version, implementation, outcomes)
    scope = Scope(recorder, Trace.new(), driver=manifest.tool_id)
    scope.fact("pkg.test", version=manifest.version, total=run["total"], failed=run["failed"], regressions=len(worse))
    _tell(arguments, run, outcomes, worse)
    return ServerFault.exit_code if run["failed"] or worse else 0


def _tell(arguments: argparse.Namespace, run: dict[str, Any], outcomes: list[Outcome], worse: list[str]) -> None:
    if arguments.json:
        results = [{"name": one.name, "wrong": list(one.wrong), "latency_ms": one.latency_ms} for one in outcomes]
        print(json.dumps({**run, "outcomes": results, "regressions": worse}))
        return
    for one in outcomes:
        print(line_of(f"{'fail' if one.wrong else 'pass'}  {one.name}  {one.latency_ms:.0f} ms"))
        say(*(line_of(f"      {text}") for text in one.wrong))
    say(*(line_of(f"regression: {text}") for text in worse))
    print(f"{run['passed']} of {run['total']} passed, median {run['median_ms']:.0f} ms")
