"""Verification shared by processes finds what one process finds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sandbox.audit.scan import scan
from tests.ledgers import fact, ledger, segment, verified
from tests.shared import ROOT


def many(folder: Path, count: int = 400) -> None:
    """Write a stream of several segments."""
    found = ledger(folder, segment_bytes=20_000)
    for number in range(count):
        found.append(fact(number))
    found.close()


def test_processes_find_the_same(tmp_path: Path) -> None:
    """A real pool of processes gives the report of a single one, for a good folder and for an altered segment."""
    many(tmp_path)
    program = (
        "import sys; from pathlib import Path; from sandbox.audit.verify import verify\n"
        "one, two = (verify(Path(sys.argv[1]), processes=number) for number in (1, 2))\n"
        "assert one == two; print(two.state, two.records)"
    )

    def told() -> str:
        argv = [sys.executable, "-W", "error", "-c", program, str(tmp_path)]
        return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert told().startswith("intact 4")
    place = segment(tmp_path, number=3)
    place.write_bytes(place.read_bytes().replace(b'"n":1', b'"n":2', 1))
    assert told().startswith("altered")


def test_scan_stops_where_something_is_odd(tmp_path: Path) -> None:
    """What is not simply the next record is left to the pass that can say what it is."""
    many(tmp_path)
    place = segment(tmp_path, number=2)
    whole = scan(place)
    lines = place.read_bytes().splitlines(keepends=True)
    place.write_bytes(b"".join([*lines[:7], b"torn\n", *lines[7:]]))
    cut = scan(place)

    assert (len(lines), place.stat().st_size - 5) == (whole.lines, whole.offset)
    assert (7, sum(map(len, lines[:7]))) == (cut.lines, cut.offset)
    assert cut.leaves() == whole.leaves()[:7]


def test_segments_in_another_order_are_still_found(tmp_path: Path) -> None:
    """A scan is a claim about one segment; two that are exchanged do not continue one another."""
    many(tmp_path)
    one, two = segment(tmp_path, number=2), segment(tmp_path, number=3)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)

    assert "altered" == verified(tmp_path).state
