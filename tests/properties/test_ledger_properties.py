"""Rules that every ledger keeps, whatever is recorded and whatever is done to it."""

from __future__ import annotations

import json
import resource
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox.audit.heads import export_heads
from sandbox.audit.index import count
from sandbox.audit.proofs import lines
from sandbox.audit.seal import seal_abandoned
from sandbox.audit.tail import read_tail, segments
from tests.ledgers import STREAM, ledger, segment, signer, verified, written

FAST = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)

ATTRS = st.dictionaries(
    st.text(max_size=8),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=40), lambda inner: st.lists(inner, max_size=3)
    ),
    max_size=4,
)
STEPS = st.lists(st.one_of(ATTRS, st.just("sign"), st.just("sync")), max_size=25)


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a new private folder; a fixture would be shared by all examples."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@given(STEPS, st.integers(600, 5000), st.booleans())
@FAST
def test_whatever_is_recorded_verifies_and_comes_back(steps: list[Any], size: int, closed: bool) -> None:
    """Any facts, signatures, segments and ends give a trail that verifies, with every fact in its order."""
    with scratch() as folder:
        found = ledger(folder, segment_bytes=size)
        for step in steps:
            if step == "sign":
                found.checkpoint()
            elif step == "sync":
                found.sync()
            else:
                found.append({"name": "test.fact", "phase": "fact", "attrs": step})
        if closed:
            found.close()
        report = verified(folder, keys=[signer(folder).public])
        kept = [json.loads(line) for _, _, line in lines(STREAM, segments(folder).get(STREAM, []))]

        assert "intact" == report.state
        assert list(range(report.records)) == [record["seq"] for record in kept]
        assert sum(isinstance(step, dict) for step in steps) == sum(record["name"] == "test.fact" for record in kept)
        if not closed:
            found.close()


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed stream of forty facts, signed in between."""
    folder = tmp_path_factory.mktemp("original") / "audit"
    written(folder, 40, every=9)
    return folder


@pytest.mark.claim("P-AUDIT-01")
@given(st.data())
@settings(FAST, max_examples=400)
def test_no_change_of_any_byte_goes_unseen(original: Path, data: st.DataObject) -> None:
    """Flipping, removing, adding or moving bytes anywhere is found with the pinned key and an exported head."""
    heads, keys = tuple(export_heads(original, signer(original))), [signer(original).public]
    text = segment(original).read_bytes()
    start = data.draw(st.integers(0, len(text) - 1))
    length = data.draw(st.integers(0, 700))
    other = data.draw(st.binary(max_size=40) | st.just(text[start : start + 60]) | st.just(b""))
    changed = text[:start] + other + text[start + length :]
    with scratch() as folder:
        shutil.copytree(original, folder / "audit")
        segment(folder / "audit").write_bytes(changed)
        report = verified(folder / "audit", keys=keys, heads=heads)

        assert ("intact" if changed == text else "altered") == report.state


@given(
    st.lists(
        st.binary(max_size=300)
        | st.sampled_from(
            [
                b"{",
                b'{"after":"',
                b'{"after":"x","seq":0,"name":"audit.seal"}',
                b'{"after":"x","seq":0,"name":"x","time":1}',
                b"[" * 500,
                b"\0" * 9,
                b'{"after":"' + b"0" * 64 + b'","seq":0,"name":[],"time":""}',
            ]
        ),
        max_size=8,
    ),
    st.booleans(),
)
@FAST
def test_any_bytes_as_a_segment_are_judged_without_an_error(chunks: list[bytes], marked: bool) -> None:
    """Whatever lies in a segment, verification, sealing, indexing and reading end with an answer."""
    with scratch() as folder:
        key = signer(folder)
        segment(folder).parent.mkdir(mode=0o700)
        segment(folder).write_bytes(b"\n".join(chunks))
        (folder / "live").mkdir(mode=0o700)
        if marked:
            (folder / "live" / STREAM).touch()

        assert verified(folder).state in {"intact", "torn tail", "altered"}
        assert count(folder) >= 0
        assert list(lines(STREAM, segments(folder)[STREAM])) is not None
        assert read_tail(STREAM, segments(folder)[STREAM]) is not None
        seal_abandoned(folder, key)
        assert verified(folder).state in {"intact", "altered"}


@given(
    st.integers(0, 39),
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(["stream", "seq", "hash", "size", "root", "key", "sig", "old", "new", "torn_bytes"]),
                inner,
                max_size=4,
            )
        ),
    ),
    st.sampled_from(["audit.open", "audit.checkpoint", "audit.seal", "audit.key", "audit.expire", "audit.close"]),
)
@FAST
def test_records_about_the_trail_with_any_attributes_are_judged_without_an_error(
    number: int, attrs: Any, name: str
) -> None:
    """A writer with the folder's key who records nonsense about the trail is convicted or harmless, never a crash."""
    with scratch() as folder:
        found = ledger(folder)
        for step in range(number % 5):
            found.append({"name": "test.fact", "phase": "fact", "attrs": {"n": step}})
        found.append({"name": name, "phase": "fact", "attrs": attrs})
        found.close()

        assert verified(folder, keys=[signer(folder).public]).state in {"intact", "altered"}


@pytest.mark.parametrize(("chunk", "megabytes"), [(b"\0", 32), (b"x", 32), (b"x" * 99 + b"\n", 32), (b"{\n", 2)])
def test_segments_of_garbage_without_end_are_judged_in_bounded_memory(
    tmp_path: Path, chunk: bytes, megabytes: int
) -> None:
    """Megabytes that are no records, in lines or not, are convicted and passed over without being held in memory."""
    path = written(tmp_path, 3)
    with path.open("ab") as file:
        for _ in range(megabytes):
            file.write(chunk * (1024 * 1024 // len(chunk)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    assert verified(tmp_path).state == "altered"
    assert count(tmp_path) == 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 24 * 1024
