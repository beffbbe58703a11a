"""Serve one driver on stdio: what an MCP client's configuration names as `command`.

The server runs in a hardened container made from the reviewed DRIVER.md, is vetted before the first byte of the
client is read, and is removed with everything of it when the client closes stdin, on SIGTERM, and by a watchdog when
this process is killed. Messages for people go to stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import functools
import importlib
import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import anyio

from sandbox.cli import options
from sandbox.cli.approved import askable, opening
from sandbox.cli.bench import Bench, bench, run_async
from sandbox.cli.evidence import trail
from sandbox.cli.progress import quiet_progress
from sandbox.events import Recorder
from sandbox.supervisor import open_server
from sandbox.transport.interface import Channel
from sandbox.transport.stdio import serve_stdio

if TYPE_CHECKING:
    from sandbox.dialect.pipes import Pipe

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""What asks this process to end; each is answered with an orderly teardown."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    options.add_driver(parser)
    options.add_plan_options(parser)
    options.add_audit_options(parser)
    add_serving_options(parser)
    parser.add_argument(
        "--clients", type=options.path, metavar="FILE",
        help="serve only who proves with a key of this file who it is; it says tenant and user",
    )  # fmt: skip
    parser.add_argument("--dialect", choices=("2025-11",), help="speak this informal protocol instead of MCP")
    parser.add_argument("--jobs", type=options.path, metavar="FILE", help="where jobs of the dialect are kept, if any")


def add_serving_options(parser: argparse.ArgumentParser) -> None:
    """Declare what concerns the surface and the caller."""
    parser.add_argument(
        "--names",
        choices=("contract", "server"),
        default="contract",
        help="expose contract ids or the server's own names",
    )
    parser.add_argument("--tenant", type=options.tenant, default="local", help="tenant that every call is made for")
    parser.add_argument("--user", type=options.user, default="", help="user that every call is made for")
    parser.add_argument(
        "--rules", type=options.path, metavar="DIR", help="folder of Cedar rules (default: the shipped starter set)"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Serve until the client closes stdin, a signal arrives or the server ends."""
    if (arguments.driver / "package-info.json").exists() and not (arguments.driver / "DRIVER.md").exists():
        from sandbox.cli.packages.running import run_folder  # an installed chain, which is no driver

        return run_folder(arguments)
    with trail(arguments) as recorder:
        if getattr(arguments, "clients", None) is not None:
            from sandbox.cli.signin import sign_in  # who serves one person pays nothing for it

            sign_in(arguments, recorder)
        return run_async(functools.partial(_serve, arguments, recorder))


async def _serve(arguments: argparse.Namespace, recorder: Recorder) -> int:
    if getattr(arguments, "dialect", None) is not None:
        from sandbox.dialect.pipes import take_pipe  # who speaks MCP pays nothing for it

        work = functools.partial(_served, arguments, recorder, await take_pipe(), "sandbox.cli.serving_dialect")
        return await until_signalled(work)
    channel = await serve_stdio()
    return await until_signalled(functools.partial(_served, arguments, recorder, channel))


async def _served(
    arguments: argparse.Namespace, recorder: Recorder, channel: Channel | Pipe, module: str = "sandbox.cli.serving"
) -> int:
    async with bench(arguments, recorder, quiet_progress()) as ready:
        return await _session(arguments, ready, channel, module)


async def _session(arguments: argparse.Namespace, ready: Bench, channel: Channel | Pipe, module: str) -> int:
    loading = asyncio.get_running_loop().run_in_executor(None, importlib.import_module, module)
    chosen = dataclasses.replace(opening(arguments), capabilities=askable(arguments))
    async with open_server(ready.backend, ready.spec, ready.plan, ready.scope, ready.secrets, chosen) as live:
        serving = await loading
        return int(await serving.serve(live, ready, arguments, channel))


async def until_signalled(work: Callable[[], Awaitable[int]]) -> int:
    """Run work; SIGTERM, SIGHUP and SIGINT cancel it, teardown included, and give 128 + signal."""
    loop = asyncio.get_running_loop()
    received: list[int] = []
    with anyio.CancelScope() as scope:

        def stop(number: int) -> None:
            received.append(number)
            scope.cancel()

        for number in SIGNALS:
            loop.add_signal_handler(number, stop, number)
        try:
            return await work()
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)
    return 128 + received[0]
