"""Builds the application of a gateway from its parts: identity, endpoints, limits, pages, figures."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sandbox import __version__
from sandbox.cli.bench import secrets_of
from sandbox.cli.gateway.config import GatewayConfig
from sandbox.cli.gateway.fetching import ask_of, issuer_of
from sandbox.cli.gateway.figures import Counted, Figures
from sandbox.cli.gateway.mounts import Mounted
from sandbox.cli.pipeline import serving_of
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
from sandbox.serve.http.doors import Door, DriverDoor, HandlerFor
from sandbox.serve.http.quotas import Quotas
from sandbox.serve.identity.introspection import IntrospectingVerifier
from sandbox.serve.identity.model import METADATA, Access, Gatekeeper, Unauthorized, bearer
from sandbox.serve.identity.tokens import JwtVerifier
from sandbox.serve.inservice import InService
from sandbox.serve.ratelimit import Rate
from sandbox.supervisor.admission import LiveServer
from sandbox.supervisor.pool import Instances

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
