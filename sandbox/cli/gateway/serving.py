"""Puts a gateway together: drivers, pool of instances, identity, HTTP; and takes it apart in the right order."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import signal
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from sandbox.cli import hostfacts
from sandbox.cli.approved import pins_required
from sandbox.cli.bench import _egress, engine
from sandbox.cli.bounds import call_bounds, pool_bounds
from sandbox.cli.gateway import mounts
from sandbox.cli.gateway.building import Parts, app_of
from sandbox.cli.gateway.config import GatewayConfig, check_exposure, listen_of, load_config
from sandbox.cli.gateway.figures import Figures
from sandbox.cli.gateway.listening import listening, serve_on, server_of
from sandbox.cli.gateway.mounts import Mounted
from sandbox.cli.progress import quiet_progress
from sandbox.cli.report import line_of, say
from sandbox.cli.rules import load_rules
from sandbox.cli.verdicts import KeptVerdicts
from sandbox.errors import AuditUnavailable, PlatformError, UsageError
from sandbox.events import Recorder, Scope, Trace
from sandbox.launch.docker import DockerBackend
from sandbox.launch.interface import Backend
from sandbox.launch.remote import RemoteBackend
from sandbox.plan.model import EngineFacts
from sandbox.policy.call_bounds import CallBounds
from sandbox.serve.http.app import App
from sandbox.supervisor.held import Opener, Served
from sandbox.supervisor.opening import opening
from sandbox.supervisor.options import Options
from sandbox.supervisor.pool import Instances
from sandbox.tenant import TenantId
from sandbox.vet.model import Fitting

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


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
        with contextlib.suppress(AuditUnavailable):  # it announces nothing, and whoever needed the trail was told
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
