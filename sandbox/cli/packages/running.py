"""What `pkg test`, `pkg call` and `pkg run` do: the whole flow, and slow to import."""

from __future__ import annotations

import argparse
import functools
import json
from typing import Any

from sandbox.cli import run
from sandbox.cli.bench import run_async
from sandbox.cli.call import parse_arguments
from sandbox.cli.evidence import trail
from sandbox.cli.packages.calling import call_tool, run_cases, serve_chain
from sandbox.cli.packages.common import store_of
from sandbox.cli.report import line_of, say
from sandbox.cli.run import until_signalled
from sandbox.errors import ServerFault, UsageError
from sandbox.events import Recorder, Scope, Trace
from sandbox.mcpkg import metrics
from sandbox.mcpkg.metrics import Outcome
from sandbox.mcpkg.model import Manifest
from sandbox.mcpkg.store import Installed, Store, chain_at
from sandbox.transport.stdio import serve_stdio


def call_package(arguments: argparse.Namespace) -> int:
    """Call an installed tool once."""
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


def run_package(arguments: argparse.Namespace) -> int:
    """Serve an installed tool or chain on stdio."""
    store = store_of(arguments)
    installed = store.current(arguments.tool)
    manifest, _ = installed.read()
    if not manifest.chain:
        return run.execute(argparse.Namespace(**{**vars(arguments), "driver": store.link(arguments.tool)}))
    with trail(arguments) as recorder:
        return run_async(functools.partial(_served, arguments, recorder, store, installed, manifest))


def run_folder(arguments: argparse.Namespace) -> int:
    """Serve the installed chain whose folder `run` was given.

    Raises:
        UsageError: ``PKG-040``, the folder lies in no store of packages.
    """
    found = chain_at(arguments.driver)
    if found is None:
        message = f"{arguments.driver} is neither a driver nor an installed chain"
        raise UsageError("PKG-040", message, "name a folder with DRIVER.md, or one below `tools` of a package store")
    store, installed = found
    return run_package(argparse.Namespace(**{**vars(arguments), "store": store.root, "tool": installed.tool_id}))


async def _served(
    arguments: argparse.Namespace, recorder: Recorder, store: Store, installed: Installed, manifest: Manifest
) -> int:
    channel = await serve_stdio()
    return await until_signalled(
        functools.partial(serve_chain, arguments, recorder, store, str(installed.folder), manifest, channel)
    )


def test_package(arguments: argparse.Namespace) -> int:
    """Run the tests of a package."""
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
