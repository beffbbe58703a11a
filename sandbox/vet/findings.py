"""What vetting found: one sentence each, with place and mend, that blocks a tool or only informs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["block", "inform"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that vetting noticed.

    Attributes:
        id: ``VET-nnn``, documented in ``docs/errors/vet.md``.
        severity: ``block``: the tool is not served; ``inform``: a person may want to look at it.
        tool: name of the tool that it is about, as the server calls it; empty when it is about the server.
        place: where it stands: ``file:line`` of the driver, or a path into what the server said.
        message: one sentence.
        mend: what to do, in the imperative.
    """

    id: str
    severity: Severity
    tool: str
    place: str
    message: str
    mend: str = ""

    def __str__(self) -> str:
        """Return ``place: ID: message — mend``."""
        return f"{self.place}: {self.id}: {self.message}" + (f" — {self.mend}" if self.mend else "")


def blocking(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings that keep a tool from being served."""
    return tuple(finding for finding in findings if finding.severity == "block")
