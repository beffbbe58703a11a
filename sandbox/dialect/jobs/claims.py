"""Who of several gateways has taken a request as a job, so that the same request is not taken twice.

A repeated request gives the job it made the first time. One gateway knows that from its file; several ask the store
that they share. The *claim* of a request (owner, endpoint, id) names the file that keeps its job:

1. it is made before the job is on disk; where another gateway's is there, nothing is taken;
2. it is looked at again right before the call goes out; where it has become another's, the call does not go out;
3. it lasts longer than the job's outcome is kept.

So of one request one call goes out, as long as the store keeps what it is told. A job that a client has already been
told of is never taken over by another gateway: its arguments are on one disk, and nobody else can know what became of
a call that was with its server.

The id of a job begins with the name of the file that keeps it (UUID version 8, RFC 9562 §5.8: 48 bits of the name, 74
by chance), so that every gateway knows whom to ask without having been told of the job. The name is no secret, and
neither is the id: a job answers to its owner.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import uuid
from collections.abc import AsyncIterator
from typing import Final, Protocol

from sandbox.dialect import bounds
from sandbox.dialect.jobs.model import Asked, Job
from sandbox.dialect.refusals import DialectRefused
from sandbox.serve.http.refusals import HttpRefused
from sandbox.serve.shared.interface import Record, Store, name_of

CLAIM: Final = bounds.MAX_JOB_TTL + 86_400.0
"""Seconds from the taking of a job, and again from its start, for which its request is known to be taken."""

AWAY: Final = frozenset(("GATE-060", "GATE-061"))
"""Refusals that say that a job cannot run here now though nothing is wrong with it: its tenant's servers run at another
gateway, or nobody can say where."""

AWAY_FOR: Final = 900.0
"""Seconds for which a job waits for that to end: servers that nobody uses are given up after five minutes."""

VERSION: Final = 8


class Claims(Protocol):
    """What jobs ask before they take a request and before they call."""

    def fresh(self) -> str:
        """Return an id for a job."""

    def claimed(self, asked: Asked) -> contextlib.AbstractAsyncContextManager[None]:
        """Be the context in which a request is taken.

        Raises:
            DialectRefused: ``DIA-081``, another gateway has taken it.
            StateUnavailable: nobody can say.
        """

    async def held(self, job: Job) -> bool:
        """Return whether the call of a job may go out.

        Raises:
            StateUnavailable: nobody can say.
        """


class Alone:
    """Implements :class:`Claims` for a gateway that shares nothing: its file knows every request."""

    def fresh(self) -> str:
        """Return an id for a job."""
        return str(uuid.uuid4())

    @contextlib.asynccontextmanager
    async def claimed(self, _asked: Asked) -> AsyncIterator[None]:
        """Take it."""
        yield

    async def held(self, _job: Job) -> bool:
        """Let it go out."""
        return True


class SharedClaims:
    """Implements :class:`Claims` over a store that gateways share.

    Args:
        store: shared.
        keeper: name of this gateway's file of jobs.
    """

    def __init__(self, store: Store, keeper: str) -> None:
        self._store = store
        self._keeper = keeper

    def fresh(self) -> str:
        """Return an id for a job that names its keeper."""
        number = (int(self._keeper, 16) << 80) | secrets.randbits(80)
        number &= ~((0xF << 76) | (0x3 << 62))
        return str(uuid.UUID(int=number | (VERSION << 76) | (0x2 << 62)))

    @contextlib.asynccontextmanager
    async def claimed(self, asked: Asked) -> AsyncIterator[None]:
        """Hold the claim of a request; one that was made for nothing is given back."""
        if asked.kind != "dialect":  # ids of tasks are made by the gateway: no request is repeated
            yield
            return
        mine = self._record(asked.identity.owner, asked.door, asked.request_id, secrets.token_hex(8))
        found = await self._store.acquire(mine, CLAIM)
        if keeper_of_claim(found) != self._keeper:
            raise taken_elsewhere()
        try:
            yield
        except BaseException:
            if found.value == mine.value:
                with contextlib.suppress(HttpRefused):  # what stays only sends a repeated request here
                    await self._store.drop("request", mine.name)
            raise

    async def held(self, job: Job) -> bool:
        """Look at the claim again, and let it last on; one that the store has lost is made again."""
        if job.kind != "dialect":
            return True
        mine = self._record(job.owner, job.door, job.request_id, secrets.token_hex(8))
        found = await self._store.get("request", mine.name, CLAIM) or await self._store.acquire(mine, CLAIM)
        return keeper_of_claim(found) == self._keeper

    async def keeper(self, owner: str, door: str, request_id: str) -> str:
        """Return who has taken a request; empty when nobody has.

        Raises:
            StateUnavailable: nobody can say.
        """
        found = await self._store.get("request", claim_name(owner, door, request_id))
        return keeper_of_claim(found) if found is not None else ""

    async def keepers(self, owner: str, door: str) -> set[str]:
        """Return who keeps jobs of an owner at an endpoint, or did lately.

        Raises:
            StateUnavailable: nobody can say.
        """
        return {keeper_of_claim(one) for one in await self._store.all("request", claim_group(owner, door))}

    def _record(self, owner: str, door: str, request_id: str, made: str) -> Record:
        value = json.dumps({"keeper": self._keeper, "made": made})
        return Record("request", claim_name(owner, door, request_id), claim_group(owner, door), "", value)


def keeper_of(job: str) -> str:
    """Return the name of the file that keeps a job, by the job's id; empty when the id names none."""
    try:
        known = uuid.UUID(job)
    except ValueError:
        return ""
    return known.hex[:12] if known.version == VERSION else ""


def keeper_of_claim(record: Record) -> str:
    """Return who made a claim."""
    return str(json.loads(record.value)["keeper"])


def claim_name(owner: str, door: str, request_id: str) -> str:
    """Return the name of a request's claim."""
    return name_of("request", owner, door, request_id)


def claim_group(owner: str, door: str) -> str:
    """Return what the claims of an owner at an endpoint are listed by."""
    return name_of("requests", owner, door)


def taken_elsewhere() -> DialectRefused:
    """Return ``DIA-081``."""
    text = "another gateway keeps this job, and it cannot be asked from here"
    return DialectRefused("DIA-081", text, "ask again over HTTP with your own token, or at the gateway that took it")


def lost() -> DialectRefused:
    """Return ``DIA-082``."""
    text = "another gateway has taken this request meanwhile; this job has called nothing"
    return DialectRefused("DIA-082", text, "repeat the request, and get that gateway's job")


def gone() -> DialectRefused:
    """Return ``DIA-080``."""
    text = "the gateway that keeps this job does not run now"
    return DialectRefused("DIA-080", text, "ask again; what it keeps is on its disk, and nobody else takes it over")
