"""Hazards of tool definitions: what a server may say that misleads a person or a model (S0-69, issue: contracts).

Every hazard is one small class with an id, documented in ``docs/errors/vet.md``. Findings about structure and hidden
text block; findings about meaning inform.
"""

from __future__ import annotations

from typing import Final

from sandbox.vet.findings import Finding
from sandbox.vet.hazards.interface import Hazard, Subject
from sandbox.vet.hazards.invisible import visible
from sandbox.vet.hazards.naming import MistakableName, OddName
from sandbox.vet.hazards.structure import ContradictedContract, HiddenCharacters, OutsideReference, TextInData, TooLarge
from sandbox.vet.hazards.wording import Instructions, OtherTools, SaysAttack, SecretPlaces

HAZARDS: Final[tuple[Hazard, ...]] = (
    HiddenCharacters(),
    Instructions(),
    OtherTools(),
    SecretPlaces(),
    MistakableName(),
    TooLarge(),
    OutsideReference(),
    ContradictedContract(),
    TextInData(),
    OddName(),
    SaysAttack(),
)
"""Every hazard, by id."""

OF_TEXT: Final[tuple[Hazard, ...]] = tuple(
    hazard for hazard in HAZARDS if hazard.id in {"VET-201", "VET-202", "VET-204", "VET-206", "VET-211"}
)
"""Hazards of what is not a tool: prompts and resources have texts, and neither schemas nor grammar for names."""


def inspect(subject: Subject) -> tuple[Finding, ...]:
    """Return everything that the hazards find in one tool.

    A definition that nests too deep is refused by that alone: nothing else looks into it.
    """
    large = tuple(TooLarge().check(subject))
    if any("nests" in finding.message for finding in large):
        return large
    looked = HAZARDS if subject.kind == "tools" else OF_TEXT
    return tuple(finding for hazard in looked for finding in hazard.check(subject))


def collisions(subject: Subject) -> tuple[Finding, ...]:
    """Return what makes an exposed name mistakable for another loaded server's."""
    return tuple(MistakableName().check(subject))


__all__ = ["HAZARDS", "OF_TEXT", "Hazard", "Subject", "collisions", "inspect", "visible"]
