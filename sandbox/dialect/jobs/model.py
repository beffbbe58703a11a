"""What a job is, as it lies on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from sandbox.dialect.invoke import Outcome
from sandbox.serve.identity.model import Identity
from sandbox.tenant import TenantContext, TenantId

State = Literal["waiting", "running", "success", "error", "cancelled"]

ENDED: Final = frozenset(("success", "error", "cancelled"))

Kind = Literal["dialect", "task"]
"""Whose words ask for it: ``invoke`` with ``mode: async``, or ``tools/call`` with ``task``."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job.

    Attributes:
        id: uuid; knowing it is not enough, see ``owner``.
        kind: see :data:`Kind`.
        request_id: of the client; of one owner no two jobs have the same.
        door: path of the endpoint.
        tool: exposed name.
        owner: digest of who holds the credential (issuer, tenant, subject, client).
        identity: for whom it runs; needed to run it after a restart.
        params: of the ``tools/call``; ``None`` when they are needed no more.
        digest: of tool and arguments, by which a repeated request is known.
        state: see :data:`State`.
        outcome: of an ended one.
        created: seconds of the wall clock, as the others.
        updated: of its last change.
        ttl: seconds for which it is kept after its end.
        attempts: how often its call went out.
    """

    id: str
    kind: Kind
    request_id: str
    door: str
    tool: str
    owner: str
    identity: Identity
    params: Mapping[str, Any] | None
    digest: str
    state: State
    created: float
    updated: float
    ttl: float
    outcome: Outcome | None = None
    attempts: int = 0

    @property
    def ended(self) -> bool:
        """Whether nothing of it changes any more."""
        return self.state in ENDED


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody asks for as a job; see :class:`Job`.

    Attributes:
        going: the call is with its server already, and whether it may be repeated; ``None``: it has yet to begin.
    """

    kind: Kind
    request_id: str
    door: str
    tool: str
    identity: Identity
    params: Mapping[str, Any]
    digest: str
    ttl: float
    id: str = field(default="")
    going: bool | None = None


def identity_to_json(identity: Identity) -> dict[str, Any]:
    """Return an identity as a JSON value: what was verified, never the credential."""
    return {**asdict(identity), "scopes": sorted(identity.scopes)}


def identity_from_json(value: Mapping[str, Any]) -> Identity:
    """Return an identity from its JSON value."""
    tenant = value["tenant"]
    context = TenantContext(TenantId(tenant["tenant"]), tenant["user"], dict(tenant["claims"]), tenant["source"])
    return Identity(
        context, frozenset(value["scopes"]), value["owner"], value["anonymous"], value["unsafe"], value["bound"]
    )
