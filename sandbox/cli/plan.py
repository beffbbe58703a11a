"""Show what the server will be able to do, and for each field why and from which line or policy that comes.

Nothing is started. Exit status 3 when the plan is refused; then every refusal is shown with the values of both sides.
"""

from __future__ import annotations

import argparse
import functools
import json

from sandbox.cli import options
from sandbox.cli.bench import engine, reviewed, run_async
from sandbox.cli.progress import person
from sandbox.plan.explain import lines, reasons


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    options.add_driver(parser)
    options.add_plan_options(parser)
    parser.add_argument("--json", action="store_true", help="print the plan as JSON (docs/schemas/plan.schema.json)")


def execute(arguments: argparse.Namespace) -> int:
    """Derive and show."""
    return run_async(functools.partial(_plan, arguments))


async def _plan(arguments: argparse.Namespace) -> int:
    async with engine(optional=True) as backend:
        plan = (await reviewed(arguments, backend, person())).plan
    if arguments.json:
        print(json.dumps(plan.to_json(), indent=1))
    else:
        print("\n".join(lines(plan)))
        print("\nwhy:")
        print("\n".join(f"  {line}" for line in reasons(plan)))
    return 0
