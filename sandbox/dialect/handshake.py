"""Agreements: what a client and a server of the dialect decided to speak, and to whom that belongs.

A handshake is answered in this order: the transport named is the one used, the server meant is the one asked, the
release is at most one cycle away, and what both sides can do is what is agreed. Over HTTP the agreement has a random
name which later requests carry; with any other credential, or at another endpoint, it does not exist. Agreements live
in memory: after a restart a client shakes hands again, and asks for its jobs without one.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass

from sandbox.dialect import bounds
from sandbox.dialect.model import Agreement, Handshake, Limits, Transport
from sandbox.dialect.refusals import DialectRefused
from sandbox.dialect.versions import common, negotiate


@dataclass(frozen=True, slots=True)
class Offer:
    """What a server brings to a handshake.

    Attributes:
        server_id: its name.
        names: what else it answers to.
        capabilities: that it has.
        limits: of one tenant.
    """

    server_id: str
    capabilities: tuple[str, ...]
    limits: Limits
    names: frozenset[str] = frozenset()


def agree(said: Handshake, offer: Offer, transport: Transport) -> Agreement:
    """Return what is agreed.

    Raises:
        DialectRefused: ``DIA-001`` … ``DIA-004``; ``DIA-006`` another server; ``DIA-007`` another transport.
    """
    if said.transport != transport:
        text = f"the handshake says `{said.transport}` and came over `{transport}`"
        raise DialectRefused("DIA-007", text, "name the transport that is used")
    if said.server_id and said.server_id != offer.server_id and said.server_id not in offer.names:
        text = f"this is not the server {said.server_id[:80]!r}"
        raise DialectRefused("DIA-006", text, f"name {offer.server_id}, or use another address")
    agreed = negotiate(said.wanted)
    return Agreement(
        version=agreed.version,
        mcp_version=agreed.version,
        how=agreed.how,
        client_id=said.client_id,
        server_id=offer.server_id,
        transport=transport,
        capabilities=common(said.capabilities, offer.capabilities),
        session=uuid.uuid4(),
        limits=offer.limits,
    )


def needs(capability: str, agreed: Collection[str]) -> None:
    """Refuse what was not agreed.

    Raises:
        DialectRefused: ``DIA-008``.
    """
    if capability not in agreed:
        raise DialectRefused("DIA-008", f"`{capability}` was not agreed", "name it in the handshake's `capabilities`")


@dataclass(slots=True)
class Kept:
    """One agreement over HTTP: of whom, at which endpoint, last used when."""

    agreement: Agreement
    owner: str
    tenant: str
    base: str
    used: float


class Agreements:
    """Every agreement of a gateway.

    Args:
        clock: seconds that never go back.
        idle: seconds after which an unused one is forgotten.
    """

    def __init__(self, clock: Callable[[], float], idle: float = bounds.SESSION_IDLE) -> None:
        self._clock = clock
        self._idle = idle
        self._all: OrderedDict[uuid.UUID, Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._all)

    def keep(self, agreement: Agreement, owner: str, tenant: str, base: str) -> None:
        """Remember an agreement.

        Raises:
            DialectRefused: ``DIA-021``, too many.
        """
        now = self._clock()
        while self._all and next(iter(self._all.values())).used + self._idle <= now:
            self._all.popitem(last=False)
        of_tenant = sum(1 for one in self._all.values() if one.tenant == tenant)
        if len(self._all) >= bounds.MAX_SESSIONS or of_tenant >= bounds.MAX_SESSIONS_OF_TENANT:
            raise DialectRefused("DIA-021", "too many sessions are open", "use one session for many requests")
        self._all[agreement.session] = Kept(agreement, owner, tenant, base, now)

    def find(self, session: uuid.UUID | None, owner: str, base: str) -> Agreement:
        """Return the agreement of a name, and count it as used.

        Raises:
            DialectRefused: ``DIA-005``, there is none, or it is somebody else's, told alike.
        """
        now = self._clock()
        kept = self._all.get(session) if session is not None else None
        if kept is None or kept.used + self._idle <= now or (kept.owner, kept.base) != (owner, base):
            raise DialectRefused("DIA-005", "there is no such session", "open one with a handshake")
        kept.used = now
        self._all.move_to_end(kept.agreement.session)
        return kept.agreement
