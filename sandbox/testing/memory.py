"""A recorder that keeps facts in memory, for tests and for people who embed the supervisor."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandbox.errors import AuditUnavailable
from sandbox.events import Fact


@dataclass(slots=True)
class MemoryRecorder:
    """Keeps every fact, in order; see :class:`sandbox.events.Recorder`.

    Attributes:
        facts: what was recorded.
        fails_at: names of facts that cannot be recorded, to show that their effect does not happen.
    """

    facts: list[Fact] = field(default_factory=list)
    fails_at: frozenset[str] = frozenset()

    def record(self, fact: Fact) -> None:
        """Keep one fact.

        Raises:
            AuditUnavailable: ``TEST-001``, its name is one of ``fails_at``.
        """
        if fact.name in self.fails_at or f"{fact.name}/{fact.phase}" in self.fails_at:
            raise AuditUnavailable("TEST-001", f"the memory recorder was told not to record {fact.name}")
        self.facts.append(fact)

    def named(self, name: str) -> list[Fact]:
        """Return the facts of one name."""
        return [fact for fact in self.facts if fact.name == name]

    def phases(self) -> list[tuple[str, str]]:
        """Return (name, phase) of every fact, in order."""
        return [(fact.name, fact.phase) for fact in self.facts]
