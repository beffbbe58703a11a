"""MCP 2025-11-25 tasks over the store of jobs: offered to that version only, owned, cancelled, resumed elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.dialect_lab import CLOSED, OPEN, DialectLab, dialect_lab, until
from tests.gateway_lab import call, lab, modern, request

pytestmark = pytest.mark.anyio


async def ask(
    stage: DialectLab, headers: dict[str, str], method: str, params: Any = None, **more: Any
) -> dict[str, Any]:
    """Send one request over MCP and return its answer."""
    path, token = more.get("path", "/mcp/open"), more.get("token", "")
    answer = await stage.stage.post(path, request(method, params or {}), token, **headers)
    return dict(answer.json())


def as_task(**arguments: Any) -> dict[str, Any]:
    """Return the parameters of a call as a task."""
    return {"name": "tool", "arguments": arguments, "task": {"ttl": 60_000}}


async def test_a_call_becomes_a_task_whose_result_is_that_of_the_call(tmp_path: Path) -> None:
    """Acknowledged at once, working, completed; the result is the call's and names its task."""
    async with dialect_lab(tmp_path) as stage:
        path, token = "/mcp/closed", stage.stage.token()
        headers, own = await stage.stage.session(path, token), {"path": path, "token": token}
        task = (await ask(stage, headers, "tools/call", as_task(slow=True, a=1), **own))["result"]["task"]
        early = (await ask(stage, headers, "tasks/get", {"taskId": task["taskId"]}, **own))["result"]
        result = await stage.stage.post(path, request("tasks/result", {"taskId": task["taskId"]}), token, **headers)
        plain = await ask(stage, headers, "tools/call", {"name": "tool", "arguments": {"a": 1}}, **own)
        late = (await ask(stage, headers, "tasks/get", {"taskId": task["taskId"]}, **own))["result"]
        listed = (await ask(stage, headers, "tasks/list", **own))["result"]["tasks"]

    said = result.text.split("data: ")[-1]
    assert ("working", "working", "completed") == (task["status"], early["status"], late["status"])
    assert (60_000, 2000) == (task["ttl"], task["pollInterval"])
    assert f'"taskId":"{task["taskId"]}"' in said
    assert "resultType" not in said
    assert "io.modelcontextprotocol/serverInfo" not in said
    assert 1 == plain["result"]["structuredContent"]["a"]
    assert [late] == listed


async def test_only_clients_of_that_version_are_told_of_tasks_and_only_where_jobs_are_kept(tmp_path: Path) -> None:
    """Capability, tool member and methods come together or not at all; elsewhere `task` is ignored."""
    async with dialect_lab(tmp_path) as stage:
        opened = (await stage.stage.initialize()).json()["result"]["capabilities"]
        older = (await stage.stage.initialize(version="2025-06-18")).json()["result"]["capabilities"]
        tools = (await ask(stage, await stage.stage.session(), "tools/list"))["result"]["tools"]
        body, fields = modern("tools/list")
        newer = (await stage.stage.post("/mcp/open", body, **fields)).json()["result"]["tools"]
    async with lab() as without:
        headers = await without.session()
        ignored = (await without.post("/mcp/open", request("tools/call", as_task(a=1)), **headers)).json()
        unknown = (await without.post("/mcp/open", request("tasks/list"), **headers)).json()

    assert {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}} == opened["tasks"]
    assert "tasks" not in older
    assert [{"taskSupport": "optional"}] == [tool["execution"] for tool in tools]
    assert ["execution" in tool for tool in newer] == [False]
    assert ("structuredContent" in ignored["result"], -32601) == (True, unknown["error"]["code"])


@pytest.mark.claim("P-DIA-02")
async def test_a_task_belongs_to_its_owner_in_any_session(tmp_path: Path) -> None:
    """The same holder finds it in another session; others are told that there is none, and their lists are empty."""
    async with dialect_lab(tmp_path) as stage:
        alice, bob = stage.stage.token(), stage.stage.token(tenant="other")
        path = "/mcp/closed"
        first, second = await stage.stage.session(path, alice), await stage.stage.session(path, alice)
        other = await stage.stage.session(path, bob)
        made = await ask(stage, first, "tools/call", as_task(slow=True), path=path, token=alice)
        name = {"taskId": made["result"]["task"]["taskId"]}
        found = await ask(stage, second, "tasks/get", name, path=path, token=alice)
        refused = [
            await ask(stage, other, method, name, path=path, token=bob)
            for method in ("tasks/get", "tasks/result", "tasks/cancel")
        ]
        nothing = await ask(stage, other, "tasks/list", path=path, token=bob)
        polled = await stage.send("GET", f"{CLOSED}/jobs/{name['taskId']}", token=alice)

    assert "working" == found["result"]["status"]
    assert [-32602] * 3 == [one["error"]["code"] for one in refused]
    assert [] == nothing["result"]["tasks"]
    assert "in_progress" == polled.json()["status"], "one store: the dialect sees it too"


async def test_a_task_is_cancelled_once(tmp_path: Path) -> None:
    """Cancelling tells the server; a task that has ended is not cancelled, and its result says what became of it."""
    async with dialect_lab(tmp_path) as stage:
        stage.stage.server.slow = 10.0
        headers = await stage.stage.session()
        name = {"taskId": (await ask(stage, headers, "tools/call", as_task(slow=True)))["result"]["task"]["taskId"]}
        await until(lambda: bool(stage.stage.server.calls))
        cancelled = await ask(stage, headers, "tasks/cancel", name)
        await until(lambda: bool(stage.stage.server.cancelled))
        again = await ask(stage, headers, "tasks/cancel", name)
        result = await ask(stage, headers, "tasks/result", name)

    assert "cancelled" == cancelled["result"]["status"]
    assert (-32602, "DIA-016") == (again["error"]["code"], result["error"]["data"]["id"])


@pytest.mark.parametrize("task", [None, [], {"ttl": -1}, {"ttl": "1"}, {"ttl": True}, {"ttl": 1.5}])
async def test_a_malformed_task_is_refused(tmp_path: Path, task: Any) -> None:
    """Nothing is called for a request that cannot be understood."""
    async with dialect_lab(tmp_path) as stage:
        headers = await stage.stage.session()
        answer = await ask(stage, headers, "tools/call", {**call()["params"], "task": task})
        wrong = await ask(stage, headers, "tasks/get", {"taskId": 1})
        await stage.send("GET", OPEN + "/metadata")

    assert [-32602, -32602] == [answer["error"]["code"], wrong["error"]["code"]]
    assert [] == stage.stage.server.calls
