"""Which driver carries a tool that several implement: the six phases of AIP-30, each step with its reason; pure.

1. candidates: drivers that bind the tool
2. capability: those that can be served now
3. policy: tags that are allowed, and a region that fits
4. pin: the caller's choice, or none
5. rank: the contract's default, else cost, kind, the latest health check, the id
6. bind: the first of them

Nothing is tried again with the next candidate after a call has failed: the text defines no such thing, and a call that
may have had its effect must not be made twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sandbox.errors import CallRefused
from sandbox.spec.model import Binding, DriverSpec

KINDS: Final = ("builtin", "sdk", "http", "mcp", "cli")
"""Preference among kinds of drivers (AIP-30, phase 5)."""

ANYWHERE: Final = "global"

CLASSES: Final = {"free": 0.0, "trivial": 1.0, "low": 10.0, "medium": 100.0, "high": 1000.0}
"""Units of a call whose driver names a class and no number; only their order counts."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a caller and the operator ask for.

    Attributes:
        regions: of which a driver has to serve one; empty for any.
        allowed_tags: policy tags that a driver may have; ``None`` for any.
        required_tags: policy tags that a driver needs, all of them.
        pin: id of the one driver that may be used, empty for any.
        unavailable: driver id → why it cannot be served now.
        healthy: driver id → time of its last good health check, seconds.
    """

    regions: Collection[str] = ()
    allowed_tags: Collection[str] | None = None
    required_tags: Collection[str] = ()
    pin: str = ""
    unavailable: Mapping[str, str] = field(default_factory=dict)
    healthy: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """What one phase did with one driver."""

    phase: int
    driver: str
    kept: bool
    why: str


@dataclass(frozen=True, slots=True)
class Resolution:
    """What came of it.

    Attributes:
        chosen: the driver, ``None`` when none is left.
        steps: in order.
        ranked: ids of what survived, the best first.
    """

    chosen: DriverSpec | None
    steps: tuple[Step, ...]
    ranked: tuple[str, ...]


def resolve(tool: str, drivers: Sequence[DriverSpec], wanted: Wanted) -> Resolution:
    """Return the driver that carries a tool, and why.

    Args:
        tool: contract id.
        drivers: every driver that is known.
        wanted: what is asked for.
    """
    steps: list[Step] = []
    found: list[DriverSpec] = []
    for spec in sorted(drivers, key=lambda one: one.id):
        reason = _dropped(tool, spec, wanted)
        steps.append(Step(reason[0], spec.id, False, reason[1]) if reason else Step(4, spec.id, True, "fits"))
        if reason is None:
            found.append(spec)
    default = _default(tool, found)
    found.sort(key=lambda one: _rank(tool, one, default, wanted))
    for place, spec in enumerate(found):
        steps.append(Step(5, spec.id, place == 0, _worth(tool, spec, default, wanted)))
    if found:
        steps.append(Step(6, found[0].id, True, f"`{tool}` is `{_binding(tool, found[0]).tool_name}` there"))
    return Resolution(found[0] if found else None, tuple(steps), tuple(one.id for one in found))


def chosen(tool: str, resolution: Resolution, wanted: Wanted) -> DriverSpec:
    """Return the driver of a resolution.

    Raises:
        CallRefused: ``GATE-043``, the pinned one cannot be used; ``GATE-042``, none can.
    """
    if resolution.chosen is not None:
        return resolution.chosen
    if wanted.pin:
        text = f"the pinned driver `{wanted.pin}` cannot carry `{tool}`"
        raise CallRefused("GATE-043", text, "unpin it, or see `mcp-sandbox resolve --why`")
    raise CallRefused("GATE-042", f"no driver can carry `{tool}`", "see `mcp-sandbox resolve --why`")


def bound(tool: str, spec: DriverSpec) -> Binding | None:
    """Return a driver's binding of a tool."""
    return next((one for one in spec.bindings if one.contract.id == tool), None)


def _binding(tool: str, spec: DriverSpec) -> Binding:
    found = bound(tool, spec)
    assert found is not None  # noqa: S101 - phase 1 kept it
    return found


def _default(tool: str, specs: Sequence[DriverSpec]) -> str:
    """Return the default that every contract names; a driver's own copy of a contract cannot promote the driver."""
    named = {_binding(tool, spec).contract.default_implementation for spec in specs}
    return named.pop() if len(named) == 1 else ""


def _dropped(tool: str, spec: DriverSpec, wanted: Wanted) -> tuple[int, str] | None:
    """Return the phase that drops a driver and why, ``None`` when none does (phases 1 to 4)."""
    if bound(tool, spec) is None:
        return 1, "it does not bind the tool"
    if spec.id in wanted.unavailable:
        return 2, wanted.unavailable[spec.id]
    if wanted.allowed_tags is not None:
        other = [tag for tag in spec.policy_tags if tag not in wanted.allowed_tags]
        if other:
            return 3, f"its policy tag `{other[0]}` is not allowed"
    lacking = [tag for tag in wanted.required_tags if tag not in spec.policy_tags]
    if lacking:
        return 3, f"it has no policy tag `{lacking[0]}`"
    if wanted.regions and ANYWHERE not in spec.region and not set(spec.region) & set(wanted.regions):
        return 3, f"it serves {', '.join(spec.region)}, not {', '.join(sorted(wanted.regions))}"
    if wanted.pin and spec.id != wanted.pin:
        return 4, f"`{wanted.pin}` is pinned"
    return None


def cost(tool: str, spec: DriverSpec) -> float:
    """Return the units of one call: the binding's, the driver's, or those of the cost class."""
    own = _binding(tool, spec)
    for override in (own.cost_override, spec.cost_override):
        units: Any = override.get("cost_units_per_call")
        if isinstance(units, int | float) and not isinstance(units, bool):
            return float(units)
    named = own.cost_override.get("cost_class") or spec.cost_override.get("cost_class") or own.contract.cost_class
    return CLASSES.get(str(named), CLASSES["high"])


def _rank(tool: str, spec: DriverSpec, default: str, wanted: Wanted) -> tuple[bool, float, int, float, str]:
    return (
        not default or spec.id != default,
        cost(tool, spec),
        KINDS.index("mcp"),  # every driver here is one; the others stand in the order for whoever adds them
        -wanted.healthy.get(spec.id, 0.0),
        spec.id,
    )


def _worth(tool: str, spec: DriverSpec, default: str, wanted: Wanted) -> str:
    parts = ["the contract's default"] if spec.id == default else []
    parts += [f"{cost(tool, spec):g} units a call", "kind mcp"]
    if spec.id in wanted.healthy:
        parts.append("seen in good health")
    return ", ".join(parts)
