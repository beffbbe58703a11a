"""Jobs as rows of SQLite."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from sandbox.dialect.invoke import Outcome
from sandbox.dialect.jobs.model import Asked, Job, identity_from_json
from sandbox.errors import PlatformError

TABLES: Final = """
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, kind TEXT NOT NULL, request_id TEXT NOT NULL,
    door TEXT NOT NULL, tool TEXT NOT NULL, owner TEXT NOT NULL, tenant TEXT NOT NULL, identity BLOB NOT NULL,
    params BLOB, digest TEXT NOT NULL, state TEXT NOT NULL, outcome BLOB, created REAL NOT NULL,
    updated REAL NOT NULL, ttl REAL NOT NULL, idempotent INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX IF NOT EXISTS jobs_request ON jobs (owner, door, request_id);
CREATE INDEX IF NOT EXISTS jobs_tenant ON jobs (tenant, state);
CREATE INDEX IF NOT EXISTS jobs_owner ON jobs (owner, door, number);
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""

COLUMNS: Final = (
    "id, kind, request_id, door, tool, owner, identity, params, digest, state, created, updated, ttl, outcome, attempts"
)
BRIEF: Final = COLUMNS.replace("params", "NULL").replace(
    "outcome",
    "CASE WHEN outcome IS NULL OR length(outcome) <= 4096 THEN outcome"
    """ WHEN state='success' THEN '{"result": {}}' ELSE '{"failure": {}}' END""",
)
"""The same without what is large: an outcome of more than 4 KiB says only whether it is one of success."""

LIVE: Final = "('waiting', 'running')"


def key_of(asked: Asked) -> tuple[str, str, str]:
    """Return what is unique of a request: owner, endpoint, id."""
    return asked.identity.owner, asked.door, asked.request_id


def over(job: Job, now: float) -> bool:
    """Return whether the outcome of a job need not be kept any more."""
    return job.ended and job.updated + job.ttl <= now


def job_of(row: tuple[Any, ...]) -> Job:
    """Return the job of a row of :data:`COLUMNS`."""
    outcome = Outcome(**json.loads(row[13])) if row[13] is not None else None
    return Job(
        id=row[0], kind=row[1], request_id=row[2], door=row[3], tool=row[4], owner=row[5],
        identity=identity_from_json(json.loads(row[6])), params=json.loads(row[7]) if row[7] is not None else None,
        digest=row[8], state=row[9], created=row[10], updated=row[11], ttl=row[12], outcome=outcome, attempts=row[14],
    )  # fmt: skip


def too_large(outcome: Outcome) -> Outcome:
    """Return the outcome of a job whose own cannot be kept (``DIA-017``)."""
    message = "the result is larger than a job may keep; the call was carried out"
    failure = {"id": "DIA-017", "code": "input_invalid", "message": message, "retryable": False}
    return replace(outcome, result=None, failure=failure, rpc={"code": -31004, "data": {"id": "DIA-017"}})


def unusable(why: str) -> PlatformError:
    """Return ``DIA-019``."""
    return PlatformError("DIA-019", f"the store of jobs cannot be used: {why}", "look at the file of `--jobs`")


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Turn errors of SQLite into ours.

    Raises:
        PlatformError: ``DIA-019``.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise unusable(str(error)) from None
