"""Actions that run installed packages: test, call, run. What they do is imported when one is asked for."""

from __future__ import annotations

from typing import Any

from sandbox.cli.packages.common import action, add_calling, add_store, later

_RUNNING = "sandbox.cli.packages.running"


def add_arguments(actions: Any) -> None:
    """Declare the actions."""
    trial = "run a package's tests in its sandbox; exit status 4 when one fails"
    test = action(actions, "test", trial, later(_RUNNING, "test_package"))
    test.add_argument("tool", metavar="TOOL_ID")
    once = "call an installed tool, or run a chain step by step"
    call = action(actions, "call", once, later(_RUNNING, "call_package"), json=False)
    call.add_argument("tool", metavar="TOOL_ID")
    call.add_argument("--args", default="{}", metavar="JSON", help="arguments as a JSON object; `-` reads stdin")
    whole = "serve an installed tool or chain on stdio, for an MCP client"
    serve = action(actions, "run", whole, later(_RUNNING, "run_package"), json=False)
    serve.add_argument("tool", metavar="TOOL_ID")
    for parser in (test, call, serve):
        add_store(parser)
        add_calling(parser)
