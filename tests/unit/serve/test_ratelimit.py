"""Rates, the gate's fairness, and the header."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from sandbox.errors import CallRefused
from sandbox.serve.ratelimit import Buckets, Rate, Standing, parse_header
from sandbox.supervisor.fair import Gate
from sandbox.tenant import TenantId

pytestmark = pytest.mark.anyio
A, B, C = TenantId("a"), TenantId("b"), TenantId("c")


def test_a_burst_passes_and_then_the_rate() -> None:
    """The bound passes, one more does not, and time gives tokens back."""
    buckets: Buckets[str] = Buckets(Rate(2.0, 3))
    taken = [buckets.take("k", 0.0) for _ in range(4)]

    assert [each.allowed for each in taken] == [True, True, True, False]
    assert [each.remaining for each in taken] == [2, 1, 0, 0]
    assert taken[3].retry == pytest.approx(0.5)
    assert buckets.take("k", 0.5).allowed
    assert not buckets.take("k", 0.6).allowed
    assert buckets.take("other", 0.6).allowed


def test_time_that_goes_back_gives_nothing() -> None:
    """A clock that jumps back neither fills a bucket nor blocks it for ever."""
    buckets: Buckets[str] = Buckets(Rate(1.0, 1))

    assert buckets.take("k", 100.0).allowed
    assert not buckets.take("k", 0.0).allowed
    assert buckets.take("k", 101.0).allowed


def test_forgetting_a_bucket_gives_no_tokens_away() -> None:
    """Beyond the bound only full buckets are forgotten: a flood of keys does not refill anybody."""
    buckets: Buckets[int] = Buckets(Rate(1.0, 2), most=10)
    for key in range(50):
        buckets.take(key, 0.0)
    buckets.take(0, 0.0)

    assert not buckets.take(0, 0.0).allowed
    assert len(buckets) == 50
    buckets.take(99, 100.0)
    assert len(buckets) <= 10


@pytest.mark.parametrize(("rate", "burst"), [(0.0, 1), (-1.0, 1), (float("nan"), 1), (float("inf"), 1), (1.0, 0)])
def test_a_rate_that_means_nothing_is_a_mistake(rate: float, burst: int) -> None:
    """There is no rate of zero and no infinite one."""
    with pytest.raises(ValueError, match="rate"):
        Rate(rate, burst)


def test_the_header_says_limit_window_and_rest() -> None:
    """S1-41: the grammar round-trips; a refusal adds when to come back."""
    allowed, refused = Standing(True, 60, 60, 59), Standing(False, 60, 60, 0, 1.2)

    assert allowed.header() == "limit=60;window=60;remaining=59"
    assert refused.header() == "limit=60;window=60;remaining=0;retry=2"
    assert parse_header(allowed.header()) == allowed
    assert parse_header(refused.header()) == Standing(False, 60, 60, 0, 2.0)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "limit=60",
        "limit=60;window=60;remaining=-1",
        "limit=60;window=60;remaining=1;",
        "LIMIT=1;window=1;remaining=1",
    ],
)
def test_other_headers_are_refused(value: str) -> None:
    """What is not of the grammar is not guessed at."""
    with pytest.raises(ValueError, match="form"):
        parse_header(value)


async def hold(gate: Gate, tenant: TenantId, order: list[str], go: asyncio.Event) -> None:
    """Run one call until told to end, and note when it began."""
    async with gate.slot(tenant):
        order.append(tenant)
        await go.wait()


async def test_tenants_are_served_in_turn() -> None:
    """A tenant with many waiting calls delays another by one call."""
    gate, order, go = Gate(total=1, of_tenant=1), [], asyncio.Event()
    first = asyncio.create_task(hold(gate, A, order, go))
    await asyncio.sleep(0)
    flood = [asyncio.create_task(hold(gate, A, order, go)) for _ in range(20)]
    await asyncio.sleep(0)
    others = [asyncio.create_task(hold(gate, tenant, order, go)) for tenant in (B, C)]
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(first, *flood, *others)

    assert order[:4] == ["a", "a", "b", "c"]
    assert (gate.running, gate.waiting) == (0, 0)


async def test_bounds_hold_for_each_and_for_all() -> None:
    """R10: never more at once than allowed, and nothing is lost."""
    gate, most, now = Gate(total=5, of_tenant=2, waiting=1000), {"all": 0, "one": 0}, {}

    async def one(tenant: TenantId) -> None:
        async with gate.slot(tenant):
            now[tenant] = now.get(tenant, 0) + 1
            most["one"] = max(most["one"], now[tenant])
            most["all"] = max(most["all"], sum(now.values()))
            await asyncio.sleep(0)
            now[tenant] -= 1

    await asyncio.gather(*(one(TenantId(f"t{index % 3}")) for index in range(500)))

    assert most == {"all": 5, "one": 2}
    assert (gate.running, gate.waiting) == (0, 0)


async def test_waiting_is_bounded_in_number_and_time() -> None:
    """One more than may wait is refused at once, and a call does not wait for ever."""
    gate, order, go = Gate(total=1, of_tenant=1, waiting=1, patience=0.01), [], asyncio.Event()
    first = asyncio.create_task(hold(gate, A, order, go))
    await asyncio.sleep(0)
    second = asyncio.create_task(hold(gate, A, order, go))
    await asyncio.sleep(0)
    with pytest.raises(CallRefused) as third:
        await hold(gate, A, order, go)
    with pytest.raises(CallRefused) as waited:
        await second
    go.set()
    await first

    assert (third.value.id, waited.value.id) == ("CALL-051", "CALL-052")
    assert (gate.running, gate.waiting) == (0, 0)


async def test_a_cancelled_call_gives_its_place_back() -> None:
    """Cancelled while waiting, at the moment of its turn, or running: no slot is lost."""
    gate, order, go = Gate(total=2, of_tenant=2), [], asyncio.Event()
    running = asyncio.create_task(hold(gate, A, order, go))
    async with gate.slot(A):
        await asyncio.sleep(0)
        waiting = [asyncio.create_task(hold(gate, B, order, go)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[2].cancel()
    waiting[0].cancel()  # its turn came with the end of the slot above, and it does not know yet
    running.cancel()
    for task in (running, waiting[0], waiting[2]):
        with suppress(asyncio.CancelledError):
            await task
    go.set()
    await waiting[1]

    assert order == ["a", "b"]
    assert (gate.running, gate.waiting) == (0, 0)
