"""Serve many drivers to many tenants over HTTP: one endpoint for each, one registry, one trail.

Each driver of the folder is mounted at ``/mcp/ID`` (or where its ``.kno`` entity or ``gateway.toml`` says) over
Streamable HTTP, for clients of both protocol eras; ``/mcp`` serves the tools of all of them. A server is started when a
tenant first needs it, belongs to that tenant alone, and is ended when nobody uses it. Without a trusted issuer in the
configuration only endpoints that say ``auth: none`` can be used.

On SIGTERM no new work is taken, what is in progress is answered, and everything is removed.
"""

from __future__ import annotations

import argparse
import functools

from sandbox.cli import options
from sandbox.cli.bench import run_async
from sandbox.cli.evidence import trail


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("drivers", type=options.path, metavar="DRIVERS", help="folder with one folder for each driver")
    parser.add_argument("--listen", default="127.0.0.1:8080", metavar="ADDRESS:PORT", help="default: %(default)s")
    parser.add_argument("--config", type=options.path, metavar="FILE", help="gateway.toml; see docs/serve.md")
    parser.add_argument(
        "--policy",
        type=options.path,
        metavar="FILE",
        help="operator's ceiling (default: the shipped one, or policy.toml)",
    )
    parser.add_argument(
        "--rules", type=options.path, metavar="DIR", help="folder of Cedar rules (default: the shipped starter set)"
    )
    parser.add_argument("--runtime", default="", help="use this OCI runtime; refused when the engine does not have it")
    parser.add_argument(
        "--unsafe-tenant", type=options.tenant, metavar="NAME",
        help="let everybody in without signing in, as this tenant; on loopback only",
    )  # fmt: skip
    parser.add_argument(
        "--dialect",
        choices=("2025-11",),
        help="speak this informal protocol too, at ENDPOINT/2025-11/; see docs/dialect.md",
    )
    parser.add_argument(
        "--jobs",
        type=options.path,
        metavar="FILE",
        help="where the dialect's jobs are kept (default: beside the trail)",
    )
    parser.add_argument(
        "--code-exec",
        action="store_true",
        help="let clients of the dialect send code, which runs in a sandbox without a network and may call their tools",
    )
    parser.add_argument(
        "--registry",
        action="store_true",
        help="let clients of the dialect with the scope `mcp-sandbox:register` register servers of theirs",
    )
    parser.add_argument(
        "--register", default="", metavar="URL",
        help="register the public servers at this registry of the dialect; token in MCP_SANDBOX_REGISTER_TOKEN",
    )  # fmt: skip
    parser.add_argument("--no-watch", action="store_true", help="take changed files on SIGHUP only")
    parser.add_argument("--ui-link", action="store_true", help="print a link that opens the operator's page once")
    parser.add_argument(
        "--ui-token-file", type=options.path, metavar="FILE",
        help="token that opens the operator's page; made when there is none",
    )  # fmt: skip
    options.add_audit_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Serve until a signal arrives."""
    from sandbox.cli.gateway.serving import serve

    with trail(arguments) as recorder:
        return run_async(functools.partial(serve, arguments, recorder))
