"""Who asks to do what with what: the values that a decision is made of, and the Cedar entities they become.

::

    User  in Tenant, Group        tags = verified claims          id  <tenant>/<subject>
    Agent in Tenant, Group        the same, for a program         id  <tenant>/<subject>
    Driver                                                        id  driver id
    Tool, Prompt, Resource in Driver                              id  <driver>/<name or URI>

Ids are injective: the part before the slash has its own ``/`` and ``%`` percent-encoded (a driver id has none), so that
no two pairs share an entity. Nothing here comes from a client's message except names that step 4 of a call has found
among the exposed ones, and URIs that step 7 has checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from sandbox import jsontext
from sandbox.policy.rules import Uid
from sandbox.tenant import TenantContext

CALL: Final = "tools/call"
PROMPT: Final = "prompts/get"
READ: Final = "resources/read"
SUBSCRIBE: Final = "resources/subscribe"
COMPLETE: Final = "completion/complete"
SAMPLE: Final = "sampling/createMessage"
ELICIT: Final = "elicitation/create"
LAUNCH: Final = "launch"
ADMIT: Final = "admit"

ACTIONS: Final = (CALL, PROMPT, READ, SUBSCRIBE, COMPLETE, SAMPLE, ELICIT, LAUNCH, ADMIT)
"""What can be asked. Names of MCP methods where there is one; ``launch`` starts a driver, ``admit`` takes its tools
in."""


def quoted(text: str) -> str:
    """Return text that may stand before the slash of an id."""
    return text.replace("%", "%25").replace("/", "%2F")


@dataclass(frozen=True, slots=True)
class Principal:
    """A verified caller.

    Attributes:
        kind: ``User`` for a person, ``Agent`` for a program that acts in its own name.
        name: subject within the tenant; empty when only the tenant is known.
        groups: groups of the tenant.
        scopes: OAuth scopes, or the like.
        claims: further verified claims, sorted by name.
        source: how the facts were verified.
    """

    tenant: str
    name: str = ""
    kind: Literal["User", "Agent"] = "User"
    groups: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    claims: tuple[tuple[str, str], ...] = ()
    source: str = "flags"

    @classmethod
    def of(cls, caller: TenantContext, kind: Literal["User", "Agent"] = "User") -> Principal:
        """Return the principal of a verified tenant context.

        The claims ``groups`` and ``scope`` are lists separated by single spaces (RFC 6749, section 3.3).
        """
        claims = caller.claims
        return cls(
            tenant=caller.tenant,
            name=caller.user,
            kind=kind,
            groups=tuple(claims.get("groups", "").split()),
            scopes=tuple(claims.get("scope", "").split()),
            claims=tuple(sorted(claims.items())),
            source=caller.source,
        )

    @property
    def uid(self) -> Uid:
        """The entity that rules name."""
        return self.kind, f"{quoted(self.tenant)}/{self.name}"

    def parents(self) -> tuple[Uid, ...]:
        """Return the tenant and the groups."""
        groups = tuple(("Group", f"{quoted(self.tenant)}/{group}") for group in self.groups)
        return (("Tenant", self.tenant), *groups)

    def entities(self) -> list[dict[str, Any]]:
        """Return the Cedar entities of the caller, the tenant and the groups."""
        tenant = [("Tenant", self.tenant)]
        return [
            _entity(
                self.uid,
                {
                    "tenant": self.tenant,
                    "name": self.name,
                    "groups": list(self.groups),
                    "scopes": list(self.scopes),
                    "source": self.source,
                },
                self.parents(),
                dict(self.claims),
            ),
            _entity(tenant[0], {"name": self.tenant}),
            *(_entity(uid, {}, tenant) for uid in dict.fromkeys(self.parents()[1:])),
        ]


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """What rules can know of a driver; all from its reviewed folder."""

    id: str
    version: str = ""
    server_kind: str = ""
    transport: str = ""
    tags: tuple[str, ...] = ()
    policy_tags: tuple[str, ...] = ()
    region: tuple[str, ...] = ()
    egress: tuple[str, ...] = ()
    unsafe: tuple[str, ...] = ()

    @property
    def uid(self) -> Uid:
        """The entity that rules name."""
        return "Driver", self.id

    def entities(self) -> list[dict[str, Any]]:
        """Return the driver's entity."""
        attributes = {
            "name": self.id,
            "version": self.version,
            "server_kind": self.server_kind,
            "transport": self.transport,
            "tags": list(self.tags),
            "policy_tags": list(self.policy_tags),
            "region": list(self.region),
            "egress": list(self.egress),
            "unsafe": list(self.unsafe),
        }
        return [_entity(self.uid, attributes)]


@dataclass(frozen=True, slots=True)
class ToolFacts:
    """What rules can know of an exposed tool; all from its reviewed contract, nothing from the server.

    Attributes:
        name: contract id.
        server_name: the server's own name for it.
        risk: AIP-14 ``risk_level``.
        inputs: the exposed input schema (JSON Schema 2020-12), from which the types of arguments follow.
        inputs_digest: stands for ``inputs`` where two tools are compared.
    """

    driver: DriverFacts
    name: str
    server_name: str = ""
    tags: tuple[str, ...] = ()
    risk: int = 0
    mutates: tuple[str, ...] = ()
    idempotent: bool = False
    approval: str = "auto"
    cost_class: str = "trivial"
    inputs: Mapping[str, Any] = field(default_factory=dict, compare=False)
    inputs_digest: str = field(init=False, default="")

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs_digest", jsontext.digest(dict(self.inputs)))

    @property
    def uid(self) -> Uid:
        """The entity that rules name."""
        return "Tool", f"{self.driver.id}/{self.name}"

    def entities(self) -> list[dict[str, Any]]:
        """Return the tool's entity and its driver's."""
        attributes = {
            "name": self.name,
            "server_name": self.server_name,
            "driver": self.driver.id,
            "tags": list(self.tags),
            "policy_tags": list(self.driver.policy_tags),
            "region": list(self.driver.region),
            "risk": self.risk,
            "mutates": list(self.mutates),
            "read_only": not self.mutates,
            "idempotent": self.idempotent,
            "approval": self.approval,
            "cost_class": self.cost_class,
        }
        return [_entity(self.uid, attributes, [self.driver.uid]), *self.driver.entities()]


@dataclass(frozen=True, slots=True)
class PromptFacts:
    """A declared prompt."""

    driver: DriverFacts
    name: str

    @property
    def uid(self) -> Uid:
        """The entity that rules name."""
        return "Prompt", f"{self.driver.id}/{self.name}"

    def entities(self) -> list[dict[str, Any]]:
        """Return the prompt's entity and its driver's."""
        return [_entity(self.uid, _inherited(self.driver, self.name), [self.driver.uid]), *self.driver.entities()]


@dataclass(frozen=True, slots=True)
class ResourceFacts:
    """A resource below a declared template.

    Attributes:
        uri: as it will be forwarded.
        template: the declared URI template that it matches.
    """

    driver: DriverFacts
    uri: str
    template: str = ""

    @property
    def uid(self) -> Uid:
        """The entity that rules name."""
        return "Resource", f"{self.driver.id}/{self.uri}"

    def entities(self) -> list[dict[str, Any]]:
        """Return the resource's entity and its driver's."""
        attributes = {**_inherited(self.driver, self.uri), "template": self.template}
        return [_entity(self.uid, attributes, [self.driver.uid]), *self.driver.entities()]


Target: TypeAlias = DriverFacts | ToolFacts | PromptFacts | ResourceFacts


@dataclass(frozen=True, slots=True)
class Request:
    """One question.

    Attributes:
        action: one of :data:`ACTIONS`.
        target: what it is done to.
        context: facts of this one request by name (``docs/policies.md``): ``arguments``, ``now`` …; plain JSON values.
    """

    principal: Principal
    action: str
    target: Target
    context: Mapping[str, Any] = field(default_factory=dict)


def driver_of(target: Target) -> DriverFacts:
    """Return the driver that a target belongs to."""
    return target if isinstance(target, DriverFacts) else target.driver


def ancestors_of(target: Target) -> frozenset[Uid]:
    """Return what ``resource in …`` finds above a target."""
    return frozenset() if isinstance(target, DriverFacts) else frozenset((target.driver.uid,))


def _inherited(driver: DriverFacts, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "driver": driver.id,
        "policy_tags": list(driver.policy_tags),
        "region": list(driver.region),
    }


def _entity(
    uid: Uid,
    attributes: Mapping[str, Any],
    parents: list[Uid] | tuple[Uid, ...] = (),
    tags: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    entity = {
        "uid": {"type": uid[0], "id": uid[1]},
        "attrs": dict(attributes),
        "parents": [{"type": kind, "id": name} for kind, name in dict.fromkeys(parents)],
    }
    return {**entity, "tags": dict(tags)} if tags else entity
