"""What an operator chooses about evidence reaches it: durability, kept values, erasure, retention, another key."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from sandbox.audit.query import Question, query
from sandbox.audit.verify import verify
from sandbox.cli import main, options
from sandbox.cli.evidence import trail
from sandbox.events import Scope, Trace


def chosen(folder: Path, *argv: str) -> argparse.Namespace:
    """Return the options of a command that records."""
    parser = argparse.ArgumentParser()
    options.add_audit_options(parser)
    return parser.parse_args(["--audit-dir", str(folder), *argv])


def run(capfd: pytest.CaptureFixture[str], action: str, folder: Path, *argv: str) -> tuple[int, str, str]:
    """Run the audit command."""
    capfd.readouterr()
    status = main(["audit", action, "--audit-dir", str(folder), *argv])
    return status, *capfd.readouterr()


def kept(folder: Path) -> str:
    """Return everything that is stored as text."""
    return "".join(path.read_text() for path in folder.rglob("*.jsonl"))


@pytest.mark.parametrize("durability", ["kernel", "disk"])
def test_durability_is_chosen_and_recorded(tmp_path: Path, durability: str) -> None:
    """The first record says what recorded means in this stream."""
    with trail(chosen(tmp_path / "a", "--durability", durability)) as recorder:
        assert durability == recorder.ledger.durability
    (first,) = query(tmp_path / "a", Question(name="audit.open"))

    assert durability == first["attrs"]["durability"]


def call(recorder: Any, tenant: str, value: str) -> None:
    """Record one call as the pipeline does."""
    scope = Scope(recorder, Trace.new(), driver="files", tenant=tenant)
    arguments = {"path": value, "token": f"not-{value}"}
    scope.intent("call.forward", tool="read", **scope.kept("read", arguments))


def test_nothing_is_kept_unless_named(tmp_path: Path) -> None:
    """Without --keep no value is stored and no record speaks of one; with it only the named argument is."""
    with trail(chosen(tmp_path / "a")) as recorder:
        call(recorder, "ada", "/private/ada")
    assert "/private/ada" not in kept(tmp_path / "a")
    with trail(chosen(tmp_path / "b", "--keep", "read.path")) as recorder:
        call(recorder, "ada", "/private/ada")
    (intent,) = query(tmp_path / "b", Question(name="call.forward"))

    assert {"path"} == set(intent["attrs"]["values"])
    assert "not-/private/ada" not in kept(tmp_path / "b")
    assert "/private/ada" not in json.dumps(intent)


def test_a_tenant_is_erased_and_the_chain_holds(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Values of one tenant are gone from every file, the other's stay, the erasure is on record, the trail verifies."""
    folder = tmp_path / "a"
    with trail(chosen(folder, "--keep", "read.path")) as recorder:
        call(recorder, "ada", "/private/ada")
        call(recorder, "bob", "/private/bob")
    assert "/private/ada" in kept(folder)
    status, out, _ = run(capfd, "erase", folder, "--tenant", "ada")

    assert (0, True) == (status, out.startswith("erased 1 kept values"))
    assert "/private/ada" not in kept(folder)
    assert "/private/bob" in kept(folder)
    assert "intact" == verify(folder).state
    assert 1 == len(list(query(folder, Question(name="audit.erase"))))


def test_old_streams_are_removed_on_record(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A stream that ended before the time goes, and is not missed by verification; a later time is needed for that."""
    folder = tmp_path / "a"
    with trail(chosen(folder)) as recorder:
        old = recorder.ledger.stream
    assert run(capfd, "expire", folder, "--before", "2000")[1].startswith("removed 0")
    _, out, _ = run(capfd, "expire", folder, "--before", "2999")

    assert old in out
    assert "intact" == verify(folder).state
    assert not list((folder / "segments").glob(f"{old}*"))


def test_another_key_is_introduced_by_the_old_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Who pinned the first key still verifies what is signed afterwards."""
    folder = tmp_path / "a"
    with trail(chosen(folder)) as recorder:
        first = recorder.ledger.signer.public
    _, out, _ = run(capfd, "change-key", folder)
    with trail(chosen(folder)) as recorder:
        second = recorder.ledger.signer.public
    status, _, _ = run(capfd, "verify", folder, "--key", first)

    assert 0 == status
    assert first != second
    assert second in out
    assert "AUD" not in run(capfd, "export-head", folder)[2]


@pytest.mark.parametrize(
    ("action", "argv", "number"),
    [("erase", (), "CLI-162"), ("expire", (), "CLI-163"), ("expire", ("--before", "soon"), "CLI-163")],
)
def test_what_is_missing_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], action: str, argv: tuple[str, ...], number: str
) -> None:
    """Nothing is removed by a command that does not say whose or when."""
    with trail(chosen(tmp_path / "a")):
        pass
    status, _, err = run(capfd, action, tmp_path / "a", *argv)

    assert (2, True) == (status, err.startswith(number))
