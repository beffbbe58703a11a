"""Admissions are kept in private files, under digests of what was judged and of the program that judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.cli import verdicts
from sandbox.cli.verdicts import KeptVerdicts

RECORDED = {"vet.fit": {"proved": 2, "at_call_time": [], "unsafe_undecided": []}}


def test_what_was_kept_comes_back_under_its_key_only(tmp_path: Path) -> None:
    """Another key has nothing."""
    kept = KeptVerdicts(tmp_path / "v")
    kept.keep("sha256:1", RECORDED)

    assert (RECORDED, None) == (kept.get("sha256:1"), kept.get("sha256:2"))


def test_another_program_judges_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an older version proved is proved again."""
    kept = KeptVerdicts(tmp_path / "v")
    kept.keep("sha256:1", RECORDED)
    monkeypatch.setattr(verdicts, "code", lambda parts: "other")

    assert kept.get("sha256:1") is None


@pytest.mark.parametrize("mode", [0o666, 0o602, 0o660])
def test_a_file_that_others_can_write_proves_nothing(tmp_path: Path, mode: int) -> None:
    """It is passed over, and the server is judged."""
    kept = KeptVerdicts(tmp_path / "v")
    kept.keep("sha256:1", RECORDED)
    (place,) = (tmp_path / "v").glob("*.json")
    place.chmod(mode)

    assert kept.get("sha256:1") is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"vet.fit": 1}', "{", '{"vet.hazards": {}}'])
def test_a_damaged_file_is_ignored(tmp_path: Path, text: str) -> None:
    """Whatever lies there, the server is judged."""
    kept = KeptVerdicts(tmp_path / "v")
    kept.keep("sha256:1", RECORDED)
    (place,) = (tmp_path / "v").glob("*.json")
    place.write_text(text)

    assert kept.get("sha256:1") is None


def test_the_oldest_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder does not grow without bound."""
    monkeypatch.setattr(verdicts, "MAX_KEPT", 3)
    kept = KeptVerdicts(tmp_path / "v")
    for number in range(8):
        kept.keep(f"sha256:{number}", RECORDED)

    assert 3 == len(list((tmp_path / "v").iterdir()))
