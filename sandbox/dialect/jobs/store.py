"""The durable store of jobs: one SQLite file, one writer, every change on disk before anybody acts on it.

The file holds arguments of jobs that have not run and outcomes of those that have, so it is readable by its owner only
and belongs to one gateway at a time (an exclusive lock). Arguments are dropped as soon as they are needed no more.
Write-ahead log with ``synchronous=FULL``: a change that returned survives SIGKILL and, as far as the disk keeps its
word, a loss of power.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sqlite3
import uuid
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from sandbox import jsontext
from sandbox.dialect.bounds import JobBounds
from sandbox.dialect.invoke import Outcome
from sandbox.dialect.jobs.model import Asked, Job, State, identity_to_json
from sandbox.dialect.jobs.rows import BRIEF, COLUMNS, LIVE, TABLES, guarded, job_of, key_of, over, too_large, unusable
from sandbox.dialect.refusals import DialectRefused

FORM: Final = 1
"""Of the tables; a file of another form is refused rather than guessed at."""


class JobStore:
    """Keeps jobs in a file. Blocking; one thread at a time.

    Args:
        path: of the file; it is made, its folder too.
        bounds: see :class:`~sandbox.dialect.bounds.JobBounds`.

    Raises:
        PlatformError: ``DIA-019``, the file cannot be used, or another gateway uses it.
    """

    def __init__(self, path: Path, bounds: JobBounds | None = None) -> None:
        self.bounds = bounds or JobBounds()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(path.with_name(path.name + ".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            path.chmod(0o600)
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._open()
        except BlockingIOError:
            raise unusable(f"{path} is used by another gateway") from None
        except (OSError, sqlite3.Error) as error:
            raise unusable(f"{path}: {error}") from None

    def _open(self) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("PRAGMA secure_delete=ON")
        form = self._db.execute("PRAGMA user_version").fetchone()[0]
        if form not in (0, FORM):
            raise sqlite3.DatabaseError(f"a file of form {form}, and this is form {FORM}")
        self._db.executescript(TABLES)
        self._db.execute(f"PRAGMA user_version={FORM}")

    def close(self) -> None:
        """Close the file and let another gateway use it."""
        self._db.close()
        os.close(self._lock)

    # --- changes -----------------------------------------------------------------------------------------------------
    def add(self, asked: Asked, now: float) -> tuple[Job, bool]:
        """Keep a fresh job, or return the one that the same request made before.

        One whose call is ``going`` is kept as running, in the same change: what was sent never waits to be sent.

        Args:
            asked: what is asked for.
            now: seconds of the wall clock.

        Returns:
            The job, and whether it is fresh.

        Raises:
            DialectRefused: ``DIA-009`` another request had that id; ``DIA-015`` too many; ``DIA-017`` too large.
            PlatformError: ``DIA-019``.
        """
        params = jsontext.dump(asked.params)
        if len(params) > self.bounds.arguments:
            mend = f"send at most {self.bounds.arguments} bytes"
            raise DialectRefused("DIA-017", "the arguments are too large for a job", mend)
        with guarded(), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            before = self._select("owner=? AND door=? AND request_id=?", key_of(asked))
            if before:
                return self._repeated(before[0], asked), False
            self._room(asked.identity.tenant.tenant)
            number = asked.id or str(uuid.uuid4())
            going = asked.going is not None  # it was sent before it became a job: it never waits, and never did
            values = (
                number, asked.kind, asked.request_id, asked.door, asked.tool, asked.identity.owner,
                asked.identity.tenant.tenant, jsontext.dump(identity_to_json(asked.identity)),
                None if asked.going is False else params, asked.digest, "running" if going else "waiting", now, now,
                asked.ttl, int(asked.going is True), int(going),
            )  # fmt: skip
            self._db.execute(
                "INSERT INTO jobs (id, kind, request_id, door, tool, owner, tenant, identity, params, digest, state,"
                " created, updated, ttl, idempotent, attempts) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                values,
            )
            return self._select("id=?", (number,))[0], True

    def begin(self, job: str, *, idempotent: bool, now: float) -> bool:
        """Record that the call of a waiting job goes out now; return whether it still may.

        Arguments of a tool that is not idempotent are dropped with it: it never goes out twice.
        """
        keep = "params" if idempotent else "NULL"
        with guarded(), self._db:
            done = self._db.execute(
                f"UPDATE jobs SET state='running', idempotent=?, attempts=attempts+1, updated=?, params={keep}"  # noqa: S608 - one of two words
                " WHERE id=? AND state='waiting'",
                (int(idempotent), now, job),
            )
        return done.rowcount == 1

    def end(self, job: str, state: State, outcome: Outcome, now: float) -> bool:
        """Record the end of a job that has not ended; return whether it had not."""
        data = jsontext.dump(asdict(outcome))
        if len(data) > self.bounds.result:
            state, outcome = "error", too_large(outcome)
            data = jsontext.dump(asdict(outcome))
        with guarded(), self._db:
            done = self._db.execute(
                f"UPDATE jobs SET state=?, outcome=?, params=NULL, updated=? WHERE id=? AND state IN {LIVE}",  # noqa: S608 - a constant
                (state, data, now, job),
            )
        return done.rowcount == 1

    def recover(self, interrupted: Outcome, most: int, now: float) -> tuple[list[Job], list[Job]]:
        """Take note that whoever ran jobs is gone; return those to run again and those that are lost.

        Args:
            interrupted: outcome of a job that may not run again.
            most: attempts of an idempotent one; a call that ends the gateway is not repeated for ever.
            now: seconds of the wall clock.
        """
        with guarded(), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            again = self._select("state='running' AND idempotent=1 AND attempts<?", (most,))
            lost = self._select("state='running' AND NOT (idempotent=1 AND attempts<?)", (most,))
            self._db.executemany(
                "UPDATE jobs SET state='waiting', updated=? WHERE id=?", [(now, one.id) for one in again]
            )
            self._db.executemany(
                "UPDATE jobs SET state='error', outcome=?, params=NULL, updated=? WHERE id=?",
                [(jsontext.dump(asdict(interrupted)), now, one.id) for one in lost],
            )
        return again, lost

    def expire(self, now: float) -> int:
        """Forget ended jobs whose time is over, and old values in the write-ahead log; return how many."""
        with guarded():
            gone = self._db.execute(
                f"DELETE FROM jobs WHERE state NOT IN {LIVE} AND updated + ttl <= ?",  # noqa: S608 - a constant
                (now,),
            ).rowcount
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return gone

    def name(self) -> str:
        """Return the file's own name, twelve hexadecimal digits by chance, for as long as the file is there."""
        with guarded():
            self._db.execute("INSERT OR IGNORE INTO about VALUES ('name', ?)", (secrets.token_hex(6),))
            return str(self._db.execute("SELECT value FROM about WHERE name='name'").fetchone()[0])

    # --- questions ---------------------------------------------------------------------------------------------------
    def find(self, job: str, owner: str, door: str, now: float) -> Job | None:
        """Return a job of an owner and endpoint whose time is not over."""
        with guarded():
            found = self._select("id=? AND owner=? AND door=?", (job, owner, door))
        return found[0] if found and not over(found[0], now) else None

    def of(self, owner: str, door: str, now: float, after: int = 0, most: int = 100) -> list[tuple[int, Job]]:
        """Return jobs of an owner and endpoint with their numbers, oldest first, after a number.

        Arguments and large outcomes are not read, for a list may have hundreds: such a job says only how it ended.
        """
        with guarded():
            rows = self._db.execute(
                f"SELECT number, {BRIEF} FROM jobs WHERE owner=? AND door=? AND number>? ORDER BY number LIMIT ?",  # noqa: S608 - constants
                (owner, door, after, most),
            ).fetchall()
        found = [(int(row[0]), job_of(row[1:])) for row in rows]
        return [(number, job) for number, job in found if not over(job, now)]

    def waiting(self) -> list[Job]:
        """Return every waiting job, oldest first."""
        with guarded():
            return self._select("state='waiting' ORDER BY number", ())

    def _select(self, where: str, values: Iterable[Any]) -> list[Job]:
        rows = self._db.execute(f"SELECT {COLUMNS} FROM jobs WHERE {where}", tuple(values)).fetchall()  # noqa: S608 - constants of this file
        return [job_of(row) for row in rows]

    def _repeated(self, before: Job, asked: Asked) -> Job:
        if before.digest != asked.digest:
            text = "another request had that `request_id`"
            raise DialectRefused("DIA-009", text, "send a fresh UUID for each request")
        return before

    def _room(self, tenant: str) -> None:
        count = "SELECT count(*) FROM jobs"
        kept = self._db.execute(count).fetchone()[0]
        own = self._db.execute(f"{count} WHERE tenant=?", (tenant,)).fetchone()[0]
        live = self._db.execute(f"{count} WHERE tenant=? AND state IN {LIVE}", (tenant,)).fetchone()[0]
        bounds = self.bounds
        if kept >= bounds.jobs or own >= bounds.of_tenant or live >= bounds.unfinished:
            raise DialectRefused("DIA-015", "too many jobs are kept", "wait until some have ended and expired")
