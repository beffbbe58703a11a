"""The tasks extension against its published schema, and with the client of the Python SDK."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import httpx2
import jsonschema
import pytest
from mcp import Client, types
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client

from sandbox.wire import tasks
from tests.gateway_lab import Server
from tests.lasting_lab import FORMS, LastingLab, lasting_lab, until
from tests.shared import shared
from tests.unit.dialect.test_lasting_questions import RED, asked, listen

pytestmark = pytest.mark.anyio


def fits(name: str, value: Any) -> None:
    """Fail unless a value is what the schema of the extension calls so."""
    whole = json.loads(shared("upstream", "mcp-spec", "ext-tasks", "schema", "draft", "schema.json").read_text())
    schema = {"$schema": whole["$schema"], "$defs": whole["$defs"], "$ref": f"#/$defs/{name}"}
    jsonschema.Draft202012Validator(schema).validate(value)


class Failing(Server):
    """A server that answers a call with an error of the protocol."""

    async def _send(self, server: Any, body: Any) -> None:
        if body.get("result", {}).get("structuredContent", {}).get("broken"):
            body = {"id": body["id"], "error": {"code": -32050, "message": "limit", "data": {"a": 1}}}
        await super()._send(server, body)


@pytest.mark.data
async def test_every_answer_is_what_the_published_schema_says(tmp_path: Path) -> None:
    """Each status, each acknowledgement and each notification, as they are on the wire."""
    async with lasting_lab(tmp_path, Failing(slow=0.8)) as stage:
        made = await stage.call(FORMS, slow=True, ask=["Which colour?"])
        task = made["taskId"]
        heard: list[dict[str, Any]] = []
        listening = asyncio.create_task(listen(stage, [task], heard))
        working = await stage.get(task)
        key = await asked(stage, task)
        waiting = await stage.get(task)
        await until(lambda: bool(heard) and heard[-1]["params"].get("status") == "input_required")
        updated = await stage.ask("tasks/update", {"taskId": task, "inputResponses": {key: RED}})
        completed = await stage.ended(task)
        await until(lambda: heard[-1]["params"].get("status") == "completed")
        listening.cancel()
        failed = await stage.ended(await stage.task(slow=True, broken=True))
        stage.stage.server.slow = 20.0
        third = await stage.task(slow=True)
        cancelled = [await stage.ask("tasks/cancel", {"taskId": third}), await stage.ended(third)]
        found = (await stage.ask("server/discover"))["result"]["capabilities"]["extensions"][tasks.EXTENSION]

    fits("CreateTaskResult", made)
    shapes = {"WorkingTask": working, "InputRequiredTask": waiting, "CompletedTask": completed, "FailedTask": failed}
    for name, shown in {**shapes, "CancelledTask": cancelled[1]}.items():
        fits(name, shown)
        fits("GetTaskResult", shown)
        with pytest.raises(jsonschema.ValidationError):
            fits("CancelledTask" if name != "CancelledTask" else "WorkingTask", shown)
    fits("UpdateTaskResult", updated["result"])
    fits("CancelTaskResult", cancelled[0]["result"])
    fits("TaskSubscriptionAcknowledgedNotifications", heard[0]["params"]["notifications"])
    for one in heard[1:]:
        fits("TaskStatusNotification", one)
    fits("TasksExtensionCapability", found)


async def test_what_a_task_carries_is_what_the_sdk_knows(tmp_path: Path) -> None:
    """A result is a `CallToolResult`, and a question an `ElicitRequest`, of the SDK's types of 2026-07-28."""
    from mcp_types._v2026_07_28 import CallToolResult, ElicitRequest

    async with lasting_lab(tmp_path, Server(slow=0.8)) as stage:
        task = await stage.task(FORMS, slow=True, ask=["Which colour?"])
        key = await asked(stage, task)
        question = (await stage.get(task))["inputRequests"][key]
        await stage.ask("tasks/update", {"taskId": task, "inputResponses": {key: RED}})
        done = await stage.ended(task)

    assert "complete" == CallToolResult.model_validate(done["result"]).result_type
    assert "elicitation/create" == ElicitRequest.model_validate(question).method


# --- the SDK's client
class TaskResult(types.Result):
    """A `CreateTaskResult`, or the result of `tasks/get`."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str


class Asked(types.Request[dict[str, Any], str]):
    """A request about a task; the SDK makes the header field from it."""

    name_param = "taskId"


class Told(types.Result):
    """Any answer about a task."""

    status: str = ""
    result: dict[str, Any] | None = None
    input_requests: dict[str, Any] | None = None


class Tasks(ClientExtension):
    """The extension, as an application adds it to the SDK's client."""

    identifier = tasks.EXTENSION

    def __init__(self) -> None:
        self.polled: list[str] = []

    def claims(self) -> list[ResultClaim[TaskResult]]:
        """Finish calls that become tasks."""
        return [ResultClaim(result_type="task", model=TaskResult, resolve=self._resolve)]

    async def _resolve(self, made: TaskResult, context: ClaimContext) -> types.CallToolResult:
        async with asyncio.timeout(60):
            while True:
                told = await self._send(context, tasks.GET, {"taskId": made.task_id})
                self.polled.append(told.status)
                if told.result is not None:
                    return types.CallToolResult.model_validate(told.result)
                if told.input_requests:
                    answers = dict.fromkeys(told.input_requests, RED)
                    await self._send(context, tasks.UPDATE, {"taskId": made.task_id, "inputResponses": answers})
                await asyncio.sleep(0.05)

    async def _send(self, context: ClaimContext, method: str, params: dict[str, Any]) -> Told:
        return await context.session.send_request(Asked(method=method, params=params), Told)


@contextlib.asynccontextmanager
async def client_of(stage: LastingLab, own: Tasks | None) -> AsyncIterator[Client]:
    """Connect the SDK's client, with the extension or without."""

    async def elicit(_context: Any, _params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="decline")

    http = httpx2.AsyncClient(timeout=60, trust_env=False)
    transport = streamable_http_client(stage.stage.url + "/mcp/open", http_client=http)
    extensions = [own] if own is not None else []
    async with http, Client(
        transport, mode="auto", extensions=extensions, elicitation_callback=elicit
    ) as client:  # fmt: skip
        yield client


async def test_the_client_of_the_sdk_uses_tasks_and_one_without_the_extension_waits(tmp_path: Path) -> None:
    """The SDK sends the fields, takes the task, polls, answers a question, and has the result of the call."""
    own = Tasks()
    async with lasting_lab(tmp_path, Server(slow=0.9)) as stage:
        async with client_of(stage, own) as client:
            discovered = client.server_capabilities.extensions
            result = await client.call_tool("tool", {"slow": True, "ask": ["Which colour?"]})
            quick = await client.call_tool("tool", {"a": 1})
        async with client_of(stage, None) as client:
            plain = await client.call_tool("tool", {"slow": True, "a": 2})

    assert {tasks.EXTENSION: {}} == discovered
    assert ("input_required" in own.polled, "completed") == (True, own.polled[-1])
    assert result.structured_content is not None
    assert RED == result.structured_content["told0"]
    assert (1, 2) == ((quick.structured_content or {})["a"], (plain.structured_content or {})["a"])
    assert 1 == len(stage.stage.recorder.named("job.accept")) - 1, "one task: taken and ended"
