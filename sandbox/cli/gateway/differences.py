"""What a reload changes: drivers that come, go, are started anew, or are only decided on anew. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from sandbox.cli.gateway.config import GatewayConfig, LimitConfig, asks_for_certificates
from sandbox.cli.gateway.mounts import Mounted
from sandbox.cli.gateway.prints import Prints

RELOADED: Final = (
    "allowed_hosts", "allowed_origins", "namespace", "aggregate", "unsafe_tenant", "issuer", "client", "driver",
    "routing",
)  # fmt: skip
"""Keys of ``gateway.toml`` that hold from a reload on; the others need a start."""

BOUNDS: Final = ("in_progress", "sessions", "session_idle", "drain")
RATES: Final = ("calls_per_second", "calls_at_once", "requests_per_second", "requests_at_once")
"""Keys of ``[limits]`` that hold from a reload on. Rates do so at a gateway that counts alone only: gateways that share
a store count in the same buckets, so they have to count by the same rates, and are reloaded one after the other."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Ids of drivers, each in one of them only.

    Attributes:
        added: were not served before.
        removed: are served no more.
        restarted: go on with fresh instances.
        refreshed: keep their instances; later ones are made from what holds now.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    refreshed: tuple[str, ...] = ()


def changes(
    before: Sequence[Mounted], after: Sequence[Mounted], touched: Collection[Path], *, all_anew: bool = False
) -> Changes:
    """Return what becomes of each driver.

    Args:
        before: served until now.
        after: served from now on.
        touched: folders with another content than before.
        all_anew: something that every instance was started with is another one.
    """
    old = {one.review.spec.id: one for one in before}
    new = {one.review.spec.id: one for one in after}
    stay = [name for name in new if name in old]
    anew = [one for one in stay if all_anew or new[one].folder in touched or not same_instances(old[one], new[one])]
    return Changes(
        added=tuple(sorted(new.keys() - old.keys())),
        removed=tuple(sorted(old.keys() - new.keys())),
        restarted=tuple(sorted(anew)),
        refreshed=tuple(sorted(one for one in stay if one not in anew and new[one] is not old[one])),
    )


def same_instances(old: Mounted, new: Mounted) -> bool:
    """Return whether what was started for one could have been started for the other."""
    if old is new:
        return True
    if (old.folder, old.config.root, old.config.names) != (new.folder, new.config.root, new.config.names):
        return False
    if old.review.ceiling.first_use != new.review.ceiling.first_use:
        return False
    if old.separate:  # plans are made with their tenants: from these
        a, b = old.review, new.review
        ceilings = replace(a.ceiling, digest="", name=""), replace(b.ceiling, digest="", name="")
        return ceilings[0] == ceilings[1] and (a.spec, a.host, a.overrides) == (b.spec, b.host, b.overrides)
    plans = [replace(one.review.plan, policy_digest="").digest() for one in (old, new)]
    return plans[0] == plans[1]


def identical(old: Mounted, new: Mounted) -> bool:
    """Return whether nothing at all came of a review that was not there before."""
    told = [replace(one.entity, updated="", published="") for one in (old, new)]  # a file may have been touched only
    if told[0] != told[1]:
        return False
    reviews = [(one.config, one.review.spec, one.review.ceiling.digest) for one in (old, new)]
    return reviews[0] == reviews[1] and same_instances(old, new)


def touched(before: Prints, after: Prints) -> frozenset[Path]:
    """Return the folders whose content is another one."""
    return frozenset(one for one, digest in after.drivers.items() if before.drivers.get(one) != digest)


def shared_changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Return which of policy, rules and ``gateway.toml`` changed."""
    return tuple(sorted(name for name in after if before.get(name) != after[name]))


def adopted(old: GatewayConfig, new: GatewayConfig) -> tuple[GatewayConfig, tuple[str, ...]]:
    """Return what holds of a new ``gateway.toml`` without a start, and the keys that wait for one."""
    kept = {name: getattr(old, name) for name in old.__struct_fields__ if name not in RELOADED}
    if asks_for_certificates(msgspec.structs.replace(new, **kept)) and not asks_for_certificates(old):
        kept["client"] = old.client  # nobody would be asked for a certificate
    limits, late = _limits(old, new)
    kept["limits"] = limits
    waiting = tuple(name.replace("_", "-") for name in kept if name != "limits" and getattr(new, name) != kept[name])
    return msgspec.structs.replace(new, **kept), (*waiting, *late)


def _limits(old: GatewayConfig, new: GatewayConfig) -> tuple[LimitConfig, tuple[str, ...]]:
    """Return the limits that hold without a start, and the keys of the others that are asked for."""
    now = BOUNDS if old.state is not None else (*BOUNDS, *RATES)
    kept = {name: getattr(old.limits, name) for name in LimitConfig.__struct_fields__ if name not in now}
    late = tuple(f"limits.{name.replace('_', '-')}" for name in kept if getattr(new.limits, name) != kept[name])
    return msgspec.structs.replace(new.limits, **kept), late
