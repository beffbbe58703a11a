"""Every bound tool must provably fit its contract and be readable as it stands, or the server is refused (S0-69).

:mod:`sandbox.vet.judgement` looks at the tools; here everything that blocks is said at once, and what only informs is
recorded. Findings about structure and hidden text block, findings about meaning inform: see
:mod:`sandbox.vet.hazards`.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from sandbox.errors import Problem, VetProblems
from sandbox.events import Scope
from sandbox.vet.directions import Fit
from sandbox.vet.findings import Finding
from sandbox.vet.judgement import Judgement, judge, readable
from sandbox.vet.model import Exposure, Fitting

MAX_RECORDED: Final = 64
"""Findings that one record lists; a server with more is refused or badly made, and the rest is counted."""


def fit(exposure: Exposure, scope: Scope, policy: Fitting | None = None) -> Exposure:
    """Return the exposure when every bound tool provably fits its contract and nothing that is exposed hides text.

    Raises:
        VetProblems: ``VET-004``, a tool does not fit, or it cannot be decided; every one is named with its
            counterexample and the mend. ``VET-150``, all fit, and a definition holds a hazard that blocks.
    """
    found = judge(exposure, policy)
    _record_hazards(found, scope)
    blocked = found.blocking
    if blocked:
        misfit = any(finding.severity == "block" for side in _sides(found) for finding in side.findings)
        raise VetProblems("VET-004" if misfit else "VET-150", tuple(map(_problem, blocked)))
    sides = _sides(found)
    scope.fact(
        "vet.fit",
        proved=sum(side.status == "proved" for side in sides),
        at_call_time=sorted(side.tool for side in sides if side.status == "at call time"),
        unsafe_undecided=sorted(f"{side.tool} {side.side}" for side in sides if side.status == "undecided"),
    )
    return readable(exposure)


def _sides(found: Judgement) -> list[Fit]:
    return [side for tool in found.tools for side in (tool.inputs, tool.outputs)]


def _problem(finding: Finding) -> Problem:
    file, colon, line = finding.place.rpartition(":")
    at = (file, int(line)) if colon and line.isdigit() else (finding.place, 0)
    return Problem(finding.id, *at, field="", message=finding.message, mend=finding.mend)


def _record_hazards(found: Judgement, scope: Scope) -> None:
    """Record hazards by id and place; their messages quote the server and are not kept."""
    hazards = [*(finding for tool in found.tools for finding in tool.hazards), *found.others]
    if hazards:
        scope.fact(
            "vet.hazards",
            found=dict(Counter(finding.id for finding in hazards)),
            blocking=sum(finding.severity == "block" for finding in hazards),
            places=[f"{finding.id} {finding.place[:200]}" for finding in hazards[:MAX_RECORDED]],
        )
