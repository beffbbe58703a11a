"""``.kno`` entities: every released form is read, every rule finds what it is for and nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.registry.entity import from_kno
from sandbox.registry.kno.corpus import files_of, linted
from sandbox.registry.kno.read import Kno, read_kno, read_text
from sandbox.registry.project import server_json
from tests.shared import ROOT

RELEASES = sorted((ROOT / "tests" / "data" / "kno").glob("*.kno"))
WHOLE = yaml.safe_load((ROOT / "tests" / "data" / "kno" / "release-0.5.0.kno").read_text())


def read(**changes: Any) -> Kno:
    """Return a whole entity with changed fields; ``None`` leaves one out."""
    values = {name: value for name, value in {**WHOLE, **changes}.items() if value is not None}
    kno = Kno("x.kno")
    read_text(kno, yaml.safe_dump(values, sort_keys=False).encode(), ("space.possibility", "org.example"))
    return kno


def found(kno: Kno, severity: str = "error") -> list[str]:
    """Return the ids of problems."""
    return [problem.id for problem in kno.problems if problem.severity == severity]


@pytest.mark.parametrize("path", RELEASES, ids=lambda path: path.stem)
def test_an_entity_of_every_release_can_be_served(path: Path) -> None:
    """S4-63: later releases only add."""
    kno = read_kno(path)

    assert [] == found(kno)
    assert from_kno(kno, "space.possibility").endpoint_path.startswith("/mcp/")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"slug": None}, ["KNO-002"]),
        ({"id": "01KMQRYG4M0XS5HZ2KQAPF3MCPX"}, ["KNO-003"]),
        ({"id": "01KMQRYG4M0XS5HZ2KQAPF3MCI"}, ["KNO-003"]),
        ({"slug": "identity-mcp"}, ["KNO-003"]),
        ({"type": "spec"}, ["KNO-003"]),
        ({"subtype": "agent-card"}, ["KNO-003"]),
        ({"version": "1.0"}, ["KNO-003"]),
        ({"endpoint_path": "/mcp/Admin"}, ["KNO-003"]),
        ({"endpoint_path": "/mcp/a/../b"}, ["KNO-003"]),
        ({"endpoint_path": "/mcp/admin\n"}, ["KNO-003"]),
        ({"description": "x" * 101}, ["KNO-003"]),
        ({"description": ""}, ["KNO-003"]),
        ({"title": "x" * 101}, ["KNO-003"]),
        ({"name": "no-namespace"}, ["KNO-003"]),
        ({"name": "com.stranger/x"}, ["KNO-013"]),
        ({"name": "org.example/x"}, []),
        ({"required_scopes": ["admin"]}, ["KNO-003"]),
        ({"required_scopes": "pspace:a:b"}, ["KNO-003"]),
        ({"required_scopes": []}, ["KNO-007"]),
        ({"visibility": None}, ["KNO-004", "KNO-005"]),
        ({"visibility": None, "auth": None}, ["KNO-004", "KNO-005"]),
        ({"visibility": "public"}, ["KNO-005"]),
        ({"visibility": "public", "auth": None}, ["KNO-005"]),
        ({"visibility": "public", "auth": "none", "required_scopes": []}, []),
        ({"visibility": "authenticated"}, []),
        ({"visibility": "authenticated", "auth": "none"}, ["KNO-006"]),
        ({"visibility": "internal", "auth": "none"}, ["KNO-006"]),
        ({"visibility": "restricted", "auth": "none"}, ["KNO-006"]),
        ({"visibility": "restricted", "auth": None}, []),
        ({"visibility": "hidden"}, ["KNO-003"]),
        ({"auth": "basic"}, ["KNO-003"]),
        ({"remotes": []}, ["KNO-003"]),
        ({"remotes": [{"type": "ws", "url": "{baseUrl}/x"}]}, ["KNO-003"]),
        ({"remotes": [{"type": "sse"}]}, ["KNO-003"]),
        ({"repository": {"url": "https://example.com/x"}}, ["KNO-003"]),
        ({"repository": {"url": "nowhere", "source": "github"}}, ["KNO-003"]),
        ({"icons": [{"src": "https://example.com/i.png", "sizes": "large"}]}, ["KNO-003"]),
        ({"icons": [{"src": "javascript:alert(1)"}]}, ["KNO-003"]),
        ({"websiteUrl": "example.com"}, ["KNO-003"]),
        ({"_meta": {"tier": 1}}, ["KNO-012"]),
        ({"$schema": "mcp-server-schema@9.9.9"}, ["KNO-003"]),
        ({"visibilty": "public"}, ["KNO-008"]),
    ],
    ids=str,
)
def test_each_rule_finds_its_fault_and_nothing_else(changes: dict[str, Any], expected: list[str]) -> None:
    """One changed field gives exactly its findings; X-7: neither visibility nor auth is an error, not a guess."""
    assert expected == found(read(**changes))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"remotes": [{"type": "sse", "url": "https://elsewhere.example/x"}]}, ["KNO-009"]),
        ({"remotes": [{"type": "sse", "url": "{baseUrl}/x", "variables": {"baseUrl": {"default": "y"}}}]}, ["KNO-010"]),
        ({"_meta": {"io.modelcontextprotocol.registry/official": {}}}, ["KNO-011"]),
        ({"$schema": "mcp-server-schema@0.4.0"}, ["KNO-015"]),
    ],
    ids=str,
)
def test_what_is_only_unwise_is_a_warning(changes: dict[str, Any], expected: list[str]) -> None:
    """It can be served all the same."""
    kno = read(**changes)

    assert ([], expected) == (found(kno), found(kno, "warning"))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"- a\n",
        b"a: &x 1\nb: *x\n",
        b"a: 1\na: 2\n",
        b"\xff\xfe",
        b"a: !!python/object:os.system x\n",
        b"a" * 300_000,
    ],
)
def test_what_could_be_read_in_two_ways_is_not_read(text: bytes) -> None:
    """Aliases, duplicate keys, tags, other encodings and floods are refused."""
    kno = Kno("x.kno")
    read_text(kno, text)

    assert "KNO-001" in found(kno)


def test_entities_may_not_share_what_names_them(tmp_path: Path) -> None:
    """Two files with one id, slug or path are found; the second of them is to blame."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.kno").write_text(yaml.safe_dump(WHOLE))
    first, second = linted(sorted(tmp_path.glob("*.kno")))

    assert [] == found(first)
    assert ["id", "slug", "endpoint_path"] == [one.field for one in second.problems if one.id == "KNO-014"]


def test_the_seven_servers_of_the_platform_are_one_corpus() -> None:
    """S4-10: identity, catalog, public, guides, admin, secrets and creator together; each is read, none collides."""
    files = files_of([ROOT / "tests" / "data" / "kno"])
    found = linted(files, ("space.possibility", "org.example"))
    names = {from_kno(kno, "space.possibility").name for kno in found}

    assert [] == [problem for kno in found for problem in kno.problems if problem.severity == "error"]
    words = ("identity", "public", "guides", "admin", "secrets")
    assert {*(f"space.possibility/{word}-mcp" for word in words), "org.example/catalog", "org.example/creator"} == names


def test_inherited_fields_are_kept_and_not_told() -> None:
    """S4-5, S4-23, S4-61, S4-62: provenance, taxonomy, relationships, quality and history; dates come from the last."""
    extra = {
        "provenance": {"origin": {"tool": "manual"}}, "taxonomy": {"topics": ["t"]},
        "relationships": {"extends": [{"xri": "kno://x", "reason": "y"}]}, "quality": {"completeness": 1.0},
        "_history": {"version": 3, "created": "2026-04-20T00:00:00Z", "changes": ["v2 (2026-05-01): y"]},
    }  # fmt: skip
    kno = read(**extra)
    entity = from_kno(kno, "space.possibility")
    told = server_json(entity, "https://mcp.example.com")

    assert [] == found(kno)
    assert extra == {name: kno.values[name] for name in extra}
    assert ("2026-04-20T00:00:00Z", "2026-05-01T00:00:00Z") == (entity.published, entity.updated)
    assert not set(extra) & set(told)


@pytest.mark.parametrize(
    ("release", "left_out"),
    [
        ("0.1.0", ("auth", "visibility")),
        ("0.2.0", ("auth", "visibility")),
        ("0.3.0", ("visibility",)),
        ("0.4.0", ("visibility",)),
    ],
)
def test_what_a_release_did_not_know_is_only_a_warning(release: str, left_out: tuple[str, ...]) -> None:
    """S4-42, S4-63 to S4-65: files of earlier releases stay valid; from 0.5.0 on, rule 4 is an error."""
    old = read(
        **{"$schema": f"mcp-server-schema@{release}", **dict.fromkeys(left_out)},
        **({"auth": "none", "required_scopes": []} if "auth" not in left_out else {}),
    )
    new = read(visibility=None)

    assert [] == found(old)
    assert "KNO-004" in found(old, "warning")
    assert "KNO-004" in found(new)


def test_every_message_of_the_lint_is_shown_by_a_test() -> None:
    """One fixture for each rule: every id of the page stands in a test as what is expected."""
    page = (ROOT / "docs" / "errors" / "registry.md").read_text()
    tests = "".join(path.read_text() for path in (ROOT / "tests" / "unit").rglob("test_kno*.py"))
    tests += (ROOT / "tests" / "unit" / "registry" / "test_register.py").read_text()
    tests += (ROOT / "tests" / "unit" / "registry" / "test_history.py").read_text()

    assert [] == [
        number for number in re.findall(r"^\| ((?:KNO|REG)-[0-9]+)", page, re.MULTILINE) if number not in tests
    ]
