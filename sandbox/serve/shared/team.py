"""One gateway among those that share a store: its heartbeat, what it holds, and what it lets go of.

Nobody leads. Each gateway keeps a record of itself, and everything that it holds ends with its heartbeat:

- the *home* of a tenant: the one gateway where those of its servers run that keep something in their process;
- *servers*: claims that count a tenant's instances over all gateways, and the folders that they write to.

A gateway that cannot renew in time lets go before anybody else can take over: it ends its sessions and servers at
three quarters of the lease, by its own clock, whether the store answers or not. What others left behind, expired
records and, through ``clean``, the containers of gateways whose heartbeat has ended, any gateway removes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from sandbox.errors import SandboxError
from sandbox.events import Scope
from sandbox.serve.shared.interface import Record, StateUnavailable, Store, name_of
from sandbox.tenant import TenantId

LEASE: Final = 20.0
"""Seconds after its last heartbeat for which a gateway keeps what it holds, and others wait before they take over."""

SWEEP_EVERY: Final = 6
"""Heartbeats between two looks for what others left behind."""

GATEWAYS: Final = name_of("gateways")


@dataclass(frozen=True, slots=True)
class Home:
    """Where a tenant's servers run.

    Attributes:
        mine: here.
        address: of the gateway where they do, empty when it has told none.
        fence: grows with each move.
    """

    mine: bool
    address: str
    fence: int


async def _no_clean(_owner: str) -> int:
    return 0


@dataclass(slots=True)
class Duties:
    """What a team asks of the gateway it belongs to.

    Attributes:
        needed: whether a tenant has sessions or servers here.
        lost: ends every session and server at once; they may be somebody else's now.
        owner: label of what this gateway's run leaves on its engine.
        clean: removes what a run of an owner left on this engine, and returns how much that was.
    """

    needed: Callable[[TenantId], bool] = lambda _tenant: False
    lost: Callable[[], None] = lambda: None
    owner: str = ""
    clean: Callable[[str], Awaitable[int]] = field(default=_no_clean)


class Team:
    """This gateway, as the others see it.

    Args:
        store: opened.
        scope: where changes are recorded.
        address: where other gateways reach this one; empty: nowhere.
        lease: seconds.

    Attributes:
        id: of this gateway, for as long as it runs.
        address: see above.
        duties: set by whoever builds the gateway, before :meth:`begin`.
        store: shared.
    """

    def __init__(self, store: Store, scope: Scope, address: str = "", lease: float = LEASE) -> None:
        self.id = secrets.token_hex(8)
        self.store = store
        self.lease = lease
        self.duties = Duties()
        self._scope = scope
        self.address = address
        self._until = 0.0
        self._homes: dict[str, tuple[TenantId, int]] = {}
        self._using: Counter[str] = Counter()
        self._leaving: dict[str, asyncio.Event] = {}
        self._cleaned: set[str] = set()
        self._reachable = True
        self._task: asyncio.Task[None] | None = None
        self._cleaning: asyncio.Task[None] | None = None
        self.tidy: Callable[[], Awaitable[None]] | None = None

    # --- life ------------------------------------------------------------------------------------------------------
    async def begin(self) -> None:
        """Tell the others, and begin the heartbeat.

        Raises:
            StateUnavailable: the store does not answer.
        """
        await self._join()
        self._task = asyncio.create_task(self._keep())

    async def leave(self) -> None:
        """End the heartbeat and let go of everything at once, so that others need not wait."""
        for task in (self._task, self._cleaning):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._until = 0.0
        with contextlib.suppress(StateUnavailable):
            for record in await self.store.renew(self.id, 0):
                await self.store.drop(record.kind, record.name, self.id)

    @property
    def well(self) -> bool:
        """Whether requests can be taken."""
        return self._reachable and asyncio.get_running_loop().time() < self._until

    # --- homes -----------------------------------------------------------------------------------------------------
    @contextlib.asynccontextmanager
    async def at_home(self, tenant: TenantId) -> AsyncIterator[Home]:
        """Say where a tenant's servers run; when that is here, it stays so for the caller's block.

        Raises:
            StateUnavailable: nobody can say.
        """
        name = name_of("home", tenant)
        self._using[name] += 1
        try:
            yield await self._home(name, tenant)
        finally:
            self._using[name] -= 1
            if not self._using[name]:
                del self._using[name]

    async def _home(self, name: str, tenant: TenantId) -> Home:
        self._check_beating()
        known = self._homes.get(name)
        if known is not None:
            return Home(True, self.address, known[1])
        while name in self._leaving:
            await self._leaving[name].wait()
        record = await self.store.acquire(Record("home", name, "", self.id, self.address), self.lease)
        self._check_beating()  # whatever was held when the store was asked may have been let go of meanwhile
        mine = record.holder == self.id
        if mine and name not in self._homes:
            self._homes[name] = (tenant, record.fence)
            with contextlib.suppress(SandboxError):  # it announces nothing: each call has records of its own
                self._scope.within(tenant=tenant).fact("gateway.home", gateway=self.id, fence=record.fence)
        return Home(mine, record.value, record.fence)

    def _check_beating(self) -> None:
        if asyncio.get_running_loop().time() >= self._until:
            raise StateUnavailable("this gateway's own heartbeat is late")

    async def _give_up_unneeded(self) -> None:
        """Let other gateways have tenants that nobody uses here."""
        for name, (tenant, _) in list(self._homes.items()):
            if self._using[name] or self.duties.needed(tenant):
                continue
            del self._homes[name]
            self._leaving[name] = asyncio.Event()
            try:
                await self.store.drop("home", name, self.id)
            finally:
                self._leaving.pop(name).set()

    # --- heartbeat -------------------------------------------------------------------------------------------------
    async def _join(self) -> None:
        started = asyncio.get_running_loop().time()
        about = json.dumps({"address": self.address, "owner": self.duties.owner})
        await self.store.put(Record("gateway", self.id, GATEWAYS, self.id, about), self.lease)
        self._until = started + self.lease * 0.75

    async def _keep(self) -> None:
        watching = asyncio.create_task(self._let_go_in_time())
        try:
            await self._beats()
        finally:
            watching.cancel()

    async def _beats(self) -> None:
        loop, beats = asyncio.get_running_loop(), 0
        while True:
            left = self._until - loop.time()
            await asyncio.sleep(min(self.lease / 4, left) if left > 0 else self.lease / 4)
            try:
                await self._beat()
                beats += 1
                if not beats % SWEEP_EVERY and (self._cleaning is None or self._cleaning.done()):
                    self._cleaning = asyncio.create_task(self._clean_beside())  # an engine may take its time
                self._tell(reachable=True)
            except Exception as error:  # noqa: BLE001 - without a heartbeat it would hold on for ever
                self._failed(error)

    async def _clean_beside(self) -> None:
        try:
            await self.clean_up()
        except Exception as error:  # noqa: BLE001 - it is tried again
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, StateUnavailable):
            self._tell(reachable=False, reason=error.cause)
        else:
            self._tell(reachable=self._reachable and isinstance(error, SandboxError), reason=type(error).__name__)

    async def _let_go_in_time(self) -> None:
        """Let go of everything once a heartbeat is late, whatever the heartbeat itself is waiting for."""
        loop = asyncio.get_running_loop()
        while True:
            left = self._until - loop.time()
            await asyncio.sleep(left if left > 0 else self.lease / 4)
            if 0 < self._until <= loop.time():
                self._lose("the heartbeat is late")

    async def _beat(self) -> None:
        started, held = asyncio.get_running_loop().time(), list(self._homes)  # what is acquired meanwhile is fresh
        renewed = {(record.kind, record.name) for record in await self.store.renew(self.id, self.lease)}
        if ("gateway", self.id) not in renewed or any(("home", name) not in renewed for name in held):
            self._lose("others may have taken over")
            await self._join()
            return
        self._until = started + self.lease * 0.75
        await self._give_up_unneeded()
        if self.tidy is not None:
            await self.tidy()

    def _lose(self, reason: str) -> None:
        self._until = 0.0
        self._homes.clear()
        self.duties.lost()
        with contextlib.suppress(SandboxError):
            self._scope.fact("gateway.lose", gateway=self.id, reason=reason)

    def _tell(self, *, reachable: bool, reason: str = "") -> None:
        if reachable != self._reachable:
            self._reachable = reachable
            with contextlib.suppress(SandboxError):
                self._scope.fact("gateway.state", gateway=self.id, reachable=reachable, reason=reason)

    # --- what others left ------------------------------------------------------------------------------------------
    async def clean_up(self) -> None:
        """Remove what has ended, whoever's it was.

        Raises:
            SandboxError: the store or the engine does not answer.
        """
        await self.store.sweep()
        for record in await self.store.all("gateway", GATEWAYS, ended=True):
            if record.name in self._cleaned or record.name == self.id:
                continue
            owner = str(json.loads(record.value).get("owner", ""))
            removed = await self.duties.clean(owner) if owner and owner != self.duties.owner else 0
            self._cleaned.add(record.name)
            if removed:
                with contextlib.suppress(SandboxError):
                    self._scope.fact("gateway.reap", gateway=record.name, removed=removed)
