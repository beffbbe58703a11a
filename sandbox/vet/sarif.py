"""SARIF 2.1.0 of what vetting found, for code review: a finding stands at the line of the file that a reviewer edits.

Findings about contracts stand at the contract's or the driver's line. Hazards are in what the server says, which no
file holds, so they stand at the driver's entry that binds the tool, with the place in the server's definition as the
logical location. Source: OASIS SARIF v2.1.0, sections 3.13 (log), 3.14 (run), 3.27 (result), 3.28 (location).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from sandbox import __version__
from sandbox.errors import Problem, SandboxError
from sandbox.spec.model import DriverSpec, Origin
from sandbox.vet.findings import Finding
from sandbox.vet.hazards import HAZARDS

SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
VERSION: Final = "2.1.0"

TITLES: Final[Mapping[str, str]] = {
    "VET-001": "bound tool is not offered",
    "VET-003": "two tools under one name",
    "VET-101": "server refuses arguments that the contract accepts",
    "VET-102": "server may answer what the contract does not allow",
    "VET-103": "result_extract names nothing",
    "VET-104": "two values become one argument",
    "VET-105": "contract accepts nothing",
    "VET-106": "fit is not decided",
    "VET-107": "server announces no output schema",
    "VET-153": "changed since it was approved",
    **{hazard.id: hazard.title for hazard in HAZARDS},
}
"""Rule id → name; ids that are not here are shown by their id."""

_PLACE: Final = re.compile(r"(?P<file>.+?):(?P<line>\d+)")


def of_findings(findings: Iterable[Finding], spec: DriverSpec, base: Path) -> dict[str, Any]:
    """Return the log of a vetting that came to its end.

    Args:
        findings: what was found.
        spec: the driver.
        base: folder that the paths in the log are relative to: the checkout.
    """
    results = [_result(finding, spec, base) for finding in findings]
    return _log(results, {"executionSuccessful": True})


def of_error(error: SandboxError, file: str, base: Path) -> dict[str, Any]:
    """Return the log of a vetting that could not be carried out: every problem of the folder, or the one failure."""
    problems: tuple[Problem, ...] = getattr(error, "problems", ())
    if problems:
        return _log([_problem(problem, base) for problem in problems], {"executionSuccessful": True})
    text = {"text": f"{error.message} — {error.mend}" if error.mend else error.message}
    notice = {"level": "error", "message": text, "descriptor": {"id": error.id}, "locations": [_at(file, 1, base)]}
    return _log([], {"executionSuccessful": False, "toolExecutionNotifications": [notice]})


def _log(results: list[dict[str, Any]], invocation: dict[str, Any]) -> dict[str, Any]:
    ids = sorted({result["ruleId"] for result in results})
    for result in results:
        result["ruleIndex"] = ids.index(result["ruleId"])
    driver = {
        "name": "mcp-sandbox",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_rule(id_) for id_ in ids],
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return {"$schema": SCHEMA, "version": VERSION, "runs": [run]}


def _rule(id_: str) -> dict[str, Any]:
    title = TITLES.get(id_, id_)
    page = "spec" if id_.startswith("SPEC") else "vet"
    return {
        "id": id_,
        "name": "".join(word.capitalize() for word in re.findall(r"[A-Za-z0-9]+", title)),
        "shortDescription": {"text": title},
        "help": {"text": f"docs/errors/{page}.md, row {id_}"},
    }


def _result(finding: Finding, spec: DriverSpec, base: Path) -> dict[str, Any]:
    text = f"{finding.message} — {finding.mend}" if finding.mend else finding.message
    place = _PLACE.fullmatch(finding.place)
    located = Path(place["file"]).suffix == ".md" if place else False
    if place and located:
        location = _at(place["file"], int(place["line"]), base)
    else:
        origin = _binding_of(finding, spec)
        location = _at(origin.file, origin.line, base)
        location["logicalLocations"] = [{"fullyQualifiedName": finding.place, "kind": "object"}]
    level = "error" if finding.severity == "block" else "note"
    key = (finding.id, finding.tool, place["file"] if place else finding.place, finding.message)
    return _made(finding.id, level, text, location, key)


def _problem(problem: Problem, base: Path) -> dict[str, Any]:
    text = str(problem).partition(": ")[2] or problem.message
    level = "error" if problem.severity == "error" else "warning"
    key = (problem.id, problem.file, problem.field, problem.message)
    return _made(problem.id, level, text, _at(problem.file, problem.line, base), key)


def _made(id_: str, level: str, text: str, location: dict[str, Any], key: tuple[str, ...]) -> dict[str, Any]:
    """Return one result; its fingerprint stays when lines move."""
    digest = hashlib.sha256("\0".join(key).encode("utf-8", "backslashreplace")).hexdigest()[:32]
    return {
        "ruleId": id_,
        "level": level,
        "message": {"text": text},
        "locations": [location],
        "partialFingerprints": {"mcpSandboxFinding/v1": digest},
    }


def _binding_of(finding: Finding, spec: DriverSpec) -> Origin:
    bound = (binding.origin for binding in spec.bindings if binding.tool_name == finding.tool)
    return next(bound, Origin(file=spec.file, line=1))


def _at(file: str, line: int, base: Path) -> dict[str, Any]:
    """Return a physical location: relative to the checkout where it lies in it, else an absolute ``file:`` URI."""
    path = Path(os.path.normpath(base / file))
    inside = path.is_relative_to(base)
    uri = quote(path.relative_to(base).as_posix()) if inside else path.as_uri()
    artifact = {"uri": uri, "uriBaseId": "%SRCROOT%"} if inside else {"uri": uri}
    return {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": max(1, line)}}}
