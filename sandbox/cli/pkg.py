"""Work with .mcpkg packages: one tool each, with schemas, tests, examples and a signature (MCPKG v0.1 and v0.2 parts).

An installed package is a driver folder below `.mcp/tools/`, so `run`, `plan`, `vet`, `call` and `serve` take it like
any driver, and it is planned, sandboxed, vetted, policed and audited like one. docs/mcpkg.md explains it all.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from sandbox.cli.packages import keep, make, show, use


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions with their arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for module in (make, keep, use, show):
        module.add_arguments(actions)


def execute(arguments: argparse.Namespace) -> int:
    """Carry out the action that was asked for."""
    work: Callable[[argparse.Namespace], int] = arguments.work
    return work(arguments)
