"""Builds the application of a gateway from its parts: identity, endpoints, limits, pages, figures."""

from __future__ import annotations

import asyncio
import functools
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from sandbox import __version__
from sandbox.cli.bench import secrets_of
from sandbox.cli.gateway.config import GatewayConfig, LimitConfig, asks_for_certificates, pinned
from sandbox.cli.gateway.fetching import ask_of, issuer_of
from sandbox.cli.gateway.figures import Counted, Figures
from sandbox.cli.gateway.mounts import Mounted
from sandbox.cli.gateway.operating import Watch, with_page
from sandbox.cli.gateway.register import catalog_of
from sandbox.cli.gateway.routes import router_of
from sandbox.cli.gateway.sharing import Sharing, hosts_of
from sandbox.cli.pipeline import Serving, asking_of, serving_of
from sandbox.errors import UsageError
from sandbox.events import Scope
from sandbox.limits import CALL_TIMEOUT
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
from sandbox.serve.http.doors import Door, DriverDoor, Equipment, Lender
from sandbox.serve.http.quotas import Quotas
from sandbox.serve.identity.certificates import certificate_of
from sandbox.serve.identity.introspection import IntrospectingVerifier
from sandbox.serve.identity.keeper import Gatekeeper, bearer
from sandbox.serve.identity.model import METADATA, Access, Unauthorized
from sandbox.serve.identity.tokens import JwtVerifier
from sandbox.serve.inservice import InService
from sandbox.serve.ratelimit import Rate
from sandbox.serve.ui.entrance import ADMIN as ADMIN  # noqa: PLC0414 - a name of this module too
from sandbox.supervisor.admission import LiveServer
from sandbox.supervisor.pool import Instances
from sandbox.transport.peer import ServerPeer


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
    tls: ssl.SSLContext | None = None
    notes: Path | None = None
    catalog: Catalog | None = None
    servings: WeakKeyDictionary[ServerPeer, Serving] = field(default_factory=WeakKeyDictionary)
    watch: Watch | None = None
    sharing: Sharing | None = None


def app_of(parts: Parts) -> App:
    """Return the application of a gateway."""
    bounds, (calls, overall) = bounds_of(parts.config.limits), rates_of(parts.config.limits)
    gateway = Gateway(
        keeper_of(parts),
        places_of(parts),
        parts.scope,
        Quotas(bounds, calls, overall, time.monotonic, parts.sharing.team.store if parts.sharing else None),
        bounds,
        public=(METADATA, *PUBLIC),
    )
    if parts.sharing is not None:
        gateway.together = parts.sharing.together(gateway.quotas, bounds)
    app = App(gateway, doors_of(parts))
    if parts.sharing is not None:
        parts.sharing.serve(app, parts.pool)
    gateway.pages = pages_of(parts, app)
    if parts.watch is not None:
        gateway.pages = with_page(gateway.pages, parts, parts.watch, app)
    figures = parts.figures
    figures.gauge("sessions", "Handshake sessions", lambda: len(app.sessions))
    figures.gauge("active_requests", "Requests in progress", lambda: gateway.quotas.active)
    figures.gauge("refused_total", "Requests refused at the door", lambda: app.refusals.total)
    for name in ("instances", "used", "warm", "tenants"):
        figures.gauge(f"pool_{name}", f"Instances: {name}", functools.partial(_pool_figure, parts.pool, name))
    return app


def bounds_of(limits: LimitConfig) -> HttpBounds:
    """Return the bounds of the gateway."""
    return HttpBounds(
        active_of_tenant=limits.in_progress,
        sessions_of_tenant=limits.sessions,
        session_idle=limits.session_idle,
        drain=limits.drain,
    )


def rates_of(limits: LimitConfig) -> tuple[Rate, Rate]:
    """Return the rates of one tenant: of a tool's calls, of an endpoint's requests.

    Raises:
        UsageError: ``CLI-180``, one of them is no number that can be counted by.
    """
    try:
        calls = Rate(limits.calls_per_second, limits.calls_at_once)
        return calls, Rate(limits.requests_per_second, limits.requests_at_once)
    except (ValueError, OverflowError):
        text = "a rate of `[limits]` in gateway.toml is no number that can be counted by"
        raise UsageError("CLI-180", text, "write calls and requests per second as plain numbers") from None


def keeper_of(parts: Parts) -> Gatekeeper:
    """Return who decides who comes in."""
    config = parts.config
    issuers = {issuer.url: issuer_of(issuer) for issuer in config.issuer}
    asks = {issuer.url: ask_of(issuer) for issuer in config.issuer if issuer.introspection}
    verifier = IntrospectingVerifier(JwtVerifier(issuers), asks, time.monotonic) if issuers else None
    return Gatekeeper(
        parts.public_url, verifier, tuple(issuers), config.unsafe_tenant,
        clients=pinned(config), certificates=asks_for_certificates(config),
    )  # fmt: skip


def places_of(parts: Parts) -> fields.Places:
    """Return which hosts and origins are taken."""
    config = parts.config
    address = parts.public_url if config.tls else config.public_url
    hosts = (*config.allowed_hosts, *hosts_of(config.state))
    return fields.places_of(parts.listen, address, hosts, config.allowed_origins)


def ready(parts: Parts, app: App) -> bool:
    """Return whether new work is taken."""
    return not app.draining and (parts.sharing is None or parts.sharing.team.well)


def _pool_figure(pool: Instances, name: str) -> float:
    return pool.figures()[name]


def doors_of(parts: Parts) -> list[Door]:
    """Return an endpoint for each driver, and the one for all of them."""
    drivers = [driver_door(parts, one) for one in parts.mounted]
    if not parts.config.aggregate or len(drivers) < 1:
        return list(drivers)
    return [*drivers, AggregateDoor("/mcp", drivers, parts.scope, router_of(parts))]


def driver_door(parts: Parts, mounted: Mounted) -> DriverDoor:
    """Return the endpoint of one driver."""
    review = mounted.review
    spec = review.spec

    async def equip(live: LiveServer) -> Equipment:
        given = secrets_of(live.spec, live.plan)
        before = parts.servings.get(live.peer)
        limiting = parts.sharing.limiting(spec.id) if parts.sharing and mounted.config.stateless else None
        serving = await asyncio.to_thread(serving_of, live, parts.rules, given, parts.bounds, before, limiting)
        parts.servings[live.peer] = serving

        def handler(caller: Caller) -> Handler:
            inner = ServerHandler(serving.pipeline, serving.cleaner, caller, serving.resources, serving.decider)
            counted = Counted(InService(inner, live.revetter), parts.figures, spec.id)
            return counted if parts.watch is None else parts.watch.following(counted, spec.id)

        live.revetter.subscribe(serving.prepare)  # what is approved later can be called then
        serving.prepare(live.exposure)
        return Equipment(handler, serving.cleaner.clean, asking_of(live, serving))

    return DriverDoor(
        spec.id,
        mounted.entity.endpoint_path,
        mounted.access,
        lender=lender_of(parts, stateless=mounted.config.stateless),
        equip=equip,
        tools=mounted.tools,
        info={"name": spec.id, "title": spec.name, "version": spec.version},
        call_timeout=spec.limits.call_timeout or CALL_TIMEOUT,
        legacy=mounted.config.legacy_sse,
        stateless=mounted.config.stateless,
    )


def lender_of(parts: Parts, *, stateless: bool) -> Lender:
    """Return what lends the instances of one driver."""
    return parts.pool if parts.sharing is None else parts.sharing.lender_of(parts.pool, stateless=stateless)


def pages_of(parts: Parts, app: App) -> Pages:
    """Return the pages beside the endpoints."""
    parts.catalog = catalog_of(parts.mounted, parts.public_url, parts.notes)

    def catalog() -> Catalog:
        assert parts.catalog is not None  # noqa: S101 - made above, and after each reload
        return parts.catalog

    async def audience(headers: Mapping[str, str], scope: Mapping[str, Any]) -> str:
        keeper, own = app.gateway.keeper, certificate_of(scope)
        try:
            if bearer(headers) is None and (own is None or own.pin not in keeper.clients):
                return ""
            identity = await keeper.admit(headers, "", Access(), own)
        except Unauthorized:
            return ""
        return "admin" if ADMIN in identity.scopes else "user"

    def metadata(audience: str) -> dict[str, Any]:
        shown = catalog().shown(audience)
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

    health = Health(lambda: ready(parts, app), metadata, parts.figures.text)
    return Pages(catalog, audience, health)
