"""Counts a tenant's servers over all gateways, and keeps two tenants from writing one folder through two gateways.

A claim is put first and counted afterwards: of two gateways that claim at the same moment at least one sees the other,
so that the bound is never passed; both may be refused. Everybody who waits for a pair waits for one claim; one that is
broken off, or is being given back, is never taken for one that holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from sandbox.errors import CallRefused
from sandbox.serve.http.doors import Lender, Lent
from sandbox.serve.shared.interface import Record, StateUnavailable, name_of
from sandbox.serve.shared.team import Team
from sandbox.supervisor.bounds import PoolBounds
from sandbox.tenant import TenantId

Pair = tuple[str, TenantId]
FOLDERS = name_of("folders")


class Pool(Lender, Protocol):
    """What is lent from: :class:`sandbox.supervisor.pool.Instances`.

    Attributes:
        bounds: how many instances a tenant may have, which is counted over all gateways.
    """

    bounds: PoolBounds

    def has(self, driver: str, tenant: TenantId) -> bool:
        """Return whether the pair has an instance that is not wholly gone."""

    def written(self, driver: str, tenant: TenantId) -> Sequence[str]:
        """Return the folders of the host that the pair's instance writes to."""


class SharedLender:
    """Implements :class:`~sandbox.serve.http.doors.Lender` over a pool.

    Args:
        pool: of this gateway.
        team: of this gateway.
    """

    def __init__(self, pool: Pool, team: Team) -> None:
        self._pool = pool
        self._team = team
        self._claims: set[Pair] = set()
        self._doubtful: set[Pair] = set()  # may stand in the store, though nobody has them
        self._leasing: Counter[Pair] = Counter()
        self._claiming: dict[Pair, asyncio.Task[None]] = {}
        self._dropping: dict[Pair, asyncio.Event] = {}
        self._lost = 0
        team.tidy = self._tidy

    @contextlib.asynccontextmanager
    async def lease(self, driver: str, tenant: TenantId, user: str = "") -> AsyncIterator[Lent]:
        """Lend the instance of a driver and tenant.

        Raises:
            CallRefused: ``GATE-063`` too many over all gateways, ``GATE-066`` another tenant writes there.
            StateUnavailable: nobody can say.
            SandboxError: as the pool's own.
        """
        pair = (driver, tenant)
        self._leasing[pair] += 1
        try:
            await self._claimed(pair)
            async with self._pool.lease(driver, tenant, user) as lent:
                yield lent
        finally:
            self._leasing[pair] -= 1
            if not self._leasing[pair]:
                del self._leasing[pair]

    async def _claimed(self, pair: Pair) -> None:
        """Return when a pair is claimed, and has been ever since."""
        lost = self._lost
        while pair not in self._claims:
            if pair in self._dropping:
                await self._dropping[pair].wait()
            else:
                await asyncio.shield(self._claiming.get(pair) or self._begin(pair))
        if lost != self._lost:
            raise _moved()

    def _begin(self, pair: Pair) -> asyncio.Task[None]:
        task = self._claiming[pair] = asyncio.create_task(self._claim(pair))

        def ended(done: asyncio.Task[None]) -> None:
            del self._claiming[pair]
            if not done.cancelled():
                done.exception()  # whoever waited has it

        task.add_done_callback(ended)
        return task

    async def _claim(self, pair: Pair) -> None:
        (driver, tenant), lost = pair, self._lost
        self._doubtful.add(pair)
        store, own, group = self._team.store, self._name(pair), name_of("tenant", tenant)
        await store.put(Record("server", own, group, self._team.id), self._team.lease)
        most = self._pool.bounds.of_tenant
        if await store.count("server", group) > most:
            await self._drop(pair)
            text = f"this tenant has {most} servers over all gateways"
            raise CallRefused("GATE-063", text, "end one of them, or wait until one is idle")
        folders = list(self._pool.written(driver, tenant))
        if folders:
            value = json.dumps({"tenant": group, "folders": folders})
            await store.put(Record("folder", own, FOLDERS, self._team.id, value), self._team.lease)
            others = [json.loads(one.value) for one in await store.all("folder", FOLDERS)]
            if any(one["tenant"] != group and _overlap(folders, one["folders"]) for one in others):
                await self._drop(pair)
                text = "another tenant's server writes to the folder that this one would write to"
                raise CallRefused("GATE-066", text, "grant each tenant a folder of its own")
        if lost != self._lost:
            raise _moved()
        self._doubtful.discard(pair)
        self._claims.add(pair)

    async def _tidy(self) -> None:
        """Give back what no instance needs any more."""
        for pair in [*self._claims, *self._doubtful]:
            if self._leasing[pair] or pair in self._claiming or self._pool.has(*pair):
                continue
            self._claims.discard(pair)
            self._doubtful.add(pair)
            self._dropping[pair] = asyncio.Event()
            try:
                await self._drop(pair)
                self._doubtful.discard(pair)
            finally:
                self._dropping.pop(pair).set()

    def forget(self) -> None:
        """Take every claim for lost: each has to be made again."""
        self._claims.clear()
        self._lost += 1

    async def _drop(self, pair: Pair) -> None:
        for kind in ("folder", "server"):
            await self._team.store.drop(kind, self._name(pair), self._team.id)

    def _name(self, pair: Pair) -> str:
        return name_of("server", self._team.id, *pair)


class HomeLender:
    """Lends only where a tenant is at home: servers that keep something in their process run at one gateway at a time.

    Doors that the application answers are sent to the right gateway before (:mod:`sandbox.serve.http.together`); this
    holds whatever else asks for a server.

    Args:
        lender: counts and lends.
        team: of this gateway.
    """

    def __init__(self, lender: SharedLender, team: Team) -> None:
        self._lender = lender
        self._team = team

    @contextlib.asynccontextmanager
    async def lease(self, driver: str, tenant: TenantId, user: str = "") -> AsyncIterator[Lent]:
        """Lend the instance of a driver and tenant; the tenant stays at home here meanwhile.

        Raises:
            CallRefused: ``GATE-061``, it is at home elsewhere.
            SandboxError: as :class:`SharedLender`.
        """
        async with self._team.at_home(tenant) as home:
            if not home.mine:
                mend = "send requests of one client to one gateway"
                raise CallRefused("GATE-061", "the servers of this tenant run at another gateway", mend)
            async with self._lender.lease(driver, tenant, user) as lent:
                yield lent


def _moved() -> StateUnavailable:
    return StateUnavailable("others may have taken over meanwhile")


def _overlap(some: Sequence[str], others: Sequence[str]) -> bool:
    return any(
        one == other or one.startswith(other + "/") or other.startswith(one + "/") for one in some for other in others
    )
