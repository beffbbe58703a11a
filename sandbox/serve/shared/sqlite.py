"""The state of several gateways on one host, in a file (SQLite, WAL).

The file is its owner's alone (mode 0600, refused otherwise). One thread does the work, so that the event loop never
waits for a lock. A file that was taken away is noticed at the next step: going on in the removed one would split the
gateways, each with limits of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from sandbox.errors import UsageError
from sandbox.serve.ratelimit import MICRO, Standing
from sandbox.serve.shared import gcra, sql
from sandbox.serve.shared.interface import ANSWER_TIMEOUT, FORMAT, Bucket, Record, StateUnavailable

BUSY: Final = 2.0
"""Seconds that one gateway waits for another's write, which takes well below a millisecond."""

_TAKE: Final = sql.for_sqlite(sql.TAKE.format("", source="VALUES (:key, :now + :period, :now, 1)"))


class SqliteStore(sql.SqlRecords):
    """Implements :class:`~sandbox.serve.shared.interface.Store` in a file.

    Args:
        path: absolute; made when it is missing, its folder is not.
        clock: seconds since any one moment, the same for all gateways of the host.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "shared-state")
        self._db: sqlite3.Connection | None = None
        self._file = (0, 0)

    # --- life ------------------------------------------------------------------------------------------------------
    async def open(self) -> None:
        """Open the file.

        Raises:
            UsageError: ``CLI-197``.
        """
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._open)
        except (OSError, sqlite3.Error) as error:
            raise UsageError("CLI-197", f"{self._path}: {error}", "name a file in a folder of this user") from None

    async def close(self) -> None:
        """Close it."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    def _open(self) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            found = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid != os.geteuid():
            text = f"{self._path} can be read or written by others"
            raise UsageError("CLI-197", text, "give it to this user alone (mode 600)")
        self._file = (found.st_dev, found.st_ino)
        db = sqlite3.connect(self._path, timeout=BUSY, isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        with _written(db):
            for statement in sql.TABLES:
                db.execute(statement)
            kept = db.execute(sql.for_sqlite(sql.GET), {"kind": "format", "name": "format", "now": 0}).fetchone()
            if kept is None:
                db.execute(sql.for_sqlite(sql.PUT), _format())
        if kept is not None and sql.record_of(kept).value != FORMAT:
            raise UsageError("CLI-197", f"{self._path} is of another version of this program", "name another file")
        self._db = db

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    # --- what is done ----------------------------------------------------------------------------------------------
    async def take(self, chain: Sequence[Bucket]) -> list[Standing]:
        """Count one request, in one transaction."""

        def work(db: sqlite3.Connection, now: int) -> list[Standing]:
            found = []
            for bucket in chain:
                said = {"key": bucket.key, "period": bucket.rate.period, "window": bucket.rate.span, "now": now}
                full_at, seen, allowed = db.execute(_TAKE, said).fetchone()
                found.append(gcra.standing(bool(allowed), full_at, seen, bucket))
                if not allowed:
                    break
            return found

        found: list[Standing] = await self._do(work)
        return found

    # --- the thread ------------------------------------------------------------------------------------------------
    async def _rows(self, statement: str, parameters: Any) -> list[Any]:
        text = sql.for_sqlite(statement)
        rows: list[Any] = await self._do(lambda db, now: db.execute(text, {**parameters, "now": now}).fetchall())
        return rows

    async def _do(self, work: Callable[[sqlite3.Connection, int], Any]) -> Any:
        def run() -> Any:
            if self._db is None or not self._same_file():
                raise sqlite3.OperationalError("the file is gone")
            with _written(self._db):
                return work(self._db, int(self._clock() * MICRO))

        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                return await asyncio.get_running_loop().run_in_executor(self._thread, run)
        except (sqlite3.Error, OSError, TimeoutError, RuntimeError) as error:
            raise StateUnavailable(f"{type(error).__name__}: {error}") from None

    def _same_file(self) -> bool:
        found = self._path.stat()
        return (found.st_dev, found.st_ino) == self._file


def _format() -> dict[str, Any]:
    """Return the record that says of which format the file is; it does not end."""
    return {**sql.fields_of(Record("format", "format", value=FORMAT), 0), "lasts": 2**62, "now": 0}


@contextlib.contextmanager
def _written(db: sqlite3.Connection) -> Any:
    """Be the one writer for a while; the time is read after everybody before has written."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")
