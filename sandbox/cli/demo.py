"""Show the main job on a driver and a real server: check, plan, list, read inside and outside, network, evidence.

Written for drivers/filesystem-mcp; other npm drivers show what applies to them.
"""

from __future__ import annotations

import argparse
import functools
from dataclasses import replace
from typing import Final

import anyio

from sandbox.cli import options
from sandbox.cli.approved import opening
from sandbox.cli.bench import Bench, bench, run_async
from sandbox.cli.call import call_once
from sandbox.cli.evidence import trail
from sandbox.cli.progress import finished, person
from sandbox.cli.run import add_serving_options, until_signalled
from sandbox.cli.tools import show
from sandbox.events import Recorder
from sandbox.plan.explain import lines
from sandbox.serve.extract import first_text
from sandbox.spec.load import check_folder
from sandbox.supervisor import open_server
from sandbox.supervisor.admission import LiveServer
from sandbox.transport.attached import attach
from sandbox.transport.stderr import StderrTail

NETWORK_PROBE: Final = (
    "const s=require('net').connect(443,'198.51.100.1');"
    "s.setTimeout(3000,()=>{console.error('hangs');process.exit(1)});"
    "s.on('connect',()=>{console.error('CONNECTED');process.exit(0)});"
    "s.on('error',e=>{console.error('connect 198.51.100.1:443: '+e.code);process.exit(0)});"
)
"""Tries one connection to a documentation address, so that even a broken sandbox would reach nobody."""

WIDTH: Final = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    options.add_driver(parser)
    options.add_plan_options(parser)
    options.add_audit_options(parser)
    add_serving_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Show every step."""
    with trail(arguments) as recorder:
        status = run_async(functools.partial(until_signalled, functools.partial(_demo, arguments, recorder)))
    _title("evidence")
    print(f"the audit trail lies in {arguments.audit_dir}")
    print(f"  mcp-sandbox audit verify --audit-dir {arguments.audit_dir}")
    return status


async def _demo(arguments: argparse.Namespace, recorder: Recorder) -> int:
    _title(f"check: is {arguments.driver} valid?")
    spec, problems = check_folder(arguments.driver)
    print("\n".join(map(str, problems)) or "no problems")
    if spec is None:
        return 1
    progress = person()
    async with bench(arguments, recorder, progress) as ready:
        finished(progress)
        _title("plan: what will the server be able to do?")
        print("\n".join(lines(ready.plan)))
        async with open_server(
            ready.backend,
            ready.spec,
            ready.plan,
            ready.scope,
            ready.secrets,
            opening(arguments),
        ) as live:
            _title("tools: what the running server offers, as callers see it")
            show(live)
            await _reads(live, ready, arguments)
        _title("network: a connection from inside the same sandbox")
        print(await _network(ready))
    return 0


async def _reads(live: LiveServer, ready: Bench, arguments: argparse.Namespace) -> None:
    if "fs-read" not in live.exposure.tools:
        return
    for title, path in (
        ("a file inside the root", "/workspace/README.txt"),
        ("a file outside of it", "/etc/passwd"),
        ("the same, disguised", "/workspace/../etc/passwd"),
    ):
        _title(f'call fs-read {{"path": "{path}"}}: {title}')
        result = await call_once(live, ready, arguments, "fs-read", {"path": path})
        print(("refused: " if result.get("isError") else "") + (first_text(result) or "")[: 4 * WIDTH])


async def _network(ready: Bench) -> str:
    """Run the probe instead of the server, under the same plan, and return what it says."""
    plan = replace(ready.plan, argv=(ready.plan.argv[0], "-e", NETWORK_PROBE))
    instance = await ready.backend.launch(plan, ready.scope, ready.secrets)
    tail = StderrTail()
    try:
        assert instance.stream is not None  # noqa: S101 - the plan is the server's
        channel = await attach(instance.stream, tail)
        channel.start(_Deaf())
        with anyio.move_on_after(10):
            await instance.wait()
    finally:
        await instance.stop(0)
    return tail.text() or "the probe said nothing"


class _Deaf:
    """Listens to a program that speaks no protocol."""

    def message_received(self, message: object) -> None:
        """Ignore it."""

    def line_refused(self, error: object) -> None:
        """Ignore it."""

    def input_ended(self) -> None:
        """Ignore it."""

    def channel_closed(self, error: object) -> None:
        """Ignore it."""

    def pressure_changed(self, full: bool) -> None:
        """Ignore it."""


def _title(text: str) -> None:
    print(f"\n── {text} " + "─" * max(0, WIDTH - len(text) - 4), flush=True)
