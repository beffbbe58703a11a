"""What test runs measured, kept over versions: ``metadata.json`` (MCPKG §8.4, §12); and what they say (§8.5).

Regressions: a test that passed in the last run of any version and fails now; and calls whose median takes more than
twice, and 50 ms longer, than the median of the last ten runs. Times are milliseconds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sandbox import jsontext
from sandbox.mcpkg.bounds import MAX_HISTORY
from sandbox.mcpkg.create import write_file

_COMPARED: Final = 10
_SLOWER: Final = 2.0
_SLOWER_BY_MS: Final = 50.0
_PASS, _FAST, _STEADY = 0.6, 0.2, 0.2
_HALF_SPEED_MS: Final = 1000.0
"""Median at which the part of a score for speed is half."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one test ended; ``wrong`` is empty when it passed."""

    name: str
    wrong: tuple[str, ...]
    latency_ms: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The last run, as ``tools.json`` shows it."""

    total: int
    passed: int
    failed: int
    average_latency_ms: float


def load(path: Path) -> list[dict[str, Any]]:
    """Return the runs of a ``metadata.json``, the oldest first; none when it is absent or not one."""
    try:
        runs = jsontext.parse(path.read_bytes())["runs"]
        return [run for run in runs if isinstance(run["results"], dict) and isinstance(run["median_ms"], int | float)]
    except (OSError, jsontext.JsonTextError, KeyError, TypeError):
        return []


def add(path: Path, version: str, implementation: str, outcomes: Sequence[Outcome]) -> list[str]:
    """Add a run to a ``metadata.json`` and return its regressions."""
    runs = load(path)
    run = run_of(version, implementation, outcomes)
    found = regressions(runs, run)
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    write_file(path, jsontext.canonical({"runs": [*runs, run][-MAX_HISTORY:]}) + b"\n")
    return found


def run_of(version: str, implementation: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the record of one run."""
    times = [outcome.latency_ms for outcome in outcomes] or [0.0]
    failed = sum(bool(outcome.wrong) for outcome in outcomes)
    return {
        "at": time.time(),
        "version": version,
        "implementation": implementation,
        "total": len(outcomes),
        "passed": len(outcomes) - failed,
        "failed": failed,
        "median_ms": round(statistics.median(times), 3),
        "average_ms": round(statistics.fmean(times), 3),
        "results": {outcome.name: not outcome.wrong for outcome in outcomes},
    }


def regressions(before: Sequence[dict[str, Any]], run: dict[str, Any]) -> list[str]:
    """Return what a run does worse than those before it, one sentence each."""
    if not before:
        return []
    last = before[-1]
    found = [
        f"{name} passed with version {last['version']} and fails with {run['version']}"
        for name, good in run["results"].items()
        if not good and last["results"].get(name)
    ]
    usual = statistics.median(one["median_ms"] for one in before[-_COMPARED:])
    if run["median_ms"] > max(_SLOWER * usual, usual + _SLOWER_BY_MS):
        found.append(f"calls take {run['median_ms']:.0f} ms, and took {usual:.0f} ms")
    return found


def summary(runs: Sequence[dict[str, Any]]) -> Summary:
    """Return the last run in short; zeros when there is none."""
    if not runs:
        return Summary(0, 0, 0, 0.0)
    last = runs[-1]
    return Summary(last["total"], last["passed"], last["failed"], last["average_ms"])


def score(runs: Sequence[dict[str, Any]]) -> float:
    """Return 0 … 1: six parts pass rate of the last run, two parts speed, two parts steadiness over the last ten."""
    last = runs[-1] if runs else None
    if last is None or not last["total"]:
        return 0.0
    rates = [run["passed"] / run["total"] for run in runs[-_COMPARED:] if run["total"]]
    speed = _HALF_SPEED_MS / (_HALF_SPEED_MS + last["median_ms"])
    return float(round(_PASS * rates[-1] + _FAST * speed + _STEADY * (1 - (max(rates) - min(rates))), 4))


def run_facts(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of the last run that a ranking shows; zeros when there is none."""
    last = runs[-1] if runs else {"passed": 0, "total": 0, "median_ms": 0.0}
    return {key: last[key] for key in ("passed", "total", "median_ms")}
