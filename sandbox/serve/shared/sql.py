# ruff: noqa: S608, ISC004 - statements are put together from constants of this file only
"""What SQLite and PostgreSQL have in common: the tables, and one statement for each thing that is done.

Statements are written for PostgreSQL; :func:`for_sqlite` gives SQLite's spelling. ``{now}`` stands for the store's own
time in microseconds. Each statement is atomic by itself: who comes second sees what the first one wrote.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sandbox.serve.ratelimit import MICRO
from sandbox.serve.shared.interface import KEPT_AFTER_END, LASTING, Kind, Record

TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS mcps_rate (name TEXT PRIMARY KEY, full_at BIGINT NOT NULL, seen BIGINT NOT NULL, "
    "allowed INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS mcps_record (kind TEXT NOT NULL, name TEXT NOT NULL, grp TEXT NOT NULL, "
    "holder TEXT NOT NULL, value TEXT NOT NULL, fence BIGINT NOT NULL, ends BIGINT NOT NULL, PRIMARY KEY (kind, name))",
    "CREATE INDEX IF NOT EXISTS mcps_record_group ON mcps_record (kind, grp)",
    "CREATE INDEX IF NOT EXISTS mcps_record_holder ON mcps_record (holder)",
)

_SEEN: Final = "GREATEST(r.seen, excluded.seen)"
_AFTER: Final = f"GREATEST(r.full_at, {_SEEN}) + %(period{{0}})s"
_FITS: Final = f"{_AFTER} - {_SEEN} <= %(window{{0}})s"

TAKE: Final = (
    "INSERT INTO mcps_rate AS r (name, full_at, seen, allowed) {source} "
    "ON CONFLICT (name) DO UPDATE SET "
    f"seen = {_SEEN}, "
    f"allowed = CASE WHEN {_FITS} THEN 1 ELSE 0 END, "
    f"full_at = CASE WHEN {_FITS} THEN {_AFTER} ELSE r.full_at END "
    "RETURNING full_at, seen, allowed"
)
"""One bucket: the rule of :mod:`sandbox.serve.shared.gcra`. ``{0}`` numbers its parameters, ``{source}`` gives its row.
A time before one that the bucket has seen counts as that one: statements may overtake each other."""

COLUMNS: Final = "kind, name, grp, holder, value, fence"

PUT: Final = (
    f"INSERT INTO mcps_record ({COLUMNS}, ends) "
    "VALUES (%(kind)s, %(name)s, %(grp)s, %(holder)s, %(value)s, %(fence)s, {now} + %(lasts)s) "
    "ON CONFLICT (kind, name) DO UPDATE SET grp = excluded.grp, holder = excluded.holder, value = excluded.value, "
    "fence = excluded.fence, ends = excluded.ends"
)
GET: Final = f"SELECT {COLUMNS} FROM mcps_record WHERE kind = %(kind)s AND name = %(name)s AND ends > {{now}}"
TOUCH: Final = (
    "UPDATE mcps_record SET ends = GREATEST(ends, {now} + %(lasts)s) "
    f"WHERE kind = %(kind)s AND name = %(name)s AND ends > {{now}} RETURNING {COLUMNS}"
)
DROP: Final = (
    "UPDATE mcps_record SET ends = LEAST(ends, {now}) "
    "WHERE kind = %(kind)s AND name = %(name)s AND %(holder)s IN ('', holder)"
)
COUNT: Final = "SELECT count(*) FROM mcps_record WHERE kind = %(kind)s AND grp = %(grp)s AND ends > {now}"
LIVING: Final = f"SELECT {COLUMNS} FROM mcps_record WHERE kind = %(kind)s AND grp = %(grp)s AND ends > {{now}}"
ENDED: Final = f"SELECT {COLUMNS} FROM mcps_record WHERE kind = %(kind)s AND grp = %(grp)s AND ends <= {{now}}"
ACQUIRE: Final = (
    f"INSERT INTO mcps_record AS r ({COLUMNS}, ends) "
    "VALUES (%(kind)s, %(name)s, %(grp)s, %(holder)s, %(value)s, {now}, {now} + %(lasts)s) "
    "ON CONFLICT (kind, name) DO UPDATE SET "
    "grp = CASE WHEN r.ends > {now} THEN r.grp ELSE excluded.grp END, "
    "value = CASE WHEN r.ends > {now} THEN r.value ELSE excluded.value END, "
    "fence = CASE WHEN r.ends > {now} THEN r.fence ELSE GREATEST(r.fence + 1, excluded.fence) END, "
    "holder = CASE WHEN r.ends > {now} THEN r.holder ELSE excluded.holder END, "
    "ends = CASE WHEN r.ends > {now} THEN r.ends ELSE excluded.ends END "
    f"RETURNING {COLUMNS}"
)
RENEW: Final = (
    "UPDATE mcps_record SET ends = GREATEST(ends, {now} + %(lasts)s) "
    f"WHERE holder = %(holder)s AND ends > {{now}} RETURNING {COLUMNS}"
)
_KINDS: Final = ", ".join(f"'{kind}'" for kind in LASTING)
SWEEP: Final = (
    f"DELETE FROM mcps_record WHERE ends + CASE WHEN kind IN ({_KINDS}) THEN {int(KEPT_AFTER_END * MICRO)} ELSE 0 END "
    "<= {now} RETURNING 1"
)
SWEEP_RATES: Final = f"DELETE FROM mcps_rate WHERE full_at + {3600 * MICRO} <= {{now}}"
"""Buckets that have been full for an hour: what a forgotten one becomes, also for a statement that began earlier."""


def for_sqlite(statement: str) -> str:
    """Return a statement in SQLite's spelling."""
    named = re.sub(r"%\(([a-z]+[0-9]*)\)s", r":\1", statement.replace("{now}", ":now"))
    return named.replace("GREATEST(", "MAX(").replace("LEAST(", "MIN(")


def fields_of(record: Record, seconds: float) -> dict[str, Any]:
    """Return the parameters of a record."""
    named: dict[str, Any] = {"kind": record.kind, "name": record.name, "grp": record.group, "holder": record.holder}
    return {**named, "value": record.value, "fence": record.fence, "lasts": int(seconds * MICRO)}


def record_of(row: Sequence[Any]) -> Record:
    """Return the record of a row of :data:`COLUMNS`."""
    return Record(*row)


class SqlRecords(ABC):
    """The part of a store that is the same in both: one statement for each thing that is done with records."""

    @abstractmethod
    async def _rows(self, statement: str, parameters: Mapping[str, Any]) -> list[Any]:
        """Execute one statement in a transaction of its own and return its rows.

        Raises:
            StateUnavailable: it could not be.
        """

    async def put(self, record: Record, seconds: float) -> None:
        """Keep a record."""
        await self._rows(PUT, fields_of(record, seconds))

    async def get(self, kind: Kind, name: str, seconds: float = 0) -> Record | None:
        """Return a record."""
        lasts = {"lasts": int(seconds * MICRO)} if seconds else {}
        rows = await self._rows(TOUCH if seconds else GET, {"kind": kind, "name": name, **lasts})
        return record_of(rows[0]) if rows else None

    async def drop(self, kind: Kind, name: str, holder: str = "") -> None:
        """End a record."""
        await self._rows(DROP, {"kind": kind, "name": name, "holder": holder})

    async def count(self, kind: Kind, group: str) -> int:
        """Return how many there are."""
        return int((await self._rows(COUNT, {"kind": kind, "grp": group}))[0][0])

    async def all(self, kind: Kind, group: str, *, ended: bool = False) -> list[Record]:
        """Return the records of a group."""
        rows = await self._rows(ENDED if ended else LIVING, {"kind": kind, "grp": group})
        return [record_of(row) for row in rows]

    async def acquire(self, record: Record, seconds: float) -> Record:
        """Return who holds a lease."""
        return record_of((await self._rows(ACQUIRE, fields_of(record, seconds)))[0])

    async def renew(self, holder: str, seconds: float) -> list[Record]:
        """Renew what a gateway holds."""
        rows = await self._rows(RENEW, {"holder": holder, "lasts": int(seconds * MICRO)})
        return [record_of(row) for row in rows]

    async def sweep(self) -> int:
        """Remove what has ended."""
        await self._rows(SWEEP_RATES, {})
        return len(await self._rows(SWEEP, {}))
