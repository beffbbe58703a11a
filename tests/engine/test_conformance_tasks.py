"""The official suite's scenarios of the tasks extension, against a gateway that keeps tasks, over a server in memory.

The suite does not score them yet, and they need tools that nothing else needs: so a server of ours plays those, and a
door of the test shows its one tool under the names that the suite calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.dialect.bounds import JobBounds
from sandbox.testing.backend import FakeServer
from sandbox.vet.model import Exposure
from tests import conformance_kit as kit
from tests.gateway_lab import Server
from tests.lasting_lab import lasting_lab

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

TOOLS = (
    "greet", "slow_compute", "failing_job", "protocol_error_job", "confirm_delete", "multi_input",
    "test_tool_with_task",
)  # fmt: skip
SCENARIOS = (
    "lifecycle", "capability-negotiation", "wire-fields", "request-state-removal", "mrtr-input", "request-headers",
    "dispatch-and-envelope", "status-notifications", "required-task-error", "mrtr-composition",
)  # fmt: skip
LASTS = 0.8
"""Seconds that the calls take which are to become tasks, which they do after a quarter of that."""

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


def question(text: str) -> dict[str, Any]:
    """Return a question of a server."""
    return {"method": "elicitation/create", "params": {"mode": "form", "message": text, "requestedSchema": FORM}}


class Playing(Server):
    """A stateless server whose one tool plays every tool of the suite."""

    async def _answer(self, server: FakeServer, message: Any, process: int) -> None:
        if message["method"] == "tools/call":
            await self._send(server, {"id": message["id"], **await self._play(message["params"])})
            return
        found: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        if message["method"] == "server/discover":
            found |= {"supportedVersions": [kit.V26], "capabilities": {"tools": {}}}
        elif message["method"] == "tools/list":
            tool = {"name": "server_tool", "description": "Plays.", "inputSchema": {"type": "object"}}
            found["tools"] = [tool]
        await self._send(server, {"id": message["id"], "result": found})

    async def _play(self, params: Any) -> dict[str, Any]:
        given, answers = params["arguments"], params.get("inputResponses")
        name = given["suite"]
        wanted: dict[str, Any] = {}
        if name == "multi_input":
            wanted = {"first": question("First?"), "second": question("Second?")}
        elif name in ("confirm_delete", "test_tool_with_task"):
            wanted = {"user_name": question("Who?")}
        early = name == "greet" or (name == "test_tool_with_task" and answers is None)
        await asyncio.sleep(0 if early else given.get("seconds", LASTS))
        if wanted and answers is None:
            return {"result": {"resultType": "input_required", "inputRequests": wanted, "requestState": name}}
        if name == "protocol_error_job":
            return {"error": {"code": -32050, "message": "broken"}}
        text = f"Hello, {given.get('name', '')}!" if answers is None else json.dumps(answers)
        content = {"content": [{"type": "text", "text": text}], "structuredContent": {"said": text}}
        return {"result": {"resultType": "complete", **content, "isError": name == "failing_job"}}


class Named:
    """A door whose one tool has every name of the suite."""

    def __init__(self, door: Any) -> None:
        self._door = door

    def __getattr__(self, name: str) -> Any:
        return getattr(self._door, name)

    @contextlib.asynccontextmanager
    async def open(self, identity: Any, request: Any = None) -> AsyncIterator[Any]:
        """Lend what is behind it."""
        async with self._door.open(identity, request) as behind:
            (tool,) = behind.exposure.tools.values()
            tools = {
                name: replace(tool, name=name, definition={**tool.definition, "name": name}) for name in TOOLS
            }  # fmt: skip
            yield replace(behind, exposure=Exposure(tools), handler=Passing(behind.handler, tool))

    def limited(self, _tool: str) -> str:
        """Return the key of the one tool."""
        return str(self._door.limited("tool"))


class Passing:
    """Passes calls on with the name that they were made under."""

    def __init__(self, inner: Any, tool: Any) -> None:
        self._inner = inner
        self._tool = tool

    async def call_tool(self, tool: Any, arguments: dict[str, Any], call: Any) -> Any:
        """Call the one tool."""
        return await self._inner.call_tool(self._tool, {**arguments, "suite": tool.name}, call)


MEANT = {
    ("tasks-required-task-error", "sep-2663-server-returns-missing-capability-when-required", "FAILURE"),
    ("tasks-status-notifications", "tasks-status-notifications", "SKIPPED"),
}
"""No tool here needs to be a task, so a client without the extension waits for the result instead of being refused; and
the suite itself says that it cannot hear notifications yet."""


async def test_the_suite_s_scenarios_of_tasks_succeed(tmp_path: Path) -> None:
    """Every check that can be made succeeds but for what is meant."""
    program = kit.CACHE / kit.NEW / kit.PROGRAM
    assert program.exists(), f"{program} is missing: `.ci/setup test` installs it"
    async with lasting_lab(tmp_path, Playing(), JobBounds(task_after=LASTS / 4), version=kit.V26) as stage:
        (door,) = (one for one in stage.stage.app.doors if one.path == "/mcp/open")
        stage.stage.app.replace([Named(door)])  # type: ignore[list-item]
        for name in SCENARIOS:
            command = [str(kit.NODE), str(program), "server", "--url", stage.stage.url + "/mcp/open"]
            more = ["--scenario", f"tasks-{name}", "-o", str(tmp_path / "out")]
            process = await asyncio.create_subprocess_exec(*command, *more, stdout=asyncio.subprocess.DEVNULL)
            await process.wait()
    checks = kit.checks_of(tmp_path / "out")

    assert {f"tasks-{name}" for name in SCENARIOS} == {check[0] for check in checks}
    assert {check for check in checks if check[2] != "SUCCESS"} == MEANT
    assert 40 < sum(checks.values())
