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
renewed. What is not renewed within its ``ttl`` does not exist. Everything lives in memory: after a restart the next
renewal is it again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from sandbox import jsontext
from sandbox.dialect.model import Shape, to_json
from sandbox.dialect.refusals import DialectRefused
from sandbox.events import Scope
from sandbox.serve.identity.model import Identity

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


class Registrations:
    """Every registration of a gateway.

    Args:
        scope: where they are recorded.
        clock: seconds that never go back.
    """

    def __init__(self, scope: Scope, clock: Callable[[], float]) -> None:
        self._scope, self._clock = scope, clock
        self._all: dict[tuple[str, str], Kept] = {}

    def __len__(self) -> int:
        return len(self._all)

    def register(self, entry: Entry, identity: Identity) -> dict[str, Any]:
        """Keep or renew a registration and return it as it is told.

        Raises:
            DialectRefused: ``DIA-070`` without the scope, ``DIA-071`` it does not fit, ``DIA-072`` too many,
                ``DIA-073`` the public name is another's.
            AuditUnavailable: it cannot be recorded, and is not kept.
        """
        _allowed(identity)
        _check(entry)
        self._forget()
        tenant, key = identity.tenant.tenant, (identity.owner, entry.server_id)
        before = self._all.get(key)
        self._room(entry, key, tenant)
        if before is None or before.entry != entry:
            self._scope.child().within(tenant=tenant).fact(
                "registry.register", server=entry.server_id, version=entry.version, visibility=entry.visibility,
                entry=jsontext.digest(to_json(entry)), ttl=entry.ttl,
            )  # fmt: skip
        kept = self._all[key] = Kept(entry, identity.owner, tenant, self._clock() + entry.ttl)
        return self._told(kept)

    def remove(self, server_id: str, identity: Identity) -> None:
        """Forget a registration of the caller's.

        Raises:
            DialectRefused: ``DIA-070`` without the scope; ``DIA-074``, there is none of theirs.
        """
        _allowed(identity)
        self._forget()
        key = (identity.owner, server_id)
        if key not in self._all:
            raise _none()
        self._scope.child().within(tenant=identity.tenant.tenant).fact("registry.remove", server=server_id)
        del self._all[key]

    def find(self, server_id: str, identity: Identity) -> dict[str, Any]:
        """Return a registration that a caller may see: an own one, else a public one.

        Raises:
            DialectRefused: ``DIA-074``, there is none; another's private one is told alike.
        """
        self._forget()
        own = self._all.get((identity.owner, server_id))
        found = own or next((one for one in self._seen(identity) if one.entry.server_id == server_id), None)
        if found is None:
            raise _none()
        return self._told(found)

    def listed(self, identity: Identity) -> list[dict[str, Any]]:
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
            text = f"the public name {entry.server_id} is another's"
            raise DialectRefused("DIA-073", text, "use a name of your own, or register it as `private`")
        if len(others) >= MAX_REGISTRATIONS or sum(one.tenant == tenant for one in others) >= MAX_OF_TENANT:
            raise DialectRefused("DIA-072", "too many servers are registered", "remove some, or let them expire")

    def _forget(self) -> None:
        """Forget what was not renewed, and say so once."""
        now = self._clock()
        for key, one in [(key, one) for key, one in self._all.items() if one.until <= now]:
            del self._all[key]
            self._scope.child().within(tenant=one.tenant).fact("registry.expire", server=one.entry.server_id)

    def _told(self, one: Kept) -> dict[str, Any]:
        left = max(0, round(one.until - self._clock()))
        return {**to_json(one.entry), "review": "unreviewed", "expires_in": left}


def _allowed(identity: Identity) -> None:
    if identity.anonymous or not (identity.unsafe or SCOPE in identity.scopes):
        raise DialectRefused("DIA-070", f"registering needs the scope `{SCOPE}`", "ask for a credential that has it")


def _check(entry: Entry) -> None:
    """Hold an entry to what its shape cannot say."""
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


def _none() -> DialectRefused:
    return DialectRefused("DIA-074", "there is no such registration", "register it again; see `registry/`")
