"""The state of several gateways in PostgreSQL (psycopg 3): each step is one statement, in a transaction of its own.

Times are the server's ``statement_timestamp()``. Connections are kept in a small pool and looked at before they are
used; a server that is gone is noticed at once or after :data:`~sandbox.serve.shared.interface.ANSWER_TIMEOUT`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from sandbox.errors import UsageError
from sandbox.serve.ratelimit import MICRO, Standing
from sandbox.serve.shared import gcra, sql
from sandbox.serve.shared.interface import ANSWER_TIMEOUT, FORMAT, Bucket, Record, StateUnavailable

CONNECTIONS: Final = 8
"""Connections of one gateway: each carries one step of well below a millisecond at a time; servers allow 100 in all."""

NOW: Final = f"(extract(epoch FROM statement_timestamp()) * {MICRO})::bigint"
_ONE_AT_A_TIME: Final = "SELECT pg_advisory_xact_lock(7341205)"
"""Tables are made by one gateway at a time: ``IF NOT EXISTS`` alone is not safe against another that does the same."""


class PostgresStore(sql.SqlRecords):
    """Implements :class:`~sandbox.serve.shared.interface.Store` in a database.

    Args:
        url: as libpq reads it; never shown.
        place: the same without credentials, for messages.
    """

    def __init__(self, url: str, place: str) -> None:
        self._place = place
        self._running: set[asyncio.Task[list[Any]]] = set()
        self._pool = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=CONNECTIONS,
            open=False,
            timeout=ANSWER_TIMEOUT,
            reconnect_timeout=0,
            kwargs={"autocommit": True, "connect_timeout": 3, "application_name": "mcp-sandbox"},
        )

    # --- life ------------------------------------------------------------------------------------------------------
    async def open(self) -> None:
        """Connect and make what is missing.

        Raises:
            UsageError: ``CLI-197``.
        """
        try:
            await self._pool.open(wait=True, timeout=3 * ANSWER_TIMEOUT)
            kept = await self._prepare()
        except (psycopg.Error, PoolTimeout, OSError) as error:
            await self._pool.close()
            text = f"{self._place} cannot be used ({type(error).__name__})"
            raise UsageError("CLI-197", text, "look whether it runs, and at user, password and rights") from None
        if kept != FORMAT:
            await self._pool.close()
            text = f"{self._place} is of another version of this program"
            raise UsageError("CLI-197", text, "name another database")

    async def _prepare(self) -> str:
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute(_ONE_AT_A_TIME)
            for statement in sql.TABLES:
                await connection.execute(statement)
            record = Record("format", "format", value=FORMAT)
            insert = sql.PUT.partition(" ON CONFLICT")[0] + " ON CONFLICT DO NOTHING"
            await connection.execute(_text(insert), {**sql.fields_of(record, 0), "lasts": 2**61})
            rows = await connection.execute(_text(sql.GET), {"kind": "format", "name": "format"})
            return sql.record_of(cast("Sequence[Any]", await rows.fetchone())).value

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.close(timeout=ANSWER_TIMEOUT)

    # --- what is done ----------------------------------------------------------------------------------------------
    async def take(self, chain: Sequence[Bucket]) -> list[Standing]:
        """Count one request, in one statement."""
        said: dict[str, Any] = {}
        for number, bucket in enumerate(chain):
            said |= {
                f"key{number}": bucket.key,
                f"period{number}": bucket.rate.period,
                f"window{number}": bucket.rate.span,
            }
        rows = sorted(await self._rows(_take_of(len(chain)), said))
        return [gcra.standing(bool(allowed), full_at, seen, chain[number]) for number, full_at, seen, allowed in rows]

    async def _rows(self, statement: str, parameters: Mapping[str, Any]) -> list[Any]:
        """Execute one statement; when its time is over, whoever waits is told at once, not after it was cancelled."""
        work = asyncio.create_task(self._execute(statement, parameters))
        self._running.add(work)
        work.add_done_callback(self._ended)
        try:
            done, _ = await asyncio.wait((work,), timeout=ANSWER_TIMEOUT)
            if done:
                return work.result()
        except (psycopg.Error, PoolTimeout, OSError) as error:
            raise StateUnavailable(type(error).__name__) from None
        finally:
            work.cancel()
        raise StateUnavailable("TimeoutError")

    async def _execute(self, statement: str, parameters: Mapping[str, Any]) -> list[Any]:
        async with self._pool.connection() as connection:
            cursor = await connection.execute(_text(statement), parameters)
            return await cursor.fetchall() if cursor.description else []

    def _ended(self, work: asyncio.Task[list[Any]]) -> None:
        self._running.discard(work)
        if not work.cancelled():
            work.exception()  # whoever waited has it


def _text(statement: str) -> str:
    """Return a statement with the server's time in it; none of it comes from outside."""
    return statement.replace("{now}", NOW)


def _take_of(length: int) -> str:
    """Return the one statement that takes from a chain of buckets, each only when the one before it allowed."""
    first = "SELECT %(key0)s, t.now + %(period0)s, t.now, 1 FROM t"
    parts = [f"t AS (SELECT {NOW} AS now)", f"b0 AS ({sql.TAKE.format(0, source=first)})"]
    for number in range(1, length):
        source = (
            f"SELECT %(key{number})s, t.now + %(period{number})s, t.now, 1 "  # noqa: S608 - numbers only
            f"FROM t, b{number - 1} WHERE b{number - 1}.allowed = 1"
        )
        parts.append(f"b{number} AS ({sql.TAKE.format(number, source=source)})")
    shown = " UNION ALL ".join(
        f"SELECT {number}, full_at, seen, allowed FROM b{number}"  # noqa: S608 - numbers only
        for number in range(length)
    )
    return f"WITH {', '.join(parts)} {shown}"
