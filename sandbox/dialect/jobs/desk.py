"""Takes jobs, runs them, answers for them: the one implementation behind jobs of the dialect and tasks of MCP.

A job is recorded in the trail, then on disk, then acknowledged. It runs when its tenant's turn comes; when its server
is there, ``running`` is on disk before the call goes out (see :mod:`sandbox.dialect.jobs` for what that makes of a
crash). Every run is the call that its owner would have made: the identity that was verified when the job was taken is
held against the endpoint again, and policy decides again.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, TypeVar

from sandbox.dialect.invoke import Outcome, carry, refused
from sandbox.dialect.jobs.board import Board
from sandbox.dialect.jobs.claims import AWAY, AWAY_FOR, Alone, Claims, lost
from sandbox.dialect.jobs.model import Asked, Job
from sandbox.dialect.jobs.store import JobStore
from sandbox.dialect.model import Progress
from sandbox.dialect.refusals import DialectRefused, said
from sandbox.errors import SandboxError
from sandbox.events import Scope
from sandbox.serve.http.bounds import RETRY_AFTER
from sandbox.serve.http.doors import Behind, Door
from sandbox.serve.http.quotas import Quotas
from sandbox.serve.http.refusals import HttpRefused
from sandbox.serve.identity.model import Identity
from sandbox.wire.jsonrpc import Notification, Request

MAX_STARTS: Final = 10
"""Times that a job waits for room or for its server before it ends as an error; two seconds lie between."""

MAX_ATTEMPTS: Final = 3
"""Times that the call of an idempotent job goes out, when the gateway ends each time."""

EXPIRING: Final = 60.0
"""Seconds between looks for outcomes whose time is over."""

TRANSPORT: Final = "job"
"""How records say that a call came."""

T = TypeVar("T")


class Jobs:
    """Every job of a gateway.

    Args:
        store: on disk; used from one thread.
        scope: where facts are recorded.
        quotas: of the gateway.
        doors: endpoint of a path, ``None`` when it is not served any more.
        unsafe_tenant: see :class:`~sandbox.serve.identity.model.Gatekeeper`.
        ending: whether the gateway takes no new work.
        claims: keep other gateways from taking the same request.

    Attributes:
        board: what running jobs ask their owners.
    """

    def __init__(
        self,
        store: JobStore,
        scope: Scope,
        quotas: Quotas,
        doors: Callable[[str], Door | None],
        unsafe_tenant: str = "",
        ending: Callable[[], bool] = lambda: False,
        claims: Claims | None = None,
    ) -> None:
        self._store = store
        self._ending = ending
        self._claims: Claims = claims or Alone()
        self._scope = scope
        self._quotas = quotas
        self._doors = doors
        self._unsafe_tenant = unsafe_tenant
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="jobs")
        self._waiting: defaultdict[str, deque[Job]] = defaultdict(deque)
        self._running: Counter[str] = Counter()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._progress: dict[str, Progress] = {}
        self._ends: defaultdict[str, list[asyncio.Future[None]]] = defaultdict(list)
        self._expiring: asyncio.Task[None] | None = None
        self._changing: set[asyncio.Task[Any]] = set()
        self._paused = True
        self.board = Board()

    # --- life --------------------------------------------------------------------------------------------------------
    async def begin(self) -> None:
        """Take up what an earlier process left, and begin to run jobs."""
        lost_as = Outcome(failure=said(interrupted()), rpc={"code": interrupted().rpc_code, "data": {"id": "DIA-014"}})
        again, lost = await self._do(self._store.recover, lost_as, MAX_ATTEMPTS, time.time())
        for how, jobs in (("again", again), ("interrupted", lost)):
            for job in jobs:
                self._scope_of(job).fact("job.recover", job=job.id, tool=job.tool, how=how)
        for job in await self._do(self._store.waiting):
            self._waiting[job.identity.tenant.tenant].append(job)
        self._paused = False
        for tenant in list(self._waiting):
            self._next(tenant)
        self._expiring = asyncio.create_task(self._expire())

    async def close(self) -> None:
        """End what runs as a crash would, close the file; nothing is lost by it that a crash would keep."""
        self._paused = True
        tasks = [*self._tasks.values(), *([self._expiring] if self._expiring else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._changing, return_exceptions=True)
        await self._do(self._store.close)
        self._thread.shutdown()

    # --- for owners --------------------------------------------------------------------------------------------------
    async def take(self, asked: Asked) -> Job:
        """Return the job that was made of a request; the same request gives the same job.

        Raises:
            DialectRefused: ``DIA-009``, ``DIA-015``, ``DIA-017``; ``DIA-081``, another gateway has taken the request.
            PlatformError: ``DIA-019``; nothing was taken.
            StateUnavailable: nobody can say who has; nothing was taken.
            AuditUnavailable: the same.
        """
        named = replace(asked, id=self._claims.fresh())
        scope = self._scope.child().within(driver=self._name(asked.door), tenant=asked.identity.tenant.tenant)
        scope.intent("job.accept", job=named.id, kind=asked.kind, tool=asked.tool, request_id=asked.request_id)
        return await self._whole(self._taken(named))

    async def _taken(self, named: Asked) -> Job:
        async with self._claims.claimed(named):
            job, fresh = await self._do(self._store.add, named, time.time())
        if fresh:
            tenant = job.identity.tenant.tenant
            self._waiting[tenant].append(job)
            self._next(tenant)
        return job

    async def adopt(self, asked: Asked, goes_on: Callable[[Job], Awaitable[Outcome]]) -> Job:
        """Return the job that was made of a call that is with its server already.

        Args:
            asked: the call; ``going`` says whether it may be repeated.
            goes_on: returns what comes of it; cancelled with the job, and when this process ends.

        Raises:
            DialectRefused: ``DIA-015``, ``DIA-017``.
            SandboxError: as :meth:`take` says, or the gateway is full. The call is none of ours then.
        """
        tenant = asked.identity.tenant.tenant
        if self._paused or self._ending() or self._running[tenant] >= self._store.bounds.running:
            raise DialectRefused("DIA-015", "too many jobs run", "wait until some have ended")
        named, counted = replace(asked, id=self._claims.fresh()), contextlib.ExitStack()
        counted.enter_context(self._quotas.running(tenant, Notification("job", {})))
        self._running[tenant] += 1
        try:
            scope = self._scope.child().within(driver=self._name(asked.door), tenant=tenant)
            scope.intent("job.accept", job=named.id, kind=asked.kind, tool=asked.tool, request_id=asked.request_id)
            async with self._claims.claimed(named):
                job, _ = await self._do(self._store.add, named, time.time())
        except BaseException:
            self._leave(tenant)
            counted.close()
            self._begun(self._disowned(named))
            raise

        async def carried(job: Job) -> Outcome:
            with counted:
                return await goes_on(job)

        self._tasks[job.id] = asyncio.create_task(self._run(job, carried))
        return job

    async def _disowned(self, named: Asked) -> None:
        """End what reached the disk after all as a call that nobody waits for: nothing else would."""
        with contextlib.suppress(SandboxError):  # the next process finds it as it was left
            outcome = refused(DialectRefused("DIA-016", "the job was cancelled"))
            await self._do(self._store.end, named.id, "cancelled", outcome, time.time())

    async def find(self, job: str, identity: Identity, door: str) -> Job:
        """Return a job of its owner.

        Raises:
            DialectRefused: ``DIA-013``, there is none; another's is told alike.
        """
        found = await self._do(self._store.find, job, identity.owner, door, time.time())
        if found is None:
            raise DialectRefused("DIA-013", "there is no such job", "call the tool again")
        return found

    async def of(self, identity: Identity, door: str, after: int, most: int) -> list[tuple[int, Job]]:
        """Return an owner's jobs with their numbers, oldest first, after a number; none to who has no credential.

        Everybody who comes without one is one owner, so a list would tell each of the others' jobs; to know a job's id
        is what makes it one's own there.
        """
        if identity.anonymous:
            return []
        return await self._do(self._store.of, identity.owner, door, time.time(), after, most)

    async def cancel(self, job: str, identity: Identity, door: str) -> tuple[Job, bool]:
        """Cancel a job of its owner; return it, and whether it had not ended yet.

        Raises:
            DialectRefused: ``DIA-013``.
        """
        found = await self.find(job, identity, door)
        self._scope_of(found).intent("job.cancel", job=found.id, tool=found.tool)
        done = await self._whole(self._cancelled(found))
        return await self.find(job, identity, door), done

    async def _cancelled(self, found: Job) -> bool:
        error = DialectRefused("DIA-016", "the job was cancelled")
        done = await self._do(self._store.end, found.id, "cancelled", refused(error), time.time())
        if done:
            task = self._tasks.get(found.id)
            if task is not None:
                task.cancel()
            else:
                self._unqueue(found)
            self._ended(found)
        return done

    def _unqueue(self, job: Job) -> None:
        """Let go of a job that waits for its turn."""
        queue = self._waiting.get(job.identity.tenant.tenant, deque())
        for one in [one for one in queue if one.id == job.id]:
            queue.remove(one)

    def progress(self, job: str) -> Progress | None:
        """Return how far a running job is; kept in memory only."""
        return self._progress.get(job)

    def hear(self, job: str, progress: Progress) -> None:
        """Take note of how far one is."""
        self._progress[job] = progress

    async def until_ended(self, job: Job) -> None:
        """Return when a job has ended."""
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ends[job.id].append(told)
        try:
            if not (await self.find(job.id, job.identity, job.door)).ended:
                await told
        finally:
            told.cancel()
            self._ends[job.id].remove(told)
            if not self._ends[job.id]:
                del self._ends[job.id]

    # --- running -----------------------------------------------------------------------------------------------------
    def _next(self, tenant: str) -> None:
        queue = self._waiting[tenant]
        most = self._store.bounds.running
        while queue and not self._paused and not self._ending() and self._running[tenant] < most:
            job = queue.popleft()
            self._running[tenant] += 1
            self._tasks[job.id] = asyncio.create_task(self._run(job, self._outcome))
        if not queue:
            del self._waiting[tenant]

    async def _run(self, job: Job, carried: Callable[[Job], Awaitable[Outcome | None]]) -> None:
        try:
            outcome = await carried(job)
            if outcome is not None:
                await self._finish(job, outcome)
        except SandboxError as error:  # neither the trail nor the disk: the next process finds it as it was left
            self._progress.pop(job.id, None)
            self._note_stuck(job, error)
        finally:
            self._tasks.pop(job.id, None)
            self._leave(job.identity.tenant.tenant)

    def _leave(self, tenant: str) -> None:
        """Let the next job of a tenant run."""
        self._running[tenant] -= 1
        if not self._running[tenant]:
            del self._running[tenant]
        self._next(tenant)

    async def _finish(self, job: Job, outcome: Outcome) -> None:
        failed = outcome.result is None or bool(outcome.result.get("isError"))
        state: Any = "error" if failed else "success"
        if await self._do(self._store.end, job.id, state, outcome, time.time()):
            more = {"error": str(outcome.failure["id"])} if outcome.failure else {}
            self._scope_of(job).outcome("job.accept", job=job.id, tool=job.tool, status=state, **more)
            self._ended(job)

    async def _outcome(self, job: Job) -> Outcome | None:
        """Carry the call of a job; ``None`` when it was cancelled before it went out."""
        try:
            door, left, until = self._open_to(job), MAX_STARTS, time.monotonic() + AWAY_FOR
            while True:
                try:
                    return await self._once(job, door)
                except HttpRefused as refusal:  # no call went out
                    left -= 0 if refusal.id in AWAY and time.monotonic() < until else 1
                    if refusal.status not in (429, 503) or left <= 0:
                        return refused(refusal)
                await asyncio.sleep(RETRY_AFTER)
        except _Withdrawn:
            return None
        except DialectRefused as refusal:
            return refused(refusal)

    async def _once(self, job: Job, door: Door) -> Outcome:
        params = dict(job.params or {})
        message = Request(job.request_id, "tools/call", params)
        if not await self._claims.held(job):
            raise lost()

        async def ready(behind: Behind) -> None:
            tool = behind.exposure.tools.get(job.tool)
            idempotent = tool is not None and tool.binding.contract.idempotent
            if not await self._do_begin(job, idempotent=idempotent):
                raise _Withdrawn

        hear, ask = functools.partial(self.hear, job.id), self.board.asker(job.id, job.attempts + 1)
        with self._quotas.running(job.identity.tenant.tenant, message):
            return await carry(door, job.identity, message, TRANSPORT, hear, ready, ask)

    async def _do_begin(self, job: Job, *, idempotent: bool) -> bool:
        return await self._do(lambda: self._store.begin(job.id, idempotent=idempotent, now=time.time()))

    def _open_to(self, job: Job) -> Door:
        """Return the endpoint of a job, when its owner may still use it."""
        door, identity = self._doors(job.door), job.identity
        gone = identity.unsafe and identity.tenant.tenant != self._unsafe_tenant
        if door is None or gone or not identity.may_use(door.access):
            raise DialectRefused(
                "DIA-027", "the job's owner may not use its endpoint any more", "sign in and call again"
            )
        return door

    # --- helpers -----------------------------------------------------------------------------------------------------
    def _ended(self, job: Job) -> None:
        self._progress.pop(job.id, None)
        self.board.forget(job.id)
        for told in self._ends.get(job.id, ()):
            if not told.done():
                told.set_result(None)

    def note_refused(self, door: Door, identity: Identity, method: str, error: SandboxError) -> None:
        """Record that a request about a job was refused."""
        scope = self._scope.child().within(driver=door.name, tenant=identity.tenant.tenant)
        scope.fact("session.refuse", reason=error.id, method=method)

    def _note_stuck(self, job: Job, error: SandboxError) -> None:
        try:
            self._scope_of(job).fact("job.stuck", job=job.id, tool=job.tool, reason=error.id)
        except SandboxError:
            return  # the trail cannot be written: whoever runs the gateway is told so by every refused call

    def _scope_of(self, job: Job) -> Scope:
        return self._scope.child().within(driver=self._name(job.door), tenant=job.identity.tenant.tenant)

    def _name(self, path: str) -> str:
        door = self._doors(path)
        return door.name if door is not None else ""

    async def _whole(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what some work gives, which goes on to its end when the caller goes away: disk and memory agree."""
        return await asyncio.shield(self._begun(work))

    def _begun(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._changing.add(task)
        task.add_done_callback(self._changing.discard)
        return task

    async def _do(self, work: Callable[..., T], *given: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *given)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRING)
            await self._do(self._store.expire, time.time())


class _Withdrawn(Exception):
    """The job was cancelled before its call went out."""


def interrupted() -> DialectRefused:
    """Return what is said of a job whose call was with its server when the gateway ended."""
    return DialectRefused(
        "DIA-014",
        "the gateway ended while this call was with its server; whether it was carried out is not known",
        "find out whether it was; call again if it may happen twice",
    )
