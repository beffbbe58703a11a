"""The moment of a reload: pool, doors and identity of a running gateway become those of what was reviewed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sandbox.cli.bounds import pool_bounds
from sandbox.cli.gateway.building import Parts, bounds_of, driver_door, keeper_of, places_of, rates_of
from sandbox.cli.gateway.config import GatewayConfig
from sandbox.cli.gateway.differences import Changes
from sandbox.cli.gateway.mounts import Mounted
from sandbox.cli.gateway.register import catalog_of
from sandbox.cli.gateway.routes import router_of
from sandbox.registry.catalog import Catalog
from sandbox.serve.http.aggregate import AggregateDoor
from sandbox.serve.http.app import App
from sandbox.serve.http.doors import Door, DriverDoor
from sandbox.serve.http.fields import Places
from sandbox.serve.http.sessions import HttpSession
from sandbox.serve.identity.keeper import Gatekeeper
from sandbox.serve.identity.model import Identity as Caller
from sandbox.supervisor.held import Served


def swap_pool(parts: Parts, found: Changes, serve: Callable[[Mounted], Served], grace: float) -> None:
    """Have the pool serve what is mounted now."""
    pool, mounted = parts.pool, {one.review.spec.id: one for one in parts.mounted}
    pool.rebound(pool_bounds(parts.bounds))
    for name in found.removed:
        pool.remove(name, grace)
    for name in found.added:
        pool.add(serve(mounted[name]))
    for name in found.restarted:
        pool.replace(serve(mounted[name]), grace)
    for name in found.refreshed:
        pool.refresh(serve(mounted[name]))


def swap_doors(parts: Parts, app: App, found: Changes, *, everything: bool, rerouted: bool = False) -> None:
    """Have the application serve the doors of what is mounted now; a door that stays keeps its sessions.

    Args:
        parts: of the gateway.
        app: its application.
        found: what changed.
        everything: what decides on calls has changed, for every driver.
        rerouted: so has what chooses among drivers.
    """
    known = {(door.name, door.path): door for door in app.doors}
    doors: list[Door] = []
    moved = bool(found.added or found.removed or found.refreshed) or rerouted
    for one in parts.mounted:
        fresh = driver_door(parts, one)
        door = known.get((fresh.name, fresh.path))
        if not isinstance(door, DriverDoor) or door.legacy != fresh.legacy:  # sessions end with their transport
            door, moved = fresh, True
        elif everything or fresh.name in found.restarted or not door.like(fresh):
            door.renew(fresh)
            moved = True
        doors.append(door)
    if parts.config.aggregate and doors:
        doors.append(_aggregate(parts, known.get(("all", "/mcp")), doors, moved))
    app.replace(doors)


def _aggregate(parts: Parts, old: Door | None, doors: list[Door], moved: bool) -> Door:
    if not isinstance(old, AggregateDoor):
        return AggregateDoor("/mcp", doors, parts.scope, router_of(parts))
    if moved:
        old.renew(list(doors), router_of(parts))
    return old


@dataclass(frozen=True, slots=True)
class Identity:
    """Who comes in, from where."""

    keeper: Gatekeeper
    places: Places


def identity_of(parts: Parts, config: GatewayConfig) -> Identity:
    """Return who would come in under a configuration."""
    would = replace(parts, config=config)
    return Identity(keeper_of(would), places_of(would))


def swap_identity(parts: Parts, app: App, before: GatewayConfig, now: Identity) -> int:
    """Let in who may come in now, and end what others have open; return how many sessions end."""
    config, gateway = parts.config, app.gateway
    gateway.places = now.places
    trust = (config.issuer, config.client, config.unsafe_tenant) != (before.issuer, before.client, before.unsafe_tenant)
    if trust:
        gateway.keeper = now.keeper
    lost = lost_credentials(before, config)

    def ends(session: HttpSession) -> bool:
        identity = session.identity
        if identity.unsafe and before.unsafe_tenant != config.unsafe_tenant:
            return True
        signed_in = not identity.anonymous and not identity.unsafe
        return (signed_in and lost(identity)) or not identity.may_use(session.door.access)

    if trust or before.driver != config.driver:
        for endpoint in app.endpoints.values():
            endpoint.end_streams()  # whoever may still come asks again
    return app.sessions.drop_where(ends)


def swap_limits(parts: Parts, app: App) -> None:
    """Hold requests to the limits of now; what is in progress or open goes on, also beyond them."""
    app.gateway.bounds.renew(bounds_of(parts.config.limits))
    app.gateway.quotas.renew(*rates_of(parts.config.limits))


def lost_credentials(before: GatewayConfig, config: GatewayConfig) -> Callable[[Caller], bool]:
    """Return what says whether a caller's credential counts no more, or by other rules than when it was verified."""
    issuers = {one.url for one in before.issuer if one not in config.issuer}
    keys = {one.key for one in before.client if one not in config.client}

    def lost(identity: Caller) -> bool:
        claims = identity.tenant.claims
        match identity.tenant.source:
            case "token":
                return claims.get("iss") in issuers
            case "mtls":
                return claims.get("key") in keys
            case _:  # signed in by what is not known here
                return bool(issuers or keys)

    return lost


def catalog_for(parts: Parts, mounted: Sequence[Mounted]) -> Catalog:
    """Return what register and pages tell once these are mounted; blocking."""
    return catalog_of(list(mounted), parts.public_url, parts.notes)
