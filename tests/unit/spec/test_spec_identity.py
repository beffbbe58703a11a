from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandbox.spec.identity import identity_changes
from tests.unit.spec.folders import TOOL, bound, driver, loaded, tool

DIGEST = "a" * 64


def npm(package: str) -> dict[str, Any]:
    """Return a driver with another package."""
    return driver(server={"kind": "npm", "package": package})


def image(reference: str) -> dict[str, Any]:
    """Return a driver with an image."""
    return driver(server={"kind": "docker", "image": reference})


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        (driver(protocol_version="2025-03"), driver(protocol_version="2025-06"), "protocol_version"),
        (driver(), driver(protocol_version="2025-06"), "protocol_version"),
        (npm("x@1.2.3"), npm("x@2.0.0"), "server"),
        (npm("x@^1"), npm("x"), "server"),
        (npm("x"), npm("y"), "server"),
        (npm("@a/x"), npm("@b/x"), "server"),
        (npm("x"), image("x"), "server"),
        (image("h:5000/x:1.2"), image("h:5000/x:2.0"), "server"),
        (image("x:1"), image("y:1"), "server"),
        (bound(), bound(schema_narrowing={"drop_inputs": ["limit"]}), "implements[0].schema_narrowing.drop_inputs"),
        (bound(schema_narrowing={"drop_outputs": ["size"]}), bound(), "implements[0].schema_narrowing.drop_outputs"),
    ],
)
def test_what_makes_another_driver_asks_for_the_next_major_version(
    tmp_path: Path, old: dict[str, Any], new: dict[str, Any], field: str
) -> None:
    """Protocol, server source, and narrowing refuse a minor bump and accept a major one (S0-50)."""
    before = loaded(tmp_path / "old", old)
    minor = loaded(tmp_path / "minor", new | {"version": "1.1.0"})
    major = loaded(tmp_path / "major", new | {"version": "2.0.0"})

    assert [("SPEC-200", field)] == [(p.id, p.field) for p in identity_changes(before, minor)]
    assert () == identity_changes(before, major)


def test_transport_and_contracts_ask_for_it_too(tmp_path: Path) -> None:
    """Another transport, another major of a contract and a tool that is gone are major changes."""
    server = {"kind": "npm", "package": "x", "port": 8000}
    over_http = loaded(tmp_path / "1", driver(server=server, transport="http", version="1.1.0"))
    over_sse = loaded(tmp_path / "2", driver(server=server, transport="sse", version="1.2.0"))
    one = loaded(tmp_path / "3")
    two = loaded(tmp_path / "4", bound(version="*") | {"version": "1.1.0"}, tool(version="2.0.0"))
    other = loaded(tmp_path / "5", driver(version="1.1.0"), tool(id="fs-other"))

    assert ["transport"] == [p.field for p in identity_changes(over_http, over_sse)]
    assert ["implements[0].version"] == [p.field for p in identity_changes(one, two)]
    assert ["implements"] == [p.field for p in identity_changes(one, other)]


@pytest.mark.parametrize(
    ("changes", "version", "expected"),
    [
        ({}, "1.0.0", []),
        ({"description": "Reads more files."}, "1.0.0", ["SPEC-200"]),
        ({"description": "Reads more files."}, "1.0.1", []),
        ({"limits": {"memory_mb": 4096}}, "1.0.0", ["SPEC-200"]),
        ({"limits": {"memory_mb": 4096}}, "1.1.0", []),
        ({"description": "Reads."}, "0.9.0", ["SPEC-200", "SPEC-201"]),
    ],
)
def test_two_folders_never_carry_one_version(
    tmp_path: Path, changes: dict[str, Any], version: str, expected: list[str]
) -> None:
    """Any other change asks for any higher version, and versions do not go back."""
    before = loaded(tmp_path / "old")
    after = loaded(tmp_path / "new", driver(version=version, **changes))

    assert expected == [problem.id for problem in identity_changes(before, after)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (npm("x@1.2.3"), npm("x@1.9.0")),
        (npm("x@^1.2"), npm("x@~1.4")),
        (image(f"x:1.2@sha256:{DIGEST}"), image("x:1.9")),
    ],
)
def test_a_move_within_a_major_version_is_a_minor_change(
    tmp_path: Path, old: dict[str, Any], new: dict[str, Any]
) -> None:
    """The server may move within its major version with a minor bump of the driver."""
    before = loaded(tmp_path / "old", old)

    assert () == identity_changes(before, loaded(tmp_path / "new", new | {"version": "1.1.0"}))


def test_another_id_is_another_driver(tmp_path: Path) -> None:
    """Drivers with different ids are not compared."""
    before = loaded(tmp_path / "old")

    assert () == identity_changes(before, loaded(tmp_path / "new", driver(id="others-mcp", transport="stdio")))
    assert "fs-read" == TOOL["id"]
