"""Call one tool of a driver and print its result, for people without a client.

Exit status 0 when the tool succeeded, 4 when it answered with an error or was refused.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
from typing import Any

from sandbox import jsontext
from sandbox.cli import options
from sandbox.cli.approved import opening
from sandbox.cli.bench import Bench, bench, run_async
from sandbox.cli.bounds import call_bounds
from sandbox.cli.evidence import trail
from sandbox.cli.pipeline import caller_of, serving_of
from sandbox.cli.progress import person
from sandbox.cli.rules import load_rules
from sandbox.cli.run import add_serving_options, until_signalled
from sandbox.errors import ServerFault, UsageError
from sandbox.events import Recorder
from sandbox.limits import MAX_LINE_BYTES
from sandbox.serve.calls import failed
from sandbox.serve.client_replies import harmless
from sandbox.serve.inservice import refuse_held
from sandbox.supervisor import open_server
from sandbox.supervisor.admission import LiveServer
from sandbox.transport.outcomes import RemoteError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    options.add_driver(parser)
    parser.add_argument("tool", metavar="TOOL", help="exposed name, see `mcp-sandbox tools`")
    parser.add_argument("--args", default="{}", metavar="JSON", help="arguments as a JSON object; `-` reads stdin")
    options.add_plan_options(parser)
    options.add_audit_options(parser)
    add_serving_options(parser)
    parser.add_argument("--json", action="store_true", help="print the whole CallToolResult")


def execute(arguments: argparse.Namespace) -> int:
    """Start, call, stop."""
    sent = parse_arguments(arguments.args)
    with trail(arguments) as recorder:
        work = functools.partial(_call, arguments, recorder, sent)
        return run_async(functools.partial(until_signalled, work))


def parse_arguments(text: str) -> dict[str, Any]:
    """Return the JSON object of ``--args``.

    Raises:
        UsageError: ``CLI-012``, it is not one.
    """
    data = _from_stdin() if text == "-" else text.encode()
    try:
        value = jsontext.parse(data)
    except jsontext.JsonTextError as error:
        raise UsageError("CLI-012", f"--args is not JSON: {error}", 'write --args \'{"path": "/workspace"}\'') from None
    if not isinstance(value, dict):
        raise UsageError("CLI-012", "--args is not a JSON object", 'write --args \'{"path": "/workspace"}\'')
    return value


def _from_stdin() -> bytes:
    """Return what stdin holds, no more than a client could send.

    Raises:
        UsageError: ``CLI-012``, it is longer.
    """
    with os.fdopen(0, "rb", closefd=False) as stdin:
        data = stdin.read(MAX_LINE_BYTES + 1)
    if len(data) > MAX_LINE_BYTES:
        raise UsageError("CLI-012", f"the arguments on stdin are longer than {MAX_LINE_BYTES} bytes", "send less")
    return data


async def _call(arguments: argparse.Namespace, recorder: Recorder, sent: dict[str, Any]) -> int:
    async with bench(arguments, recorder, person()) as ready:
        chosen = opening(arguments)
        async with open_server(ready.backend, ready.spec, ready.plan, ready.scope, ready.secrets, chosen) as live:
            result = await call_once(live, ready, arguments, arguments.tool, sent)
    if arguments.json:
        print(json.dumps(result, indent=1, ensure_ascii=False))
    else:
        show(result)
    return ServerFault.exit_code if result.get("isError") else 0


async def call_once(
    live: LiveServer, ready: Bench, arguments: argparse.Namespace, tool: str, sent: dict[str, Any]
) -> dict[str, Any]:
    """Carry one call through the same pipeline that a client's call goes through.

    Raises:
        CallRefused: ``VET-140``, the tool is out of service.
        UsageError: ``CLI-013``, the tool is not exposed.
    """
    refuse_held(tool, sent, live.exposure, live.scope)
    if tool not in live.exposure.tools:
        exposed = ", ".join(live.exposure.tools)
        raise UsageError("CLI-013", f"`{tool}` is not exposed by {ready.spec.id}", f"use one of {exposed}")

    async def forward(name: str, mapped: dict[str, Any]) -> dict[str, Any]:
        timeout = min(ready.plan.limits.call_timeout, live.exposure.tools[tool].binding.timeout_ms / 1000)
        return await live.peer.request("tools/call", {"name": name, "arguments": mapped}, timeout=timeout)

    scope = live.scope.child()
    serving = serving_of(live, load_rules(arguments.rules), ready.secrets, call_bounds(arguments))
    try:
        return await serving.pipeline.call(tool, sent, caller_of(arguments), scope, forward)
    except RemoteError as error:
        said = harmless(serving.cleaner.clean, {"message": error.text}) or {"message": "an error that cannot be shown"}
        return failed(live.exposure.tools[tool], ServerFault(error.id, str(said["message"])))


def show(result: dict[str, Any]) -> None:
    """Print a result for a person: its text, or what else it holds."""
    for block in result.get("content", ()):
        if block.get("type") == "text":
            print(block["text"])
        else:
            print(f"[{block.get('type')} {block.get('mimeType', '')} {len(block.get('data', ''))} characters]")
