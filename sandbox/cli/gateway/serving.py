"""Puts a gateway together: drivers, pool of instances, identity, HTTP; and takes it apart in the right order."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import signal
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from sandbox import __version__
from sandbox.cli import hostfacts
from sandbox.cli.approved import pins_required
from sandbox.cli.bench import _egress, engine, secrets_of
from sandbox.cli.bounds import call_bounds, pool_bounds
from sandbox.cli.gateway import mounts
from sandbox.cli.gateway.config import GatewayConfig, check_exposure, listen_of, load_config
from sandbox.cli.gateway.fetching import ask_of, issuer_of
from sandbox.cli.gateway.figures import Counted, Figures
from sandbox.cli.gateway.listening import listening, serve_on, server_of
from sandbox.cli.gateway.mounts import Mounted
from sandbox.cli.pipeline import serving_of
from sandbox.cli.progress import quiet_progress
from sandbox.cli.report import line_of, say
from sandbox.cli.rules import load_rules
from sandbox.cli.verdicts import KeptVerdicts
from sandbox.errors import PlatformError, UsageError
from sandbox.events import Recorder, Scope, Trace
from sandbox.launch.docker import DockerBackend
from sandbox.launch.interface import Backend
from sandbox.launch.remote import RemoteBackend
from sandbox.limits import CALL_TIMEOUT
from sandbox.plan.model import EngineFacts
from sandbox.policy.call_bounds import CallBounds
from sandbox.policy.cedar import PolicySet
from sandbox.registry.catalog import Catalog
from sandbox.registry.pages import PUBLIC, Health, Pages
from sandbox.registry.project import digest
from sandbox.serve.calls import Caller
from sandbox.serve.client_model import Handler
from sandbox.serve.handler import ServerHandler
from sandbox.serve.http import fields
from sandbox.serve.http.aggregate import AggregateDoor
from sandbox.serve.http.app import App, Gateway
from sandbox.serve.http.bounds import HttpBounds
from sandbox.serve.http.doors import Door, DriverDoor, HandlerFor
from sandbox.serve.http.quotas import Quotas
from sandbox.serve.identity.introspection import IntrospectingVerifier
from sandbox.serve.identity.model import METADATA, Access, Gatekeeper, Unauthorized, bearer
from sandbox.serve.identity.tokens import JwtVerifier
from sandbox.serve.inservice import InService
from sandbox.serve.ratelimit import Rate
from sandbox.supervisor.admission import LiveServer
from sandbox.supervisor.held import Opener, Served
from sandbox.supervisor.opening import opening
from sandbox.supervisor.options import Options
from sandbox.supervisor.pool import Instances
from sandbox.tenant import TenantId
from sandbox.vet.model import Fitting

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
ADMIN: Final = "mcp-sandbox:admin"
"""Scope of those who operate the gateway."""


@dataclass(slots=True)
class Parts:
    """What a gateway is wired from."""

    config: GatewayConfig
    mounted: list[Mounted]
    rules: PolicySet
    scope: Scope
    pool: Instances
    figures: Figures
    public_url: str
    listen: tuple[str, int]
    bounds: CallBounds


async def serve(arguments: argparse.Namespace, recorder: Recorder) -> int:
    """Serve until a signal arrives."""
    listen = listen_of(arguments.listen)
    config = load_config(arguments.config)
    if arguments.unsafe_tenant:
        config = _with_tenant(config, arguments.unsafe_tenant)
    check_exposure(config, listen)
    rules = load_rules(arguments.rules)
    listener = listening(listen)
    listen = (listen[0], listener.getsockname()[1])
    try:
        async with engine(optional=True) as backend:
            scope = Scope(recorder, Trace.new())
            mounted = await _reviewed(arguments, config, backend, scope)
            _egress_for(mounted, backend, recorder)
            bounds = call_bounds(arguments)
            async with _pool(mounted, backend, scope, arguments, bounds) as pool:
                url = config.public_url or f"http://{_host(listen[0])}:{listen[1]}"
                parts = Parts(config, mounted, rules, scope, pool, Figures(), url, listen, bounds)
                return await _until_signalled(app_of(parts), listener, parts)
    finally:
        listener.close()


def _with_tenant(config: GatewayConfig, tenant: str) -> GatewayConfig:
    return msgspec.structs.replace(config, unsafe_tenant=tenant)


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


async def _reviewed(
    arguments: argparse.Namespace, config: GatewayConfig, backend: DockerBackend, scope: Scope
) -> list[Mounted]:
    """Review every driver, in threads; tell those that cannot be served and go on with the others.

    Raises:
        UsageError: ``CLI-187``, none can be served.
    """
    folders = mounts.driver_folders(arguments.drivers)
    try:
        facts = await backend.facts()
    except PlatformError as absent:  # remote servers need no engine; the others say what they lack
        say(line_of(f"mcp-sandbox: {absent}"))
        facts = EngineFacts("none", "", "", (), "")
    socket_path = backend.engine.socket_path
    progress = quiet_progress()
    review = functools.partial(
        mounts.review_one, arguments=arguments, config=config, socket_path=socket_path, engine=facts, progress=progress
    )
    good, bad = await asyncio.to_thread(mounts.review_all, folders, review)
    for folder, error in bad:
        say(line_of(f"mcp-sandbox: {folder.name} is not served: {error}"))
        scope.fact("gateway.skip", folder=folder.name, reason=error.id)
    if not good:
        raise UsageError("CLI-187", f"no driver of {arguments.drivers} can be served", "mend those named above")
    for one in good:
        own = replace(scope, driver=one.review.spec.id)
        if not one.separate:
            one.review.record(own)
    return good


def _egress_for(mounted: list[Mounted], backend: DockerBackend, recorder: Recorder) -> None:
    images = [one.review.egress_image for one in mounted if one.review.egress_image]
    if images:
        backend.use_network(_egress(backend, images[0], recorder, learning=False))


@contextlib.asynccontextmanager
async def _pool(
    mounted: list[Mounted], backend: DockerBackend, scope: Scope, arguments: argparse.Namespace, bounds: CallBounds
) -> AsyncIterator[Instances]:
    engines: Mapping[str, Backend] = {"remote": RemoteBackend()}

    def opener() -> Opener:
        beside = functools.partial(mounts.neighbours, mounted)
        chosen = Options(fitting=Fitting(verdicts=KeptVerdicts()), pins_required=pins_required(arguments))
        pairs = (("", backend), *engines.items())
        made = {kind: opening(one, scope, chosen, neighbours=beside) for kind, one in pairs}

        def open_one(served: Served, plan: Any, tenant: TenantId | None) -> Any:
            return made["remote" if plan.server_kind == "remote" else ""](served, plan, tenant)

        return open_one

    own = hostfacts.own_paths(arguments)
    socket_path = backend.engine.socket_path
    async with Instances(opener(), scope, pool_bounds(bounds)) as pool:
        for one in mounted:
            pool.add(mounts.served(one, own, socket_path))
        yield pool


def app_of(parts: Parts) -> App:
    """Return the application of a gateway."""
    config, limits = parts.config, parts.config.limits
    bounds = HttpBounds(
        active_of_tenant=limits.in_progress,
        sessions_of_tenant=limits.sessions,
        session_idle=limits.session_idle,
        drain=limits.drain,
    )
    issuers = {issuer.url: issuer_of(issuer) for issuer in config.issuer}
    asks = {issuer.url: ask_of(issuer) for issuer in config.issuer if issuer.introspection}
    verifier = IntrospectingVerifier(JwtVerifier(issuers), asks, time.monotonic) if issuers else None
    keeper = Gatekeeper(parts.public_url, verifier, tuple(issuers), config.unsafe_tenant)
    calls = Rate(limits.calls_per_second, limits.calls_at_once)
    overall = Rate(limits.requests_per_second, limits.requests_at_once)
    gateway = Gateway(
        keeper,
        fields.places_of(parts.listen, config.public_url, config.allowed_hosts, config.allowed_origins),
        parts.scope,
        Quotas(bounds, calls, overall, time.monotonic),
        bounds,
        public=(METADATA, *PUBLIC),
    )
    app = App(gateway, doors_of(parts))
    gateway.pages = pages_of(parts, app)
    figures = parts.figures
    figures.gauge("sessions", "Handshake sessions", lambda: len(app.sessions))
    figures.gauge("active_requests", "Requests in progress", lambda: gateway.quotas.active)
    figures.gauge("refused_total", "Requests refused at the door", lambda: app.refusals.total)
    for name in ("instances", "used", "warm", "tenants"):
        figures.gauge(f"pool_{name}", f"Instances: {name}", functools.partial(_pool_figure, parts.pool, name))
    return app


def _pool_figure(pool: Instances, name: str) -> float:
    return pool.figures()[name]


def doors_of(parts: Parts) -> list[Door]:
    """Return an endpoint for each driver, and the one for all of them."""
    drivers = [driver_door(parts, one) for one in parts.mounted]
    if not parts.config.aggregate or len(drivers) < 1:
        return list(drivers)
    return [*drivers, AggregateDoor("/mcp", drivers, parts.scope)]


def driver_door(parts: Parts, mounted: Mounted) -> DriverDoor:
    """Return the endpoint of one driver."""
    review = mounted.review
    spec = review.spec

    async def equip(live: LiveServer) -> HandlerFor:
        given = secrets_of(live.spec, live.plan)
        serving = await asyncio.to_thread(serving_of, live, parts.rules, given, parts.bounds)

        def handler(caller: Caller) -> Handler:
            inner = ServerHandler(serving.pipeline, serving.cleaner, caller, serving.resources, serving.decider)
            return Counted(InService(inner, live.revetter), parts.figures, spec.id)

        return handler

    return DriverDoor(
        spec.id,
        mounted.entity.endpoint_path,
        mounted.access,
        lender=parts.pool,
        equip=equip,
        tools=mounted.tools,
        info={"name": spec.id, "title": spec.name, "version": spec.version},
        call_timeout=spec.limits.call_timeout or CALL_TIMEOUT,
        legacy=mounted.config.legacy_sse,
    )


def pages_of(parts: Parts, app: App) -> Pages:
    """Return the pages beside the endpoints."""
    catalog = Catalog(tuple(one.entity for one in parts.mounted), parts.public_url)

    async def audience(headers: Mapping[str, str]) -> str:
        keeper = app.gateway.keeper
        try:
            if bearer(headers) is None or keeper.verifier is None:
                return ""
            identity = await keeper.admit(headers, "", Access())
        except Unauthorized:
            return ""
        return "admin" if ADMIN in identity.scopes else "user"

    def metadata(audience: str) -> dict[str, Any]:
        shown = catalog.shown(audience)
        return {
            "server_id": parts.config.namespace,
            "version": __version__,
            "status": "ending" if app.draining else "ready",
            "capabilities": ["tools", "prompts", "resources", "registry"],
            "servers": [{"name": one.name, "version": one.version, "tools": list(one.tools)} for one in shown],
            "tools_digest": digest([[one.name, list(one.tools)] for one in shown]),
            "limits": {"calls_per_second": parts.config.limits.calls_per_second},
            **({"calls": parts.figures.summary()} if audience == "admin" else {}),
        }

    health = Health(lambda: not app.draining, metadata, parts.figures.text)
    return Pages(lambda: catalog, audience, health)


async def _until_signalled(app: App, listener: Any, parts: Parts) -> int:
    """Serve; on a signal drain, then stop listening. A second signal does not wait."""
    loop = asyncio.get_running_loop()
    server = server_of(app)
    signalled = asyncio.Event()
    for number in SIGNALS:
        loop.add_signal_handler(number, signalled.set)
    app.sessions.begin()
    serving = asyncio.create_task(serve_on(server, listener))
    parts.scope.fact(
        "gateway.start",
        url=parts.public_url,
        doors=[door.path for door in app.doors],
        anonymous=[door.path for door in app.doors if door.access.anonymous],
        issuers=list(app.gateway.keeper.issuers),
        unsafe=["unsafe-tenant"] if parts.config.unsafe_tenant else [],
    )
    _tell(app, parts)
    waiting = asyncio.create_task(signalled.wait())
    try:
        await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            signalled.clear()
            again = asyncio.create_task(signalled.wait())
            draining = asyncio.create_task(app.drain())
            await asyncio.wait((draining, again), return_when=asyncio.FIRST_COMPLETED)
            for task in (draining, again):
                task.cancel()
            await asyncio.gather(draining, again, return_exceptions=True)
        server.should_exit = True
        await serving
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
        waiting.cancel()
        await app.sessions.close()
        with contextlib.suppress(Exception):
            parts.scope.fact("gateway.stop", refused=app.refusals.total)
    return 0


def _tell(app: App, parts: Parts) -> None:
    """Say what is served and to whom, on stderr."""
    for door in app.doors:
        who = "everybody" if door.access.anonymous else "who signs in"
        say(line_of(f"mcp-sandbox: {parts.public_url}{door.path} serves {door.name} to {who}"))
    if parts.config.unsafe_tenant:
        say(f"mcp-sandbox: unsafe-tenant: everybody who sends no token is `{parts.config.unsafe_tenant}`")
    elif not parts.config.issuer and not any(door.access.anonymous for door in app.doors):
        say("mcp-sandbox: no issuer is trusted and no endpoint is open: every request is refused (docs/serve.md)")
