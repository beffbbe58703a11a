"""What the end of a stream says: its last good record, its last signed head, and what is torn after it.

Used where reading the whole stream would be too slow: when an unfinished stream is sealed, and when a new stream
says which others it found. Nothing here is proof; ``verify`` reads everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

import orjson

from sandbox.audit.record import AFTER, HEAD, MAX_RECORD_BYTES, first_after, leaf

WINDOW: Final = 4 * MAX_RECORD_BYTES
"""Read at first from the end of a segment; at least three whole records."""

MAX_LINE_BYTES: Final = 4 * MAX_RECORD_BYTES
"""Read as one line; no record is as long, and somebody who writes a line without end does not fill the memory."""

_FILE: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]*)-(\d{6})\.jsonl")


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a stream.

    Attributes:
        seq: number that the next record would have.
        after: hash of the last good record.
        torn: bytes after it that are no record, without a newline at their very end.
        newline: whether the file ends with a newline, so that the next line can begin.
        last: the last good record, or ``None``.
    """

    path: Path
    seq: int
    after: str
    torn: bytes
    newline: bool
    last: dict[str, Any] | None


def segments(folder: Path) -> dict[str, list[Path]]:
    """Return stream → its segments in order, streams by name."""
    found: dict[str, list[tuple[int, Path]]] = {}
    place = folder / "segments"
    for path in place.iterdir() if place.is_dir() else ():
        named = _FILE.fullmatch(path.name)
        if named:
            found.setdefault(named[1], []).append((int(named[2]), path))
    return {stream: [path for _, path in sorted(found[stream])] for stream in sorted(found)}


def read_lines(file: BinaryIO) -> Iterator[bytes]:
    """Return the lines of an open segment with their newlines; a longer one comes in pieces."""
    return iter(partial(file.readline, MAX_LINE_BYTES), b"")


def parse(line: bytes) -> dict[str, Any] | None:
    """Return a line as a record, or ``None`` when it is none."""
    if not line.startswith(HEAD):
        return None
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict) or type(value.get("seq")) is not int or not isinstance(value.get("name"), str):
        return None
    return value


def read_tail(stream: str, paths: list[Path]) -> Tail | None:
    """Return the end of a stream, or ``None`` when it has no segment."""
    for number, path in enumerate(reversed(paths)):
        size = path.stat().st_size
        for window in (WINDOW, size):
            found = _in_window(stream, path, size, min(window, size), first=number == len(paths) - 1)
            if found.last is not None:
                return _onto(found, paths[-1]) if number else found
            if window >= size:
                break
    return Tail(paths[0], 0, first_after(stream), *_rest(paths[0].read_bytes()), None) if paths else None


def _onto(found: Tail, path: Path) -> Tail:
    """Return the end of a stream whose last segment holds no good record: everything in it is torn."""
    data = path.read_bytes()
    return Tail(path, found.seq, found.after, *_rest(data), found.last)


def _rest(data: bytes) -> tuple[bytes, bool]:
    return data.removesuffix(b"\n"), not data or data.endswith(b"\n")


def _in_window(stream: str, path: Path, size: int, window: int, *, first: bool) -> Tail:
    """Walk the chain through the last ``window`` bytes of a segment."""
    with path.open("rb") as file:
        file.seek(size - window)
        data = file.read(window)
    start = 0 if window == size else data.find(b"\n") + 1
    after = first_after(stream) if first and window == size else ""
    seq, end, last = 0, start, None
    for line, stop in _lines(data, start):
        record = parse(line)
        if record is None or (after and line[AFTER].decode("ascii", "replace") != after):
            continue
        seq, after, end, last = record["seq"] + 1, leaf(line).hex(), stop, record
    return Tail(path, seq, after, data[end:].removesuffix(b"\n"), not data or data.endswith(b"\n"), last)


def _lines(data: bytes, start: int) -> Iterator[tuple[bytes, int]]:
    """Yield each line with the offset behind its newline; the last one may have none."""
    while start < len(data):
        stop = data.find(b"\n", start)
        if stop < 0:
            yield data[start:], len(data)
            return
        yield data[start:stop], stop + 1
        start = stop + 1
