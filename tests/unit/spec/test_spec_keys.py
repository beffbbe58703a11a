from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandbox.spec.keys import ALIASES, DECISIVE, KNOWN, MISPLACED
from tests.unit.spec.folders import checked, driver, errors, loaded, warnings


@pytest.mark.parametrize("key", ["x-mine", "owner", "acme.team", "homepage"])
def test_an_unknown_key_is_a_warning(tmp_path: Path, key: str) -> None:
    """AIP-30 leaves the top level open: what means nothing to us is named and tolerated."""
    spec, problems = checked(tmp_path, driver(**{key: 1}))

    assert spec is not None
    assert [("SPEC-042", key)] == warnings(problems)


@pytest.mark.claim("P-SPEC-11")
@pytest.mark.parametrize(
    "key",
    [
        "netwrok",
        "Network",
        "networks",
        "sandbx",
        "sandBox",
        "sand_box",
        "limit",
        "Limits",
        "limts",
        "runner_",
        "Server",
        "implement",
        "timeout_override",
        "timeoutOverrideMS",
        "policy_tag",
        "regions",
        "connection_option",
        "auths",
    ],
)
def test_a_misspelt_permission_is_an_error(tmp_path: Path, key: str) -> None:
    """A key that is nearly the name of a permission, limit or binding is refused: it would be granted or dropped."""
    assert [("SPEC-052", key)] == errors(checked(tmp_path, driver(**{key: {}}))[1])


@pytest.mark.claim("P-SPEC-11")
@pytest.mark.parametrize("key", sorted(MISPLACED))
def test_a_permission_in_the_wrong_place_is_an_error(tmp_path: Path, key: str) -> None:
    """The name of a permission at the top level is refused with the place where it is read."""
    _, problems = checked(tmp_path, driver(**{key: {}}))

    assert [("SPEC-051", key)] == errors(problems)
    assert MISPLACED[key] in problems[-1].mend


def test_the_tables_do_not_contradict_each_other() -> None:
    """What is read is not misplaced, what is an alias is not known, and aliases lead to known keys."""
    assert not set(MISPLACED) & set(KNOWN)
    assert not set(ALIASES) & set(KNOWN)
    assert set(ALIASES.values()) <= set(KNOWN)
    assert set(DECISIVE) <= set(KNOWN)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"spec": "agentdriver/v1"}, []),
        ({"schema": "agentproto/driver/v1"}, []),
        ({"driver_kind": "mcp"}, []),
        ({"schema": "sandbox/v1"}, [("SPEC-053", "schema")]),
        ({"spec": {"x": 1}}, [("SPEC-053", "spec")]),
        ({"id": "files"}, [("SPEC-061", "id"), ("SPEC-062", "id")]),
        ({"id": "other-mcp"}, [("SPEC-062", "id")]),
    ],
)
def test_marks_and_conventions(tmp_path: Path, changes: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    """Marks of the document type are tolerated (T0-12); conventions of ids are warnings (S0-18, S0-19)."""
    assert expected == warnings(checked(tmp_path, driver(**changes))[1])


def test_an_argument_that_names_an_absent_path_is_told(tmp_path: Path) -> None:
    """An absolute argument that no grant puts anything at is a warning with the line to add."""
    server = {"kind": "npm", "package": "x", "args": ["/data", "/data/x", "/workspace", "--root=/x", "/tmp/x"]}
    _, problems = checked(tmp_path, driver(server=server))

    assert [("SPEC-063", "server.args[2]")] == warnings(problems)


def test_warnings_travel_with_the_driver(tmp_path: Path) -> None:
    """A driver that loads carries its warnings and its lines."""
    spec = loaded(tmp_path, driver(owner="me"))

    assert ["SPEC-042"] == [problem.id for problem in spec.warnings]
    assert spec.where("limits.pids").line == spec.where("limits").line == spec.where("limits.absent[3].x").line
    assert 1 < spec.where("server.package").line
