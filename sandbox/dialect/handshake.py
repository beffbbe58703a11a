"""Agreements: what a client and a server of the dialect decided to speak, and to whom that belongs.

A handshake is answered in this order: the transport named is the one used, the server meant is the one asked, the
release is at most one cycle away, and what both sides can do is what is agreed. Over HTTP the agreement has a random
name which later requests carry; with any other credential, or at another endpoint, it does not exist. Agreements live
in memory, or in the store that several gateways share: there each of them knows all, and none is lost by a restart. A
client whose agreement is gone shakes hands again, and asks for its jobs without one.
"""

from __future__ import annotations

import json
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from sandbox.dialect import bounds
from sandbox.dialect.model import Agreement, Handshake, Limits, Transport, convert, to_json
from sandbox.dialect.refusals import DialectRefused
from sandbox.dialect.versions import common, negotiate
from sandbox.serve.shared.interface import Record, Store, name_of


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


class Agreements(Protocol):
    """Every agreement over HTTP that is in force."""

    async def keep(self, agreement: Agreement, owner: str, tenant: str, base: str) -> None:
        """Remember an agreement.

        Raises:
            DialectRefused: ``DIA-021``, too many.
        """

    async def find(self, session: uuid.UUID | None, owner: str, base: str) -> Agreement:
        """Return the agreement of a name, and count it as used.

        Raises:
            DialectRefused: ``DIA-005``, there is none, or it is somebody else's, told alike.
        """


class OwnAgreements:
    """Implements :class:`Agreements` in the memory of one gateway.

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

    async def keep(self, agreement: Agreement, owner: str, tenant: str, base: str) -> None:
        """Remember an agreement."""
        now = self._clock()
        while self._all and next(iter(self._all.values())).used + self._idle <= now:
            self._all.popitem(last=False)
        of_tenant = sum(1 for one in self._all.values() if one.tenant == tenant)
        if len(self._all) >= bounds.MAX_SESSIONS or of_tenant >= bounds.MAX_SESSIONS_OF_TENANT:
            raise _too_many()
        self._all[agreement.session] = Kept(agreement, owner, tenant, base, now)

    async def find(self, session: uuid.UUID | None, owner: str, base: str) -> Agreement:
        """Return the agreement of a name."""
        now = self._clock()
        kept = self._all.get(session) if session is not None else None
        if kept is None or kept.used + self._idle <= now or (kept.owner, kept.base) != (owner, base):
            raise _none()
        kept.used = now
        self._all.move_to_end(kept.agreement.session)
        return kept.agreement


class SharedAgreements:
    """Implements :class:`Agreements` in a store that several gateways share.

    A record has a digest of the session's name, what was agreed, and of whom and where: a digest of the owner and the
    endpoint's path. It ends when nobody has used it anywhere for long.

    Args:
        store: shared.
        idle: seconds after which an unused one is forgotten.
    """

    def __init__(self, store: Store, idle: float = bounds.SESSION_IDLE) -> None:
        self._store = store
        self._idle = idle

    async def keep(self, agreement: Agreement, owner: str, tenant: str, base: str) -> None:
        """Remember an agreement; it is counted after it is there, so that the bound is never passed."""
        name, group = name_of("agreement", str(agreement.session)), name_of("agreements", tenant)
        said = to_json(agreement)
        del said["session"]
        value = json.dumps({"owner": owner, "base": base, "agreement": said})
        if await self._store.count("agreement", group) >= bounds.MAX_SESSIONS_OF_TENANT:
            raise _too_many()
        await self._store.put(Record("agreement", name, group, "", value), self._idle)
        if await self._store.count("agreement", group) > bounds.MAX_SESSIONS_OF_TENANT:
            await self._store.drop("agreement", name)
            raise _too_many()

    async def find(self, session: uuid.UUID | None, owner: str, base: str) -> Agreement:
        """Return the agreement of a name; who does not own it does not keep it either."""
        name = name_of("agreement", str(session))
        record = await self._store.get("agreement", name) if session is not None else None
        kept = json.loads(record.value) if record is not None else {}
        if (kept.get("owner"), kept.get("base")) != (owner, base):
            raise _none()
        await self._store.get("agreement", name, self._idle)
        return convert(Agreement, {**kept["agreement"], "session": str(session)})


def _too_many() -> DialectRefused:
    return DialectRefused("DIA-021", "too many sessions are open", "use one session for many requests")


def _none() -> DialectRefused:
    return DialectRefused("DIA-005", "there is no such session", "open one with a handshake")
