from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema

from sandbox.errors import SpecError
from sandbox.limits import MAX_PROBLEMS
from sandbox.resources import shipped
from sandbox.spec.check import check
from sandbox.spec.load import load_driver
from tests.shared import ROOT
from tests.unit.spec.folders import driver, per_tool, write

PACKAGE = ROOT / "sandbox" / "spec"
TABLE = ROOT / "docs" / "errors" / "spec.md"


def test_a_good_folder_is_said_in_one_line(tmp_path: Path) -> None:
    """Without problems the text is one line and the exit status 0."""
    verdict = check(write(tmp_path))

    assert f"{tmp_path}/files-mcp/DRIVER.md: files-mcp 1.0.0, 1 tool, good" == verdict.to_text()
    assert 0 == verdict.exit_code


def test_a_bad_folder_is_said_with_place_found_allowed_and_mend(tmp_path: Path) -> None:
    """Each problem is one line with file:line, id, field, found, allowed and mend; the exit status is 1."""
    folder = write(tmp_path, driver(transport="tcp", owner="me"))
    verdict = check(folder)

    lines = verdict.to_text().split("\n")

    assert (
        f"{folder}/DRIVER.md:8: SPEC-044 `transport`: the value is not one of those allowed "
        "(found `tcp`; allowed: `stdio`, `sse` or `http`) — write one of them"
    ) == lines[0]
    assert lines[1].startswith(f"warning: {folder}/DRIVER.md:13: SPEC-042 `owner`")
    assert f"{folder}: refused: 1 error, 1 warning" == lines[2]
    assert 1 == verdict.exit_code


def test_a_change_that_the_version_does_not_tell_is_an_error(tmp_path: Path) -> None:
    """Against the driver as it was, another transport without another version is refused; the same folder is not."""
    before = write(tmp_path / "before")
    after = write(tmp_path / "after", driver(protocol_version="2025-06"))
    old = load_driver(before)

    assert (0, 0, 1) == (check(before, old).exit_code, check(after).exit_code, check(after, old).exit_code)
    assert "SPEC-200" in check(after, old).to_text()


def test_the_json_form_fits_its_schema(tmp_path: Path) -> None:
    """Good and bad folders have a JSON form that docs/schemas/problems.schema.json admits."""
    schema = json.loads(shipped("schemas", "problems.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    for verdict in (
        check(write(tmp_path / "good")),
        check(write(tmp_path / "bad", driver(transport="tcp"))),
        check(tmp_path / "none"),
    ):
        plain = json.loads(json.dumps(verdict.to_json()))

        assert [] == [error.message for error in validator.iter_errors(plain)]
        assert plain["ok"] is (verdict.exit_code == 0)


def test_the_schema_refuses_other_forms() -> None:
    """The schema is not empty: it refuses what the command never says."""
    schema = json.loads(shipped("schemas", "problems.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    good = {"version": 1, "path": "x", "ok": True, "errors": 0, "warnings": 0, "driver": None, "problems": []}

    assert not jsonschema.Draft202012Validator(schema).is_valid(good | {"more": 1})
    assert not jsonschema.Draft202012Validator(schema).is_valid({**good, "problems": [{"id": "X"}]})


def test_load_driver_raises_with_every_error_and_no_warning(tmp_path: Path) -> None:
    """`load_driver` raises once, with all errors; a folder that only has warnings loads."""
    folder = write(tmp_path, driver(transport="tcp", version="x", owner="me"))
    try:
        load_driver(folder)
    except SpecError as error:
        found = {problem.id for problem in error.problems}
        text = str(error)
    write(tmp_path, driver(owner="me"))

    assert {"SPEC-044", "SPEC-045"} == found
    assert 2 == len(text.split("\n"))
    assert "files-mcp" == load_driver(folder).id


def test_problems_are_bounded_and_the_rest_is_counted(tmp_path: Path) -> None:
    """A folder with thousands of mistakes is answered with a bounded list that says how many are not shown."""
    values = per_tool(context={f"a{i}": "x" for i in range(3 * MAX_PROBLEMS)})
    verdict = check(write(tmp_path, values))

    assert MAX_PROBLEMS + 1 == len(verdict.problems)
    assert "SPEC-001" == verdict.problems[-1].id
    assert f"{2 * MAX_PROBLEMS} further problems" in verdict.problems[-1].message


def test_every_id_is_documented_once_and_exists() -> None:
    """docs/errors/spec.md has one row for each id that the stage uses, and no other."""
    used = set()
    for file in PACKAGE.rglob("*.py"):
        used |= set(re.findall(r'"(SPEC-\d{3})"', file.read_text()))
    rows = re.findall(r"^\| (SPEC-\d{3}) \| ([^|]+) \| ([^|]+) \|$", TABLE.read_text(), re.MULTILINE)

    assert sorted(used) == [row[0] for row in rows]


def test_importing_the_stage_stays_light() -> None:
    """Neither jsonschema, jsonpath, the engine's client nor the network is imported to load a driver."""
    program = (
        "import sys; before = set(sys.modules); import sandbox.spec.check; print(' '.join(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)

    heavy = {"jsonschema", "jsonpath", "docker", "mcp", "asyncio", "requests", "difflib", "re2", "rich", "referencing"}
    assert set() == heavy & {name.split(".")[0] for name in done.stdout.split()}
