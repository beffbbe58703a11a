"""Puts a gateway together: drivers, pool of instances, identity, HTTP; and takes it apart in the right order."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from sandbox.cli import hostfacts
from sandbox.cli.approved import pins_required
from sandbox.cli.bench import engine, remote_backend
from sandbox.cli.bounds import pool_bounds
from sandbox.cli.gateway import mounts
from sandbox.cli.gateway.building import Parts, app_of
from sandbox.cli.gateway.chains import engine_of
from sandbox.cli.gateway.config import asks_for_certificates, listen_of
from sandbox.cli.gateway.dialect import Front, spoken
from sandbox.cli.gateway.figures import Figures
from sandbox.cli.gateway.listening import listening, serve_on, server_of
from sandbox.cli.gateway.mounts import Mounted
from sandbox.cli.gateway.operating import Watch, watch_of
from sandbox.cli.gateway.prints import Printer
from sandbox.cli.gateway.register import notes_of
from sandbox.cli.gateway.reload import Reloader, Wiring
from sandbox.cli.gateway.sharing import sharing
from sandbox.cli.gateway.sources import Network, read_sources, reviewer_of
from sandbox.cli.gateway.tls import tls_of
from sandbox.cli.report import line_of, say
from sandbox.cli.verdicts import KeptVerdicts
from sandbox.errors import AuditUnavailable, UsageError
from sandbox.events import Recorder, Scope, Trace
from sandbox.launch.docker import DockerBackend
from sandbox.launch.interface import Backend
from sandbox.policy.call_bounds import CallBounds
from sandbox.serve.http.app import App
from sandbox.supervisor.held import Opener, Served
from sandbox.supervisor.opening import opening
from sandbox.supervisor.options import Options
from sandbox.supervisor.pool import Instances
from sandbox.tenant import TenantId
from sandbox.vet.model import Fitting, Names

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


async def serve(arguments: argparse.Namespace, recorder: Recorder) -> int:
    """Serve until a signal arrives."""
    listen = listen_of(arguments.listen)
    printer = Printer(arguments)
    begun = printer.take({})
    sources = read_sources(arguments, listen)
    config = sources.config
    watch = watch_of(arguments, recorder)
    recorder = watch.seen
    listener = listening(listen)
    listen = (listen[0], listener.getsockname()[1])
    try:
        async with engine(optional=True) as backend:
            scope = Scope(recorder, Trace.new())
            tls = tls_of(config.tls, scope, asks=asks_for_certificates(config)) if config.tls else None
            reviewer = await reviewer_of(arguments, backend)
            mounted = await _reviewed(arguments, functools.partial(reviewer, config=config), scope)
            network = Network(backend, recorder)
            network.prepare(mounted)
            offered = dict(sources.capabilities)
            async with (
                sharing(config, listen, scope, backend) as shared,
                _pool(mounted, backend, scope, arguments, sources.bounds, watch, offered) as pool,
            ):
                scheme = "http" if tls is None else "https"
                url = config.public_url or f"{scheme}://{_host(listen[0])}:{listen[1]}"
                parts = Parts(config, mounted, sources.rules, scope, pool, Figures(), url, listen, sources.bounds)
                parts.notes = notes_of(arguments.drivers, config.namespace)
                parts.tls = tls
                parts.sharing = shared
                parts.watch = watch
                app = app_of(parts)
                wiring = Wiring(
                    functools.partial(read_sources, arguments, listen),
                    reviewer,
                    functools.partial(_served, arguments=arguments, backend=backend, recorder=recorder),
                    network.prepare,
                    functools.partial(_offer, offered),
                )
                reloader = Reloader(parts, app, wiring, printer, sources, begun)
                watch.desk.writing = reloader.own
                async with spoken(arguments, app, parts) as served:
                    return await _until_signalled(
                        app, served, listener, parts, reloader, watching=not arguments.no_watch
                    )
    finally:
        listener.close()


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


async def _reviewed(arguments: argparse.Namespace, review: Callable[[Path], Mounted], scope: Scope) -> list[Mounted]:
    """Review every driver, in threads; tell those that cannot be served and go on with the others.

    Raises:
        UsageError: ``CLI-187``, none can be served.
    """
    folders = mounts.driver_folders(arguments.drivers)
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


def _served(mounted: Mounted, arguments: argparse.Namespace, backend: DockerBackend, recorder: Recorder) -> Served:
    served = mounts.served(mounted, hostfacts.own_paths(arguments), backend.engine.socket_path)
    return mounts.kept_out(served, recorder)


def _offer(offered: dict[str, Any], capabilities: Mapping[str, Any]) -> None:
    offered.clear()
    offered.update(capabilities)


@contextlib.asynccontextmanager
async def _pool(
    mounted: list[Mounted],
    backend: DockerBackend,
    scope: Scope,
    arguments: argparse.Namespace,
    bounds: CallBounds,
    watch: Watch,
    offered: Mapping[str, Any],
) -> AsyncIterator[Instances]:
    engines: Mapping[str, Backend] = {"": backend, "remote": remote_backend(watch.seen)}

    def opener() -> Opener:
        beside = functools.partial(mounts.neighbours, mounted)
        chosen = Options(
            fitting=Fitting(verdicts=KeptVerdicts()),
            pins_required=pins_required(arguments),
            judged=watch.desk.judged,
        )

        def open_one(served: Served, plan: Any, tenant: TenantId | None) -> Any:
            known: dict[str, Names] = {one.review.spec.id: one.config.names for one in mounted}
            shown = known.get(served.spec.id, "contract")
            now = replace(chosen, names=shown, capabilities=dict(offered))  # both may change with a reload
            chains = {one.review.spec.id: one.chain for one in mounted}
            engine = engines["remote" if plan.server_kind == "remote" else ""]
            engine = engine_of(chains.get(served.spec.id), arguments, engine)
            return opening(engine, scope, now, neighbours=beside)(served, plan, tenant)

        return open_one

    async with Instances(opener(), scope, pool_bounds(bounds)) as pool:
        for one in mounted:
            pool.add(_served(one, arguments, backend, watch.seen))
        yield pool


async def _until_signalled(
    app: App, served: Front, listener: Any, parts: Parts, reloader: Reloader | None = None, *, watching: bool = False
) -> int:
    """Serve; on SIGHUP reload; on SIGTERM or SIGINT drain, then stop listening. A second one does not wait."""
    loop = asyncio.get_running_loop()
    server = server_of(served.app, parts.tls, named=bool(parts.config.public_url), sockets=served.sockets)
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
        clients=len(app.gateway.keeper.clients),
        unsafe=["unsafe-tenant"] if parts.config.unsafe_tenant else [],
    )
    _tell(app, parts)
    waiting = asyncio.create_task(signalled.wait())
    reloading = _reloading(reloader, watching=watching) if reloader is not None else []
    try:
        await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
        for one in reloading:
            one.cancel()
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
        for number in (*SIGNALS, signal.SIGHUP):
            loop.remove_signal_handler(number)
        waiting.cancel()
        for one in reloading:
            one.cancel()
        await app.sessions.close()
        with contextlib.suppress(AuditUnavailable):  # it announces nothing, and whoever needed the trail was told
            parts.scope.fact("gateway.stop", refused=app.refusals.total)
    return 0


def _reloading(reloader: Reloader, *, watching: bool) -> list[asyncio.Task[None]]:
    """Begin to reload on SIGHUP, and when files change."""
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, asked.set)
    tasks = [asyncio.create_task(reloader.on_signal(asked))]
    return [*tasks, asyncio.create_task(reloader.watch())] if watching else tasks


def _tell(app: App, parts: Parts) -> None:
    """Say what is served and to whom, on stderr."""
    for door in app.doors:
        who = "everybody" if door.access.anonymous else "who signs in"
        say(line_of(f"mcp-sandbox: {parts.public_url}{door.path} serves {door.name} to {who}"))
    if parts.config.unsafe_tenant:
        say(f"mcp-sandbox: unsafe-tenant: everybody who sends no token is `{parts.config.unsafe_tenant}`")
    elif not parts.config.issuer and not parts.config.client and not any(door.access.anonymous for door in app.doors):
        why = "no issuer is trusted, no key is pinned and no endpoint is open"
        say(f"mcp-sandbox: {why}: every request is refused (docs/serve.md)")
