"""Kept values, their erasure, and the removal of old streams: on record, and verification holds."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from sandbox.audit.heads import export_heads
from sandbox.audit.payloads import MAX_VALUE_BYTES, Payloads, digest, export, recall
from sandbox.audit.recorder import open_recorder
from sandbox.audit.redact import Redactor
from sandbox.audit.retention import expire, expired
from sandbox.audit.tail import segments
from sandbox.audit.verify import verify
from tests.ledgers import STREAM, ledger, records, segment, signer, written


def payloads(folder: Path, *allowed: str, redactor: Redactor | None = None) -> Payloads:
    """Return a store that may keep these fields."""
    folder.mkdir(mode=0o700, exist_ok=True)
    return Payloads(folder, STREAM, allowed, redactor)


def test_nothing_is_kept_that_policy_does_not_name(tmp_path: Path) -> None:
    """By default no value is kept; with a field named, only that one."""
    arguments = {"path": "/p/a", "token": "t"}

    assert payloads(tmp_path).keep("ada", "read", arguments) == {}
    assert list(payloads(tmp_path, "read.path").keep("ada", "read", arguments)) == ["path"]
    assert payloads(tmp_path, "read.path").keep("ada", "write", arguments) == {}
    assert [path.name for path in tmp_path.rglob("*.jsonl")] == [f"{STREAM}.jsonl"]


@pytest.mark.claim("P-AUDIT-08")
def test_erasure_takes_the_value_and_leaves_the_chain(tmp_path: Path) -> None:
    """A tenant's values can be erased: they are gone from every file, other tenants' stay, and the trail verifies."""
    recorder = open_recorder(tmp_path / "audit", "run")
    store = Payloads(tmp_path / "audit", recorder.ledger.stream, ["read.path"])
    mine = store.keep("ada", "read", {"path": "/home/ada/diary"})
    theirs = store.keep("bob", "read", {"path": "/home/bob/diary"})
    recorder.ledger.append({"name": "x.y", "phase": "fact", "attrs": {"kept": mine}})
    assert recall(tmp_path / "audit", mine["path"]) == "/home/ada/diary"

    assert recorder.erase("ada") == 1
    recorder.close()
    everything = b"".join(path.read_bytes() for path in (tmp_path / "audit").rglob("*") if path.is_file())

    assert b"/home/ada" not in everything
    assert recall(tmp_path / "audit", theirs["path"]) == "/home/bob/diary"
    assert export(tmp_path / "audit", "bob")[0]["value"] == "/home/bob/diary"
    assert verify(tmp_path / "audit").state == "intact"
    with pytest.raises(KeyError):
        recall(tmp_path / "audit", mine["path"])


def test_equal_values_have_different_digests(tmp_path: Path) -> None:
    """Nobody can tell from the trail that two calls had the same argument, nor guess it from its digest."""
    store = payloads(tmp_path, "read.path")
    first, second = (store.keep("ada", "read", {"path": "/etc"})["path"] for _ in range(2))

    assert first["sha256"] != second["sha256"]
    assert first["sha256"] != digest("00" * 16, "/etc")


def test_changed_value_is_told_from_the_recorded_one(tmp_path: Path) -> None:
    """What is kept is checked against the record."""
    kept = payloads(tmp_path, "read.path").keep("ada", "read", {"path": "/etc"})["path"]
    path = next(tmp_path.rglob("*.jsonl"))
    path.write_bytes(path.read_bytes().replace(b"/etc", b"/tmp"))

    with pytest.raises(ValueError, match="not the recorded one"):
        recall(tmp_path, kept)


def test_kept_values_are_private_bounded_and_redacted(tmp_path: Path) -> None:
    """Known secrets are taken out, large values are left out, and the file is its owner's."""
    redactor = Redactor()
    redactor.add("hunter2hunter2")
    store = payloads(tmp_path, "read.path", "read.text", redactor=redactor)
    kept = store.keep("ada", "read", {"path": "x-hunter2hunter2\ud800", "text": "x" * MAX_VALUE_BYTES})
    path = next(tmp_path.rglob("*.jsonl"))
    with path.open("ab") as file:
        file.write(b'{"ref": "half')

    assert recall(tmp_path, kept["path"]) == "x-[redacted]\\ud800"
    assert kept["text"] == {"bytes": MAX_VALUE_BYTES + 2, "kept": False}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_old_streams_are_removed_on_record_and_not_missed(tmp_path: Path) -> None:
    """A removal is recorded before it happens; witnesses and exported heads of the removed stream accuse nobody."""
    written(tmp_path, 5)
    heads = tuple(export_heads(tmp_path, signer(tmp_path)))
    open_recorder(tmp_path, "witness").close()
    current = ledger(tmp_path, "20991231T000000Z-now-0001")
    assert expired(tmp_path, "2000-01-01") == []

    removed = expire(current, "9999")
    current.close()
    report = verify(tmp_path, heads=heads)

    assert STREAM in removed
    assert not segment(tmp_path).exists()
    assert list(segments(tmp_path)) == ["20991231T000000Z-now-0001"]
    assert "intact" == report.state
    assert [
        record["attrs"]["stream"]
        for record in records(segment(tmp_path, current.stream))
        if record["name"] == "audit.expire"
    ] == removed


def test_running_and_unsealed_streams_are_not_removed(tmp_path: Path) -> None:
    """What is still written, or whose end nobody has sealed, stays."""
    running = ledger(tmp_path, "20200101T000000Z-old-0001")
    running.append({"name": "x.y", "phase": "fact", "attrs": {}})
    written(tmp_path, 2)
    (tmp_path / "live" / STREAM).touch()

    assert expired(tmp_path, "9999") == []
    running.close()
    assert ["20200101T000000Z-old-0001"] == [entry["stream"] for entry in expired(tmp_path, "9999")]
    assert json.loads(segment(tmp_path, "20200101T000000Z-old-0001").read_bytes().splitlines()[0])["seq"] == 0
