"""What servers ask while their call is a task: shown by it, answered with `tasks/update`, judged like any other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.gateway_lab import EVENTS, Server
from tests.lasting_lab import DECLARED, FORMS, LATE, LastingLab, lasting_lab, said, until

pytestmark = pytest.mark.anyio

RED = {"action": "accept", "content": {"colour": "red"}}
BLUE = {"action": "accept", "content": {"colour": "blue"}}


async def update(stage: LastingLab, task: str, responses: dict[str, Any]) -> dict[str, Any]:
    """Answer what a task asks."""
    return await stage.ask("tasks/update", {"taskId": task, "inputResponses": responses}, FORMS)


async def asked(stage: LastingLab, task: str, but: str = "") -> str:
    """Return the key of the one open question of a task, other than one that was answered."""
    async with asyncio.timeout(60):
        while True:
            found = await stage.until(task, "input_required")
            (key,) = found["inputRequests"]
            if key != but:
                return str(key)
            await asyncio.sleep(0.02)


async def test_a_task_asks_and_goes_on_with_the_answer(tmp_path: Path) -> None:
    """The question is shown whenever the task is asked for, labelled; the server gets the answer and completes."""
    async with lasting_lab(tmp_path, Server(slow=0.8)) as stage:
        task = await stage.task(FORMS, slow=True, ask=["Which colour?"])
        key = await asked(stage, task)
        first, second = await stage.get(task), await stage.get(task)
        acknowledged = await update(stage, task, {key: {**RED, "unknown": 1}})
        done = await stage.ended(task)
        trail = [(one.name, one.phase) for one in stage.stage.recorder.facts if one.name == "ask.forward"]

    (question,) = first["inputRequests"].values()
    assert first == second
    assert "elicitation/create" == question["method"]
    assert question["params"]["message"].endswith("Which colour?")
    assert question["params"]["message"].startswith("[asked by the MCP server srv")
    assert {"resultType", "_meta"} == set(acknowledged["result"])
    assert ("completed", RED) == (done["status"], done["result"]["structuredContent"]["told0"])
    assert [("ask.forward", "intent"), ("ask.forward", "outcome")] == trail


async def test_no_key_of_a_task_is_used_twice(tmp_path: Path) -> None:
    """Two questions that the server calls alike have keys of their own; late answers to the first change nothing."""
    async with lasting_lab(tmp_path, Server(slow=0.8)) as stage:
        task = await stage.task(FORMS, slow=True, ask=["One?", "Two?"])
        first = await asked(stage, task)
        await update(stage, task, {first: RED})
        second = await asked(stage, task, first)
        ignored = await update(stage, task, {first: BLUE, "never": BLUE, second: "no object"})
        still = await stage.get(task)
        await update(stage, task, {second: BLUE, first: BLUE})
        done = await stage.ended(task)

    assert first != second
    assert {"resultType", "_meta"} == set(ignored["result"])
    assert ("input_required", [second]) == (still["status"], list(still["inputRequests"]))
    told = done["result"]["structuredContent"]
    assert (RED, BLUE) == (told["told0"], told["told1"])


class Both(Server):
    """A server that asks two things at once, each by itself."""

    async def _call(self, server: Any, params: Any, process: int) -> Any:
        await asyncio.sleep(self.slow)
        told = await asyncio.gather(self._ask(server, "One?"), self._ask(server, "Two?"))
        return {"content": [], "structuredContent": {"secret": "", "process": 1, "told": told}}


async def test_what_a_server_asks_at_once_is_asked_one_after_the_other(tmp_path: Path) -> None:
    """Whether its call is a task or waits to be repeated; neither question is lost."""
    async with lasting_lab(tmp_path, Both(slow=0.8)) as stage:
        task = await stage.task(FORMS)
        first = await asked(stage, task)
        await update(stage, task, {first: RED})
        second = await asked(stage, task, first)
        await update(stage, task, {second: BLUE})
        done = await stage.ended(task)
    async with lasting_lab(tmp_path, Both(slow=0.0), LATE) as stage:
        call: dict[str, Any] = {"name": "tool", "arguments": {}}
        heard = [(await stage.ask("tools/call", call, FORMS))["result"]]
        for answer in (RED, BLUE):
            (name,) = heard[-1]["inputRequests"]
            again = {**call, "requestState": heard[-1]["requestState"], "inputResponses": {name: answer}}
            heard.append((await stage.ask("tools/call", again, FORMS))["result"])

    assert [RED, BLUE] == done["result"]["structuredContent"]["told"]
    assert ["input_required", "input_required", "complete"] == [one["resultType"] for one in heard]
    assert [RED, BLUE] == heard[-1]["structuredContent"]["told"]


async def test_a_client_that_cannot_be_asked_is_not(tmp_path: Path) -> None:
    """Without the capability on the call, the server is refused and the task goes on; it never asks for input."""
    async with lasting_lab(tmp_path, Server(slow=0.8)) as stage:
        done = await stage.ended(await stage.task(DECLARED, slow=True, ask=["Which colour?"]))

    assert "completed" == done["status"]
    assert "code" in done["result"]["structuredContent"]["told0"]


async def test_what_is_asked_before_there_is_a_task_is_asked_at_once(tmp_path: Path) -> None:
    """With `input_required` as the answer to the call; its repetition may become a task then."""
    async with lasting_lab(tmp_path, jobs=LATE) as stage:
        call = {"name": "tool", "arguments": {"ask": ["One?", "Two?"]}}
        first = (await stage.ask("tools/call", call, FORMS))["result"]
        (name,) = first["inputRequests"]
        again = {**call, "requestState": first["requestState"], "inputResponses": {name: RED}}
        second = (await stage.ask("tools/call", again, FORMS))["result"]

    assert ("input_required", "input_required") == (first["resultType"], second["resultType"])
    assert [] == stage.stage.recorder.named("job.accept")


async def test_a_repetition_that_lasts_becomes_a_task(tmp_path: Path) -> None:
    """Its parameters without the answers are the task's; what is asked then is asked by the task."""

    class Late(Server):
        async def _ask(self, server: Any, question: str) -> Any:
            answer = await super()._ask(server, question)
            await asyncio.sleep(3.0)
            return answer

    async with lasting_lab(tmp_path, Late()) as stage:
        call = {"name": "tool", "arguments": {"ask": ["One?", "Two?"]}}
        first = (await stage.ask("tools/call", call, FORMS))["result"]
        (name,) = first["inputRequests"]
        again = {**call, "requestState": first["requestState"], "inputResponses": {name: RED}}
        made = (await stage.ask("tools/call", again, FORMS))["result"]
        key = await asked(stage, made["taskId"])
        await update(stage, made["taskId"], {key: BLUE})
        done = await stage.ended(made["taskId"])

    told = done["result"]["structuredContent"]
    assert ("task", RED, BLUE) == (made["resultType"], told["told0"], told["told1"])


async def test_a_task_that_asks_can_be_cancelled(tmp_path: Path) -> None:
    """The question is gone with it, and the server is told."""
    async with lasting_lab(tmp_path, Server(slow=0.8)) as stage:
        task = await stage.task(FORMS, slow=True, ask=["Which colour?"])
        key = await asked(stage, task)
        await stage.ask("tasks/cancel", {"taskId": task}, FORMS)
        done = await stage.ended(task)
        late = await update(stage, task, {key: RED})
        await until(lambda: bool(stage.stage.server.cancelled))

    assert ("cancelled", False) == (done["status"], "inputRequests" in done)
    assert "complete" == late["result"]["resultType"]


async def test_a_question_that_nobody_answers_ends_with_the_time_of_its_call(tmp_path: Path) -> None:
    """The task ends as its call does, and does not wait for ever."""
    async with lasting_lab(tmp_path, Server(slow=0.5)) as stage:
        for one in stage.stage.app.doors:
            if one.path == "/mcp/open":
                one.call_timeout = 6.0  # type: ignore[attr-defined]
        task = await stage.task(FORMS, slow=True, ask=["Which colour?"])
        await asked(stage, task)
        done = await stage.ended(task)

    assert done["status"] in ("completed", "failed")
    assert "inputRequests" not in done


async def test_a_subscription_hears_of_its_tasks_and_of_no_other(tmp_path: Path) -> None:
    """Accepted are the caller's own; each change comes whole, as `tasks/get` tells it, marked with the subscription."""
    async with lasting_lab(tmp_path, Server(slow=0.8)) as stage:
        stage.stage.client.timeout = 30
        mine = await stage.task(FORMS, slow=True, ask=["Which colour?"])
        heard: list[dict[str, Any]] = []
        listening = asyncio.create_task(listen(stage, [mine, "none", mine], heard))
        await until(lambda: len(heard) > 1)
        key = await asked(stage, mine)
        other = await stage.task(FORMS, slow=True)
        await until(lambda: heard[-1]["params"]["status"] == "input_required")
        shown = await stage.get(mine)
        await update(stage, mine, {key: RED})
        await until(lambda: heard[-1]["params"].get("status") == "completed")
        told = await stage.get(mine)
        await stage.ended(other)
        listening.cancel()

    acknowledged, *changes = heard
    assert "notifications/subscriptions/acknowledged" == acknowledged["method"]
    assert {"taskIds": [mine]} == acknowledged["params"]["notifications"]
    assert {"notifications/tasks"} == {one["method"] for one in changes}
    assert {mine} == {one["params"]["taskId"] for one in changes}
    marks = [one["params"].pop("_meta") for one in changes]
    assert [{"io.modelcontextprotocol/subscriptionId": 7}] * len(changes) == marks
    plain = [
        {name: value for name, value in one.items() if name not in ("_meta", "resultType")} for one in (shown, told)
    ]
    assert plain[0] in [one["params"] for one in changes]
    assert plain[1] == changes[-1]["params"]


@pytest.mark.claim("P-DIA-05")
async def test_a_subscription_to_strangers_tasks_is_told_of_none(tmp_path: Path) -> None:
    """What is not accepted is not named; the stream stays open for what else it asks."""
    async with lasting_lab(tmp_path, Server(slow=2.0)) as stage:
        alice = stage.stage.token()
        made = await stage.ask(
            "tools/call", {"name": "tool", "arguments": {"slow": True}}, path="/mcp/closed", token=alice
        )
        heard: list[dict[str, Any]] = []
        own: list[dict[str, Any]] = []
        task = made["result"]["taskId"]
        bob = stage.stage.token(tenant="other")
        both = [
            asyncio.create_task(listen(stage, [task], heard, path="/mcp/closed", token=bob)),
            asyncio.create_task(listen(stage, [task], own, path="/mcp/closed", token=alice)),
        ]
        await until(lambda: bool(heard) and len(own) > 1 and own[-1]["params"]["status"] == "completed")
        for one in both:
            one.cancel()

    assert [{"toolsListChanged": True}] == [one["params"]["notifications"] for one in heard]


async def listen(
    stage: LastingLab, ids: list[str], heard: list[dict[str, Any]], path: str = "/mcp/open", token: str = ""
) -> None:
    """Open a subscription and hear it until cancelled."""
    wanted = {"notifications": {"taskIds": ids, **({} if path == "/mcp/open" else {"toolsListChanged": True})}}
    body, fields = said("subscriptions/listen", wanted, FORMS, 7)
    headers = {**EVENTS, **{name.replace("_", "-"): value for name, value in fields.items()}}
    if token:
        headers["authorization"] = f"Bearer {token}"
    url = stage.stage.url + path
    async with stage.stage.client.stream("POST", url, content=orjson.dumps(body), headers=headers) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                heard.append(orjson.loads(line[6:]))  # noqa: PERF401 - others read it meanwhile
