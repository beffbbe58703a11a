"""Which driver carries a tool that several bind, at the endpoint that stands in front of all of them (ADR 0106).

A tool is *routed* when two drivers or more bind the same contract: what clients would see of it (schemas, description,
annotations) is the same. It is then offered once, under the contract's id, and each call is resolved by the six phases
of :mod:`sandbox.serve.route` when it begins. A call stays with the driver that was chosen; when it fails there, it is
not made again with another one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from sandbox.errors import CallRefused
from sandbox.events import Scope
from sandbox.jsontext import digest
from sandbox.serve.http.doors import Behind
from sandbox.serve.route import Resolution, Wanted, chosen, resolve
from sandbox.spec.model import DriverSpec
from sandbox.tenant import TenantId
from sandbox.vet.bind import definition_of

MAX_STEPS: Final = 64
"""Steps of one resolution that are recorded."""

Resolved: TypeAlias = tuple[Resolution, Wanted]
"""What came of the phases, and what was asked for."""

NOT_COVERED: Final = "the caller's credential does not cover it"


@dataclass(frozen=True, slots=True)
class Preference:
    """What the operator wants of the drivers that carry routed tools.

    Attributes:
        regions: of which a driver has to serve one; empty for any.
        required_tags: policy tags that it needs.
        allowed_tags: policy tags that it may have; ``None`` for any.
        pins: contract id → the one driver that may carry it.
    """

    regions: tuple[str, ...] = ()
    required_tags: tuple[str, ...] = ()
    allowed_tags: tuple[str, ...] | None = None
    pins: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Standing:
    """How one driver stands for one tenant.

    Attributes:
        unavailable: why it cannot be had now, empty when it can.
        running: the tenant has an instance that is well.
    """

    unavailable: str = ""
    running: bool = False


class Router:
    """Chooses among the drivers of a gateway.

    Args:
        specs: of the drivers whose tools are exposed under the ids of their contracts.
        everybody: what holds for every tenant.
        tenants: what holds for some instead.
        standing: tells how a driver stands for a tenant.
    """

    def __init__(
        self,
        specs: Sequence[DriverSpec],
        everybody: Preference,
        tenants: Mapping[str, Preference],
        standing: Callable[[str, TenantId], Standing],
    ) -> None:
        self._specs = {spec.id: spec for spec in specs}
        self._everybody = everybody
        self._tenants = tenants
        self._standing = standing
        self.routed = shared(specs)

    def resolve(
        self, tool: str, tenant: TenantId, unavailable: Mapping[str, str], allowed: Collection[str] | None = None
    ) -> Resolved:
        """Return which driver carries a call of a routed tool, and why.

        Args:
            tool: contract id.
            tenant: of the caller.
            unavailable: driver id → why it cannot be had, as far as is known already.
            allowed: drivers that the caller may use; ``None`` for all.
        """
        prefer = self._tenants.get(tenant, self._everybody)
        known = {name: self._standing(name, tenant) for name in self.routed[tool]}
        missing = {name: one.unavailable for name, one in known.items() if one.unavailable}
        if allowed is not None:
            missing |= {name: NOT_COVERED for name in self.routed[tool] if name not in allowed}
        wanted = Wanted(
            regions=prefer.regions,
            allowed_tags=prefer.allowed_tags,
            required_tags=prefer.required_tags,
            pin=prefer.pins.get(tool, ""),
            unavailable={**missing, **unavailable},
            healthy={name: 1.0 for name, one in known.items() if one.running},
        )
        return resolve(tool, [self._specs[name] for name in self.routed[tool]], wanted), wanted


class Choice:
    """Chooses drivers for one caller.

    Args:
        router: of the endpoint; without one no tool is routed.
        tenant: of the caller.
        allowed: drivers that it may use.

    Attributes:
        unavailable: driver id → why it could not be had for the caller.
    """

    def __init__(self, router: Router | None, tenant: TenantId, allowed: frozenset[str]) -> None:
        self._router = router
        self._tenant = tenant
        self._allowed = allowed
        self.unavailable: dict[str, str] = {}
        self._settled: dict[str, Resolved] = {}

    @property
    def routed(self) -> Mapping[str, tuple[str, ...]]:
        """Contract id → the drivers that bind it alike."""
        return self._router.routed if self._router is not None else {}

    def settle(self, tool: str) -> DriverSpec | None:
        """Choose for one request whose server is yet to be lent; what is chosen last stands for it."""
        self._settled[tool] = self.now(tool, {}, settled=False)
        return self._settled[tool][0].chosen

    def now(self, tool: str, behind: Mapping[str, Behind] | None = None, *, settled: bool = True) -> Resolved:
        """Return which driver carries a routed tool now, and why.

        Args:
            tool: contract id.
            settled: for a request that was settled, return that.
            behind: what was lent; a driver that does not offer the tool now, or whose server is gone, is none.
        """
        assert self._router is not None  # noqa: S101 - nothing is routed without one
        if settled and tool in self._settled:
            return self._settled[tool]
        missing = dict(self.unavailable)
        for driver, one in (behind or {}).items():
            if tool not in one.exposure.tools:
                missing[driver] = f"out of service: {one.exposure.held.get(tool, 'not offered now')}"
            elif one.peer.fault is not None:
                missing[driver] = f"its server is gone ({one.peer.fault.id})"
        return self._router.resolve(tool, self._tenant, missing, self._allowed)


def shared(specs: Sequence[DriverSpec]) -> dict[str, tuple[str, ...]]:
    """Return contract id → the drivers that offer it alike, where these are two or more.

    Where drivers bind contracts of one id that are not alike, clients could not tell which one they call: the largest
    group of alike ones is routed, and of several that large none.
    """
    found: dict[str, dict[str, set[str]]] = {}
    for spec in specs:
        for binding in spec.bindings:
            name = binding.contract.id
            found.setdefault(name, {}).setdefault(digest(definition_of(binding, name)), set()).add(spec.id)
    routed = {}
    for name, groups in found.items():
        largest, *others = sorted(groups.values(), key=len, reverse=True)
        if len(largest) > 1 and (not others or len(largest) > len(others[0])):
            routed[name] = tuple(sorted(largest))
    return routed


def record(scope: Scope, tool: str, resolution: Resolution) -> None:
    """Record a choice with the reason of every phase."""
    steps = [f"{one.phase} {one.driver}: {'kept' if one.kept else 'dropped'}, {one.why}" for one in resolution.steps]
    picked = resolution.chosen.id if resolution.chosen is not None else ""
    scope.fact("route.choose", tool=tool, driver=picked, steps=steps[:MAX_STEPS])


def picked(scope: Scope, tool: str, found: Resolved) -> str:
    """Record a choice and return the driver.

    Raises:
        CallRefused: ``GATE-042``, ``GATE-043``, none can carry the call.
    """
    record(scope, tool, found[0])
    try:
        return chosen(tool, *found).id
    except CallRefused as refusal:
        scope.fact("call.decide", tool=tool, decision="deny", reason=refusal.id)
        raise
