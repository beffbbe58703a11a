"""Lets a gateway speak the 2025-11 dialect beside MCP: its site, its WebSockets, its jobs on disk."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from starlette.types import ASGIApp
from starlette.types import Scope as AsgiScope

from sandbox.cli import options
from sandbox.cli.gateway.building import Parts
from sandbox.cli.gateway.code import add_code
from sandbox.cli.gateway.registering import add_registry, publishing
from sandbox.cli.report import line_of, say
from sandbox.dialect.bounds import MAX_MESSAGE, JobBounds
from sandbox.dialect.fleet import Fleet
from sandbox.dialect.handshake import Offer
from sandbox.dialect.jobs.desk import Jobs
from sandbox.dialect.jobs.lasting import LastingDesk
from sandbox.dialect.jobs.store import JobStore
from sandbox.dialect.jobs.tasks import TaskDesk
from sandbox.dialect.model import Limits
from sandbox.dialect.refusals import DialectRefused
from sandbox.dialect.routes import add_routes
from sandbox.dialect.service import Service
from sandbox.dialect.site import ROOT, Site, http_refusal
from sandbox.dialect.sockets import Sockets
from sandbox.errors import UsageError
from sandbox.serve.http import fields
from sandbox.serve.http.app import App
from sandbox.serve.http.doors import Door
from sandbox.serve.http.endpoint import Arrival, Endpoint
from sandbox.serve.ratelimit import Rate

ALWAYS: Final = ("async", "stream", "schema_ref")
"""Capabilities of every endpoint; ``sandbox`` is of those whose server runs in one."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the dialect needs to know of a gateway.

    Attributes:
        namespace: reverse-DNS name before the ids of its servers.
        jobs: file of jobs.
        rate: of one tenant and tool, when the gateway begins.
        sandboxed: names of doors whose servers all run in a sandbox.
        hsts: TLS ends in front.
        code: lets a site run code of clients; ``None`` where that was not asked for.
        registry: others may register their servers here.
    """

    namespace: str
    jobs: Path
    rate: Rate
    sandboxed: Callable[[str], bool]
    hsts: bool = False
    bounds: JobBounds = field(default_factory=JobBounds)
    code: Callable[[Site], None] | None = None
    registry: bool = False

    def capabilities(self, door: Door) -> tuple[str, ...]:
        """Return what clients can use at a door."""
        boxed = ("sandbox",) if self.sandboxed(door.name) else ()
        boxed = (*boxed, "code_exec") if self.code is not None else boxed
        boxed = (*boxed, "registry") if self.registry else boxed
        return (*ALWAYS, *boxed)

    def offer(self, door: Door, rate: Rate | None = None) -> Offer:
        """Return what a door brings to a handshake; a reload may have changed the rate."""
        told = rate or self.rate
        limits = Limits(
            calls_per_second=told.per_second,
            calls_at_once=told.burst,
            jobs=self.bounds.unfinished,
            message_bytes=MAX_MESSAGE,
        )
        name = f"{self.namespace}/{door.name}"
        return Offer(name, self.capabilities(door), limits, frozenset((door.name,)))


@dataclass(frozen=True, slots=True)
class Front:
    """What a gateway serves: the application, and bytes of one message over WebSocket (0: it takes none)."""

    app: ASGIApp
    sockets: int = 0


@contextlib.asynccontextmanager
async def spoken(arguments: argparse.Namespace, app: App, parts: Parts) -> AsyncIterator[Front]:
    """Yield what a gateway serves: itself, and the dialect beside it when ``--dialect`` says so.

    Raises:
        UsageError: ``CLI-230``, ``--jobs`` without ``--dialect``; ``CLI-231``, a package is missing.
    """
    if arguments.dialect is None:
        if arguments.jobs is not None or arguments.code_exec or arguments.registry or arguments.register:
            text = "`--jobs`, `--code-exec`, `--registry` and `--register` belong to a dialect"
            raise UsageError("CLI-230", text, "add `--dialect 2025-11`, or leave them out")
        yield Front(app)
        return
    if importlib.util.find_spec("websockets") is None:
        text = "`--dialect` needs the package `websockets`"
        raise UsageError("CLI-231", text, "install `mcp-sandbox[dialect]`")
    limits = parts.config.limits
    dialect = Dialect(
        parts.config.namespace,
        arguments.jobs or options.STATE / "jobs.sqlite",
        Rate(limits.calls_per_second, limits.calls_at_once),
        lambda name: _sandboxed(parts, name),
        hsts=parts.tls is None and parts.public_url.startswith("https://"),
        bounds=JobBounds(task_after=limits.task_after),
        code=functools.partial(add_code, arguments=arguments, scope=parts.scope) if arguments.code_exec else None,
        registry=arguments.registry,
    )
    async with speaking(app, dialect) as served:
        for door in app.doors:
            say(line_of(f"mcp-sandbox: {parts.public_url}{door.path}{ROOT}/ speaks the 2025-11 dialect"))
        able = dialect.capabilities
        async with publishing(arguments, app, dialect.namespace, parts.public_url, able):
            yield Front(served, MAX_MESSAGE)


def _sandboxed(parts: Parts, name: str) -> bool:
    """Return whether every server behind a door runs in a sandbox: remote ones do not."""
    remote = {one.review.spec.id for one in parts.mounted if one.review.spec.server.kind == "remote"}
    return not remote if name not in {one.review.spec.id for one in parts.mounted} else name not in remote


@contextlib.asynccontextmanager
async def speaking(app: App, dialect: Dialect) -> AsyncIterator[ASGIApp]:
    """Yield the application that speaks the dialect too; jobs of an earlier process are taken up.

    Raises:
        PlatformError: ``DIA-019``, the file of jobs cannot be used.
    """
    gateway = app.gateway
    store = await asyncio.to_thread(JobStore, dialect.jobs, dialect.bounds)

    def door(path: str) -> Door | None:
        found = app.endpoints.get(path)
        return found.door if isinstance(found, Endpoint) else None

    unsafe = gateway.keeper.unsafe_tenant
    fleet = None
    if gateway.together is not None:
        fleet = Fleet(gateway.together, await asyncio.to_thread(store.name), gateway.quotas, gateway.bounds)
    claims, elsewhere = (fleet.claims, fleet.elsewhere) if fleet is not None else (None, None)
    jobs = Jobs(store, gateway.scope, gateway.quotas, door, unsafe, lambda: app.draining, claims)
    service = Service(gateway.quotas, jobs, gateway.scope, dialect.bounds, lambda: app.draining, elsewhere)
    site = Site(
        app,
        lambda door: dialect.offer(door, gateway.quotas.rate),
        service,
        gateway.pages,
        hsts=dialect.hsts,
        fleet=fleet,
    )
    add_routes(site)
    if dialect.code is not None:
        dialect.code(site)
    if dialect.registry:
        add_registry(site)
    gateway.pages = site
    app.sessions.tasks = lambda identity, door: TaskDesk(jobs, identity, door, dialect.bounds)
    app.sessions.lasting = lambda identity, door: LastingDesk(jobs, identity, door, dialect.bounds)
    app.sessions.elsewhere = _kept_elsewhere(fleet) if fleet is not None else None
    sockets = Sockets(app, site)
    try:
        if fleet is not None:
            await fleet.begin()
        await jobs.begin()
        yield sockets
    finally:
        if fleet is not None:
            await fleet.close()
        sockets.end()
        gateway.pages = site.otherwise
        app.sessions.tasks = app.sessions.lasting = app.sessions.elsewhere = None
        await jobs.close()


def _kept_elsewhere(fleet: Fleet) -> Callable[[AsgiScope, Arrival, Door], Awaitable[bool]]:
    """Return what sends a request about a task to the gateway that keeps it: the job of the id in ``Mcp-Name``."""

    async def elsewhere(scope: AsgiScope, arrival: Arrival, door: Door) -> bool:
        task = fields.decoded(arrival.headers.get("mcp-name")) or ""
        try:
            return await fleet.passed(scope, arrival, door, f"jobs/{task}")
        except DialectRefused as refusal:
            raise http_refusal(refusal) from None

    return elsewhere
