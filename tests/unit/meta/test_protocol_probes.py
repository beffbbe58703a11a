"""docs/probes-protocol.md has a row for every probe of protocol and tenants, and each names tests that exist."""

from __future__ import annotations

import re

import pytest

from tests import probe_report
from tests.shared import ROOT, shared_data

ROW = re.compile(r"^\| (?P<id>[JTR][0-9]{2}) \|.*\| (?P<tests>`[^|]+) \|$")
TEST = re.compile(r"`(?P<file>[a-z_/]+\.py)(?:::(?P<name>test_\w+))?`")


def documented() -> dict[str, str]:
    """Return probe → its tests."""
    lines = (ROOT / "docs" / "probes-protocol.md").read_text().splitlines()
    return {match["id"]: match["tests"] for line in lines if (match := ROW.match(line))}


def test_every_row_names_tests_that_exist() -> None:
    """A renamed test takes its row along."""
    missing = []
    for probe, cell in documented().items():
        for match in TEST.finditer(cell):
            file = ROOT / "tests" / match["file"]
            if not file.exists() or (match["name"] and f"def {match['name']}(" not in file.read_text()):
                missing.append((probe, match[0]))

    assert [] == missing
    assert 30 == len(documented())


@pytest.mark.data
def test_every_probe_of_protocol_and_tenants_has_a_row() -> None:
    """J01 … J23 and T01 … T03 of the shared table; the resource rows that the container's table leaves out too."""
    shared_data("container", "probes.tsv")
    table = probe_report.TABLE.read_text().splitlines()
    wanted = {line.split("\t")[0] for line in table if re.match(r"[JT][0-9]{2}\t", line)}

    assert wanted | {"R05", "R07", "R11"} <= set(documented())
