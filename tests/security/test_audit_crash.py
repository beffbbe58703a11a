"""Processes that die, and disks that fill, at every point where evidence is written (probe A03).

The points are enumerated: a first run counts the system calls of a scenario, and then the scenario is run once for
each of them and each way to die there. Whatever happens, verification passes up to a torn end, the next process
seals it, and every record that was acknowledged is there, in order.
"""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest

from sandbox.audit.files import Files
from sandbox.audit.recorder import open_recorder
from sandbox.audit.seal import seal_abandoned
from sandbox.audit.verify import verify
from sandbox.errors import AuditUnavailable
from sandbox.events import Scope, Trace
from tests.ledgers import STREAM, fact, ledger, records, segment, signer

Way = Literal["before", "half", "after"]

FACTS = 12
SEGMENT = 2048


class Deadly:
    """System calls that count themselves, and kill the process at one of them."""

    def __init__(self, at: int = 0, way: Way = "before") -> None:
        self.at, self.way, self.count = at, way, 0

    def files(self) -> Files:
        """Return the calls."""
        return Files(
            open=self._wrap(os.open),
            write=self._write,
            fdatasync=self._wrap(os.fdatasync),
            rename=self._wrap(os.rename),
            unlink=self._wrap(os.unlink),
        )

    def _wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            self._die("before", "half")
            result = call(*arguments)
            self._die("after")
            return result

        return wrapped

    def _write(self, descriptor: int, data: bytes) -> int:
        self._die("before")
        if self.count == self.at and self.way == "half":
            os.write(descriptor, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        written = os.write(descriptor, data)
        self._die("after")
        return written

    def _die(self, *ways: Way) -> None:
        if "before" in ways:
            self.count += 1
        if self.count == self.at and self.way in ways:
            os.kill(os.getpid(), signal.SIGKILL)


def scenario(folder: Path, files: Files, acknowledge: Callable[[int], None], *, disk: bool) -> None:
    """Write facts over several segments, with signatures and syncs in between, and end well."""
    found = ledger(folder, files=files, durability="disk" if disk else "kernel", segment_bytes=SEGMENT)
    for number in range(FACTS):
        found.append(fact(number))
        acknowledge(number)
        if number == FACTS // 2:
            found.checkpoint()
            found.sync()
    found.close()


def forked(work: Callable[[Callable[[int], None]], None]) -> list[int]:
    """Run work in a child process; return the numbers that it acknowledged before it ended in whatever way."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with suppress(BaseException):
            work(lambda number: os.write(writing, number.to_bytes(4, "big")) and None)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    return [int.from_bytes(data[at : at + 4], "big") for at in range(0, len(data), 4)]


def kept(folder: Path) -> list[int]:
    """Return the numbers of the facts that are in the folder, in order."""
    found = []
    for path in sorted((folder / "segments").iterdir()):
        for line in path.read_bytes().splitlines():
            with suppress(ValueError):
                record = json.loads(line)
                if record["name"] == "test.fact":
                    found.append(record["attrs"]["n"])
    return found


def aftermath(folder: Path, acknowledged: list[int]) -> None:
    """Assert what is left: nothing altered, all that was acknowledged, an end that the next process can make."""
    before = verify(folder)
    assert before.state in {"intact", "torn tail"}, [str(fault) for fault in before.faults]
    found = kept(folder)
    assert found[: len(acknowledged)] == acknowledged
    assert len(found) <= len(acknowledged) + 1

    seal_abandoned(folder, signer(folder))
    after = verify(folder)
    assert after.state == "intact", [str(fault) for fault in after.faults]
    assert kept(folder) == found
    assert [] == list((folder / "live").iterdir())


def points() -> Iterator[tuple[int, Way]]:
    """Yield every point of the scenario and every way to die there."""
    for at in range(1, 70):
        for way in ("before", "half", "after"):
            yield at, way


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many system calls the scenario makes, which must be fewer than are enumerated."""
    deadly = Deadly()
    scenario(tmp_path_factory.mktemp("count"), deadly.files(), lambda _: None, disk=True)
    return deadly.count


def test_enumeration_reaches_past_the_end(calls: int) -> None:
    """The points that are tried are all there are."""
    assert FACTS < calls < max(at for at, _ in points())


@pytest.mark.claim("P-AUDIT-07")
@pytest.mark.parametrize("disk", [False, True], ids=["kernel", "disk"])
@pytest.mark.parametrize(("at", "way"), list(points()))
def test_process_killed_at_any_write_point_loses_nothing_acknowledged(
    tmp_path: Path, at: int, way: Way, disk: bool
) -> None:
    """SIGKILL before, within and after each system call leaves a trail that verifies and is whole."""
    signer(tmp_path)
    acknowledged = forked(lambda acknowledge: scenario(tmp_path, Deadly(at, way).files(), acknowledge, disk=disk))
    if not (tmp_path / "segments").is_dir():
        assert acknowledged == []
        return

    aftermath(tmp_path, acknowledged)


@pytest.mark.parametrize(("at", "way"), [(at, way) for at, way in points() if at < 8])
def test_sealing_killed_at_any_point_is_done_again_by_the_next(tmp_path: Path, at: int, way: Way) -> None:
    """Who seals may die as well, at any point, and the one after seals both."""
    signer(tmp_path)
    acknowledged = forked(lambda acknowledge: scenario(tmp_path, Deadly(20, "half").files(), acknowledge, disk=False))
    forked(lambda _: seal_abandoned(tmp_path, signer(tmp_path), Deadly(at, way).files()) and None)

    aftermath(tmp_path, acknowledged)


@pytest.mark.claim("P-AUDIT-06")
@pytest.mark.parametrize("limit", range(600, 4000, 97))
def test_file_system_that_takes_no_more_refuses_and_keeps(tmp_path: Path, limit: int) -> None:
    """With a real bound on file size the kernel takes part of a line and fails; no acknowledged record is lost."""
    signer(tmp_path)
    refused = tmp_path / "refused"

    def work(acknowledge: Callable[[int], None]) -> None:
        found = ledger(tmp_path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        for number in range(FACTS):
            try:
                found.append(fact(number, text="x" * 200))
            except AuditUnavailable:
                refused.touch()
                break
            acknowledge(number)
        os._exit(0)

    acknowledged = forked(work)

    assert refused.exists()
    assert len(acknowledged) < FACTS
    aftermath(tmp_path, acknowledged)


@pytest.mark.claim("P-AUDIT-07")
def test_ten_thousand_calls_and_a_kill_lose_none(tmp_path: Path) -> None:
    """Of ten thousand calls every acknowledged intent and outcome is there after SIGKILL in the midst of the last."""
    folder = tmp_path / "audit"
    calls = 10_000

    def work(acknowledge: Callable[[int], None]) -> None:
        recorder = open_recorder(folder, "calls")
        scope = Scope(recorder, Trace.new(), driver="d", tenant="t")
        for number in range(calls):
            scope.intent("call.forward", n=number)
            acknowledge(2 * number)
            scope.outcome("call.forward", n=number)
            acknowledge(2 * number + 1)
        os.kill(os.getpid(), signal.SIGKILL)

    acknowledged = forked(work)
    assert verify(folder).state == "torn tail"
    open_recorder(folder, "next").close()
    path = min((folder / "segments").iterdir())
    found = [
        2 * record["attrs"]["n"] + (record["phase"] == "outcome")
        for record in records(path)
        if record["name"] == "call.forward"
    ]

    assert found == acknowledged == list(range(2 * calls))
    assert verify(folder).state == "intact"


@pytest.mark.parametrize("missing", [1, 2, 3])
@pytest.mark.parametrize("last", ["audit.close", "audit.checkpoint"])
def test_end_that_lacks_its_last_bytes_is_made_whole(tmp_path: Path, missing: int, last: str) -> None:
    """A process that died within the last bytes of its end accuses nobody: the next one completes or seals it."""
    signer(tmp_path)
    acknowledged = forked(lambda acknowledge: scenario(tmp_path, Files(), acknowledge, disk=False))
    path = max((tmp_path / "segments").iterdir())
    lines = path.read_bytes().splitlines(keepends=True)
    if last == "audit.close":
        lines.pop()
    path.write_bytes(b"".join(lines)[:-missing])
    (tmp_path / "live" / STREAM).touch()

    assert verify(tmp_path).state == "torn tail"
    aftermath(tmp_path, acknowledged)


def test_power_cut_that_leaves_zeros_is_a_torn_tail(tmp_path: Path) -> None:
    """Blocks of zeros at the end, as some file systems leave after a power cut, are torn and can be sealed."""
    acknowledged = forked(lambda acknowledge: scenario(tmp_path, Deadly(8, "after").files(), acknowledge, disk=False))
    with segment(tmp_path).open("ab") as file:
        file.write(b"\0" * 300)

    assert verify(tmp_path).state == "torn tail"
    aftermath(tmp_path, acknowledged)
    assert verify(tmp_path).streams[0].torn == 300
    assert STREAM == verify(tmp_path).streams[0].stream
