"""Remove containers, networks and volumes that a killed supervisor left behind; those of a living one are spared."""

from __future__ import annotations

import argparse
import functools
import json
from dataclasses import asdict

from sandbox.cli.bench import engine, run_async
from sandbox.launch.reap import reap


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--all", action="store_true", help="also what belongs to supervisors that still live")
    parser.add_argument("--json", action="store_true", help="print what was removed as JSON")


def execute(arguments: argparse.Namespace) -> int:
    """Reap and report."""
    return run_async(functools.partial(_reap, arguments))


async def _reap(arguments: argparse.Namespace) -> int:
    async with engine() as backend:
        reaped = await reap(backend.engine, all=arguments.all)
    if arguments.json:
        print(json.dumps(asdict(reaped)))
        return 0
    removed = [*reaped.containers, *reaped.networks, *reaped.volumes]
    print(f"removed {len(removed)}" + (f": {', '.join(removed)}" if removed else ""))
    if reaped.spared:
        print(f"spared, because their supervisor lives: {', '.join(reaped.spared)}")
    return 0
