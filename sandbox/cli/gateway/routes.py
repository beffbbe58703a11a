"""Makes the router of a gateway from ``[routing]`` and what is mounted."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from sandbox.cli.gateway.config import PreferenceConfig, RoutingConfig
from sandbox.serve.http.routing import Preference, Router, Standing
from sandbox.tenant import TenantId

if TYPE_CHECKING:
    from sandbox.cli.gateway.building import Parts


def router_of(parts: Parts) -> Router | None:
    """Return what chooses among drivers, ``None`` where the operator asks for no routing."""
    config = parts.config.routing
    if config is None:
        return None
    plain = (one for one in parts.mounted if getattr(one, "chain", None) is None)
    specs = [one.review.spec for one in plain if one.config.names == "contract"]
    everybody = preference(config, config)
    tenants = {name: preference(one, config) for name, one in config.tenant.items()}
    pool = parts.pool

    def standing(driver: str, tenant: TenantId) -> Standing:
        return Standing(pool.refusing(driver, tenant), pool.running(driver, tenant))

    return Router(specs, everybody, tenants, standing)


def preference(own: PreferenceConfig, everybody: RoutingConfig) -> Preference:
    """Return what is wanted for somebody; what is left out is as for everybody."""
    both = Preference(everybody.region, everybody.require_tags, everybody.allow_tags, everybody.pin)
    return dataclasses.replace(
        both,
        regions=own.region or both.regions,
        required_tags=own.require_tags or both.required_tags,
        allowed_tags=own.allow_tags if own.allow_tags is not None else both.allowed_tags,
        pins={**both.pins, **own.pin},
    )
