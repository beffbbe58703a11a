"""Laws of shared state, under random interleavings of two gateways.

*In any span of time at most burst + rate × span requests pass, whichever gateway they come to; a refused one passes
after the time it was told; a lease has one holder at a time and growing tokens; a gateway that is late holds nothing.*
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.serve.ratelimit import MICRO, Rate
from sandbox.serve.shared import gcra
from sandbox.serve.shared.interface import Bucket, Record, Store
from sandbox.serve.shared.memory import MemoryStore
from sandbox.serve.shared.sqlite import SqliteStore

rates = st.builds(Rate, st.floats(0.01, 100_000), st.integers(1, 50))
steps = st.lists(st.tuples(st.floats(0, 3), st.integers(0, 1)), max_size=120)
pauses = st.integers(0, 3 * MICRO)


class Clock:
    """A time that tests move."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run one example on a loop of its own."""
    return asyncio.run(work)


@given(rates, st.lists(pauses, max_size=300))
@settings(deadline=None)
def test_the_rule_is_exact(rate: Rate, pauses: list[int]) -> None:
    """For every pair of moments, in whole microseconds: what passed is at most burst + span / period, and no less."""
    bucket, now, full_at, passed = Bucket("", rate), 10**15, 0, []
    for pause in pauses:
        now += pause
        allowed, full_at = gcra.decide(full_at, now, bucket)
        if allowed:
            passed.append(now)

    for first, start in enumerate(passed):
        for number, end in enumerate(passed[first:], 1):
            assert (number - rate.burst) * bucket.rate.period <= end - start
    assert bucket.rate.period >= MICRO / rate.per_second
    assert not pauses or passed


@given(rates, st.integers(1, 120))
@settings(deadline=None)
def test_a_refused_request_passes_after_the_time_it_was_told_and_not_before(rate: Rate, calls: int) -> None:
    """``retry`` is the first microsecond at which it passes."""
    bucket, now, full_at, allowed = Bucket("", rate), 10**15, 0, True
    for _ in range(calls):
        allowed, full_at = gcra.decide(full_at, now, bucket)
    told = gcra.standing(allowed, full_at, now, bucket)

    assert allowed == (calls <= rate.burst)
    if not allowed:
        wait = round(told.retry * MICRO)
        assert gcra.decide(full_at, now + wait, bucket)[0]
        assert not gcra.decide(full_at, now + wait - 1, bucket)[0]
    else:
        assert told.remaining == rate.burst - calls


async def _interleaved(stores: tuple[Store, Store], clock: Clock, rate: Rate, steps: list[tuple[float, int]]) -> None:
    bucket, passed = Bucket("k", rate), []
    for pause, which in steps:
        clock.now += pause
        # Both ask at the same moment; the one that is asked first is drawn.
        pair = (stores[which], stores[1 - which])
        found = await asyncio.gather(*(one.take([bucket]) for one in pair))
        passed += [int(clock.now * MICRO)] * sum(one[0].allowed for one in found)

    for first, start in enumerate(passed):
        for number, end in enumerate(passed[first:], 1):
            assert number <= rate.burst + (end - start) * rate.per_second / MICRO + 1e-6


@given(rates, steps)
@settings(deadline=None, max_examples=60)
def test_two_gateways_admit_no_more_than_one_in_memory(rate: Rate, steps: list[tuple[float, int]]) -> None:
    """The sum of what both admit is within burst + rate × time for every span."""
    clock = Clock()
    store = MemoryStore(clock)
    run(_interleaved((store, store), clock, rate, steps))


@given(rates, steps)
@settings(deadline=None, max_examples=15)
def test_two_gateways_admit_no_more_than_one_with_a_file(rate: Rate, steps: list[tuple[float, int]]) -> None:
    """The same through two connections to one SQLite file, whose threads race."""

    async def work() -> None:
        clock = Clock()
        with tempfile.TemporaryDirectory() as folder:
            one, other = (SqliteStore(Path(folder) / "s.db", clock) for _ in range(2))
            await one.open()
            await other.open()
            await _interleaved((one, other), clock, rate, steps)
            await one.close()
            await other.close()

    run(work())


moves = st.lists(
    st.tuples(st.sampled_from(("acquire", "renew", "drop", "wait")), st.integers(0, 1), st.floats(0, 1.5)), max_size=60
)


@given(moves)
@settings(deadline=None, max_examples=80)
def test_a_lease_has_one_holder_at_a_time(moves: list[tuple[str, int, float]]) -> None:
    """Whatever the order of asking, renewing, letting go and being late: nobody gets it while another holds it."""
    clock = Clock()
    store = MemoryStore(clock)

    async def work() -> None:
        ends, holder, fences = 0.0, "", []
        for what, who, pause in moves:
            name = f"gateway-{who}"
            living = holder if clock.now < ends else ""
            if what == "acquire":
                found = await store.acquire(Record("home", "t", "", name), 1.0)
                assert found.holder == (living or name)
                if not living:
                    holder, ends = name, clock.now + 1.0
                    fences.append(found.fence)
            elif what == "renew":
                renewed = await store.renew(name, 1.0)
                assert [record.holder for record in renewed] == ([name] if living == name else [])
                ends = clock.now + 1.0 if living == name else ends
            elif what == "drop":
                await store.drop("home", "t", name)
                ends = clock.now if living == name else ends
            clock.now += pause if what == "wait" else 0.0
        assert all(one < other for one, other in itertools.pairwise(fences))

    run(work())
