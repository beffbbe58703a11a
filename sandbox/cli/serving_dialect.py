"""What `run --dialect` does once the container is starting: the 2025-11 dialect on stdio instead of MCP."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from sandbox.cli.approved import tell
from sandbox.cli.bench import Bench
from sandbox.cli.bounds import call_bounds
from sandbox.cli.pipeline import caller_of, handler_of, serving_of, session_options
from sandbox.cli.rules import load_rules
from sandbox.cli.serving import LAST_ANSWERS, until_ended
from sandbox.dialect.bounds import MAX_MESSAGE, JobBounds
from sandbox.dialect.handshake import Offer
from sandbox.dialect.jobs.desk import Jobs
from sandbox.dialect.jobs.store import JobStore
from sandbox.dialect.model import Limits
from sandbox.dialect.pipes import Pipe, SingleDoor
from sandbox.dialect.service import Place, Service
from sandbox.dialect.talk import Talk
from sandbox.serve.http.bounds import HttpBounds
from sandbox.serve.http.doors import Behind
from sandbox.serve.http.quotas import Quotas
from sandbox.serve.identity.model import Identity, owner_of
from sandbox.serve.inservice import InService
from sandbox.serve.ratelimit import Rate
from sandbox.supervisor.admission import LiveServer
from sandbox.vet.model import Exposure


async def serve(live: LiveServer, ready: Bench, arguments: argparse.Namespace, pipe: Pipe) -> int:
    """Serve one client on a pipe until it closes its side.

    Raises:
        ServerFault: ``CLI-020``, the server ended first.
    """
    serving = serving_of(live, load_rules(arguments.rules), ready.secrets, call_bounds(arguments))
    options = session_options(live, serving, arguments)
    handler = InService(handler_of(serving, arguments), live.revetter)

    def behind() -> Behind:
        exposure = live.revetter.exposure
        return Behind(exposure, live.peer, handler, live.scope.child(), options, follow)

    def follow(hear: Callable[[Exposure], None]) -> Callable[[], None]:
        live.revetter.subscribe(hear)
        return lambda: live.revetter.unsubscribe(hear)

    door = SingleDoor(live.spec.id, behind)
    context = caller_of(arguments).tenant
    identity = Identity(context, owner=owner_of("stdio", context.tenant, context.user))
    rate = Rate()
    quotas = Quotas(HttpBounds(), rate, Rate(200.0, 1000), time.monotonic)
    tell(live)
    async with _jobs(arguments.jobs, live, quotas, door) as jobs:
        place = Place(door, "", _offer(live, rate, jobs))
        service = Service(quotas, jobs, live.scope)
        talking = asyncio.create_task(pipe.converse(lambda say: Talk(place, identity, service, "stdio", say)))
        watching = asyncio.create_task(until_ended(live))
        try:
            await asyncio.wait((watching, talking), return_when=asyncio.FIRST_COMPLETED)
            if talking.done():
                await talking
                return 0
            await asyncio.wait((talking,), timeout=LAST_ANSWERS)
            raise watching.result()
        finally:
            for task in (watching, talking):
                task.cancel()
            await asyncio.gather(watching, talking, return_exceptions=True)


def _offer(live: LiveServer, rate: Rate, jobs: Jobs | None) -> Offer:
    able = [*(["async"] if jobs is not None else []), "stream", "schema_ref"]
    if live.spec.server.kind != "remote":
        able.append("sandbox")
    limits = Limits(
        calls_per_second=rate.per_second, calls_at_once=rate.burst,
        jobs=JobBounds().unfinished if jobs is not None else 0, message_bytes=MAX_MESSAGE,
    )  # fmt: skip
    return Offer(live.spec.id, tuple(able), limits)


@contextlib.asynccontextmanager
async def _jobs(path: Path | None, live: LiveServer, quotas: Quotas, door: SingleDoor) -> AsyncIterator[Jobs | None]:
    """Yield jobs kept in a file, or none without one."""
    if path is None:
        yield None
        return
    store = await asyncio.to_thread(JobStore, path)
    jobs = Jobs(store, live.scope, quotas, lambda name: door if name == door.path else None)
    try:
        await jobs.begin()
        yield jobs
    finally:
        await jobs.close()
