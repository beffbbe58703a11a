"""The state of one gateway, in its memory: what is used unless an operator asks for more."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace

from sandbox.serve.ratelimit import MAX_BUCKETS, MICRO, Standing
from sandbox.serve.shared import gcra
from sandbox.serve.shared.interface import KEPT_AFTER_END, LASTING, Bucket, Kind, Record


class MemoryStore:
    """Implements :class:`~sandbox.serve.shared.interface.Store` for the gateways of one process.

    Args:
        clock: seconds that never go back.
        most: buckets that are remembered; only full ones are forgotten, which is what a forgotten one becomes.
    """

    def __init__(self, clock: Callable[[], float], most: int = MAX_BUCKETS) -> None:
        self._clock = clock
        self._most = most
        self._full_at: OrderedDict[str, int] = OrderedDict()
        self._records: dict[tuple[Kind, str], tuple[Record, int]] = {}
        self._fence = 0

    async def open(self) -> None:
        """Nothing."""

    async def close(self) -> None:
        """Nothing."""

    async def take(self, chain: Sequence[Bucket]) -> list[Standing]:
        """Count one request."""
        return self.take_now(chain)

    def take_now(self, chain: Sequence[Bucket]) -> list[Standing]:
        """Do the same without waiting, which nothing here does."""
        now, found = self._now(), []
        for bucket in chain:
            allowed, full_at = gcra.decide(self._full_at.get(bucket.key, now), now, bucket)
            self._full_at[bucket.key] = full_at
            self._full_at.move_to_end(bucket.key)
            found.append(gcra.standing(allowed, full_at, now, bucket))
            if not allowed:
                break
        while len(self._full_at) > self._most and next(iter(self._full_at.values())) <= now:
            self._full_at.popitem(last=False)
        return found

    async def put(self, record: Record, seconds: float) -> None:
        """Keep a record."""
        self._records[record.kind, record.name] = (record, self._until(seconds))

    async def get(self, kind: Kind, name: str, seconds: float = 0) -> Record | None:
        """Return a record."""
        record, ends = self._records.get((kind, name), (None, 0))
        if record is None or ends <= self._now():
            return None
        self._records[kind, name] = (record, max(ends, self._until(seconds)))
        return record

    async def drop(self, kind: Kind, name: str, holder: str = "") -> None:
        """End a record."""
        record, ends = self._records.get((kind, name), (None, 0))
        if record is not None and holder in ("", record.holder):
            self._records[kind, name] = (record, min(ends, self._now()))

    async def count(self, kind: Kind, group: str) -> int:
        """Return how many there are."""
        return len(await self.all(kind, group))

    async def all(self, kind: Kind, group: str, *, ended: bool = False) -> list[Record]:
        """Return the records of a group."""
        now = self._now()
        mine = [pair for pair in self._records.values() if (pair[0].kind, pair[0].group) == (kind, group)]
        return [record for record, ends in mine if (ends <= now) == ended]

    async def acquire(self, record: Record, seconds: float) -> Record:
        """Return who holds a lease."""
        living = await self.get(record.kind, record.name)
        if living is not None:
            return living
        self._fence += 1
        made = replace(record, fence=self._fence)
        await self.put(made, seconds)
        return made

    async def renew(self, holder: str, seconds: float) -> list[Record]:
        """Renew what a gateway holds."""
        now, until = self._now(), self._until(seconds)
        held = {key: pair for key, pair in self._records.items() if pair[0].holder == holder and pair[1] > now}
        self._records |= {key: (record, max(ends, until)) for key, (record, ends) in held.items()}
        return [record for record, _ in held.values()]

    async def sweep(self) -> int:
        """Remove what has ended."""
        now, kept = self._now(), int(KEPT_AFTER_END * MICRO)
        over = [key for key, (_, ends) in self._records.items() if ends + (kept if key[0] in LASTING else 0) <= now]
        for key in over:
            del self._records[key]
        return len(over)

    def _now(self) -> int:
        return int(self._clock() * MICRO)

    def _until(self, seconds: float) -> int:
        return self._now() + int(seconds * MICRO)
