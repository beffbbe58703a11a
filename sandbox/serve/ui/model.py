"""What the operator's page shows, as rows of text that whoever wires it makes from the real state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sandbox.events import Scope
from sandbox.serve.ui.calls import Calls
from sandbox.serve.ui.seen import Seen, Verdict


@dataclass(frozen=True, slots=True)
class ServerRow:
    """One driver.

    Attributes:
        who: may use it.
        egress: entries; none is no network.
        roots: folder inside, and whether it may be written.
        limits: in words.
        unsafe: weakenings in force.
        held: exposed name of a tool → why it is out of service.
    """

    id: str
    version: str
    path: str
    who: str
    kind: str
    tools: int
    egress: Sequence[str]
    roots: Sequence[str]
    limits: Sequence[str]
    unsafe: Sequence[str]
    verdict: Verdict
    held: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """One instance; times in seconds, ``None`` when unknown."""

    driver: str
    tenant: str
    id: str
    state: str
    users: int
    age: float | None
    idle: float | None
    memory: int | None


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """What waits for a decision: :class:`sandbox.supervisor.desk.Offer`."""

    driver: str
    digest: str
    base: str
    first: bool
    file: str
    tenants: Sequence[str]
    held: dict[str, str]
    waiting: int
    seen: float


@dataclass(frozen=True, slots=True)
class State:
    """Everything at one moment."""

    servers: Sequence[ServerRow]
    instances: Sequence[InstanceRow]
    changes: Sequence[ChangeRow]


class Source(Protocol):
    """Gives the state of a gateway, and carries out what is decided.

    Attributes:
        seen: what came by in the trail.
        calls: of clients.
        scope: where decisions are recorded.
        about: what stands in the head of the page: ``url``, ``version``.
    """

    seen: Seen
    calls: Calls
    scope: Scope
    about: dict[str, str]

    def state(self) -> State:
        """Return everything as it is now; bounded."""

    def told(self, driver: str, digest: str, base: str) -> Awaitable[tuple[ChangeRow, list[str]] | None]:
        """Return one change and what a person has to read of it; ``None`` when it is not pending any more."""

    def approve(self, driver: str, digest: str, base: str, by: str) -> Awaitable[Any]:
        """Approve exactly that; raises VetRefused, SpecError, OSError or AuditUnavailable."""


Note = Callable[..., None]
"""Records a refusal: error, path, method, peer."""
