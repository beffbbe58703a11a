"""The stream that one process writes: chain, signatures, segments, failing disks, keys."""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.audit.files import Files, private_folder
from sandbox.audit.keys import NAME, check, key_hash, note, open_signer, public_of, read_public
from sandbox.audit.ledger import CHECKPOINT_RECORDS, Ledger
from sandbox.audit.record import first_after, leaf
from sandbox.audit.recorder import SIGN_SECONDS, LedgerRecorder, default_folder, open_recorder, stream_name
from sandbox.audit.seal import is_live, seal_abandoned
from sandbox.audit.verify import verify
from sandbox.errors import AuditUnavailable
from sandbox.events import Fact, Scope, Trace
from tests.ledgers import STREAM, fact, ledger, records, segment, signer, written


def test_each_record_holds_the_hash_of_the_one_before(tmp_path: Path) -> None:
    """The chain can be followed with a JSON parser and SHA-256, from the name of the stream on."""
    path = written(tmp_path, 5)
    after = first_after(STREAM)
    for number, line in enumerate(path.read_bytes().splitlines()):
        record = json.loads(line)
        assert (number, after) == (record["seq"], record["after"])
        after = leaf(line).hex()

    assert ["audit.close", "audit.checkpoint"] == [record["name"] for record in records(path)[-2:]]


def test_numbers_do_not_depend_on_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes back changes times, not the order, and verification says so (probe A05)."""
    found = ledger(tmp_path)
    found.append(fact(0))
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000)
    found.append(fact(1))
    monkeypatch.undo()
    found.append(fact(2))
    found.close()
    report = verify(tmp_path).streams[0]

    assert [0, 1, 2, 3, 4] == [record["seq"] for record in records(segment(tmp_path))]
    assert ("intact", 1) == (report.state, report.backwards)


def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    """Folders are 0700 and files 0600, keys included."""
    old = os.umask(0)
    try:
        open_recorder(tmp_path / "a" / "audit", "run").close()
    finally:
        os.umask(old)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a" / "audit").rglob("*")}

    assert {0o700} == {mode for path, mode in modes.items() if path.is_dir()}
    assert {0o600} == {mode for path, mode in modes.items() if path.is_file()}


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_folder_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    """Evidence that anybody could have written is none."""
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit").chmod(mode)

    with pytest.raises(AuditUnavailable, match="AUD-001"):
        private_folder(tmp_path / "audit")


def test_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """The folder itself is meant, not wherever a link leads."""
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "audit").symlink_to(tmp_path / "real")

    with pytest.raises(AuditUnavailable, match="AUD-001"):
        open_recorder(tmp_path / "audit", "run")


def test_segments_go_on_with_chain_and_tree(tmp_path: Path) -> None:
    """A stream that fills several segments verifies as one, and each but the last ends with a signature."""
    found = ledger(tmp_path, segment_bytes=4096)
    for number in range(100):
        found.append(fact(number))
    found.close()
    paths = sorted((tmp_path / "segments").iterdir())
    report = verify(tmp_path)

    assert len(paths) > 3
    assert ("intact", True) == (report.state, report.streams[0].closed)
    assert {"audit.checkpoint"} == {records(path)[-1]["name"] for path in paths}
    assert {"audit.segment"} == {records(path)[0]["name"] for path in paths[1:]}


def test_missing_segment_is_found(tmp_path: Path) -> None:
    """A segment that is gone leaves a gap that is named."""
    found = ledger(tmp_path, segment_bytes=4096)
    for number in range(100):
        found.append(fact(number))
    found.close()
    segment(tmp_path, number=2).unlink()
    report = verify(tmp_path)

    assert ("altered", "delete") == (report.state, report.faults[0].kind)


def test_many_records_are_signed_without_waiting_for_the_keeper(tmp_path: Path) -> None:
    """However fast records come, no more than a bounded number stands unsigned."""
    found = ledger(tmp_path)
    for number in range(CHECKPOINT_RECORDS + 10):
        found.append(fact(number))

    assert found.unsigned < CHECKPOINT_RECORDS
    found.close()
    assert len(verify(tmp_path).streams[0].heads) == 2


def test_threads_share_one_stream(tmp_path: Path) -> None:
    """Records of several threads are all there, each once, in one chain; in ``disk`` they share syncs."""
    calls: list[int] = []

    def sync(descriptor: int) -> None:
        calls.append(descriptor)
        time.sleep(0.002)

    found = ledger(tmp_path, durability="disk", files=Files(fdatasync=sync))
    threads = [
        threading.Thread(target=lambda base=base: [found.append(fact(base + n)) for n in range(25)])
        for base in range(0, 200, 25)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.close()
    numbers = [record["attrs"]["n"] for record in records(segment(tmp_path)) if record["name"] == "test.fact"]

    assert sorted(numbers) == list(range(200))
    assert verify(tmp_path).state == "intact"
    assert len(calls) < 200


def test_disk_durability_syncs_before_it_acknowledges(tmp_path: Path) -> None:
    """In ``disk`` every acknowledged record was synced after it was written."""
    order: list[str] = []
    files = Files(
        write=lambda descriptor, data: order.append("write") or os.write(descriptor, data),
        fdatasync=lambda descriptor: order.append("sync") or os.fdatasync(descriptor),
    )
    found = ledger(tmp_path, durability="disk", files=files)
    found.append(fact(0))
    order.append("acknowledged")

    assert ["write", "sync", "acknowledged"] == order
    found.close()


def failing(number: int, error: int, taken: float = 0.0) -> Callable[[int, bytes], int]:
    """Return a write that takes part of the ``number``-th record and fails, and works again after."""
    calls = [0]

    def write(descriptor: int, data: bytes) -> int:
        calls[0] += 1
        if calls[0] == number and taken:
            return os.write(descriptor, data[: max(1, int(len(data) * taken))])
        if calls[0] == number + bool(taken):
            raise OSError(error, os.strerror(error))
        return os.write(descriptor, data)

    return write


@pytest.mark.claim("P-AUDIT-06")
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT])
@pytest.mark.parametrize("taken", [0.0, 0.5, 0.99])
def test_failing_write_refuses_the_effect_and_harms_nothing(tmp_path: Path, error: int, taken: float) -> None:
    """A record that cannot be written is refused and leaves no trace; what was acknowledged is intact."""
    found = ledger(tmp_path, files=Files(write=failing(4, error, taken)))
    for number in range(3):
        found.append(fact(number))
    with pytest.raises(AuditUnavailable, match="AUD-010"):
        found.append(fact(3))
    for number in range(4, 8):
        found.append(fact(number))
    found.close()
    kept = [record["attrs"]["n"] for record in records(segment(tmp_path)) if record["name"] == "test.fact"]

    assert kept == [0, 1, 2, 4, 5, 6, 7]
    assert verify(tmp_path).state == "intact"


def test_failing_write_that_cannot_be_undone_ends_the_stream(tmp_path: Path) -> None:
    """When half a line stays behind nothing more is recorded, and the next process seals it."""

    def cannot(*_: Any) -> None:
        raise OSError(errno.EIO, "no")

    found = ledger(tmp_path, files=Files(write=failing(3, errno.EIO, 0.5), ftruncate=cannot))
    found.append(fact(0))
    found.append(fact(1))
    for _ in range(2):
        with pytest.raises(AuditUnavailable, match="AUD-010"):
            found.append(fact(2))
    with pytest.raises(AuditUnavailable, match="AUD-010"):
        found.close()
    before = verify(tmp_path)

    assert ("torn tail", 2) == (before.state, before.records)
    assert (STREAM,) == seal_abandoned(tmp_path, signer(tmp_path))
    assert verify(tmp_path).state == "intact"


def test_failing_sync_ends_the_stream(tmp_path: Path) -> None:
    """After a failed sync nobody knows what the disk kept, so nothing more is promised."""

    def cannot(_: int) -> None:
        raise OSError(errno.EIO, "no")

    found = ledger(tmp_path, durability="disk", files=Files(fdatasync=cannot))
    with pytest.raises(AuditUnavailable, match="AUD-011"):
        found.append(fact(0))

    with pytest.raises(AuditUnavailable, match="AUD-010"):
        found.append(fact(1))
    with pytest.raises(AuditUnavailable):
        found.close()


def test_background_sync_that_fails_refuses_the_next_record(tmp_path: Path) -> None:
    """In ``kernel`` durability a failing disk is noticed within a tenth of a second, and stops the next effect."""
    failed = threading.Event()

    def cannot(_: int) -> None:
        failed.set()
        raise OSError(errno.EIO, "no")

    recorder = LedgerRecorder(ledger(tmp_path, files=Files(fdatasync=cannot)))
    recorder.ledger.append(fact(0))
    assert failed.wait(10)
    time.sleep(0.05)

    with pytest.raises(AuditUnavailable, match="AUD-010"):
        recorder.ledger.append(fact(1))
    with pytest.raises(AuditUnavailable):
        recorder.close()


def test_nothing_is_recorded_after_the_end(tmp_path: Path) -> None:
    """A closed stream takes no record, and closing again does nothing."""
    found = ledger(tmp_path)
    found.close()
    found.close()

    with pytest.raises(AuditUnavailable, match="AUD-010"):
        found.append(fact(0))


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a b", "x" * 81, "-a", "a\n"])
def test_odd_names_of_streams_are_refused(tmp_path: Path, name: str) -> None:
    """A stream's name is a file's name."""
    with pytest.raises(AuditUnavailable, match="AUD-004"):
        Ledger(tmp_path, name, signer(tmp_path))


def test_stream_is_never_written_twice(tmp_path: Path) -> None:
    """A name that exists is refused, not appended to."""
    written(tmp_path, 1)

    with pytest.raises(AuditUnavailable, match="AUD-002"):
        ledger(tmp_path)


# --- recorder ---------------------------------------------------------------------------------------------------------
def test_facts_become_records_with_trace_and_place(tmp_path: Path) -> None:
    """Everything a fact says stands in its record, and what is empty does not."""
    recorder = open_recorder(tmp_path / "audit", "run-1")
    scope = Scope(recorder, Trace.new(), driver="d", tenant="t", instance="i")
    scope.child().intent("call.forward", tool="read")
    Scope(recorder, scope.trace).outcome("x.y")
    recorder.close()
    found = records(next((tmp_path / "audit" / "segments").iterdir()))

    assert ["audit.open", "call.forward", "x.y", "audit.close", "audit.checkpoint"] == [item["name"] for item in found]
    assert scope.trace.trace_id == found[1]["trace"] == found[2]["trace"]
    assert ("intent", scope.trace.span_id, "d", "t", "i") == tuple(
        found[1][key] for key in ("phase", "parent", "driver", "tenant", "instance")
    )
    assert not {"driver", "tenant", "instance", "parent"} & set(found[2])


def test_records_are_synced_and_signed_in_time_without_a_further_record(tmp_path: Path) -> None:
    """What was recorded last does not wait for the next record to be made durable and signed."""
    recorder = open_recorder(tmp_path / "audit", "run")
    recorder.record(Fact("x.y", "fact", Trace.new()))
    deadline = time.monotonic() + SIGN_SECONDS * 20
    while recorder.ledger.unsigned and time.monotonic() < deadline:
        time.sleep(0.05)

    assert recorder.ledger.unsigned == 0
    recorder.close()


def test_secrets_are_kept_out_from_when_they_are_known(tmp_path: Path) -> None:
    """Values that are resolved after the trail began are redacted from then on."""
    recorder = open_recorder(tmp_path / "audit", "run")
    recorder.add_secrets("hunter2hunter2")
    recorder.record(Fact("x.y", "fact", Trace.new(), attrs={"error": "no host hunter2hunter2.example"}))
    recorder.close()

    assert b"hunter2" not in next((tmp_path / "audit" / "segments").iterdir()).read_bytes()


def test_processes_have_streams_of_their_own(tmp_path: Path) -> None:
    """Two recorders on one folder write two streams, live at once, that verify together."""
    first, second = open_recorder(tmp_path / "a", "same"), open_recorder(tmp_path / "a", "same")
    for recorder in (first, second):
        recorder.record(Fact("x.y", "fact", Trace.new()))

    assert first.ledger.stream != second.ledger.stream
    assert is_live(tmp_path / "a", first.ledger.stream)
    assert () == seal_abandoned(tmp_path / "a", first.ledger.signer)
    assert verify(tmp_path / "a").state == "intact"
    first.close()
    second.close()
    assert [True, True] == [found.closed for found in verify(tmp_path / "a").streams]


def test_default_folder_follows_the_xdg_directories(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The trail lies under XDG_STATE_HOME, or ~/.local/state where that is unset."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "mcp-sandbox" / "audit"
    monkeypatch.setenv("XDG_STATE_HOME", "")
    monkeypatch.setenv("HOME", "/home/ada")

    assert str(default_folder()) == "/home/ada/.local/state/mcp-sandbox/audit"


def test_stream_names_are_plain_and_unique() -> None:
    """Names begin with the time and never repeat, whatever the run id is."""
    names = {stream_name("run/../\n id") for _ in range(50)}

    assert len(names) == 50
    assert all(name.replace("-", "").isalnum() for name in names)


# --- keys -------------------------------------------------------------------------------------------------------------
def test_key_is_made_once_and_read_again(tmp_path: Path) -> None:
    """The second process signs with the first one's key."""
    first, second = signer(tmp_path), signer(tmp_path)
    text = b"text"

    assert first.public == second.public
    assert check(first.public, text, second.sign(text))
    assert not check(first.public, b"other", second.sign(text))


def test_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """A private key that is not private is no key."""
    signer(tmp_path)
    (tmp_path / "keys" / "signing.key").chmod(0o640)

    with pytest.raises(AuditUnavailable, match="AUD-020"):
        open_signer(tmp_path / "keys")


@pytest.mark.parametrize("text", ["", "no key", f"{NAME}+00000000+AQ==", "other+00000000+AAAA"])
def test_public_key_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    """A verifier key that does not fit its own hash is refused."""
    signer(tmp_path)
    (tmp_path / "keys" / "signing.pub").write_text(text)

    with pytest.raises(AuditUnavailable, match="AUD-020"):
        open_signer(tmp_path / "keys")


def test_private_key_that_does_not_fit_the_public_one_is_refused(tmp_path: Path) -> None:
    """A swapped private key is noticed when something is first signed."""
    mine = signer(tmp_path / "a")
    signer(tmp_path / "b")
    (tmp_path / "b" / "keys" / "signing.key").replace(tmp_path / "a" / "keys" / "signing.key")

    with pytest.raises(AuditUnavailable, match="AUD-020"):
        open_signer(tmp_path / "a" / "keys").sign(b"x")
    assert mine.public


def test_keys_and_notes_have_the_published_forms(tmp_path: Path) -> None:
    """The private key is PKCS #8, the public one a verifier key, a head a signed note that carries the key's hash."""
    import base64

    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    found = signer(tmp_path)
    private = load_pem_private_key((tmp_path / "keys" / "signing.key").read_bytes(), None)
    text = (tmp_path / "keys" / "signing.pub").read_text()
    signed = note(b"origin\n1\nroot\n", found.public, found.sign(b"origin\n1\nroot\n"))
    blob = base64.b64decode(signed.splitlines()[-1].split()[-1])

    assert found.public == read_public(text) == public_of(private.private_bytes_raw())  # type: ignore[union-attr]
    assert signed.startswith("origin\n1\nroot\n\n\u2014 mcp-sandbox-audit ")
    assert (key_hash(base64.b64decode(found.public)), 68) == (blob[:4], len(blob))


def test_change_of_key_is_signed_by_both_and_passes_trust_on(tmp_path: Path) -> None:
    """Who pinned the old key can verify what the new one signed, in this stream and in later ones."""
    recorder = LedgerRecorder(ledger(tmp_path))
    found = recorder.ledger
    old = found.signer.public
    found.append(fact(0))
    new = recorder.change_key()
    found.append(fact(1))
    recorder.close()
    written(tmp_path, 3, "20261122T000000Z-later-0001")
    report = verify(tmp_path, keys=[old])

    assert "intact" == report.state
    assert [old, new] == report.streams[0].keys
    assert [new] == report.streams[1].keys
    assert verify(tmp_path, keys=[public_of(b"\1" * 32)]).state == "altered"


def test_key_can_lie_in_a_keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a keyring no private key is in the folder."""
    keyring = pytest.importorskip("keyring")
    store: dict[tuple[str, str], str] = {}
    monkeypatch.setattr(keyring, "get_password", lambda service, name: store.get((service, name)))
    monkeypatch.setattr(keyring, "set_password", lambda service, name, value: store.update({(service, name): value}))
    recorder = open_recorder(tmp_path / "audit", "run", key_store="keyring")
    recorder.close()

    assert ["signing.pub"] == [path.name for path in (tmp_path / "audit" / "keys").iterdir()]
    assert verify(tmp_path / "audit", keys=[recorder.ledger.signer.public]).state == "intact"
