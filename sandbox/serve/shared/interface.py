"""What gateways share, and what every store of it promises.

Two things are kept, and both are all that a second gateway would need to know:

- *rates*: one number for each bucket (:mod:`sandbox.serve.shared.gcra`), changed in one atomic step;
- *records*: a value under a kind and a name, with a group that is counted, a holder and an end. A session, a lease, a
  claim and a gateway itself are records.

Promises, which ``tests/unit/gateway/test_shared_stores.py`` holds every store to:

1. of a bucket no more is ever admitted than its burst and its rate times the time that has passed, whoever asks;
2. a record that has ended is not there, for anybody;
3. a lease has one holder at a time, and its fencing token grows with every change of holder;
4. what is put is seen by everybody who asks after ``put`` has returned;
5. a store that does not answer raises :class:`StateUnavailable`; nothing is ever admitted by guessing.

Times are those of the store, in microseconds, so that gateways need no common clock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol

from sandbox.errors import UsageError
from sandbox.serve.http.bounds import RETRY_AFTER
from sandbox.serve.http.refusals import HttpRefused
from sandbox.serve.ratelimit import Rate, Standing

ANSWER_TIMEOUT: Final = 3.0
"""Seconds in which a store has to answer; a request that waits longer is refused. A store on the same network answers
within a few milliseconds, and one that fails over within seconds."""

MAX_WINDOW: Final = 10**15
"""Microseconds in which an empty bucket fills, at most (31 years): sums with today's time stay exact in every store."""

FORMAT: Final = "1"
"""Of what is kept; another one is refused rather than guessed at."""

KEPT_AFTER_END: Final = 86_400.0
"""Seconds for which leases and gateways are still known after their end: tokens go on growing, and whoever shares the
engine of a dead gateway can clean up after it."""

Kind = Literal[
    "session", "home", "gateway", "server", "folder", "format",
    "agreement", "request", "keeper", "registration", "public",
]  # fmt: skip
"""The second row is of the 2025-11 dialect: :mod:`sandbox.dialect.fleet`."""
LASTING: Final[tuple[Kind, ...]] = ("home", "gateway")
"""Kinds that are known for :data:`KEPT_AFTER_END` seconds more."""


class Bucket(NamedTuple):
    """One rate that one request counts towards.

    Attributes:
        key: whose; see :func:`name_of`.
        rate: what it allows.
    """

    key: str
    rate: Rate


@dataclass(frozen=True, slots=True)
class Record:
    """One thing that is kept.

    Attributes:
        kind: what it is.
        name: unique among its kind; see :func:`name_of`.
        group: what it is counted with.
        holder: gateway that it ends with; empty for none.
        value: text.
        fence: fencing token of a lease: grows with each change of its holder.
    """

    kind: Kind
    name: str
    group: str = ""
    holder: str = ""
    value: str = ""
    fence: int = 0


class Store(Protocol):
    """Keeps what gateways share. Every method but ``open`` and ``close`` raises :class:`StateUnavailable`."""

    async def open(self) -> None:
        """Connect and make what is missing.

        Raises:
            UsageError: ``CLI-197``, it cannot be used; ``CLI-198``, it would forget.
        """

    async def close(self) -> None:
        """Let go of it."""

    async def take(self, chain: Sequence[Bucket]) -> list[Standing]:
        """Count one request in buckets, one after the other up to the first that refuses, as one atomic step."""

    async def put(self, record: Record, seconds: float) -> None:
        """Keep a record until ``seconds`` from now; one of the same kind and name is replaced."""

    async def get(self, kind: Kind, name: str, seconds: float = 0) -> Record | None:
        """Return a record that has not ended; with ``seconds`` it ends no sooner than that from now."""

    async def drop(self, kind: Kind, name: str, holder: str = "") -> None:
        """End a record; with ``holder`` only when that is its holder."""

    async def count(self, kind: Kind, group: str) -> int:
        """Return how many records of a group have not ended."""

    async def all(self, kind: Kind, group: str, *, ended: bool = False) -> list[Record]:
        """Return the records of a group that have not ended, or those that have and are still known."""

    async def acquire(self, record: Record, seconds: float) -> Record:
        """Return the record of a kind and name that has not ended; where there is none, this one, with a new token."""

    async def renew(self, holder: str, seconds: float) -> list[Record]:
        """Let what a gateway holds, and what has not ended, end no sooner than ``seconds`` from now; return it."""

    async def sweep(self) -> int:
        """Remove what has ended, of all gateways; return how many records."""


class StateUnavailable(HttpRefused):
    """The store does not answer: the request is refused (503)."""

    def __init__(self, cause: str) -> None:
        super().__init__(
            503,
            "GATE-060",
            "this gateway cannot reach the state that it shares with others",
            "try again; nothing is admitted by guessing",
            headers={"Retry-After": str(RETRY_AFTER)},
            cause=cause,
        )


def name_of(*parts: str) -> str:
    """Return the name of a record or bucket: a digest, so that a store learns no tenant's name and no session's id."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


def plain_name(*parts: str) -> str:
    """Return the name of a bucket that never leaves this process, without the price of a digest."""
    return "\0".join(parts)


def check_rate(rate: Rate, key: str) -> None:
    """Refuse a rate that cannot be counted exactly.

    Raises:
        UsageError: ``CLI-195``.
    """
    if rate.span > MAX_WINDOW:
        text = f"`{key}` needs more than 31 years to fill its burst"
        raise UsageError("CLI-195", text, "raise the rate or lower the burst")
