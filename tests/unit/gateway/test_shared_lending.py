"""Claims on servers and folders over several gateways: none outlives its reason, and none is lost while it has one."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from sandbox.events import Scope, Trace
from sandbox.serve.shared.interface import Kind, Record, StateUnavailable
from sandbox.serve.shared.lending import FOLDERS, SharedLender
from sandbox.serve.shared.memory import MemoryStore
from sandbox.serve.shared.team import Team
from sandbox.supervisor.bounds import PoolBounds
from sandbox.tenant import TenantId
from sandbox.testing.memory import MemoryRecorder

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]
ACME = TenantId("acme")
CLAIMS = ("server", "folder")


class Slow(MemoryStore):
    """A store whose steps of one name wait first."""

    def __init__(self) -> None:
        super().__init__(time.monotonic)
        self.waits = ""
        self.waiting, self.go = asyncio.Event(), asyncio.Event()

    async def _step(self, name: str) -> None:
        if name == self.waits:
            self.waiting.set()
            await self.go.wait()

    async def count(self, kind: Kind, group: str) -> int:
        """Count, late."""
        await self._step("count")
        return await super().count(kind, group)

    async def drop(self, kind: Kind, name: str, holder: str = "") -> None:
        """End a record, late."""
        await self._step("drop")
        await super().drop(kind, name, holder)


class Pooled:
    """What is lent: one writing server for each tenant."""

    bounds = PoolBounds()

    def __init__(self) -> None:
        self.lent: list[TenantId] = []

    @contextlib.asynccontextmanager
    async def lease(self, _driver: str, tenant: TenantId, _user: str = "") -> AsyncIterator[Any]:
        """Lend one."""
        self.lent.append(tenant)
        try:
            yield None
        finally:
            self.lent.remove(tenant)

    def has(self, _driver: str, tenant: TenantId) -> bool:
        """Whether it is lent."""
        return tenant in self.lent

    def written(self, _driver: str, _tenant: TenantId) -> Sequence[str]:
        """The one folder."""
        return ("/srv/shared",)


def lender_of(store: MemoryStore) -> tuple[SharedLender, Team]:
    """Return what lends at one gateway."""
    team = Team(store, Scope(MemoryRecorder(), Trace.new()), "http://127.0.0.1:1", 600.0)
    return SharedLender(Pooled(), team), team


async def folders(store: MemoryStore) -> list[Record]:
    """Return the claims on folders that count."""
    return await store.all("folder", FOLDERS)


async def test_a_request_that_goes_away_leaves_no_claim() -> None:
    """Who disconnects while a server is claimed blocks nobody afterwards: the next heartbeat gives it back."""
    store = Slow()
    lender, team = lender_of(store)
    store.waits = "count"

    async def come(tenant: TenantId) -> None:
        async with lender.lease("driver", tenant):
            pass

    coming = asyncio.create_task(come(ACME))
    await store.waiting.wait()
    coming.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await coming
    store.go.set()
    assert team.tidy is not None
    for _ in range(500):
        await team.tidy()
        living = [one for one in store._records.values() if one[0].kind in CLAIMS and one[1] > store._now()]
        if not living:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(living)


async def test_a_claim_that_is_given_back_is_not_that_of_whoever_comes_meanwhile() -> None:
    """A server that is claimed again while its old claim is dropped is counted, and keeps its folder."""
    store = Slow()
    lender, team = lender_of(store)
    async with lender.lease("driver", ACME):
        pass
    store.waits = "drop"
    assert team.tidy is not None
    tidying = asyncio.ensure_future(team.tidy())
    await store.waiting.wait()

    entered, leave = asyncio.Event(), asyncio.Event()

    async def come() -> None:
        async with lender.lease("driver", ACME):
            entered.set()
            await leave.wait()

    coming = asyncio.create_task(come())
    await asyncio.sleep(0.05)
    store.go.set()
    await tidying
    await entered.wait()
    assert len(await folders(store)) == 1
    leave.set()
    await coming


async def test_what_is_claimed_while_everything_is_lost_is_not_lent() -> None:
    """A claim that was on its way when others may have taken over lends nothing."""
    store = Slow()
    lender, _ = lender_of(store)
    store.waits = "count"

    async def come() -> None:
        async with lender.lease("driver", ACME):
            raise AssertionError("it was lent")

    coming = asyncio.create_task(come())
    await store.waiting.wait()
    lender.forget()
    store.go.set()
    with pytest.raises(StateUnavailable, match="GATE-060"):
        await coming
