"""What a hazard is: one thing that a tool's definition may do to its reader, recognised from the definition alone.

Hazards of *structure* and of *hidden text* block: they have no honest use and are decided exactly. Hazards of
*meaning* inform: no list of phrases decides what a text intends, and nobody should believe that one does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from sandbox.vet.findings import Finding, Severity

Role = Literal["name", "prose", "data"]
"""``name``: an identifier that is called or sent; ``prose``: text for people and models; ``data``: a value."""


@dataclass(frozen=True, slots=True)
class Text:
    """One text of a definition.

    Attributes:
        place: path into the definition, such as ``inputSchema/properties/path/description``.
    """

    place: str
    text: str
    role: Role


@dataclass(frozen=True, slots=True)
class Subject:
    """A tool as a server offers it, with what else is known.

    Attributes:
        definition: the tool's object in ``tools/list``.
        others: names of tools by server, of every other loaded server; this server's other tools under ``""``.
        mutates: what the contract says the tool changes; ``None`` when there is no contract.
        kind: list of the server that it stands in: ``tools``, ``prompts``, ``resources`` or ``templates``.
    """

    definition: Mapping[str, Any]
    others: Mapping[str, Collection[str]] = field(default_factory=dict)
    mutates: Sequence[str] | None = None
    kind: str = "tools"

    @property
    def name(self) -> str:
        """Return the tool's name, or nothing when it has none."""
        name = self.definition.get("name")
        return name if isinstance(name, str) else ""

    def finding(self, hazard: Hazard, place: str, message: str, severity: Severity | None = None) -> Finding:
        """Return a finding of a hazard at a place of this tool."""
        shown = ascii(self.name[:80])[1:-1]
        where = f"{self.kind}/{shown}/{place}" if place else f"{self.kind}/{shown}"
        return Finding(hazard.id, severity or hazard.severity, self.name, where, message, hazard.mend)


class Hazard(Protocol):
    """One recogniser.

    Attributes:
        id: ``VET-2nn``.
        title: what it recognises, for lists.
        severity: of its findings, unless one says otherwise.
        mend: what to do about them.
    """

    id: str
    title: str
    severity: Severity
    mend: str

    def check(self, subject: Subject) -> Iterator[Finding]:
        """Yield what is found; never raises, whatever JSON the definition is."""
