"""Ask a server whether it speaks the 2025-11 dialect: schemas, handshake, calls, jobs, security headers, latency.

The server is reached by its address, or started as a program that speaks over its standard input and output. No tool is
called but the one that --call names. Exit status 0 when every check passes or could not be made, 4 when one fails.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from sandbox.cli.call import parse_arguments
from sandbox.cli.report import line_of

TOKEN = "MCP_SANDBOX_TOKEN"  # noqa: S105 - name of the variable
"""Variable of the environment with the bearer token: an argument would be in the list of processes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--target", default="2025-11", choices=("2025-11",), help="what is spoken (default: 2025-11)")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--server-url", metavar="URL", help="such as http://127.0.0.1:8080/mcp/files/2025-11")
    where.add_argument("--command", nargs=argparse.REMAINDER, metavar="ARG", help="a program; the rest of the line")
    parser.add_argument("--call", default="", metavar="TOOL", help="a tool that may be called, also as a job")
    parser.add_argument("--args", default="{}", metavar="JSON", help="its arguments")
    parser.add_argument("--max-latency", type=float, default=0.0, metavar="MS", help="fail when the median is above it")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def execute(arguments: argparse.Namespace) -> int:
    """Ask, and print what was found."""
    import asyncio

    from sandbox.errors import ServerFault

    findings = asyncio.run(_asked(arguments))
    failed = sum(one.outcome == "fail" for one in findings)
    if arguments.json:
        rows = [{"check": one.check, "outcome": one.outcome, "message": one.message} for one in findings]
        print(json.dumps({"target": arguments.target, "ok": not failed, "findings": rows}, indent=1))
    else:
        for one in findings:
            print(line_of(f"{one.outcome}  {one.check}: {one.message}"))
        passed = sum(one.outcome == "pass" for one in findings)
        print(f"{passed} passed, {failed} failed, {len(findings) - passed - failed} could not be made")
    return ServerFault.exit_code if failed else 0


async def _asked(arguments: argparse.Namespace) -> Any:
    from sandbox.dialect.links import HttpLink, PipeLink
    from sandbox.dialect.validate import Asked, validate

    token = os.environ.get(TOKEN, "")
    asked = Asked(
        arguments.target, arguments.call, parse_arguments(arguments.args), arguments.max_latency, token=bool(token)
    )
    link = PipeLink(arguments.command) if arguments.command else HttpLink(arguments.server_url, token)
    async with link:
        return await validate(link, asked)
