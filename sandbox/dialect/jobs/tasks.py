"""Jobs in the words of MCP 2025-11-25 tasks; the same store, states and owners as jobs of the dialect.

=====================  ================================================================
job                    task
=====================  ================================================================
waiting, running       ``working``
success                ``completed``
error                  ``failed``; ``tasks/result`` gives what the call gave, also when that is an error
cancelled              ``cancelled``
=====================  ================================================================

``ttl`` is kept from the end of the call, never for less than the time asked for. A task is found in any session of its
owner, since a session may end before it does.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sandbox import jsontext
from sandbox.dialect.bounds import MAX_JOB_TTL, JobBounds
from sandbox.dialect.jobs.desk import Jobs
from sandbox.dialect.jobs.model import Asked, Job
from sandbox.dialect.refusals import DialectRefused
from sandbox.serve.client_model import CallInfo
from sandbox.serve.client_replies import ProtocolMisuse, invalid_params
from sandbox.serve.http.doors import Door
from sandbox.serve.identity.model import Identity
from sandbox.vet.model import ExposedTool
from sandbox.wire import meta, tracing
from sandbox.wire.codes import INTERNAL_ERROR, INVALID_PARAMS
from sandbox.wire.results import neutral
from sandbox.wire.versions import LATEST_STATELESS

PAGE: Final = 50
"""Tasks in one answer to ``tasks/list``."""

_STATUS: Final = {
    "waiting": "working", "running": "working", "success": "completed", "error": "failed", "cancelled": "cancelled",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TaskDesk:
    """Tasks of one caller at one endpoint: :class:`sandbox.serve.client_tasks.Tasks`.

    Attributes:
        jobs: of the gateway.
        identity: who opened the session.
        door: whose server is called.
        bounds: of jobs.
    """

    jobs: Jobs
    identity: Identity
    door: Door
    bounds: JobBounds

    async def begin(
        self, tool: ExposedTool, arguments: dict[str, Any], ttl: int | None, call: CallInfo
    ) -> dict[str, Any]:
        """Take a call and return its ``CreateTaskResult``."""
        own: dict[str, Any] = {
            meta.PROTOCOL_VERSION: LATEST_STATELESS,
            meta.CLIENT_CAPABILITIES: {},
            meta.CLIENT_INFO: dict(call.client_info),
        }
        if call.remote is not None:
            own[tracing.TRACEPARENT] = call.remote.parent
        asked = Asked(
            kind="task",
            request_id=str(uuid.uuid4()),  # ids of JSON-RPC are those of a session, and a task outlives it
            door=self.door.path,
            tool=tool.name,
            identity=self.identity,
            params={"name": tool.name, "arguments": arguments, "_meta": own},
            digest=jsontext.digest([tool.name, arguments]),
            ttl=self.bounds.ttl if ttl is None else min(ttl / 1000, MAX_JOB_TTL),
        )
        try:
            return {"task": self._told(await self.jobs.take(asked))}
        except DialectRefused as refusal:
            raise ProtocolMisuse(refusal.id, refusal.message, refusal.mend, code=refusal.rpc_code) from None

    async def get(self, task: str) -> dict[str, Any]:
        """Return a ``Task``."""
        return self._told(await self._find(task))

    async def result(self, task: str, call: CallInfo) -> dict[str, Any]:
        """Return what its call returned, when it has ended; raise what its call raised."""
        job = await self._find(task)
        if not job.ended:
            try:
                await asyncio.wait_for(self.jobs.until_ended(job), call.remaining())
            except TimeoutError:
                text = "the task has not ended yet"
                raise ProtocolMisuse("DIA-028", text, "ask for its result again", code=INTERNAL_ERROR) from None
            job = await self._find(task)
        outcome = job.outcome
        if outcome is not None and outcome.result is not None:
            return neutral(dict(outcome.result), "tools/call", "stateless")[1]
        failure = dict((outcome.failure if outcome is not None else None) or {})
        rpc = dict((outcome.rpc if outcome is not None else None) or {})
        raise ProtocolMisuse(
            str(failure.get("id", "DIA-014")), str(failure.get("message", "")), str(failure.get("mend", "")),
            code=int(rpc.get("code", INTERNAL_ERROR)), data=rpc.get("data"),
        )  # fmt: skip

    async def list(self, cursor: str) -> dict[str, Any]:
        """Return a ``ListTasksResult``."""
        if cursor and not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 19):  # noqa: PLR2004 - digits
            raise invalid_params("SESS-010", "the cursor was not given here", "list without one")
        found = await self.jobs.of(self.identity, self.door.path, int(cursor or 0), PAGE)
        more = {"nextCursor": str(found[-1][0])} if len(found) == PAGE else {}
        return {"tasks": [self._told(job) for _, job in found], **more}

    async def cancel(self, task: str) -> dict[str, Any]:
        """Cancel a task that has not ended and return it."""
        await self._find(task)
        job, done = await self.jobs.cancel(task, self.identity, self.door.path)
        if not done:
            text = f"the task has ended: {_STATUS[job.state]}"
            raise invalid_params("DIA-029", text, "ask for its result")
        return self._told(job)

    async def _find(self, task: str) -> Job:
        try:
            return await self.jobs.find(task, self.identity, self.door.path)
        except DialectRefused as refusal:
            raise ProtocolMisuse(refusal.id, "there is no such task", refusal.mend, code=INVALID_PARAMS) from None

    def _told(self, job: Job) -> dict[str, Any]:
        progress = self.jobs.progress(job.id)
        failure = job.outcome.failure if job.outcome is not None else None
        words = str(failure.get("message", "")) if failure else (progress.message if progress is not None else "")
        return {
            "taskId": job.id,
            "status": _STATUS[job.state],
            **({"statusMessage": words} if words else {}),
            "createdAt": stamp(job.created),
            "lastUpdatedAt": stamp(job.updated),
            "ttl": int(job.ttl * 1000),
            "pollInterval": int(self.bounds.poll_after * 1000),
        }


def stamp(seconds: float) -> str:
    """Return a time of the wall clock as ISO 8601."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
