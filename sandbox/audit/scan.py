"""The costly part of a verification that needs nothing of what stands before a segment, so that processors share it.

A scan walks one segment as long as nothing in it is odd: each line holds the hash of the one before it, is a record,
and has the next number. It stops at the first line of which that is not so and behind the record that ends a stream.
What it found is a claim about that segment alone; :mod:`sandbox.audit.verify` holds its first hash and number to the
segment before, checks the trail's own records, builds the tree, and goes on line by line where the scan stopped.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from binascii import hexlify
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol

import orjson

from sandbox.audit.merkle import HASH_BYTES
from sandbox.audit.record import AFTER
from sandbox.audit.tail import read_lines
from sandbox.limits import MIB

SHARED_BYTES: Final = 48 * MIB
"""Of a folder from which on processes are worth their start: some hundred thousand records, half a second."""

MAX_PROCESSES: Final = 8

ENDS: Final = frozenset(("audit.close", "audit.seal"))
"""Records after which only few may stand; the scan leaves those to verification."""

_NEWLINE: Final = 10


@dataclass(slots=True)
class Scan:
    """What a segment's beginning is.

    Attributes:
        after: what its first line says of the line before.
        start: number of its first record.
        lines: how many lines nothing is odd with, ``offset`` where the next one begins.
        hashes: their leaf hashes, one behind the other.
        own: index → line of records of the trail about itself.
        backwards: times at which the clock went back among them, between the times ``first`` and ``last``.
    """

    after: bytes = b""
    start: int = 0
    lines: int = 0
    offset: int = 0
    hashes: bytes = b""
    own: dict[int, bytes] = field(default_factory=dict)
    backwards: int = 0
    first: str = ""
    last: str = ""

    def leaves(self) -> list[bytes]:
        """Return the leaf hashes one by one."""
        return [self.hashes[at : at + HASH_BYTES] for at in range(0, len(self.hashes), HASH_BYTES)]


def scan(path: Path) -> Scan:
    """Return what one segment is, up to the first line that is odd."""
    loads, hasher = orjson.loads, sha256
    found, digests = Scan(), bytearray()
    after, previous, expected, count = b"", "", -1, 0
    with path.open("rb", buffering=MIB) as file:
        for line in read_lines(file):
            body = line[:-1]
            if (count and line[AFTER] != after) or line[-1] != _NEWLINE:
                break
            try:
                record = loads(body)
                name, time, seq = record["name"], record["time"], record["seq"]
            except (ValueError, KeyError, TypeError):
                break
            if not count:
                found.after, found.start, expected, previous, found.first = line[AFTER], seq, seq, time, time
            if seq != expected or type(seq) is not int or type(name) is not str or type(time) is not str:
                break
            digest = hasher(b"\x00" + body).digest()
            digests += digest
            after = hexlify(digest)
            if time < previous:
                found.backwards += 1
            previous = time
            found.offset += len(line)
            if name[:6] == "audit.":
                found.own[count] = body
            count += 1
            expected += 1
            if name in ENDS:
                break
    found.lines, found.last, found.hashes = count, previous, bytes(digests)
    return found


class Scans(Protocol):
    """Gives the scan of each segment in the order in which they were named; ``None`` where none was made."""

    def __call__(self, path: Path) -> Scan | None:
        """Return the scan of the next segment."""


@contextmanager
def scans(paths: Sequence[Path], processes: int | None = None) -> Iterator[Scans]:
    """Yield scans of segments that are made beside one another.

    Args:
        paths: in the order in which they will be asked for.
        processes: how many; by default as many as there are processors when the segments are large, else none. Never
            where this process has other threads, which a forked one would miss.
    """
    if processes is None:
        large = sum(path.stat().st_size for path in paths) >= SHARED_BYTES and len(paths) > 1
        processes = min(len(os.sched_getaffinity(0)), MAX_PROCESSES) if large else 1
    if processes < 2 or threading.active_count() > 1:  # noqa: PLR2004 - one process is this one
        yield lambda _path: None
        return
    with ProcessPoolExecutor(processes, multiprocessing.get_context("fork")) as pool:
        waiting = iter(paths)
        running: deque[tuple[Path, Future[Scan]]] = deque()

        def ahead() -> None:
            path = next(waiting, None)
            if path is not None:
                running.append((path, pool.submit(scan, path)))

        for _ in range(2 * processes):
            ahead()

        def given(path: Path) -> Scan | None:
            while running:
                named, future = running.popleft()
                ahead()
                if named == path:
                    return future.result()
                future.cancel()
            return None

        yield given
