"""Collects what the probe tests observed, and writes docs/probes.md: ``python -m tests.probe_report``."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.shared import ROOT

VARIABLE = "MCP_SANDBOX_PROBE_REPORT"
TABLE = ROOT.parent / "shared" / "data" / "container" / "probes.tsv"
DOCUMENT = ROOT / "docs" / "probes.md"
GROUPS = {
    "fs": "Files",
    "proc/sys": "Kernel interfaces",
    "caps": "Privileges",
    "syscalls": "System calls",
    "resources": "Resources",
    "docker-api": "The engine's side",
}
FILES = [
    f"tests/security/test_probe_{name}.py" for name in ("fs", "proc", "caps", "syscalls", "resources", "docker_api")
]

ELSEWHERE = {
    "F20": "the audit trail and the results of calls (names in output are escaped there)",
    "R05": "supervisor and transport (bounded buffers); the backend's part is conformance row `backpressure`",
    "R07": "supervisor (deadline of each call)",
    "R11": "vetting and calls (bounded schemas, URIs and patterns)",
}
"""Rows that belong to other stages, and what answers them."""

HEAD = """\
# Probes of the sandbox

What a hostile server tries inside a real sandbox that the Docker backend launched from the baseline plan, and what
comes of it. A "blocked" counts only with a positive control: the same attempt succeeds, or fails otherwise, without the
sandbox (as an unprivileged user of the host, or in a container that `docker run` makes, with more rights where the
attempt needs them). Every row is a test; `python -m tests.probe_report` runs them and writes this file.

What is observed depends on the kernel where a cell says so. Rows that belong to other stages name them.
"""

COLUMNS = "| id | probe | expected | observed | without the sandbox | test |\n"


def report(probe: str, observed: str, control: str = "-") -> None:
    """Keep one observation of the running test, when a report is being made.

    Args:
        probe: row of the table, such as ``F01``.
        observed: what happened inside.
        control: what the same attempt does without the sandbox.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0].partition("[")[0]
    with Path(path).open("a") as out:
        out.write(json.dumps({"id": probe, "observed": observed, "control": control, "test": test}) + "\n")


def rows() -> list[dict[str, str]]:
    """Return the rows of the six groups from the shared table."""
    with TABLE.open() as table:
        return [row for row in csv.DictReader(table, delimiter="\t") if row["group"] in GROUPS]


def cell(text: str) -> str:
    """Return a text that fits into one cell."""
    return " ".join(text.replace("|", "\\|").split())


def joined(texts: Iterable[str]) -> str:
    """Return different texts once each."""
    return "; ".join(dict.fromkeys(text for text in texts if text not in {"", "-"})) or "-"


def render(observations: list[dict[str, str]]) -> str:
    """Return the document."""
    parts = [HEAD]
    for group, title in GROUPS.items():
        parts.append(f"\n## {title}\n\n{COLUMNS}|---|---|---|---|---|---|\n")
        wanted = [row for row in rows() if row["group"] == group]
        parts += [line(row, [item for item in observations if item["id"] == row["id"]]) for row in wanted]
    return "".join(parts)


def line(row: dict[str, str], found: list[dict[str, str]]) -> str:
    """Return one row of the table."""
    name, probe, expected = row["id"], cell(row["probe"]), cell(row["expected_under_correct_sandbox"])
    if not found:
        return f"| {name} | {probe} | {expected} | elsewhere: {ELSEWHERE[name]} | - | - |\n"
    observed = cell(joined(item["observed"] for item in found))
    if name in ELSEWHERE:
        observed += f"; the rest elsewhere: {ELSEWHERE[name]}"
    tests = ", ".join(f"`{test}`" for test in dict.fromkeys(item["test"].rpartition("/")[2] for item in found))
    control = cell(joined(item["control"] for item in found))
    return f"| {name} | {probe} | {expected} | {observed} | {control} | {tests} |\n"


def main() -> int:
    """Run the probes and write the document."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as out:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", *FILES]
        status = subprocess.run(command, cwd=ROOT, env={**os.environ, VARIABLE: out.name}, check=False).returncode
        observations = [json.loads(text) for text in Path(out.name).read_text().splitlines()]
    if status == 0:
        DOCUMENT.write_text(render(observations))
    return status


if __name__ == "__main__":
    sys.exit(main())
