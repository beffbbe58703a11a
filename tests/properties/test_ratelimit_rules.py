"""Rate properties.

*In any span of time at most burst + rate × span calls pass; a refused call succeeds after the time it was told; keys do
not influence each other.*
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.serve.ratelimit import Buckets, Rate, Standing, parse_header

rates = st.builds(Rate, st.floats(0.01, 1000), st.integers(1, 100))
steps = st.lists(st.tuples(st.floats(0, 5), st.integers(0, 2)), max_size=150)


@given(rates, steps)
@settings(deadline=None)
def test_no_span_lets_more_through_than_burst_and_rate(rate: Rate, steps: list[tuple[float, int]]) -> None:
    """For every pair of moments, what passed between them is within the bound."""
    buckets: Buckets[int] = Buckets(rate, most=2)
    now, passed = 0.0, []
    for pause, key in steps:
        now += pause
        if buckets.take(key, now).allowed and key == 0:
            passed.append(now)

    for first in range(len(passed)):
        for last in range(first, len(passed)):
            bound = rate.burst + (passed[last] - passed[first]) * rate.per_second
            assert last - first + 1 <= bound + 1e-6 * bound + 1e-6


@given(rates, st.integers(1, 300))
@settings(deadline=None)
def test_a_refused_call_succeeds_after_the_time_it_was_told(rate: Rate, calls: int) -> None:
    """``retry`` is enough, and no earlier whole refill is promised."""
    buckets: Buckets[str] = Buckets(rate)
    last = [buckets.take("k", 0.0) for _ in range(calls)][-1]

    assert last.allowed == (calls <= rate.burst)
    assert last.allowed or buckets.take("k", last.retry * (1 + 1e-9) + 1e-9).allowed


@given(st.booleans(), *(st.integers(0, 10**8) for _ in range(4)))
def test_the_header_round_trips(allowed: bool, limit: int, window: int, remaining: int, retry: int) -> None:
    """What is written is read back."""
    standing = Standing(allowed, limit, window, remaining, 0.0 if allowed else float(retry))

    assert parse_header(standing.header()) == standing
