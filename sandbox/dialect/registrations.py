"""What others say of their servers: the capability ``registry`` (S1-5, S1-16, S1-22, S1-45).

A registration is somebody's word about somebody's server. It is kept, told as ``unreviewed`` and forgotten; it is never
called, fetched, mounted or shown in the register of MCP, whatever address it names.

=====================  =================================================================================================
who                    may
=====================  =================================================================================================
scope ``SCOPE``        register, renew, replace and remove registrations of the same holder
whoever is admitted    see public ones, and the holder's own
=====================  =================================================================================================

A registration belongs to its holder (issuer, tenant, subject, client). Names are the holder's own: a private one
neither collides with another's nor tells of it. A *public* name belongs to the first holder for as long as it is
renewed. What is not renewed within its ``ttl`` does not exist. Everything lives in memory, where after a restart the
next renewal is it again, or in the store that several gateways share (:mod:`sandbox.dialect.shared_registrations`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Protocol
from urllib.parse import urlsplit

import msgspec

from sandbox import jsontext
from sandbox.dialect.model import Shape, to_json
from sandbox.dialect.refusals import DialectRefused
from sandbox.events import Scope
from sandbox.serve.identity.model import Identity
from sandbox.tenant import TenantId

SCOPE: Final = "mcp-sandbox:register"
"""Of a credential that may register servers."""

MAX_ENTRY: Final = 16 * 1024
"""Bytes of one registration: some hundred names of tools."""

MAX_OF_TENANT: Final = 100
MAX_REGISTRATIONS: Final = 2000
"""Registrations that are kept, of one tenant and in all: 32 MiB at most."""

SHORTEST_TTL: Final = 30
LONGEST_TTL: Final = 3600
DEFAULT_TTL: Final = 300
"""Seconds without a renewal after which a registration is forgotten."""

ServerId = Annotated[
    str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}(/[A-Za-z0-9][A-Za-z0-9._-]{0,127})?$(?!\n)")
]
Plain = Annotated[str, msgspec.Meta(pattern=r"^[\x21-\x7e]{1,128}$(?!\n)")]
"""Printable ASCII, so that nothing hidden is told to a model or a terminal."""

_SCHEMES: Final = frozenset(("http", "https", "ws", "wss"))
_PRINTABLE: Final = re.compile(r"[\x21-\x7e]{1,2048}")


class Entry(Shape, kw_only=True, forbid_unknown_fields=True, frozen=True, omit_defaults=False):
    """One server as somebody registers it (S1-16).

    Attributes:
        server_id: its name, such as ``com.example/files``.
        version: of the server.
        endpoint: its address; only ever text.
        tools: their names.
        auth: what it asks of its clients.
        capabilities: that it says it has.
        ttl: seconds for which this holds without a renewal.
        visibility: ``public`` for whoever is admitted, ``private`` for the holder (ours).
    """

    server_id: ServerId
    version: Plain
    endpoint: str
    tools: Annotated[tuple[Plain, ...], msgspec.Meta(max_length=256)] = ()
    auth: Literal["bearer", "mutual_tls", "none"]
    capabilities: Annotated[tuple[Plain, ...], msgspec.Meta(max_length=32)] = ()
    ttl: Annotated[int, msgspec.Meta(ge=SHORTEST_TTL, le=LONGEST_TTL)] = DEFAULT_TTL
    visibility: Literal["public", "private"] = "private"


@dataclass(frozen=True, slots=True)
class Kept:
    """A registration: of whom, until when."""

    entry: Entry
    owner: str
    tenant: str
    until: float


class Registry(Protocol):
    """Every registration that holds."""

    async def register(self, entry: Entry, identity: Identity) -> dict[str, Any]:
        """Keep or renew a registration and return it as it is told.

        Raises:
            DialectRefused: ``DIA-070`` without the scope, ``DIA-071`` it does not fit, ``DIA-072`` too many,
                ``DIA-073`` the public name is another's.
            AuditUnavailable: it cannot be recorded, and is not kept.
        """

    async def remove(self, server_id: str, identity: Identity) -> None:
        """Forget a registration of the caller's.

        Raises:
            DialectRefused: ``DIA-070`` without the scope; ``DIA-074``, there is none of theirs.
        """

    async def find(self, server_id: str, identity: Identity) -> dict[str, Any]:
        """Return a registration that a caller may see: an own one, else a public one.

        Raises:
            DialectRefused: ``DIA-074``, there is none; another's private one is told alike.
        """

    async def listed(self, identity: Identity) -> list[dict[str, Any]]:
        """Return every registration that a caller may see, by name."""


class Registrations:
    """Implements :class:`Registry` in the memory of one gateway.

    Args:
        scope: where they are recorded.
        clock: seconds that never go back.
    """

    def __init__(self, scope: Scope, clock: Callable[[], float]) -> None:
        self._scope, self._clock = scope, clock
        self._all: dict[tuple[str, str], Kept] = {}

    def __len__(self) -> int:
        return len(self._all)

    async def register(self, entry: Entry, identity: Identity) -> dict[str, Any]:
        """Keep or renew a registration."""
        allowed(identity)
        check(entry)
        self._forget()
        tenant, key = identity.tenant.tenant, (identity.owner, entry.server_id)
        before = self._all.get(key)
        self._room(entry, key, tenant)
        if before is None or before.entry != entry:
            note(self._scope, tenant, entry)
        kept = self._all[key] = Kept(entry, identity.owner, tenant, self._clock() + entry.ttl)
        return self._told(kept)

    async def remove(self, server_id: str, identity: Identity) -> None:
        """Forget a registration of the caller's."""
        allowed(identity)
        self._forget()
        key = (identity.owner, server_id)
        if key not in self._all:
            raise none()
        self._scope.child().within(tenant=identity.tenant.tenant).fact("registry.remove", server=server_id)
        del self._all[key]

    async def find(self, server_id: str, identity: Identity) -> dict[str, Any]:
        """Return a registration that a caller may see."""
        self._forget()
        own = self._all.get((identity.owner, server_id))
        found = own or next((one for one in self._seen(identity) if one.entry.server_id == server_id), None)
        if found is None:
            raise none()
        return self._told(found)

    async def listed(self, identity: Identity) -> list[dict[str, Any]]:
        """Return every registration that a caller may see, by name."""
        self._forget()
        return [
            self._told(one) for one in sorted(self._seen(identity), key=lambda one: (one.entry.server_id, one.owner))
        ]

    def _seen(self, identity: Identity) -> list[Kept]:
        own = "" if identity.anonymous else identity.owner
        return [one for one in self._all.values() if one.entry.visibility == "public" or one.owner == own]

    def _room(self, entry: Entry, key: tuple[str, str], tenant: str) -> None:
        others = [one for place, one in self._all.items() if place != key]
        if entry.visibility == "public" and any(
            (one.entry.visibility, one.entry.server_id) == ("public", entry.server_id) for one in others
        ):
            raise not_yours(entry)
        if len(others) >= MAX_REGISTRATIONS or sum(one.tenant == tenant for one in others) >= MAX_OF_TENANT:
            raise too_many()

    def _forget(self) -> None:
        """Forget what was not renewed, and say so once."""
        now = self._clock()
        for key, one in [(key, one) for key, one in self._all.items() if one.until <= now]:
            del self._all[key]
            self._scope.child().within(tenant=one.tenant).fact("registry.expire", server=one.entry.server_id)

    def _told(self, one: Kept) -> dict[str, Any]:
        return told(one.entry, one.until - self._clock())


def allowed(identity: Identity) -> None:
    """Refuse who may not register (``DIA-070``)."""
    if identity.anonymous or not (identity.unsafe or SCOPE in identity.scopes):
        raise DialectRefused("DIA-070", f"registering needs the scope `{SCOPE}`", "ask for a credential that has it")


def check(entry: Entry) -> None:
    """Hold an entry to what its shape cannot say (``DIA-071``)."""
    if len(jsontext.dump(to_json(entry))) > MAX_ENTRY:
        raise DialectRefused("DIA-071", f"the registration is larger than {MAX_ENTRY} bytes", "name fewer tools")
    try:
        parts = urlsplit(entry.endpoint)
        good = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.username is None and parts.port != 0
    except ValueError:
        good = False
    if not good or not _PRINTABLE.fullmatch(entry.endpoint):
        raise DialectRefused(
            "DIA-071", "`endpoint` is no address", "write `https://HOST/PATH`, in ASCII and without a user"
        )


def note(scope: Scope, tenant: str, entry: Entry) -> None:
    """Record what somebody says of a server for the first time, or anew."""
    scope.child().within(tenant=TenantId(tenant)).fact(
        "registry.register", server=entry.server_id, version=entry.version, visibility=entry.visibility,
        entry=jsontext.digest(to_json(entry)), ttl=entry.ttl,
    )  # fmt: skip


def told(entry: Entry, left: float) -> dict[str, Any]:
    """Return a registration as it is told, with the seconds that it holds on."""
    return {**to_json(entry), "review": "unreviewed", "expires_in": min(entry.ttl, max(0, round(left)))}


def not_yours(entry: Entry) -> DialectRefused:
    """Return ``DIA-073``."""
    text = f"the public name {entry.server_id} is another's"
    return DialectRefused("DIA-073", text, "use a name of your own, or register it as `private`")


def too_many() -> DialectRefused:
    """Return ``DIA-072``."""
    return DialectRefused("DIA-072", "too many servers are registered", "remove some, or let them expire")


def none() -> DialectRefused:
    """Return ``DIA-074``."""
    return DialectRefused("DIA-074", "there is no such registration", "register it again; see `registry/`")
