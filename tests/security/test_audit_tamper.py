"""Somebody who can write the audit folder changes what was recorded (probes A01, A02).

The ledger has a thousand records and is signed after each hundred; the attacker does not hold the key unless the
test says so. Each ``*_fail`` fixture is one kind of change, and says which record verification must name. The
control is the same ledger untouched.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sandbox.audit.findings import Head, Report
from sandbox.audit.heads import export_heads
from sandbox.audit.keys import install_key
from sandbox.audit.record import encode, first_after, leaf
from sandbox.audit.recorder import open_recorder
from sandbox.audit.seal import seal_abandoned
from tests.ledgers import STREAM, fact, ledger, records, rewrite, segment, signer, verified, written

COUNT = 1000
PLACES = (1, 99, 100, 101, 500, 998)


@dataclass
class Case:
    """A folder that was changed, and what must be said of it."""

    folder: Path
    kinds: set[str]
    seqs: range
    heads: tuple[Head, ...] = ()
    keys: tuple[str, ...] = ()

    def verdict(self) -> Report:
        """Return the verification."""
        return verified(self.folder, keys=self.keys, heads=self.heads)


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed, signed ledger of a thousand facts."""
    folder = tmp_path_factory.mktemp("original") / "audit"
    written(folder, COUNT, every=100)
    return folder


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(original, tmp_path / "audit"))


def near(seq: int) -> range:
    """Return the records one of which must be named: nobody can say which of two neighbours does not fit the other."""
    return range(max(0, seq - 1), seq + 2)


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> int:
    """The number of the record that is attacked."""
    number: int = request.param
    return number


def changed(member: str, value: Any) -> Callable[[bytes], bytes]:
    """Return a change of one member of a line, in canonical form."""

    def change(line: bytes) -> bytes:
        record = json.loads(line)
        record[member] = value
        return encode(record) + b"\n"

    return change


EDITS: dict[str, Callable[[bytes], bytes]] = {
    "attrs": changed("attrs", {"n": -1}),
    "name": changed("name", "call.allowed"),
    "time": changed("time", "2020-01-01T00:00:00.000000Z"),
    "phase": changed("phase", "outcome"),
    "tenant": changed("tenant", "somebody-else"),
    "after": changed("after", "0" * 64),
    "seq": changed("seq", 10_000),
    "space": lambda line: line.replace(b'":', b'": ', 1),
    "one bit": lambda line: line[:-3] + bytes([line[-3] ^ 1]) + line[-2:],
    "garbage": lambda _: b"garbage\n",
    "empty": lambda _: b"\n",
    "cut": lambda line: line[: len(line) // 2] + b"\n",
    "NUL": lambda line: line[:20] + b"\0" + line[21:],
}


@pytest.fixture(params=list(EDITS))
def edit_fail(request: pytest.FixtureRequest, copy: Path, place: int) -> Case:
    """One record's content is changed."""
    rewrite(segment(copy), lambda lines: [*lines[:place], EDITS[request.param](lines[place]), *lines[place + 1 :]])
    return Case(copy, {"edit", "delete", "reorder"}, near(place))


@pytest.fixture(params=[1, 2, 150])
def delete_fail(request: pytest.FixtureRequest, copy: Path, place: int) -> Case:
    """Records are taken out."""
    rewrite(segment(copy), lambda lines: lines[:place] + lines[place + request.param :])
    return Case(copy, {"delete", "truncate", "edit"}, near(place))


@pytest.fixture
def insert_fail(copy: Path, place: int) -> Case:
    """A forged record that fits the chain before it is put in."""

    def change(lines: list[bytes]) -> list[bytes]:
        forged = {"after": leaf(lines[place - 1][:-1]).hex(), "seq": place, "time": "t", "v": 1, **fact(-1)}
        return [*lines[:place], encode(forged) + b"\n", *lines[place:]]

    rewrite(segment(copy), change)
    return Case(copy, {"insert"}, near(place))


@pytest.fixture
def reorder_fail(copy: Path, place: int) -> Case:
    """Two neighbours change places."""
    rewrite(segment(copy), lambda lines: [*lines[:place], lines[place + 1], lines[place], *lines[place + 2 :]])
    return Case(copy, {"reorder"}, near(place))


@pytest.fixture
def duplicate_fail(copy: Path, place: int) -> Case:
    """A record stands twice."""
    rewrite(segment(copy), lambda lines: [*lines[:place], lines[place], *lines[place:]])
    return Case(copy, {"duplicate"}, near(place))


@pytest.fixture(params=[1, 2, 3, 500, COUNT])
def truncate_fail(request: pytest.FixtureRequest, copy: Path) -> Case:
    """The end is cut off, and the folder made to look as if the process had died; a head was exported before."""
    heads = tuple(export_heads(copy, signer(copy)))
    total = len(records(segment(copy)))
    rewrite(segment(copy), lambda lines: lines[: total - request.param])
    (copy / "live" / STREAM).touch()
    return Case(copy, {"truncate"}, range(total - request.param, total), heads)


@pytest.fixture
def removed_fail(copy: Path) -> Case:
    """A whole stream is gone, of which a head was exported."""
    heads = tuple(export_heads(copy, signer(copy)))
    segment(copy).unlink()
    return Case(copy, {"delete"}, range(1), heads)


@pytest.fixture
def fork_fail(copy: Path) -> Case:
    """Who holds the key writes another history of the same length; a head of the first was exported."""
    heads = tuple(export_heads(copy, signer(copy)))
    segment(copy).unlink()
    other = ledger(copy)
    for number in range(COUNT + 50):
        other.append(fact(-number))
    other.close()
    return Case(copy, {"fork"}, range(COUNT + 100), heads)


@pytest.fixture
def resign_fail(copy: Path) -> Case:
    """The whole stream is written anew, one record changed, with a key of the attacker's own."""
    pinned = signer(copy).public
    install_key(copy / "keys", b"attacker" * 4)
    segment(copy).unlink()
    other = ledger(copy)
    for number in range(COUNT):
        other.append(fact(-1 if number == 500 else number))
        if number % 100 == 99:
            other.checkpoint()
    other.close()
    return Case(copy, {"re-sign"}, range(COUNT), keys=(pinned,))


@pytest.fixture
def rechain_fail(copy: Path, place: int) -> Case:
    """One record is changed and every hash after it made to fit, without the key."""

    def change(lines: list[bytes]) -> list[bytes]:
        found, after = lines[:place], leaf(lines[place - 1][:-1]).hex()
        for number, line in enumerate(lines[place:]):
            record = json.loads(line) | {"after": after}
            if number == 0:
                record["attrs"] = {"n": -1}
            found.append(encode(record) + b"\n")
            after = leaf(found[-1][:-1]).hex()
        return found

    rewrite(segment(copy), change)
    return Case(copy, {"edit"}, range(max(0, place - 110), place + 1))


@pytest.fixture
def renamed_fail(copy: Path) -> Case:
    """A stream is passed off as another one."""
    other = "20261121T000000Z-other-0002"
    segment(copy).rename(segment(copy, other))
    return Case(copy, {"foreign"}, range(1))


@pytest.fixture(
    params=[
        "edit_fail",
        "delete_fail",
        "insert_fail",
        "reorder_fail",
        "duplicate_fail",
        "truncate_fail",
        "removed_fail",
        "fork_fail",
        "resign_fail",
        "rechain_fail",
        "renamed_fail",
    ]
)
def kind(request: pytest.FixtureRequest) -> str:
    """The name of one kind of change."""
    name: str = request.param
    return name


def convicted(case: Case) -> None:
    """Assert that the change is found, named and located."""
    report = case.verdict()

    assert "altered" == report.state
    assert report.faults[0].kind in case.kinds, str(report.faults[0])
    assert report.faults[0].seq in case.seqs, str(report.faults[0])
    assert str(report.faults[0])


def test_untouched_ledger_is_intact(original: Path) -> None:
    """The control: the ledger that every test changes verifies, all of it signed."""
    report = verified(original, keys=[signer(original).public], heads=export_heads(original, signer(original)))

    assert ("intact", ()) == (report.state, report.faults)
    assert report.streams[0].signed == report.records > COUNT


@pytest.mark.claim("P-AUDIT-01")
def test_changed_content_is_found(edit_fail: Case) -> None:
    """Any change of any part of a record is found at that record or its neighbour."""
    convicted(edit_fail)


@pytest.mark.claim("P-AUDIT-01")
def test_removed_records_are_found(delete_fail: Case) -> None:
    """Removed records are found where they stood."""
    convicted(delete_fail)


@pytest.mark.claim("P-AUDIT-01")
def test_inserted_record_is_found(insert_fail: Case) -> None:
    """A forged record is found although it fits the one before it."""
    convicted(insert_fail)


@pytest.mark.claim("P-AUDIT-01")
def test_reordered_records_are_found(reorder_fail: Case) -> None:
    """Records that changed places are found."""
    convicted(reorder_fail)


@pytest.mark.claim("P-AUDIT-01")
def test_duplicated_record_is_found(duplicate_fail: Case) -> None:
    """A record that stands twice is found."""
    convicted(duplicate_fail)


@pytest.mark.claim("P-AUDIT-02")
def test_truncation_is_found_with_an_exported_head(truncate_fail: Case) -> None:
    """Records missing at the end are found although the rest verifies."""
    convicted(truncate_fail)


@pytest.mark.claim("P-AUDIT-02")
def test_removed_stream_is_found_with_an_exported_head(removed_fail: Case) -> None:
    """A stream that is gone altogether is found."""
    convicted(removed_fail)


@pytest.mark.claim("P-AUDIT-02")
def test_fork_is_found_with_an_exported_head(fork_fail: Case) -> None:
    """Another history of the same stream, signed with the right key, is found."""
    convicted(fork_fail)


@pytest.mark.claim("P-AUDIT-03")
def test_new_signature_is_found_with_a_pinned_key(resign_fail: Case) -> None:
    """A folder that was rewritten with another key does not verify against the pinned one."""
    convicted(resign_fail)


def test_recomputed_chain_is_found_by_the_next_signature(rechain_fail: Case) -> None:
    """Hashes that fit again do not help without the key: the signed head is another one."""
    convicted(rechain_fail)


def test_stream_under_another_name_is_found(renamed_fail: Case) -> None:
    """A chain is bound to its name."""
    convicted(renamed_fail)


@pytest.mark.parametrize("cut", [1, 2, 3, 700])
def test_truncation_without_marker_is_found_without_a_head(copy: Path, cut: int) -> None:
    """A closed stream that lost its end has neither end nor marker, which no process leaves behind."""
    rewrite(segment(copy), lambda lines: lines[:-cut])
    report = verified(copy)

    assert ("altered", "truncate") == (report.state, report.faults[0].kind)


def test_truncation_is_found_by_a_later_stream_that_saw_more(copy: Path) -> None:
    """Every new stream bears witness to the ends of those before it."""
    open_recorder(copy, "later").close()
    assert "intact" == verified(copy).state
    rewrite(segment(copy), lambda lines: lines[:-5])
    (copy / "live" / STREAM).touch()
    seal_abandoned(copy, signer(copy))
    report = verified(copy)

    assert ("altered", "truncate") == (report.state, report.faults[0].kind)
    assert report.faults[0].stream == STREAM


def test_removed_stream_is_missed_by_a_later_one(copy: Path) -> None:
    """A stream that is removed whole is missed by the streams after it."""
    open_recorder(copy, "later").close()
    segment(copy).unlink()
    report = verified(copy)

    assert ("altered", "delete", STREAM) == (report.state, report.faults[0].kind, report.faults[0].stream)


def test_forged_head_is_told_from_an_exported_one(copy: Path) -> None:
    """A head that nobody here signed accuses nobody."""
    head = next(iter(export_heads(copy, signer(copy))))
    forged = Head(head.stream, head.size + 5, head.root, head.key, head.sig)
    report = verified(copy, heads=[forged], keys=[signer(copy).public])

    assert ("altered", "foreign") == (report.state, report.faults[0].kind)


@pytest.fixture
def torn_lines() -> Iterator[bytes]:
    """What a forger might put where a torn line would be."""
    return iter([b'{"after":"x"}', b"\xff\xfe", b""])


def test_record_cannot_be_hidden_as_a_torn_line(copy: Path, torn_lines: Iterator[bytes]) -> None:
    """Only a signed seal excuses a line that is no record, and a seal of another stream or place does not fit."""
    good = segment(copy).read_bytes()
    for text in torn_lines:
        segment(copy).write_bytes(good)
        rewrite(segment(copy), lambda lines, text=text: [*lines[:500], text + b"\n", *lines[501:]])

        assert "altered" == verified(copy).state


def test_seal_of_a_shorter_stream_cannot_be_moved(copy: Path, tmp_path: Path) -> None:
    """A seal signed for one end does not excuse another."""
    other = tmp_path / "other"
    shutil.copytree(copy, other)
    rewrite(segment(other), lambda lines: lines[:300])
    (other / "live" / STREAM).touch()
    seal_abandoned(other, signer(other))
    seal = segment(other).read_bytes().splitlines(keepends=True)[-1]
    rewrite(segment(copy), lambda lines: [*lines[:400], seal])
    report = verified(copy)

    assert "intact" == verified(other).state
    assert "altered" == report.state


def test_first_hash_depends_on_the_stream() -> None:
    """Two streams never begin with the same line."""
    assert first_after("a") != first_after("b")


@pytest.mark.claim("P-AUDIT-01")
@pytest.mark.parametrize("sealed", [False, True])
def test_record_added_after_the_end_is_found_even_when_somebody_sealed_it(copy: Path, sealed: bool) -> None:
    """A forged record that fits the chain cannot follow the end of a stream, nor be made good by a later seal."""
    lines = segment(copy).read_bytes().splitlines()
    forged = {
        **fact(-1),
        "after": leaf(lines[-1]).hex(),
        "seq": len(lines),
        "time": "2026-11-21T00:00:00.000000Z",
        "v": 1,
    }
    with segment(copy).open("ab") as file:
        file.write(encode(forged) + b"\n")
    (copy / "live" / STREAM).touch()
    if sealed:
        assert seal_abandoned(copy, signer(copy)) == (STREAM,)
    report = verified(copy)

    assert ("altered", "insert", len(lines)) == (report.state, report.faults[0].kind, report.faults[0].seq)


@pytest.mark.parametrize("garbage", [b"\n", b"\0\0", b"x", b'{"after":"half'])
def test_bytes_after_the_end_are_found(copy: Path, garbage: bytes) -> None:
    """Nothing at all may follow the end of a closed stream, not even what a dying process would leave."""
    with segment(copy).open("ab") as file:
        file.write(garbage)
    (copy / "live" / STREAM).touch()

    assert ("altered", "insert") == (verified(copy).state, verified(copy).faults[0].kind)


@pytest.mark.parametrize("numbers", [(0, 1, 3), (0, 1, 1), (1, 2, 3), (0, -1, 2), (0, True, 2)])
def test_numbers_with_gaps_are_found_although_every_hash_fits(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    """Whoever writes a stream cannot leave numbers out, even with a chain that fits."""
    signer(tmp_path)
    after, found = first_after(STREAM), []
    for number in numbers:
        found.append(encode({**fact(0), "after": after, "seq": number, "time": "t", "v": 1}))
        after = leaf(found[-1]).hex()
    segment(tmp_path).parent.mkdir(mode=0o700)
    segment(tmp_path).write_bytes(b"\n".join(found) + b"\n")
    (tmp_path / "live").mkdir(mode=0o700)
    (tmp_path / "live" / STREAM).touch()

    assert verified(tmp_path).state == "altered"
