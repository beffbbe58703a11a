"""Who decides about a first use, and what the person who started a server is told."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox.cli import options
from sandbox.cli.approved import pins_required, tell
from sandbox.vet.model import Exposure
from tests.shared import ROOT


@pytest.fixture(autouse=True)
def _own_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Look for the operator's files in an empty folder."""
    monkeypatch.setattr(options, "CONFIG", tmp_path / "config")


@pytest.mark.claim("P-VET-21")
def test_the_ceiling_decides_about_a_first_use(tmp_path: Path) -> None:
    """The shipped ceiling allows it with its reason, the strict one does not, one that says nothing inherits."""
    silent = tmp_path / "silent.toml"
    silent.write_text('version = 1\nname = "own"\nnarrows = "default"\n')
    asked = {
        name: pins_required(argparse.Namespace(policy=policy))()
        for name, policy in (("none", None), ("strict", ROOT / "policies" / "strict.toml"), ("silent", silent))
    }

    assert {"none": False, "strict": True, "silent": False} == asked


def test_a_person_is_told_once_of_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    """What goes out of service has a line with its reason, and another when it is back; nothing is obeyed."""
    heard: list[Any] = []
    revetter = SimpleNamespace(subscribe=heard.append)
    spec = SimpleNamespace(file="DRIVER.md")
    tell(SimpleNamespace(trust="first use", spec=spec, exposure=Exposure({}), revetter=revetter))  # type: ignore[arg-type]
    held = Exposure({}, held={"a": "it changed\x1b[2J"})
    for exposure in (held, held, Exposure({})):
        heard[0](exposure)

    lines = capsys.readouterr().err.splitlines()
    assert 3 == len(lines)
    assert "nobody has approved" in lines[0]
    assert r"`a` is out of service: it changed\x1b[2J" in lines[1]
    assert "`a` is back in service" in lines[2]
