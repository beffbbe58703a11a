"""What `run` does once the container is starting: heavy to import, so imported beside the engine's work."""

from __future__ import annotations

import argparse
import asyncio

from sandbox.cli.approved import tell
from sandbox.cli.bench import Bench
from sandbox.cli.bounds import call_bounds
from sandbox.cli.pipeline import handler_of, serving_of, session_options
from sandbox.cli.rules import load_rules
from sandbox.errors import SandboxError, ServerFault
from sandbox.launch.interface import ExitStatus
from sandbox.serve.inservice import InService
from sandbox.serve.session import ClientSession
from sandbox.supervisor.admission import LiveServer
from sandbox.transport.interface import Channel
from sandbox.transport.lines import LineChannel

LAST_ANSWERS = 0.2
"""Seconds in which answers that are on their way still reach the client after the server has ended."""


EXPLAINED = 1.0
"""Seconds in which the end of a server's process explains why its output ended."""

OUTPUT_CLOSED = "WIRE-040"
"""Says only that the output ended; how the process ended says more."""


async def serve(live: LiveServer, ready: Bench, arguments: argparse.Namespace, channel: Channel) -> int:
    """Serve one client on a channel until it closes its side.

    Raises:
        ServerFault: ``CLI-020``, the server ended first; or it broke a rule that ends its session.
    """
    bounds = call_bounds(arguments)
    if isinstance(channel, LineChannel):
        channel.bound(bounds.message, bounds.depth)
    serving = serving_of(live, load_rules(arguments.rules), ready.secrets, bounds)
    session = ClientSession(
        channel,
        live.exposure,
        live.peer,
        InService(handler_of(serving, arguments), live.revetter),
        live.scope,
        session_options(live, serving, arguments),
    )
    live.revetter.subscribe(session.replace_exposure)
    tell(live)
    watching = asyncio.create_task(until_ended(live))
    running = asyncio.create_task(session.run())
    try:
        await asyncio.wait((watching, running), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
            return 0
        await asyncio.wait((running,), timeout=LAST_ANSWERS)
        raise watching.result()
    finally:
        live.revetter.unsubscribe(session.replace_exposure)
        for task in (watching, running):
            task.cancel()
        await asyncio.gather(watching, running, return_exceptions=True)


async def until_ended(live: LiveServer) -> SandboxError:
    """Return what to say when the server's process has ended, or when it broke a rule that ended our talk with it."""
    ended = asyncio.create_task(live.ended())
    closed = asyncio.create_task(live.peer.wait_closed())
    try:
        await asyncio.wait((ended, closed), return_when=asyncio.FIRST_COMPLETED)
        fault = closed.result() if closed.done() else None
        await asyncio.wait((ended,), timeout=EXPLAINED if fault is not None else None)
        if fault is not None and (not ended.done() or fault.id != OUTPUT_CLOSED):
            return fault
        return _ended(live, ended.result())
    finally:
        for task in (ended, closed):
            task.cancel()
        await asyncio.gather(ended, closed, return_exceptions=True)


def _ended(live: LiveServer, status: ExitStatus) -> ServerFault:
    why = "was killed for memory" if status.oom_killed else f"ended with status {status.code}"
    said = live.stderr.text()[-400:] or "nothing"
    return ServerFault("CLI-020", f"the server {why}; its stderr: {said}", "start it again")
