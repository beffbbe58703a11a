"""Tasks of MCP 2025-11-25 as a client session sees them: calls that are acknowledged at once and asked for later.

Offered only where whoever serves keeps them (:class:`Tasks`); elsewhere the methods do not exist and ``task`` in a call
is ignored, as the specification wants of a receiver without the capability. They are an experiment of that one version:
no other client is told of them. The server behind is never asked for a task: we are the receiver, and its call is an
ordinary one (2025-11-25, basic/utilities/tasks).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from sandbox.serve.client_replies import invalid_params
from sandbox.wire.versions import V2025_11_25

if TYPE_CHECKING:
    from sandbox.serve.client_model import CallInfo
    from sandbox.vet.model import ExposedTool

METHODS: Final = frozenset(("tasks/get", "tasks/result", "tasks/list", "tasks/cancel"))

RELATED: Final = "io.modelcontextprotocol/related-task"
"""Member of ``_meta`` that names the task of a message."""


class Tasks(Protocol):
    """Keeps the tasks of one caller at one endpoint. Every method may raise what a handler's may."""

    async def begin(
        self, tool: ExposedTool, arguments: dict[str, Any], ttl: int | None, call: CallInfo
    ) -> dict[str, Any]:
        """Take a call and return its ``CreateTaskResult``; ``ttl`` is in milliseconds."""

    async def get(self, task: str) -> dict[str, Any]:
        """Return a ``Task``."""

    async def result(self, task: str, call: CallInfo) -> dict[str, Any]:
        """Return what its call returned, when it has ended; raise what its call raised."""

    async def list(self, cursor: str) -> dict[str, Any]:
        """Return a ``ListTasksResult``."""

    async def cancel(self, task: str) -> dict[str, Any]:
        """Cancel a task that has not ended and return it."""


def offered(version: str, tasks: Tasks | None) -> dict[str, Any]:
    """Return what the capabilities of a version say about tasks."""
    if tasks is None or version != V2025_11_25:
        return {}
    return {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}


def supporting(listed: dict[str, Any], version: str, tasks: Tasks | None) -> dict[str, Any]:
    """Return the answer to ``tools/list``, saying that each tool may be called as a task."""
    if not offered(version, tasks):
        return listed
    return {**listed, "tools": [{**tool, "execution": {"taskSupport": "optional"}} for tool in listed["tools"]]}


def wanted(params: Mapping[str, Any], version: str, tasks: Tasks | None) -> tuple[Tasks, int | None] | None:
    """Return who keeps a call as a task and for how long (milliseconds), or ``None`` for an ordinary call.

    Raises:
        ProtocolMisuse: ``SESS-017``, ``task`` is malformed.
    """
    if tasks is None or not offered(version, tasks) or "task" not in params:
        return None
    asked = params["task"]
    ttl = asked.get("ttl") if isinstance(asked, dict) else "none"
    if not (ttl is None or (isinstance(ttl, int) and not isinstance(ttl, bool) and ttl >= 0)):
        raise invalid_params(
            "SESS-017", "`task` is no object with a `ttl`", "send `ttl` in milliseconds, or leave it out"
        )
    return tasks, ttl


async def answered(method: str, params: Mapping[str, Any], tasks: Tasks, call: CallInfo) -> dict[str, Any]:
    """Return the answer to one of :data:`METHODS`.

    Raises:
        ProtocolMisuse: malformed parameters, or no such task.
    """
    if method == "tasks/list":
        cursor = params.get("cursor", "")
        if not isinstance(cursor, str):
            raise invalid_params("SESS-010", "the cursor was not given here", "list without one")
        return await tasks.list(cursor)
    task = params.get("taskId")
    if not isinstance(task, str):
        raise invalid_params("SESS-017", "`taskId` is missing or no string", "send `taskId`")
    match method:
        case "tasks/get":
            return await tasks.get(task)
        case "tasks/cancel":
            return await tasks.cancel(task)
        case _:
            result = await tasks.result(task, call)
            return {**result, "_meta": {**result.get("_meta", {}), RELATED: {"taskId": task}}}
