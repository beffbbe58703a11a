"""Jobs in the words of the tasks extension of 2026-07-28; the same store, states and owners as all other jobs.

=====================================  ================================================================
job                                    task
=====================================  ================================================================
waiting, running                       ``working``; ``input_required`` while its server asks something
with a result, also with ``isError``   ``completed``
without one                            ``failed``, with the JSON-RPC error that the call gave
cancelled                              ``cancelled``
=====================================  ================================================================

A call becomes a job here while it is with its server. It is kept as ``running`` from the first, so a crash makes of it
what it makes of every running job (:mod:`sandbox.dialect.jobs`), and before that it was an ordinary call, which nobody
repeats either: *at most once* holds throughout.

``ttlMs`` counts from ``createdAt``, as the extension has it, and grows when the call ends: an outcome is kept from
then.
"""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sandbox import jsontext
from sandbox.dialect.bounds import JobBounds
from sandbox.dialect.invoke import Course, Outcome, outcome_of, refused, to_the_end
from sandbox.dialect.jobs.desk import Jobs
from sandbox.dialect.jobs.model import Asked, Job
from sandbox.dialect.jobs.tasks import stamp
from sandbox.dialect.refusals import DialectRefused
from sandbox.errors import SandboxError, ServerFault
from sandbox.serve.asking import ASKABLE
from sandbox.serve.client_replies import ProtocolMisuse
from sandbox.serve.http.doors import Door
from sandbox.serve.http.lasting import Going
from sandbox.serve.identity.model import Identity
from sandbox.wire import meta, tracing
from sandbox.wire.codes import INTERNAL_ERROR, INVALID_PARAMS
from sandbox.wire.versions import LATEST_STATELESS

CANCELLED: Final = "DIA-016"


@dataclass(frozen=True, slots=True)
class LastingDesk:
    """Tasks of one caller at one endpoint: :class:`sandbox.serve.client_lasting.Lasting`.

    Attributes:
        jobs: of the gateway.
        identity: who sends the request.
        door: whose server is called.
        bounds: of jobs.
    """

    jobs: Jobs
    identity: Identity
    door: Door
    bounds: JobBounds

    @property
    def after(self) -> float:
        """Seconds that a call may last until it becomes a task."""
        return self.bounds.task_after

    async def keep(self, going: Going) -> dict[str, Any]:
        """Take over a call that goes on and return its ``Task``, durably made; when it raises, it has taken nothing."""
        params = going.message.params
        tool, arguments = str(params.get("name")), params.get("arguments", {})
        asked = Asked(
            kind="task",
            request_id=str(uuid.uuid4()),  # ids of JSON-RPC are those of a connection, and a task outlives it
            door=self.door.path,
            tool=tool,
            identity=self.identity,
            params={"name": tool, "arguments": arguments, "_meta": _own(meta.of(params))},
            digest=jsontext.digest([tool, arguments]),
            ttl=self.bounds.ttl,
            going=going.idempotent,
        )
        return self._seed(await self.jobs.adopt(asked, functools.partial(self._goes_on, going)))

    async def _goes_on(self, going: Going, job: Job) -> Outcome:
        """Return what comes of a call that was taken over."""
        course = Course(going.message, going.channel, going.stream, going.session)
        started, cancelled = time.perf_counter(), True
        try:
            answer = await to_the_end(
                course, functools.partial(self.jobs.hear, job.id), self.jobs.board.asker(job.id, 1)
            )
            cancelled = False
            return outcome_of(answer, int((time.perf_counter() - started) * 1000))
        except ServerFault as error:
            if going.lost:
                return refused(DialectRefused(CANCELLED, "its client left before it was told of the task"))
            return refused(error)
        finally:
            await going.close(cancelled=cancelled)

    async def told(self, task: str) -> dict[str, Any]:
        """Return a ``DetailedTask``."""
        return self._detailed(await self._find(task))

    async def update(self, task: str, responses: Mapping[str, Any]) -> None:
        """Take answers to what a task asks; those to anything else are not looked at."""
        self.jobs.board.answer((await self._find(task)).id, responses)

    async def cancel(self, task: str) -> None:
        """Cancel a task if it has not ended."""
        if not (await self._find(task)).ended:
            await self.jobs.cancel(task, self.identity, self.door.path)

    async def known(self, wanted: Sequence[str]) -> tuple[str, ...]:
        """Return those that are tasks of the caller."""
        found = []
        for task in wanted:
            try:
                found.append((await self._find(task)).id)
            except ProtocolMisuse:
                continue
        return tuple(found)

    async def news(self, task: str) -> AsyncGenerator[dict[str, Any], None]:
        """Yield a ``DetailedTask`` now and with every change until the task has ended."""
        while True:
            change = self.jobs.board.change(task)  # before the look: a change in between is not missed
            try:
                job = await self._find(task)
                yield self._detailed(job)
                if job.ended:
                    return
                await change
            finally:
                self.jobs.board.leave(task, change)

    def refused(self, method: str, error: SandboxError) -> None:
        """Record that a request was refused."""
        self.jobs.note_refused(self.door, self.identity, method, error)

    async def _find(self, task: str) -> Job:
        try:
            return await self.jobs.find(task, self.identity, self.door.path)
        except DialectRefused as refusal:
            if refusal.id != "DIA-013":
                raise
            raise ProtocolMisuse(refusal.id, "there is no such task", refusal.mend, code=INVALID_PARAMS) from None

    def _detailed(self, job: Job) -> dict[str, Any]:
        outcome = job.outcome
        if not job.ended or outcome is None:
            asked = self.jobs.board.questions(job.id)
            return {**self._seed(job), **({"inputRequests": asked} if asked else {})}
        if job.state == "cancelled":
            return self._seed(job)
        if outcome.result is not None:
            return {**self._seed(job), "result": dict(outcome.result)}
        return {**self._seed(job), "error": _error(outcome)}

    def _seed(self, job: Job) -> dict[str, Any]:
        """Return the ``Task`` without what belongs to its status."""
        board, outcome = self.jobs.board, job.outcome
        status, words = "working", ""
        if job.ended:
            done = "failed" if outcome is None or outcome.result is None else "completed"
            status = "cancelled" if job.state == "cancelled" else done
            words = str(outcome.failure.get("message", "")) if outcome is not None and outcome.failure else ""
        elif board.questions(job.id):
            status, words = "input_required", "the server asks something"
        elif (progress := self.jobs.progress(job.id)) is not None:
            words = progress.message
        lives = job.ttl + (job.updated - job.created if job.ended else 0.0)
        return {
            "taskId": job.id,
            "status": status,
            **({"statusMessage": words} if words else {}),
            "createdAt": stamp(job.created),
            "lastUpdatedAt": stamp(max(job.updated, 0.0 if job.ended else board.changed(job.id))),
            "ttlMs": int(lives * 1000),
            "pollIntervalMs": int(self.bounds.poll_after * 1000),
        }


def _own(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``_meta`` under which a call is made again: of its client's capabilities those that it is asked by."""
    able = said.get(meta.CLIENT_CAPABILITIES)
    info = said.get(meta.CLIENT_INFO)
    remote = tracing.read(said)
    return {
        meta.PROTOCOL_VERSION: LATEST_STATELESS,
        meta.CLIENT_CAPABILITIES: {name: able[name] for name in ASKABLE.values() if name in able} if able else {},
        meta.CLIENT_INFO: dict(info) if isinstance(info, Mapping) else {},
        **({tracing.TRACEPARENT: remote.parent} if remote is not None else {}),
    }


def _error(outcome: Outcome) -> dict[str, Any]:
    """Return the JSON-RPC error of a call that had no result."""
    failure, rpc = dict(outcome.failure or {}), dict(outcome.rpc or {})
    data = {"data": rpc["data"]} if rpc.get("data") is not None else {}
    return {"code": int(rpc.get("code", INTERNAL_ERROR)), "message": str(failure.get("message", "")), **data}
