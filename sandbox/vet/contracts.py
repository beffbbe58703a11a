"""Every bound tool must provably fit its contract and be readable as it stands, or the server is refused (S0-69).

:mod:`sandbox.vet.judgement` looks at the tools; here everything that blocks is said at once, and what only informs is
recorded. Findings about structure and hidden text block, findings about meaning inform: see
:mod:`sandbox.vet.hazards`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sandbox.errors import Problem, VetProblems
from sandbox.events import Scope
from sandbox.vet.model import Exposure, Fitting

if TYPE_CHECKING:
    from sandbox.vet.directions import Fit
    from sandbox.vet.findings import Finding
    from sandbox.vet.judgement import Judgement

MAX_RECORDED: Final = 64
"""Findings that one record lists; a server with more is refused or badly made, and the rest is counted."""


def fit(exposure: Exposure, scope: Scope, policy: Fitting | None = None) -> Exposure:
    """Return the exposure when every bound tool provably fits its contract and nothing that is exposed hides text.

    Raises:
        VetProblems: ``VET-004``, a tool does not fit, or it cannot be decided; every one is named with its
            counterexample and the mend. ``VET-150``, all fit, and a definition holds a hazard that blocks.
    """
    chosen = policy or Fitting()
    verdicts = chosen.verdicts
    key = subject(exposure, chosen) if verdicts is not None else ""
    known = verdicts.get(key) if verdicts is not None and key else None
    if known is not None:
        scope.fact("vet.recall", digest=key)
    else:
        known = _proved(exposure, scope, chosen)
        if verdicts is not None and key:
            verdicts.keep(key, known)
    for name, attrs in known.items():
        scope.fact(name, **attrs)
    if not exposure.resources:
        return exposure
    from sandbox.vet.judgement import readable  # noqa: PLC0415 - see below

    return readable(exposure)


def subject(exposure: Exposure, policy: Fitting) -> str:
    """Return a digest of everything that judging looks at: contracts, definitions, what is listed, and how strictly.

    Empty when something in it is no JSON, which a server cannot send.
    """
    surface = exposure.surface
    listed = surface is not None and bool(exposure.resources)
    seen = {
        "tools": [[one.name, one.server_name, one.binding, one.server_definition] for one in exposure.tools.values()],
        "own": sorted(surface.tools) if surface is not None else [],
        "prompts": [[name, surface.prompts.get(name) if surface is not None else None] for name in exposure.prompts],
        "listed": [surface.resources, surface.resource_templates] if surface is not None and listed else [],
        "neighbours": {name: sorted(tools) for name, tools in policy.neighbours.items()},
        "undecided": policy.unsafe_admit_undecided,
    }
    try:
        data = msgspec.json.encode(seen, order="sorted")
    except (TypeError, ValueError):
        return ""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _proved(exposure: Exposure, scope: Scope, policy: Fitting) -> dict[str, Mapping[str, Any]]:
    """Judge a server that was not judged before, and return what is to be recorded of its admission."""
    from sandbox.vet.judgement import judge  # noqa: PLC0415 - heavy, and not needed for what was judged before

    found = judge(exposure, policy)
    blocked = found.blocking
    recorded = _hazards(found)
    if blocked:
        for name, attrs in recorded.items():
            scope.fact(name, **attrs)
        misfit = any(finding.severity == "block" for side in _sides(found) for finding in side.findings)
        raise VetProblems("VET-004" if misfit else "VET-150", tuple(map(_problem, blocked)))
    sides = _sides(found)
    recorded["vet.fit"] = {
        "proved": sum(side.status == "proved" for side in sides),
        "at_call_time": sorted(side.tool for side in sides if side.status == "at call time"),
        "unsafe_undecided": sorted(f"{side.tool} {side.side}" for side in sides if side.status == "undecided"),
    }
    return recorded


def _sides(found: Judgement) -> list[Fit]:
    return [side for tool in found.tools for side in (tool.inputs, tool.outputs)]


def _problem(finding: Finding) -> Problem:
    file, colon, line = finding.place.rpartition(":")
    at = (file, int(line)) if colon and line.isdigit() else (finding.place, 0)
    return Problem(finding.id, *at, field="", message=finding.message, mend=finding.mend)


def _hazards(found: Judgement) -> dict[str, Mapping[str, Any]]:
    """Return what is recorded of hazards: ids and places; their messages quote the server and are not kept."""
    hazards = [*(finding for tool in found.tools for finding in tool.hazards), *found.others]
    if not hazards:
        return {}
    return {
        "vet.hazards": {
            "found": dict(Counter(finding.id for finding in hazards)),
            "blocking": sum(finding.severity == "block" for finding in hazards),
            "places": [f"{finding.id} {finding.place[:200]}" for finding in hazards[:MAX_RECORDED]],
        }
    }
