"""Holds what a server offers against what a person approved, at registration and whenever it is read again.

1. ``driver.lock`` says what was approved for a client of our capabilities. Without pins, and where the operator's
   ceiling allows a first use, what the server says first stands in for them, for this session only. Pins for clients
   of other capabilities are no pins, and are refused: somebody approved something, and it was not this.
2. Differences are classified, and what waits is held (:mod:`sandbox.vet.pinning`).
3. What remains is bound and judged like any server. At the first time a refusal is final, and so is nothing left; later
   it takes everything out of service.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from sandbox.errors import SandboxError, VetRefused
from sandbox.events import Fact, Scope
from sandbox.plan.model import SandboxPlan
from sandbox.spec.model import DriverSpec
from sandbox.supervisor.options import Options
from sandbox.vet import pins
from sandbox.vet.bind import bind
from sandbox.vet.contracts import fit
from sandbox.vet.drift import Change
from sandbox.vet.model import Exposure, Fitting, ServerSurface
from sandbox.vet.pinning import GONE, Standing, declared, shown, stand

ADMIT_UNDECIDED: Final = "unsafe_admit_undecided"
"""Name of the operator's switch (``[[unsafe]]`` of a policy file) that admits what cannot be decided."""

MAX_RECORDED: Final = 64
"""Changes that one record lists; the rest is counted."""

MAX_TOLD: Final = 10
"""Tools that one sentence names."""

MAX_PLACE: Final = 200
"""Characters of a place that are recorded; names in it are the server's."""

Against = tuple[ServerSurface | None, dict[str, str]]
"""What a server is held against: what was approved, and what stays out of service with the reason. One value, so that
a thread that judges sees the two together."""

MEND: Final = "look at `mcp-sandbox pins diff`, then run `mcp-sandbox pins approve`, or stay with the approved version"


class Approval:
    """What was approved of one server, and what has become of it.

    Args:
        spec: the driver.
        plan: made from it.
        options: of the opening.

    Attributes:
        spec: the driver.
        plan: made from it.
        trust: ``pinned``, or ``first use`` when what the server said first stands in for pins.
        judge_again: has the live server's lists read and judged at once; nothing before there is one.
    """

    def __init__(self, spec: DriverSpec, plan: SandboxPlan, options: Options) -> None:
        self.trust = "first use"
        self.judge_again: Callable[[], Awaitable[None]] = _nobody
        self.spec = self._spec = spec
        self.plan = self._plan = plan
        self._options = options
        self._against: Against = (None, {})

    @property
    def approved(self) -> ServerSurface | None:
        """The pins, once :meth:`first` has found them."""
        return self._against[0]

    @property
    def lost(self) -> dict[str, str]:
        """Names of the server's tools that stay out of service → why."""
        return self._against[1]

    def adopt(self, surface: ServerSurface) -> Awaitable[None]:
        """Hold the server against what a person has just approved; what was out of service is judged anew.

        Returns:
            Waits until it is.
        """
        self._against = (declared(surface, self._spec), {})
        self.trust = "pinned"
        return self.judge_again()

    def first(self, surface: ServerSurface, scope: Scope) -> Exposure:
        """Return what is exposed of a server that has just been started.

        Raises:
            SpecError: the lock is damaged.
            VetRefused: ``VET-130``, nobody approved it; ``VET-132``, nothing of it is left in service; and as
                :func:`~sandbox.vet.bind.bind` and :func:`~sandbox.vet.contracts.fit` say.
        """
        self._against = (self._pinned(surface, scope), {})
        exposure, standing = self._judged(surface, scope, self._against)
        if self._spec.bindings and not standing.spec.bindings:
            raise _nothing_left(self._spec, standing)
        self.lost.update(standing.held)  # also what is gone: calls of it were never prepared
        return exposure

    async def reread(self, surface: ServerSurface, scope: Scope) -> Exposure:
        """Return what goes on of a server whose lists were read again; a refusal holds everything.

        Schemas take time: they are judged in a thread, and what is to be recorded is recorded here.

        Raises:
            AuditUnavailable: it cannot be recorded.
        """
        later = Later()
        exposure = await asyncio.to_thread(self._again, surface, replace(scope, recorder=later))
        later.deliver(scope)
        return exposure

    def _again(self, surface: ServerSurface, scope: Scope) -> Exposure:
        against = approved, lost = self._against  # a person may approve something else meanwhile
        try:
            exposure, standing = self._judged(surface, scope, against)
        except SandboxError as error:
            scope.fact("vet.refuse", reason=error.id, message=error.message[:500], offered=len(surface.tools))
            names = [
                one.contract.id if self._options.names == "contract" else one.tool_name for one in self._spec.bindings
            ]
            return Exposure({}, surface=approved, held=dict.fromkeys(names, f"the server is refused ({error.id})"))
        lost.update({name: why for name, why in standing.held.items() if why != GONE})
        return exposure

    def _pinned(self, surface: ServerSurface, scope: Scope) -> ServerSurface:
        """Return what was approved, or what stands in for it."""
        known = pins.read(self._spec.folder) if self._spec.folder else None
        approved = known.under(surface.client_capabilities) if known is not None else None
        self.trust = "pinned" if approved is not None else "first use"
        offered = pins.digest_of(declared(surface, self._spec))
        if approved is None:
            self._may_be_first(known, surface)
        else:
            approved = declared(approved, self._spec)
        digest = pins.digest_of(approved) if approved is not None else ""
        scope.fact("vet.pins", trust=self.trust, approved=digest, offered=offered)
        return approved if approved is not None else surface

    def _may_be_first(self, known: pins.Pins | None, surface: ServerSurface) -> None:
        lock = f"{self._spec.folder}/driver.lock"
        mend = f"run `mcp-sandbox pins approve {self._spec.file}` after reading what it shows"
        if known is not None and known.surfaces:
            key, others = pins.key_of(surface.client_capabilities), ", ".join(sorted(known.surfaces))
            message = f"{lock}: the server was approved for clients with {others}, and is now offered {key}"
            raise VetRefused("VET-130", message, mend)
        if self._options.pins_required():
            message = f"{lock}: nobody has approved what this server offers, and this host's policy asks for it"
            raise VetRefused("VET-130", message, mend)

    def _judged(self, surface: ServerSurface, scope: Scope, against: Against) -> tuple[Exposure, Standing]:
        approved, lost = against
        assert approved is not None  # noqa: S101 - `first` comes first
        standing = stand(self._spec, approved, surface, lost)
        if self._options.judged is not None:
            self._options.judged(self, surface, standing, scope.tenant)
        if standing.changes or standing.held:
            _record(standing, scope)
        policy = fitting(self._plan, self._options)
        exposure = fit(bind(standing.spec, surface, self._options.names), scope, policy)
        for vet in self._options.vets:
            exposure = vet(standing.spec, surface, exposure, scope)
        return shown(exposure, approved, standing, self._options.names, self._spec), standing


async def _nobody() -> None:
    """Wait for nobody: there is no live server yet."""


def fitting(plan: SandboxPlan, options: Options) -> Fitting:
    """Return how strictly to judge: undecided contracts are admitted only when the operator's policy says so."""
    return replace(options.fitting, unsafe_admit_undecided=ADMIT_UNDECIDED in plan.unsafe)


def _record(standing: Standing, scope: Scope) -> None:
    """Record what has changed by place and kind; texts and values are the server's and are not kept."""
    scope.fact(
        "vet.drift",
        kinds=dict(Counter(change.kind for change in standing.changes)),
        changes=[
            f"{change.kind} {change.place[:MAX_PLACE]}" for change in _worst_first(standing.changes)[:MAX_RECORDED]
        ],
        held={name[:MAX_PLACE]: why for name, why in list(standing.held.items())[:MAX_RECORDED]},
    )


def _worst_first(changes: Sequence[Change]) -> list[Change]:
    return sorted(changes, key=lambda change: not change.waits)


def _nothing_left(spec: DriverSpec, standing: Standing) -> VetRefused:
    told = "; ".join(f"`{name[:80]}`: {why}" for name, why in list(standing.held.items())[:MAX_TOLD])
    left = len(standing.held) - MAX_TOLD
    more = f"; and {left} more" if left > 0 else ""
    return VetRefused("VET-132", f"{spec.file}: nothing of this server is as it was approved: {told}{more}", MEND)


class Later:
    """A recorder for a thread: keeps facts until the loop's own recorder takes them."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []

    def record(self, fact: Fact) -> None:
        """Keep one fact."""
        self.facts.append(fact)

    def deliver(self, scope: Scope) -> None:
        """Record everything that was kept.

        Raises:
            AuditUnavailable: it cannot be written.
        """
        for fact in self.facts:
            scope.recorder.record(fact)
