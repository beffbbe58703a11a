"""List what a driver exposes: each tool with its contract, as a client would see it. The server is started for it."""

from __future__ import annotations

import argparse
import functools
import json

from sandbox.cli import options
from sandbox.cli.approved import opening
from sandbox.cli.bench import bench, run_async
from sandbox.cli.evidence import trail
from sandbox.cli.progress import person
from sandbox.cli.run import add_serving_options, until_signalled
from sandbox.events import Recorder
from sandbox.supervisor import open_server
from sandbox.supervisor.admission import LiveServer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    options.add_driver(parser)
    options.add_plan_options(parser)
    options.add_audit_options(parser)
    add_serving_options(parser)
    parser.add_argument("--json", action="store_true", help="print MCP tool objects")


def execute(arguments: argparse.Namespace) -> int:
    """Start, list, stop."""
    with trail(arguments) as recorder:
        return run_async(functools.partial(until_signalled, functools.partial(_list, arguments, recorder)))


async def _list(arguments: argparse.Namespace, recorder: Recorder) -> int:
    async with bench(arguments, recorder, person()) as ready:
        chosen = opening(arguments)
        async with open_server(ready.backend, ready.spec, ready.plan, ready.scope, ready.secrets, chosen) as live:
            if arguments.json:
                print(json.dumps([dict(tool.definition) for tool in live.exposure.tools.values()], indent=1))
            else:
                show(live)
    return 0


def show(live: LiveServer) -> None:
    """Print the tools for a person."""
    width = max((len(name) for name in live.exposure.tools), default=0)
    for name, tool in live.exposure.tools.items():
        contract = tool.binding.contract
        effect = "changes " + ", ".join(contract.mutates) if contract.mutates else "reads only"
        print(f"{name:<{width}}  {contract.name} ({effect})")
    offered = live.exposure.surface.tools if live.exposure.surface else {}
    for name, why in live.exposure.held.items():
        print(f"{name}: out of service, {why}")
    hidden = sorted(set(offered) - {tool.server_name for tool in live.exposure.tools.values()})
    if hidden:
        print(f"not bound, so invisible and not callable: {', '.join(hidden)}")
