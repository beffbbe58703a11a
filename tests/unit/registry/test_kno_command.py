"""`mcp-sandbox kno`: what it prints and how it ends, for good and bad entities."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from sandbox.cli import main
from tests.shared import ROOT
from tests.unit.registry.test_kno import WHOLE

CORPUS = str(ROOT / "tests" / "data" / "kno")
BASE = "https://mcp.example.com"


def test_a_good_corpus_is_told_and_ends_with_zero(capsys: pytest.CaptureFixture[str]) -> None:
    """Warnings are shown and forbid nothing."""
    status = main(["kno", "lint", CORPUS])
    said = capsys.readouterr().out

    assert 0 == status
    assert "7 entities, 0 that cannot be served" in said
    assert "warning: " in said


def test_every_problem_is_told_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All at once, with file and line, and as JSON for machines; the status is 1."""
    text = yaml.safe_dump({**WHOLE, "visibility": "public", "description": "x" * 101, "endpoint_path": "/x"})
    (tmp_path / "bad.kno").write_text(text)
    status = main(["kno", "lint", str(tmp_path)])
    said = capsys.readouterr().out
    again = main(["kno", "lint", str(tmp_path), "--json"])
    found = json.loads(capsys.readouterr().out)
    line = text.splitlines().index("endpoint_path: /x") + 1

    assert (1, 1) == (status, again)
    assert f"bad.kno:{line}" in said
    assert {"KNO-003", "KNO-005"} == {one["id"] for one in found}
    assert all(one["mend"] for one in found)


@pytest.mark.parametrize("form", ["servers", "manifest", "llms"])
def test_a_projection_is_what_strangers_are_told(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Public entities at the base URL, in each of the three forms; nothing of the others."""
    status = main(["kno", "project", CORPUS, "--base-url", f"{BASE}/", "--as", form])
    said = capsys.readouterr().out

    assert 0 == status
    assert f"{BASE}/mcp/public" in said
    assert "${" not in said
    assert not {"admin", "secrets", "creator"} & set(said.replace("/", " ").replace("-", " ").split())


def test_what_cannot_be_served_is_not_projected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The problems are shown instead."""
    (tmp_path / "bad.kno").write_text(yaml.safe_dump({**WHOLE, "auth": "none"}))
    status = main(["kno", "project", str(tmp_path), "--base-url", BASE])

    assert 1 == status
    assert "KNO-006" in capsys.readouterr().out


def test_names_under_others_are_refused_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    """S4-29: the namespace of a name is its publisher's."""
    status = main(["kno", "lint", CORPUS, "--owned", "space.possibility"])

    assert 1 == status
    assert 2 == capsys.readouterr().out.count("KNO-013")
