"""What tests of the tasks extension share: requests that declare it, and a policy that lets a server ask."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2

from sandbox.dialect.bounds import JobBounds
from sandbox.serve.asking import Asking
from sandbox.serve.calls import Caller
from sandbox.serve.http.doors import DriverDoor
from sandbox.wire import tasks
from tests.dialect_lab import DialectLab, dialect_lab
from tests.gateway_lab import V26, Server, events, request

DECLARED: Mapping[str, Any] = {"extensions": {tasks.EXTENSION: {}}}
FORMS: Mapping[str, Any] = {**DECLARED, "elicitation": {"form": {}}}
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
SOON = JobBounds(task_after=0.3)
LATE = JobBounds(task_after=60.0)


class Allows:
    """A policy that lets the server ask."""

    def decide_ask(self, _caller: Caller, _method: str, _facts: Mapping[str, Any]) -> Sequence[str]:
        """Allow it."""
        return ("asks",)


def asking() -> Asking:
    """Return what judges the questions of a session."""
    return Asking(Allows(), "srv", lambda params: params)


def said(
    method: str, params: Mapping[str, Any] | None = None, able: Mapping[str, Any] = DECLARED, number: Any = 1
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a request with its header fields, whose client has some capabilities."""
    own = {"io.modelcontextprotocol/protocolVersion": V26, CAPABILITIES: dict(able)}
    body = request(method, {**(params or {}), "_meta": {**own, **(params or {}).get("_meta", {})}}, number)
    named = (params or {}).get("taskId", (params or {}).get("name"))
    headers = {"mcp_protocol_version": V26, "mcp_method": method}
    return body, headers | ({"mcp_name": named} if isinstance(named, str) else {})


def answer_of(response: httpx2.Response) -> dict[str, Any]:
    """Return the answer of a response: its body, or the last event."""
    if response.headers["content-type"].startswith("text/event-stream"):
        return dict(events(response)[-1][1])
    return dict(response.json())


async def until(condition: Callable[[], bool]) -> None:
    """Return when something holds; fail when it does not in time."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - of a server in memory, which has no event for it
            await asyncio.sleep(0.01)


class LastingLab:
    """A gateway that keeps tasks, as a client that declares the extension sees it."""

    def __init__(self, lab: DialectLab) -> None:
        self.lab = lab
        self.stage = lab.stage

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        able: Mapping[str, Any] = DECLARED,
        path: str = "/mcp/open",
        token: str = "",
    ) -> dict[str, Any]:
        """Send one request and return its answer."""
        body, headers = said(method, params, able)
        return answer_of(await self.stage.post(path, body, token, **headers))

    async def call(self, able: Mapping[str, Any] = DECLARED, **arguments: Any) -> dict[str, Any]:
        """Call the tool and return the result."""
        answer = await self.ask("tools/call", {"name": "tool", "arguments": arguments}, able)
        return dict(answer["result"])

    async def task(self, able: Mapping[str, Any] = DECLARED, **arguments: Any) -> str:
        """Call the tool slowly and return the task that it becomes."""
        made = await self.call(able, **arguments)
        assert "task" == made["resultType"]
        return str(made["taskId"])

    async def get(self, task: str, **more: Any) -> dict[str, Any]:
        """Return a task."""
        return dict((await self.ask("tasks/get", {"taskId": task}, **more))["result"])

    async def until(self, task: str, *statuses: str, **more: Any) -> dict[str, Any]:
        """Return a task when it has one of some statuses."""
        async with asyncio.timeout(60):
            while True:
                found = await self.get(task, **more)
                if found["status"] in statuses:
                    return found
                await asyncio.sleep(0.02)

    async def ended(self, task: str, **more: Any) -> dict[str, Any]:
        """Return a task when it has ended."""
        return await self.until(task, "completed", "failed", "cancelled", **more)


@contextlib.asynccontextmanager
async def lasting_lab(
    folder: Path, server: Server | None = None, jobs: JobBounds = SOON, **more: Any
) -> AsyncIterator[LastingLab]:
    """Open a gateway whose calls become tasks after a moment."""
    async with dialect_lab(folder, server, jobs, asking=asking, **more) as lab:
        for door in lab.stage.app.doors:
            if isinstance(door, DriverDoor):
                door.call_timeout = 60.0
        yield LastingLab(lab)
