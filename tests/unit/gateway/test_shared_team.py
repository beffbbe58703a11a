"""The heartbeat of one gateway among several: what it survives, and what it lets go of."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from sandbox.events import Scope, Trace
from sandbox.serve.ratelimit import MICRO
from sandbox.serve.shared.interface import Record, StateUnavailable, name_of
from sandbox.serve.shared.memory import MemoryStore
from sandbox.serve.shared.team import SWEEP_EVERY, Duties, Team
from sandbox.tenant import TenantId
from sandbox.testing.memory import MemoryRecorder

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]
ACME = TenantId("acme")


class Trying(MemoryStore):
    """A store that does something else before it renews."""

    def __init__(self, instead: Callable[[], Any] | None = None) -> None:
        super().__init__(time.monotonic)
        self.instead = instead

    async def renew(self, holder: str, seconds: float) -> list[Record]:
        """Renew, and be interrupted."""
        found = await super().renew(holder, seconds)
        if self.instead is not None:
            await self.instead()
        return found


def team_of(store: MemoryStore, lease: float = 2.0) -> tuple[Team, MemoryRecorder, list[str]]:
    """Return a gateway, what it records, and what it lost."""
    recorder, lost = MemoryRecorder(), list[str]()
    team = Team(store, Scope(recorder, Trace.new()), "http://127.0.0.1:1", lease)
    team.duties = Duties(needed=lambda _tenant: True, lost=lambda: lost.append("all"))
    return team, recorder, lost


async def eventually(what: Callable[[], bool]) -> None:
    """Return when something holds, within a bounded time."""
    for _ in range(500):
        if what():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never held")


async def test_a_home_taken_during_a_heartbeat_is_not_lost() -> None:
    """What is acquired while the heartbeat is on its way was not part of it."""
    store = Trying()
    team, _, lost = team_of(store)
    await team.begin()

    async def acquire() -> None:
        async with team.at_home(ACME) as home:
            assert home.mine

    store.instead = acquire
    await asyncio.sleep(1.2)
    assert (lost, team.well) == ([], True)
    await team.leave()


@pytest.mark.parametrize("error", [ValueError("a defect"), StateUnavailable("gone"), OSError("engine")])
async def test_a_heartbeat_that_fails_goes_on(error: Exception) -> None:
    """Whatever fails, what is held is let go of in time, requests are refused, and later all goes on."""
    store = Trying()
    team, recorder, lost = team_of(store)
    await team.begin()
    async with team.at_home(ACME) as home:
        assert home.mine

    async def fail() -> None:
        raise error

    store.instead = fail
    await eventually(lambda: lost == ["all"])
    assert not team.well
    with pytest.raises(StateUnavailable, match="GATE-060"):
        async with team.at_home(ACME):
            pass
    store.instead = None
    await eventually(lambda: team.well)
    async with team.at_home(ACME) as home:
        assert home.mine
    states = [fact.attrs["reachable"] for fact in recorder.facts if fact.name == "gateway.state"]
    assert states == [False, True]
    assert lost[0] == "all"
    await team.leave()


async def test_a_tenant_that_nobody_needs_moves_on_and_one_in_use_stays() -> None:
    """The home is given up after the last request; while a request runs it is not."""
    store = MemoryStore(time.monotonic)
    one, _, _ = team_of(store)
    other, _, _ = team_of(store)
    one.duties.needed = lambda _tenant: False
    await one.begin()
    await other.begin()
    async with one.at_home(ACME) as home:
        assert home.mine
        await asyncio.sleep(0.8)
        async with other.at_home(ACME) as away:
            assert (away.mine, away.address) == (False, "http://127.0.0.1:1")

    for _ in range(300):
        async with other.at_home(ACME) as moved:
            if moved.mine:
                break
        await asyncio.sleep(0.02)
    assert moved.mine
    assert moved.fence > home.fence
    await one.leave()
    await other.leave()


async def test_who_leaves_lets_go_of_everything() -> None:
    """Nothing of it is living afterwards, and nobody has to wait."""
    store = MemoryStore(time.monotonic)
    one, _, _ = team_of(store, lease=600)
    other, _, _ = team_of(store, lease=600)
    await one.begin()
    await other.begin()
    async with one.at_home(ACME):
        pass
    await one.leave()
    async with other.at_home(ACME) as home:
        assert home.mine
    assert await store.renew(one.id, 1) == []
    await other.leave()


async def test_what_a_dead_gateway_left_takes_its_time_and_nothing_is_lost() -> None:
    """Cleaning up after others, which may take longer than a lease, does not hold the heartbeat up."""
    store = Trying()
    gone, _, _ = team_of(store)
    gone.duties.owner = "gone"
    await gone._join()
    await store.drop("gateway", gone.id)
    team, recorder, lost = team_of(store)
    begun, end, beats = asyncio.Event(), asyncio.Event(), list[str]()

    async def clean(owner: str) -> int:
        assert owner == "gone"
        begun.set()
        await end.wait()
        return 1

    async def beat() -> None:
        beats.append("beat")

    team.duties.clean, store.instead = clean, beat
    await team.begin()
    async with team.at_home(ACME) as home:
        assert home.mine
    await asyncio.wait_for(begun.wait(), 20)
    beats.clear()
    await eventually(lambda: len(beats) >= 2 * SWEEP_EVERY or bool(lost))
    assert (lost, team.well) == ([], True)
    end.set()
    await eventually(lambda: any(fact.name == "gateway.reap" for fact in recorder.facts))
    await team.leave()


@pytest.mark.claim("P-GATE-61")
async def test_a_heartbeat_that_hangs_lets_go_before_the_lease_ends() -> None:
    """Whatever a beat waits for, everything is let go of while no other gateway can have taken over."""
    store = Trying()
    team, _, _ = team_of(store, lease=8.0)
    ours: list[bool] = []

    def lost() -> None:
        _, ends = store._records["home", name_of("home", ACME)]
        ours.append(ends > int(time.monotonic() * MICRO))

    team.duties.lost = lost
    await team.begin()
    async with team.at_home(ACME) as home:
        assert home.mine
    hang = asyncio.Event()
    store.instead = hang.wait
    await eventually(lambda: bool(ours))
    assert ours == [True]
    assert not team.well
    store.instead = None
    await team.leave()


@pytest.mark.claim("P-GATE-61")
async def test_a_home_that_comes_after_everything_was_let_go_of_is_none() -> None:
    """A store that answers late gives a tenant to nobody who would not notice that others took over."""
    store = Trying()
    team, _, lost = team_of(store)
    late, acquire = asyncio.Event(), store.acquire

    async def acquiring(record: Record, seconds: float) -> Record:
        found = await acquire(record, seconds)
        await late.wait()
        return found

    store.acquire = acquiring  # type: ignore[method-assign]
    await team.begin()

    async def come() -> bool:
        async with team.at_home(ACME) as home:
            return home.mine

    coming = asyncio.create_task(come())
    await asyncio.sleep(0)
    store.instead = asyncio.Event().wait
    await eventually(lambda: lost == ["all"])
    late.set()
    with pytest.raises(StateUnavailable, match="GATE-060"):
        await coming
    store.instead = None
    await team.leave()
