"""docs/probes.md has a row for every probe of the six groups; each names a test that exists, or another stage."""

from __future__ import annotations

import re

import pytest

from tests import probe_report
from tests.shared import ROOT, shared_data

ROW = re.compile(r"^\| ([A-Z][0-9]{2}) \|")
TEST = re.compile(r"`(test_[a-z_]+\.py)::(test_\w+)`")


def documented() -> dict[str, str]:
    """Return the rows of the document by id."""
    lines = probe_report.DOCUMENT.read_text().splitlines()
    return {match[1]: line for line in lines if (match := ROW.match(line))}


@pytest.mark.data
def test_every_probe_has_a_row() -> None:
    """No probe of the shared table is forgotten."""
    shared_data("container", "probes.tsv")

    assert {row["id"] for row in probe_report.rows()} == set(documented())


def test_every_row_names_a_test_that_exists_or_another_stage() -> None:
    """A row without a test says whose it is."""
    tests = {
        name: path.read_text() for path in (ROOT / "tests" / "security").glob("test_probe_*.py") for name in [path.name]
    }
    for probe, line in documented().items():
        named = TEST.findall(line)

        assert named or probe in probe_report.ELSEWHERE
        assert all(f"def {function}(" in tests[file] for file, function in named)


def test_every_control_that_the_table_has_is_shown() -> None:
    """A row that is blocked by the profile or by missing rights shows what happens without them."""
    for probe, line in documented().items():
        if probe.startswith(("S0", "S1", "C0")):
            assert line.split(" | ")[4].strip() not in {"", "-"}
