"""An index of the ledger in SQLite: made from it, added to as it grows, thrown away and made again at any time.

It is no evidence and holds none: it says where records are, and whoever asks gets the lines from the segments.
Texts that repeat are kept once and stand as numbers in the rows, so a million records are some 150 MB with all
orderings that a reviewer asks for.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import orjson

from sandbox.audit.record import HEAD
from sandbox.audit.tail import MAX_LINE_BYTES, read_lines, segments

FILE: Final = "index.sqlite"

VERSION: Final = 1
"""Of the tables; an index of another version is made again."""

BATCH: Final = 20_000
"""Rows between two looks at memory."""

WORDS: Final = (
    "name",
    "phase",
    "driver",
    "tenant",
    "instance",
    "trace",
    "tool",
    "decision",
    "host",
    "status",
    "client",
)
"""Columns that are texts which repeat; kept as numbers."""

ORDERS: Final = ("tenant", "tool", "decision", "host", "trace", "name", "status")
"""Columns that are asked for together with a time order."""

_TABLES: Final = f"""
CREATE TABLE segment (id INTEGER PRIMARY KEY, file TEXT UNIQUE, bytes INTEGER);
CREATE TABLE word (id INTEGER PRIMARY KEY, text TEXT UNIQUE);
CREATE TABLE event (
    id INTEGER PRIMARY KEY, segment INTEGER, offset INTEGER, length INTEGER, seq INTEGER,
    time INTEGER, span INTEGER, parent INTEGER,
    {", ".join(f"{word} INTEGER" for word in WORDS)}
);
PRAGMA user_version = {VERSION};
"""
_COLUMNS: Final = ("segment", "offset", "length", "seq", "time", "span", "parent", *WORDS)
_INSERT: Final = f"INSERT INTO event ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608


def open_index(folder: Path, place: Path | None = None) -> sqlite3.Connection:
    """Return a connection to an index that is up to date; made anew when it is damaged or does not fit.

    Args:
        folder: the audit folder.
        place: where the index lies; by default in the folder.
    """
    path = place or folder / FILE
    try:
        return _updated(folder, _connect(path))
    except (sqlite3.DatabaseError, _Stale):
        path.unlink(missing_ok=True)
        return _updated(folder, _connect(path))


class _Stale(Exception):
    """The index does not fit the ledger."""


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=60, isolation_level=None)
    path.chmod(0o600)
    # The index can be made again, so nothing waits for the disk.
    connection.executescript("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; PRAGMA temp_store = MEMORY;")
    connection.execute("BEGIN IMMEDIATE")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version not in {0, VERSION}:
        connection.close()
        raise _Stale
    if version == 0:
        connection.execute("COMMIT")
        connection.executescript(_TABLES)
        connection.execute("BEGIN IMMEDIATE")
    return connection


def _updated(folder: Path, connection: sqlite3.Connection) -> sqlite3.Connection:
    """Index what was written since the last time."""
    try:
        known = {file: (id_, done) for id_, file, done in connection.execute("SELECT id, file, bytes FROM segment")}
        words = dict(connection.execute("SELECT text, id FROM word").fetchall())
        paths = [path for found in segments(folder).values() for path in found]
        sizes = {path: path.stat().st_size for path in paths}
        _check({path.name: size for path, size in sizes.items()}, {file: done for file, (_, done) in known.items()})
        added = 0
        for path, size in sizes.items():
            id_, done = known.get(path.name, (0, 0))
            if size > done:
                added += _segment(connection, words, path, id_, done)
        _order(connection, added)
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _check(sizes: dict[str, int], indexed: dict[str, int]) -> None:
    """Refuse an index of segments that are gone or shorter now."""
    if any(sizes.get(name, -1) < done for name, done in indexed.items()):
        raise _Stale


def _order(connection: sqlite3.Connection, added: int) -> None:
    """Make the orderings: after the first rows, because that is many times faster than with them."""
    if added:
        for word in ORDERS:
            connection.execute(f"CREATE INDEX IF NOT EXISTS by_{word} ON event ({word}, time)")
        connection.execute("CREATE INDEX IF NOT EXISTS by_time ON event (time)")
        connection.execute("CREATE INDEX IF NOT EXISTS by_span ON event (span)")


def _segment(connection: sqlite3.Connection, words: dict[str, int], path: Path, id_: int, start: int) -> int:
    """Index one segment from an offset on; a line without its end waits for the next time."""
    if not id_:
        id_ = connection.execute("INSERT INTO segment (file, bytes) VALUES (?, 0)", (path.name,)).lastrowid or 0
    rows: list[tuple[Any, ...]] = []
    fresh: list[tuple[int, str]] = []
    count, offset = 0, start
    with path.open("rb") as file:
        file.seek(start)
        for line in read_lines(file):
            if not line.endswith(b"\n") and len(line) < MAX_LINE_BYTES:
                break
            row = _row(line, id_, offset, words, fresh)
            offset += len(line)
            if row is not None:
                rows.append(row)
                count += 1
            if len(rows) >= BATCH:
                _flush(connection, rows, fresh)
    _flush(connection, rows, fresh)
    connection.execute("UPDATE segment SET bytes = ? WHERE id = ?", (offset, id_))
    return count


def _flush(connection: sqlite3.Connection, rows: list[tuple[Any, ...]], fresh: list[tuple[int, str]]) -> None:
    connection.executemany("INSERT INTO word (id, text) VALUES (?, ?)", fresh)
    connection.executemany(_INSERT, rows)
    rows.clear()
    fresh.clear()


def _row(
    line: bytes, segment: int, offset: int, words: dict[str, int], fresh: list[tuple[int, str]]
) -> tuple[Any, ...] | None:
    """Return the row of a line, or ``None`` when it is no record."""
    if not line.startswith(HEAD):
        return None
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    attrs = record.get("attrs")
    attrs = attrs if isinstance(attrs, dict) else {}
    texts = [record.get(word) if number < _OWN else attrs.get(word) for number, word in enumerate(WORDS)]
    numbers = [None if text is None else _number(text, words, fresh) for text in texts]
    seq, time = record.get("seq"), time_number(record.get("time"))
    if type(seq) is not int or time is None:
        return None
    parents = span_number(record.get("span")), span_number(record.get("parent"))
    return (segment, offset, len(line), seq, time, *parents, *numbers)


_OWN: Final = WORDS.index("tool")
"""The words before it are members of a record, the others of its attributes."""


def _number(text: Any, words: dict[str, int], fresh: list[tuple[int, str]]) -> int | None:
    if type(text) is not str:
        return None
    found = words.get(text)
    if found is None:
        found = words[text] = len(words) + 1
        fresh.append((found, text))
    return found


def time_number(text: Any) -> int | None:
    """Return a time, or a beginning of one, as a number that sorts as it does: its digits without the century."""
    if type(text) is not str:
        return None
    digits = text[2:26].translate(_PUNCTUATION)
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > _TIME_DIGITS:
        return None
    return int(digits.ljust(_TIME_DIGITS, "0"))


def span_number(text: Any) -> int | None:
    """Return a span id (16 hexadecimal digits) as the number that SQLite can hold, which has a sign."""
    if type(text) is not str or len(text) != _SPAN_DIGITS:
        return None
    try:
        number = int(text, 16)
    except ValueError:
        return None
    return number - (1 << 64) if number >> 63 else number


_PUNCTUATION: Final = str.maketrans("", "", "-T:.Z")
_TIME_DIGITS: Final = 18
_SPAN_DIGITS: Final = 16


def count(folder: Path, place: Path | None = None) -> int:
    """Return the number of indexed records."""
    with closing(open_index(folder, place)) as connection:
        total: int = connection.execute("SELECT count(*) FROM event").fetchone()[0]
        return total


def where(names: Iterator[tuple[str, str]]) -> tuple[str, list[str]]:
    """Return a condition that columns of words have given texts, and its values."""
    terms, values = [], []
    for column, text in names:
        terms.append(f"{column} = (SELECT id FROM word WHERE text = ?)")  # noqa: S608 - one of WORDS
        values.append(text)
    return " AND ".join(terms), values
