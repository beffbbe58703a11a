"""What waits for a person's approval, of every driver of a pool: told by each judgement, decided by digest.

A judgement of a driver and tenant replaces the one before, also when its instance is gone or was refused at the start:
the next one will offer the same. Who approves names two digests, of what is offered and of what it was compared with.
If either is no longer so, nothing is approved: the change that was read is not the change that is pending.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from weakref import WeakSet

from sandbox.errors import SandboxError, VetRefused
from sandbox.events import Scope
from sandbox.plan.model import SandboxPlan
from sandbox.spec.model import DriverSpec
from sandbox.supervisor.approval import Approval, Later
from sandbox.supervisor.approving import approve, everything, may_approve
from sandbox.vet import pins, reading
from sandbox.vet.drift import Change
from sandbox.vet.model import ServerSurface
from sandbox.vet.pinning import Standing, declared

MAX_OFFERS: Final = 256
"""Pairs of driver and tenant whose last judgement is kept; the oldest are forgotten until they are judged again."""


PATIENCE: Final = 5.0
"""Seconds that whoever approves waits until the live servers are judged anew."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a server offers that nobody has approved.

    Attributes:
        spec: the driver.
        plan: made from it.
        surface: what it offers, as ``driver.lock`` would hold it.
        digest: of the surface.
        base: digest of what was approved and it differs from; empty when nothing was.
        changes: the differences, every one; none where nothing was approved.
        held: name in the server's list → why it is out of service.
        tenants: whose instances offer it; empty names of those that belong to nobody yet are left out.
        seen: when it was judged, seconds since the epoch.
    """

    spec: DriverSpec
    plan: SandboxPlan
    surface: ServerSurface
    digest: str
    base: str
    changes: tuple[Change, ...]
    held: Mapping[str, str]
    tenants: tuple[str, ...]
    seen: float

    @property
    def first(self) -> bool:
        """Whether nobody has ever approved the server."""
        return not self.base

    def told(self) -> list[str]:
        """Return all that a person has to read before approving, as ``pins diff`` prints it, uncut; takes a moment."""
        if self.first:
            return reading.lines(everything(self.spec, self.surface), every=True, whole=True)
        return reading.lines(self.changes, whole=True)


class Desk:
    """Keeps the offers of a pool's servers, and carries out approvals of them.

    Attributes:
        writing: carries out what writes a lock, for whoever has to know that it was done here.
    """

    def __init__(self) -> None:
        self.writing: Callable[[Callable[[], None]], None] = lambda write: write()
        self._lock = threading.Lock()
        self._offers: OrderedDict[tuple[str, str], Offer] = OrderedDict()
        self._approvals: WeakSet[Approval] = WeakSet()
        self._turn = asyncio.Lock()

    def judged(self, approval: Approval, surface: ServerSurface, standing: Standing, tenant: str) -> None:
        """Take note of one judgement (``Options.judged``); called from any thread."""
        first = approval.trust == "first use"
        waits = first or any(change.waits for change in standing.changes)
        offer = _offer(approval, surface, standing, tenant, first=first) if waits else None
        key = (approval.spec.id, tenant)
        with self._lock:
            self._approvals.add(approval)
            self._offers.pop(key, None)
            if offer is not None:
                self._offers[key] = offer
            while len(self._offers) > MAX_OFFERS:
                self._offers.popitem(last=False)

    def pending(self) -> list[Offer]:
        """Return what waits, the same offers of several tenants as one, by driver."""
        with self._lock:
            offers = list(self._offers.items())
        found: dict[tuple[str, str, str], Offer] = {}
        for (driver, _), offer in offers:
            key = (driver, offer.base, offer.digest)
            known = found.get(key)
            tenants = sorted({*(known.tenants if known else ()), *offer.tenants})
            found[key] = replace(offer, tenants=tuple(tenants))
        return [found[key] for key in sorted(found)]

    async def approve(self, driver: str, digest: str, base: str, scope: Scope, **by: Any) -> Offer:
        """Approve what was shown: as ``pins approve --expect`` does, for the servers that live too.

        Args:
            driver: id.
            digest: of the offer.
            base: digest of what it was compared with.
            scope: where it is recorded.
            **by: what the record says of who approves.

        Raises:
            VetRefused: ``VET-133``, that is not what is pending; else it would not be served.
            SpecError: the lock is damaged.
            AuditUnavailable: it cannot be recorded, and was not approved.
            OSError: the lock cannot be written.
        """
        async with self._turn:
            offer = self._wanted(driver, digest, base)
            later = Later()
            try:
                judging = replace(scope, recorder=later, driver=driver)
                await asyncio.to_thread(may_approve, offer.spec, offer.plan, offer.surface, judging, digest)
            finally:
                later.deliver(scope)
            self._wanted(driver, digest, base)  # it may have changed while it was judged
            own = replace(scope, driver=driver)
            self.writing(lambda: approve(offer.spec, offer.surface, own, **by))
            await self._adopted(offer)
            return offer

    def _wanted(self, driver: str, digest: str, base: str) -> Offer:
        found = [one for one in self.pending() if (one.spec.id, one.digest, one.base) == (driver, digest, base)]
        if not found or _base_on_disk(found[0]) != base:
            message = f"what was shown of `{driver[:80]}` is no longer the change that is pending"
            raise VetRefused("VET-133", message, "look at what is pending now, and decide again")
        return found[0]

    async def _adopted(self, offer: Offer) -> None:
        """Hold every server of the driver against what was approved, and forget what was compared with the old.

        Returns when they are judged, or when that takes long.
        """
        key, driver = pins.key_of(offer.surface.client_capabilities), offer.spec.id
        with self._lock:
            for pair in [pair for pair, one in self._offers.items() if pair[0] == driver and one.base == offer.base]:
                del self._offers[pair]
            living = [one for one in self._approvals if one.spec.id == driver and _key(one) == key]
        waiting = [approval.adopt(offer.surface) for approval in living]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE)


def _offer(approval: Approval, surface: ServerSurface, standing: Standing, tenant: str, *, first: bool) -> Offer:
    spec = approval.spec
    offered = declared(surface, spec)
    approved = approval.approved
    assert approved is not None  # noqa: S101 - it was judged against that
    return Offer(
        spec,
        approval.plan,
        offered,
        pins.digest_of(offered),
        "" if first else pins.digest_of(approved),
        () if first else standing.changes,
        standing.held,
        (tenant,) if tenant else (),
        time.time(),
    )


def _base_on_disk(offer: Offer) -> str:
    """Return the digest of what ``driver.lock`` says now; what it compares with may have been approved elsewhere."""
    try:
        known = pins.read(offer.spec.folder)
    except SandboxError:
        return "damaged"
    approved = known.under(offer.surface.client_capabilities) if known is not None else None
    return pins.digest_of(declared(approved, offer.spec)) if approved is not None else ""


def _key(approval: Approval) -> str:
    return pins.key_of(approval.approved.client_capabilities) if approval.approved is not None else ""
