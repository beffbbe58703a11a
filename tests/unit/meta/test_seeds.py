"""docs/seeds.md is honest: every requirement stands once, or is said not to be begun; every named test exists."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.shared import ROOT, shared

SEEDS = {"S0": 78, "S1": 69, "S2": 88, "S3": 73, "S4": 67}
"""Seed → number of its requirements."""

PAGE = (ROOT / "docs" / "seeds.md").read_text()
ROW = re.compile(
    r"^\| (?P<id>S[0-4]-[0-9]+) \| (?P<state>[a-z]+) \| (?P<where>[^|]+) \| (?P<tests>[^|]+) \|$", re.MULTILINE
)
RANGE = re.compile(r"(S[0-4])-([0-9]+) … S[0-4]-([0-9]+)")
NAMED = re.compile(r"`([a-z_/0-9]+\.py)::(test_\w+)`")


def wanted() -> set[str]:
    """Return every requirement's id."""
    return {f"{seed}-{number}" for seed, count in SEEDS.items() for number in range(1, count + 1)}


def not_begun() -> Counter[str]:
    """Return the ids that the page says it has no rows for yet."""
    (line,) = (line for line in PAGE.splitlines() if line.startswith("Not begun on this page"))
    spans = RANGE.findall(line)
    return Counter(f"{seed}-{number}" for seed, first, last in spans for number in range(int(first), int(last) + 1))


@cache
def names_in(path: Path) -> set[str]:
    """Return the names of the tests in a file."""
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_every_requirement_stands_once_or_is_not_begun() -> None:
    """Rows and ranges together are all ids, each once."""
    listed = Counter(match["id"] for match in ROW.finditer(PAGE)) + not_begun()

    assert wanted() == set(listed)
    assert [] == [name for name, count in listed.items() if count > 1]


def test_every_line_of_a_table_is_a_row() -> None:
    """No row is missed for its form."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| S")]

    assert len(lines) == len(ROW.findall(PAGE))


@pytest.mark.parametrize("row", list(ROW.finditer(PAGE)), ids=lambda row: row["id"])
def test_a_row_names_tests_that_exist_or_a_reason(row: re.Match[str]) -> None:
    """What is done or partly done has a test; every named test exists; what is open says why."""
    named = NAMED.findall(row["tests"])

    assert row["state"] in {"done", "part", "open"}
    assert (row["state"] == "open") is (named == [])
    assert row["tests"].count("`") == 2 * len(named), "each test is named as `folder/test_file.py::test_name`"
    for file, name in named:
        assert name in names_in(ROOT / "tests" / file), f"{file} has no {name}"
    if row["state"] != "done":
        assert len(row["where"]) > len("why and what")


def test_the_numbers_are_those_of_the_requirements() -> None:
    """The counts above are those of the list that the requirements were taken from."""
    text = shared("requirements.md").read_text()

    assert wanted() == set(re.findall(r"^- \*\*(S[0-4]-[0-9]+)\*\*", text, re.MULTILINE))
