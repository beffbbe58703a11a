"""Back-off and circuit breaker: exact, and for one key at a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sandbox.supervisor.breaker import Breaker, Patience

RULES = Patience(first=1.0, longest=8.0, failures=4, window=100.0, open_for=60.0, open_longest=200.0, steady=30.0)


def test_waits_double_up_to_the_longest() -> None:
    """1, 2, 4 seconds; the fourth failure opens the breaker."""
    breaker: Breaker[str] = Breaker(RULES)
    waits = []
    for _ in range(3):
        breaker.failed("k", 0.0)
        waits.append(breaker.wait("k", 0.0))
    breaker.failed("k", 0.0)

    assert [1.0, 2.0, 4.0] == waits
    assert 60.0 == breaker.refuses("k", 0.0)


def test_a_failed_trial_opens_it_for_longer() -> None:
    """After the open time one start is tried; when it fails the breaker is open twice as long, up to a bound."""
    breaker: Breaker[str] = Breaker(RULES)
    for _ in range(4):
        breaker.failed("k", 0.0)
    opened = []
    now = 0.0
    for _ in range(4):
        now += breaker.refuses("k", now)
        assert 0.0 == breaker.wait("k", now)
        breaker.failed("k", now)
        opened.append(breaker.refuses("k", now))

    assert [120.0, 200.0, 200.0, 200.0] == opened


def test_an_instance_that_lasted_closes_it() -> None:
    """Its end counts as the first failure."""
    breaker: Breaker[str] = Breaker(RULES)
    for _ in range(3):
        breaker.failed("k", 0.0)
    breaker.failed("k", 1.0, lasted=31.0)

    assert 1.0 == breaker.wait("k", 1.0)
    assert 0.0 == breaker.refuses("k", 1.0)


def test_old_failures_do_not_count() -> None:
    """Failures further apart than the window never open it."""
    breaker: Breaker[str] = Breaker(RULES)
    refused = []
    for index in range(10):
        breaker.failed("k", index * 50.0)
        refused.append(breaker.refuses("k", index * 50.0))

    assert {0.0} == set(refused)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 50)), max_size=60))
def test_keys_do_not_touch_each_other(events: list[tuple[int, float]]) -> None:
    """What one key waits for is what it would wait for alone."""
    together: Breaker[int] = Breaker(RULES)
    alone = {key: Breaker[int](RULES) for key in range(4)}
    now = 0.0
    for key, gap in events:
        now += gap
        together.failed(key, now)
        alone[key].failed(key, now)

    assert [(together.wait(key, now), together.refuses(key, now)) for key in range(4)] == [
        (alone[key].wait(key, now), alone[key].refuses(key, now)) for key in range(4)
    ]


def test_the_number_of_keys_is_bounded() -> None:
    """The key that failed longest ago is forgotten first."""
    breaker: Breaker[int] = Breaker(RULES, most=3)
    for key in range(5):
        breaker.failed(key, 0.0)

    assert [False, False, True, True, True] == [breaker.wait(key, 0.0) > 0 for key in range(5)]
