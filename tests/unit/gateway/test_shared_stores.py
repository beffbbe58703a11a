"""One conformance test for every store of shared state: memory, SQLite, PostgreSQL, Redis.

The servers are real and of the tests' own (:mod:`tests.stores`). Two handles on one store stand for two gateways.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from sandbox.serve.ratelimit import Rate
from sandbox.serve.shared.interface import Bucket, Record, StateUnavailable, Store, name_of
from sandbox.serve.shared.memory import MemoryStore
from sandbox.serve.shared.opening import store_of
from tests import stores

pytestmark = pytest.mark.anyio
KINDS = ("memory", "sqlite", "postgres", "redis")
SERVERS = ("postgres", "redis")

Open = Callable[[], Awaitable[Store]]


@pytest.fixture(scope="module", params=KINDS)
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Provide what makes handles on one store of each kind; servers are started once."""
    if request.param == "memory":
        yield MemoryStore(time.monotonic)
    elif request.param == "sqlite":
        yield f"sqlite://{tmp_path_factory.mktemp('state')}/state.db"
    else:
        with getattr(stores, request.param)() as peer:
            yield peer.url


@pytest.fixture
async def pair(kept: object) -> AsyncIterator[tuple[Store, Store]]:
    """Provide two handles on one store."""
    async with contextlib.AsyncExitStack() as stack:
        found: list[Store] = []
        for _ in range(2):
            one: Store = kept if isinstance(kept, MemoryStore) else store_of(str(kept))
            await one.open()
            stack.push_async_callback(one.close)
            found.append(one)
        yield found[0], found[1]


async def test_no_more_is_admitted_than_burst_and_rate(pair: tuple[Store, Store]) -> None:
    """A hundred requests at once through two gateways: the burst passes, and what the time in between adds."""
    bucket, started = Bucket(name_of("burst"), Rate(5.0, 20)), time.monotonic()
    found = await asyncio.gather(*(pair[number % 2].take([bucket]) for number in range(100)))
    lasted = time.monotonic() - started

    admitted = [one[0] for one in found if one[0].allowed]
    assert 20 <= len(admitted) <= 20 + 5.0 * lasted
    refused = [one[0] for one in found if not one[0].allowed]
    assert all(0 < one.retry <= 0.2 and one.remaining == 0 for one in refused)
    assert max(one.remaining for one in admitted) == 19


async def test_a_refused_request_passes_after_the_time_it_was_told(pair: tuple[Store, Store]) -> None:
    """``retry`` is enough, at the other gateway too, and a bucket fills again no further than its burst."""
    bucket = Bucket(name_of("retry"), Rate(2.0, 2))
    first = [(await pair[0].take([bucket]))[0] for _ in range(3)]
    await asyncio.sleep(first[-1].retry + 0.002)
    again = (await pair[1].take([bucket]))[0]

    assert [True, True, False] == [one.allowed for one in first]
    assert again.allowed


async def test_a_chain_stops_at_the_first_refusal(pair: tuple[Store, Store]) -> None:
    """Who is refused by the endpoint's rate does not use up the tool's."""
    narrow, wide = Bucket(name_of("narrow"), Rate(0.001, 1)), Bucket(name_of("wide"), Rate(0.001, 5))
    both = [await pair[number % 2].take([narrow, wide]) for number in range(4)]
    left = (await pair[0].take([wide]))[0]

    assert [[True, True], [False], [False], [False]] == [[one.allowed for one in found] for found in both]
    assert left.remaining == 3


async def test_records_are_seen_by_all_and_end(pair: tuple[Store, Store]) -> None:
    """What one gateway puts, the other reads, counts, changes and ends; when its time is over it is not there."""
    one, other = pair
    await one.put(Record("session", "a", "t", "", '{"x": "é%s"}'), 60)
    await one.put(Record("session", "b", "t", "", "2"), 0.05)
    await other.put(Record("session", "c", "else", "", "3"), 60)
    before = await other.get("session", "a")
    await asyncio.sleep(0.08)

    assert before == Record("session", "a", "t", "", '{"x": "é%s"}')
    assert await other.get("session", "b") is None
    assert await other.get("home", "a") is None
    assert await other.count("session", "t") == 1
    assert [record.name for record in await other.all("session", "t")] == ["a"]
    assert [record.name for record in await other.all("session", "t", ended=True)] == ["b"]
    await other.put(Record("session", "a", "moved", "", "new"), 60)
    assert (await one.count("session", "t"), await one.count("session", "moved")) == (0, 1)
    await other.drop("session", "a", holder="somebody")
    assert await one.get("session", "a") is not None
    await other.drop("session", "a")
    assert await one.get("session", "a") is None
    assert await one.count("session", "moved") == 0


async def test_reading_with_a_time_keeps_a_record(pair: tuple[Store, Store]) -> None:
    """A session that is used does not end, whichever gateway it is used at."""
    await pair[0].put(Record("session", "used", "touched"), 1.0)
    for number in range(4):
        await asyncio.sleep(0.3)
        assert await pair[number % 2].get("session", "used", 1.0) is not None
    await asyncio.sleep(1.05)
    assert await pair[0].get("session", "used", 1.0) is None


async def test_a_lease_has_one_holder_and_growing_tokens(pair: tuple[Store, Store]) -> None:
    """Of many who ask at once one gets it; after its end another does, with a higher token."""
    tries = [pair[n % 2].acquire(Record("home", "lease", "", f"gateway-{n}", str(n)), 1.0) for n in range(20)]
    found = await asyncio.gather(*tries)
    await asyncio.sleep(1.05)
    later = await pair[1].acquire(Record("home", "lease", "", "late", "x"), 60)
    await pair[1].drop("home", "lease", holder="late")
    last = await pair[0].acquire(Record("home", "lease", "", "last", "y"), 60)

    assert len({(one.holder, one.value, one.fence) for one in found}) == 1
    assert (later.holder, last.holder, last.value) == ("late", "last", "y")
    assert found[0].fence < later.fence < last.fence


async def test_only_what_has_not_ended_is_renewed(pair: tuple[Store, Store]) -> None:
    """A gateway that comes too late does not get back what it held."""
    await pair[0].put(Record("server", "late", "t", "slow"), 0.05)
    await pair[0].put(Record("server", "kept", "t", "slow"), 1.0)
    await pair[0].put(Record("server", "other", "t", "quick"), 60)
    await asyncio.sleep(0.1)
    renewed = await pair[0].renew("slow", 60)

    assert [record.name for record in renewed] == ["kept"]
    assert await pair[1].get("server", "late") is None
    await asyncio.sleep(1.0)
    assert await pair[1].get("server", "kept") is not None


async def test_sweeping_removes_what_has_ended_and_nothing_else(pair: tuple[Store, Store]) -> None:
    """Any gateway cleans up for all; who held a lease is known for longer, so that its token goes on growing."""
    await pair[0].put(Record("session", "over", "sweep"), 0.01)
    await pair[0].put(Record("session", "alive", "sweep"), 60)
    await pair[0].put(Record("gateway", "dead", "sweep"), 0.01)
    await asyncio.sleep(0.05)
    assert await pair[1].sweep() >= 1

    assert await pair[1].all("session", "sweep", ended=True) == []
    assert [record.name for record in await pair[1].all("session", "sweep")] == ["alive"]
    assert [record.name for record in await pair[1].all("gateway", "sweep", ended=True)] == ["dead"]


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_server_that_does_not_answer_refuses(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frozen or killed, nothing is admitted: the control passes before, and again after it goes on."""
    with getattr(stores, kind)() as peer:
        store = store_of(peer.url)
        module = __import__(f"sandbox.serve.shared.{kind}", fromlist=["x"])
        monkeypatch.setattr(module, "ANSWER_TIMEOUT", 0.5)
        await store.open()
        bucket = Bucket(name_of("dies"), Rate(1000.0, 1000))
        try:
            assert (await store.take([bucket]))[0].allowed
            peer.pause()
            with pytest.raises(StateUnavailable, match="GATE-060"):
                await store.take([bucket])
            peer.resume()
            assert (await store.take([bucket]))[0].allowed
            peer.kill()
            for _ in range(2):
                with pytest.raises(StateUnavailable, match="GATE-060"):
                    await store.take([bucket])
        finally:
            await store.close()


async def test_a_file_that_was_taken_away_refuses(tmp_path: Path) -> None:
    """Attack: another file of that name would have limits of its own. The removed one is not used on either."""
    store = store_of(f"sqlite://{tmp_path}/state.db")
    await store.open()
    bucket = Bucket(name_of("file"), Rate(1.0, 5))
    assert (await store.take([bucket]))[0].allowed
    (tmp_path / "state.db").unlink()
    with pytest.raises(StateUnavailable):
        await store.take([bucket])
    (tmp_path / "state.db").write_bytes(b"")
    with pytest.raises(StateUnavailable):
        await store.take([bucket])
    await store.close()
