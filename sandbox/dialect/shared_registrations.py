"""Registrations in the store that several gateways share: told, renewed and gone at each of them, and over restarts.

Two kinds of records, each ending ``ttl`` seconds after its last renewal by the store's own clock:

- ``registration``: one for each holder and name, counted with its tenant;
- ``public``: one for each public name, held by its first holder, taken in one atomic step.

The text of an entry is in the store, since telling it is what it is there for; who it is from is a digest, as is the
tenant. A private one is as private as the store.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from sandbox.dialect import registrations as own
from sandbox.dialect.model import convert, to_json
from sandbox.dialect.registrations import Entry, allowed, check, none, not_yours, note, told, too_many
from sandbox.events import Scope
from sandbox.serve.identity.model import Identity
from sandbox.serve.shared.interface import Record, Store, name_of
from sandbox.tenant import TenantId

PUBLIC: Final = name_of("public registrations")


class Noted(NamedTuple):
    """A registration that this gateway took last: its end is recorded here, unless it is renewed elsewhere."""

    tenant: TenantId
    server_id: str
    until: float


class SharedRegistrations:
    """Implements :class:`~sandbox.dialect.registrations.Registry` for several gateways.

    Args:
        scope: where they are recorded.
        store: shared.
        clock: seconds of the wall clock; it decides nothing, and says for how long a registration holds on.
    """

    def __init__(self, scope: Scope, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._scope, self._store, self._clock = scope, store, clock
        self._noted: dict[str, Noted] = {}

    async def register(self, entry: Entry, identity: Identity) -> dict[str, Any]:
        """Keep or renew a registration."""
        allowed(identity)
        check(entry)
        await self._forget()
        tenant, name = identity.tenant.tenant, _name(identity, entry.server_id)
        group, before = _group(identity), await self._store.get("registration", name)
        value = json.dumps({"entry": to_json(entry), "until": self._clock() + entry.ttl})
        record = Record("registration", name, group, identity.owner, value)
        await self._room(group, own.MAX_OF_TENANT if before is not None else own.MAX_OF_TENANT - 1)
        named = await self._named(entry, record) if entry.visibility == "public" else False
        try:
            if before is None or _entry(before) != entry:
                note(self._scope, tenant, entry)
            await self._store.put(record, entry.ttl)
            await self._room(group, own.MAX_OF_TENANT)  # after it counts itself: never too many
        except BaseException:
            if named:
                await self._store.drop("public", _public(entry.server_id), identity.owner)
            if before is None:
                await self._store.drop("registration", name, identity.owner)
            raise
        if entry.visibility != "public":
            await self._store.drop("public", _public(entry.server_id), identity.owner)
        self._noted[name] = Noted(tenant, entry.server_id, self._clock() + entry.ttl)
        return told(entry, entry.ttl)

    async def _room(self, group: str, most: int) -> None:
        if await self._store.count("registration", group) > most:
            raise too_many()

    async def _named(self, entry: Entry, record: Record) -> bool:
        """Hold a public name, or renew it; return whether it was free.

        Raises:
            DialectRefused: ``DIA-072``, ``DIA-073``.
        """
        mine = Record("public", _public(entry.server_id), PUBLIC, record.holder, record.value)
        before = await self._store.get("public", mine.name)
        if before is None and await self._store.count("public", PUBLIC) >= own.MAX_REGISTRATIONS:
            raise too_many()
        if before is None:
            before = await self._store.acquire(mine, entry.ttl)
        elif before.holder == mine.holder:  # it lasts until it is put again below
            before = await self._store.get("public", mine.name, entry.ttl) or await self._store.acquire(mine, entry.ttl)
        if before.holder != mine.holder:
            raise not_yours(entry)
        fresh = before.value == mine.value
        if not fresh:
            await self._store.put(mine, entry.ttl)
        return fresh

    async def remove(self, server_id: str, identity: Identity) -> None:
        """Forget a registration of the caller's."""
        allowed(identity)
        await self._forget()
        name = _name(identity, server_id)
        if await self._store.get("registration", name) is None:
            raise none()
        self._scope.child().within(tenant=identity.tenant.tenant).fact("registry.remove", server=server_id)
        await self._store.drop("public", _public(server_id), identity.owner)
        await self._store.drop("registration", name, identity.owner)
        self._noted.pop(name, None)

    async def find(self, server_id: str, identity: Identity) -> dict[str, Any]:
        """Return a registration that a caller may see."""
        await self._forget()
        found = await self._store.get("registration", _name(identity, server_id))
        found = found or await self._store.get("public", _public(server_id))
        if found is None:
            raise none()
        return self._told(found)

    async def listed(self, identity: Identity) -> list[dict[str, Any]]:
        """Return every registration that a caller may see, by name."""
        await self._forget()
        mine = [] if identity.anonymous else await self._store.all("registration", _group(identity))
        seen = [one for one in mine if one.holder == identity.owner]
        seen += [one for one in await self._store.all("public", PUBLIC) if one.holder != identity.owner]
        return [self._told(one) for one in sorted(seen, key=lambda one: (_entry(one).server_id, one.holder))]

    async def _forget(self) -> None:
        """Record the end of what nobody renewed, here or elsewhere, once."""
        now = self._clock()
        for name, one in [(name, one) for name, one in self._noted.items() if one.until <= now]:
            ended = await self._store.get("registration", name) is None
            if self._noted.pop(name, None) is not None and ended:
                self._scope.child().within(tenant=one.tenant).fact("registry.expire", server=one.server_id)

    def _told(self, record: Record) -> dict[str, Any]:
        return told(_entry(record), json.loads(record.value)["until"] - self._clock())


def _entry(record: Record) -> Entry:
    return convert(Entry, json.loads(record.value)["entry"])


def _name(identity: Identity, server_id: str) -> str:
    return name_of("registration", identity.owner, server_id)


def _group(identity: Identity) -> str:
    return name_of("registrations", identity.tenant.tenant)


def _public(server_id: str) -> str:
    return name_of("public", server_id)
