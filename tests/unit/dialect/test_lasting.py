"""The tasks extension of 2026-07-28 over the store of jobs: who gets a task, when, what it says, and to whom."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sandbox.dialect.bounds import JobBounds
from sandbox.wire import tasks
from tests.dialect_lab import OPEN
from tests.gateway_lab import Server, lab, modern
from tests.lasting_lab import LATE, answer_of, lasting_lab, said, until

pytestmark = pytest.mark.anyio

NEEDED = {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}


async def test_a_call_that_lasts_becomes_a_task_and_its_result_is_that_of_the_call(tmp_path: Path) -> None:
    """Known before it is told, working, then completed with what the call gave; the server is called once."""
    async with lasting_lab(tmp_path, Server(slow=3.0)) as stage:
        made = await stage.call(slow=True, a=1)
        early = await stage.get(made["taskId"])
        late = await stage.ended(made["taskId"])
        plain = await stage.call({}, a=1)

    assert ("task", "working", "complete", "working") == tuple(
        one[name] for one in (made, early) for name in ("resultType", "status")
    )
    assert ("complete", "completed") == (late["resultType"], late["status"])
    assert {"name": "open", "version": "1"} == made["_meta"]["io.modelcontextprotocol/serverInfo"]
    assert made["createdAt"] == late["createdAt"] < late["lastUpdatedAt"]
    assert (86_400_000, 2000) == (made["ttlMs"], made["pollIntervalMs"])
    assert late["ttlMs"] > made["ttlMs"], "an outcome is kept from the end of its call"
    own = {**late["result"]["structuredContent"]}
    assert ("complete", True) == (late["result"]["resultType"], own.pop("slow"))
    assert plain["structuredContent"] == own
    assert [{"slow": True, "a": 1}, {"a": 1}] == stage.stage.server.calls


async def test_a_quick_call_is_answered_as_ever_and_nothing_is_kept_of_it(tmp_path: Path) -> None:
    """A client that declares the extension gets a result where there is one soon; trail and store know no job."""
    async with lasting_lab(tmp_path, jobs=LATE) as stage:
        quick = await stage.call(a=1)
        jobs = (await stage.lab.send("GET", f"{OPEN}/jobs/")).json()

    assert ("complete", 1) == (quick["resultType"], quick["structuredContent"]["a"])
    assert [] == [fact for fact in stage.stage.recorder.facts if fact.name.startswith("job.")]
    assert [] == (jobs["jobs"] if isinstance(jobs, dict) else jobs)


@pytest.mark.claim("P-DIA-05")
@pytest.mark.parametrize(
    "able",
    [{}, {"extensions": {}}, {"extensions": {tasks.EXTENSION: True}}, {"extensions": []}, {"tasks": {}}],
    ids=["none", "other", "malformed", "list", "2025"],
)
async def test_nobody_who_did_not_declare_the_extension_on_this_request_gets_a_task(
    tmp_path: Path, able: dict[str, Any]
) -> None:
    """However long the call takes, and whatever the client declared before: an ordinary result."""
    async with lasting_lab(tmp_path, Server(slow=3.0)) as stage:
        await stage.call(a=1)
        plain = await stage.call(able, slow=True, a=2)
        control = await stage.call(slow=True, a=3)

    assert ("complete", "task") == (plain["resultType"], control["resultType"])


async def test_without_the_capability_nothing_is_told_of_a_task(tmp_path: Path) -> None:
    """Each method, and a subscription, is refused with what is missing, whether there is such a task or not."""
    async with lasting_lab(tmp_path, Server(slow=20.0)) as stage:
        task = await stage.task(slow=True)
        asked = [
            (method, {"taskId": name, **({"inputResponses": {}} if method == "tasks/update" else {})})
            for method in ("tasks/get", "tasks/update", "tasks/cancel")
            for name in (task, "none")
        ]
        refused = [await stage.ask(method, params, {}) for method, params in asked]
        refused.append(await stage.ask("subscriptions/listen", {"notifications": {"taskIds": [task]}}, {}))
        refused.append(await stage.ask("subscriptions/listen", {"notifications": {"taskIds": []}}, {}))
        body, headers = said("tasks/get", {"taskId": task}, {})
        status = (await stage.stage.post("/mcp/open", body, **headers)).status_code
        control = await stage.get(task)

    assert [-32021] * 8 == [one["error"]["code"] for one in refused]
    assert all(NEEDED.items() <= one["error"]["data"].items() for one in refused)
    assert (400, "working") == (status, control["status"])


async def test_it_is_told_of_and_served_only_where_jobs_are_kept(tmp_path: Path) -> None:
    """Discovery names it for 2026-07-28 alone; elsewhere its methods are unknown and calls just take their time."""
    async with lasting_lab(tmp_path) as stage:
        found = (await stage.ask("server/discover"))["result"]["capabilities"]
        older = (await stage.stage.initialize()).json()["result"]["capabilities"]
        gone = [await stage.ask(method, {"taskId": "x"}) for method in ("tasks/result", "tasks/list")]
    async with lab(Server(slow=0.6)) as without:
        body, headers = modern("server/discover")
        nothing = (await without.post("/mcp/open", body, **headers)).json()["result"]["capabilities"]
        unknown = []
        for method in sorted(tasks.METHODS):
            body, headers = said(method, {"taskId": "x"})
            unknown.append((await without.post("/mcp/open", body, **headers)).json()["error"]["code"])
        body, headers = said("tools/call", {"name": "tool", "arguments": {"slow": True}})
        plain = answer_of(await without.post("/mcp/open", body, **headers))

    assert {tasks.EXTENSION: {}} == found["extensions"]
    assert "extensions" not in older
    assert "extensions" not in nothing
    assert ([-32601] * 2, [-32601] * 3) == ([one["error"]["code"] for one in gone], unknown)
    assert "complete" == plain["result"]["resultType"]


@pytest.mark.claim("P-DIA-05")
async def test_a_task_of_another_owner_does_not_exist(tmp_path: Path) -> None:
    """Another tenant, another subject, another endpoint: told as if there were none, and nothing of it is changed."""
    async with lasting_lab(tmp_path, Server(slow=20.0)) as stage:
        alice, path = stage.stage.token(), "/mcp/closed"
        made = await stage.ask("tools/call", {"name": "tool", "arguments": {"slow": True}}, path=path, token=alice)
        task = made["result"]["taskId"]
        strangers = [
            (path, stage.stage.token(tenant="other")), (path, stage.stage.token(sub="mallory")), ("/mcp/open", ""),
        ]  # fmt: skip
        refused = [
            await stage.ask(method, {"taskId": task, "inputResponses": {}}, path=where, token=token)
            for method in sorted(tasks.METHODS)
            for where, token in strangers
        ]
        nothing = await stage.ask("tasks/get", {"taskId": "none"}, path=path, token=stage.stage.token(tenant="other"))
        mine = await stage.ask("tasks/get", {"taskId": task}, path=path, token=alice)
        recorded = [fact["reason"] for fact in stage.stage.facts("session.refuse")]

    assert [-32602] * 9 == [one["error"]["code"] for one in refused]
    assert {json.dumps(one["error"]) for one in refused} == {json.dumps(nothing["error"])}
    assert "working" == mine["result"]["status"]
    assert ["DIA-013"] * 10 == recorded


async def test_ids_of_tasks_cannot_be_guessed(tmp_path: Path) -> None:
    """Each has at least 74 random bits, whatever else it says."""
    async with lasting_lab(tmp_path, Server(slow=3.0)) as stage:
        made = await asyncio.gather(*(stage.task(slow=True, a=number) for number in range(6)))

    assert 6 == len({one.replace("-", "")[-18:] for one in made})


async def test_an_error_of_the_tool_completes_a_task_and_an_error_of_the_protocol_fails_it(tmp_path: Path) -> None:
    """`failed` has the JSON-RPC error and words for people; a result with `isError` is a result."""

    class Failing(Server):
        async def _call(self, server: Any, params: Any, process: int) -> Any:
            result = await super()._call(server, params, process)
            if params["arguments"].get("wrong"):
                return {"content": [{"type": "text", "text": "no"}], "isError": True}
            return result

        async def _send(self, server: Any, body: Any) -> None:
            broken = body.get("result", {}).get("structuredContent", {}).get("broken")
            await super()._send(
                server, {"id": body["id"], "error": {"code": -32050, "message": "limit"}} if broken else body
            )

    async with lasting_lab(tmp_path, Failing(slow=3.0)) as stage:
        wrong = await stage.ended(await stage.task(slow=True, wrong=True))
        broken = await stage.ended(await stage.task(slow=True, broken=True))

    assert ("completed", True) == (wrong["status"], wrong["result"]["isError"])
    assert ("failed", -32050, "limit") == (broken["status"], broken["error"]["code"], broken["error"]["message"])
    assert broken["statusMessage"]
    assert "result" not in broken
    assert "error" not in wrong


async def test_cancelling_is_acknowledged_tells_the_server_and_changes_nothing_that_has_ended(tmp_path: Path) -> None:
    """The answer is empty; the task ends as cancelled; a completed one stays what it was."""
    async with lasting_lab(tmp_path, Server(slow=20.0)) as stage:
        task = await stage.task(slow=True)
        acknowledged = await stage.ask("tasks/cancel", {"taskId": task})
        cancelled = await stage.ended(task)
        await until(lambda: bool(stage.stage.server.cancelled))
        again = await stage.ask("tasks/cancel", {"taskId": task})
        stage.stage.server.slow = 3.0
        done = await stage.task(slow=True)
        await stage.ended(done)
        late = await stage.ask("tasks/cancel", {"taskId": done})
        kept = await stage.get(done)
        wanted = [one.attrs["job"] for one in stage.stage.recorder.named("job.cancel")]

    assert {"resultType", "_meta"} == set(acknowledged["result"]) == set(again["result"]) == set(late["result"])
    assert "complete" == acknowledged["result"]["resultType"]
    assert ("cancelled", "completed") == (cancelled["status"], kept["status"])
    assert not {"result", "error", "inputRequests"} & set(cancelled)
    assert [task] == wanted


async def test_a_notification_does_not_cancel_a_task(tmp_path: Path) -> None:
    """Neither by the id of its request nor by leaving: the call is the task's now."""
    async with lasting_lab(tmp_path, Server(slow=3.0)) as stage:
        task = await stage.task(slow=True)
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        note["params"] |= said("x")[0]["params"]  # type: ignore[operator]
        headers = {"mcp_protocol_version": "2026-07-28", "mcp_method": "notifications/cancelled"}
        await stage.stage.post("/mcp/open", note, **headers)
        done = await stage.ended(task)

    assert ("completed", []) == (done["status"], stage.stage.server.cancelled)


async def test_a_client_that_leaves_before_it_has_a_task_cancels_its_call(tmp_path: Path) -> None:
    """As every call of that era; nothing is kept."""
    async with lasting_lab(tmp_path, Server(slow=20.0), LATE) as stage:
        leaving = asyncio.create_task(stage.call(slow=True))
        await until(lambda: bool(stage.stage.server.calls))
        leaving.cancel()
        await until(lambda: bool(stage.stage.server.cancelled))

    assert [] == stage.stage.recorder.named("job.accept")


async def test_an_outcome_whose_time_is_over_is_gone(tmp_path: Path) -> None:
    """The task does not exist any more, neither for questions nor for changes."""
    async with lasting_lab(tmp_path, Server(slow=3.0), JobBounds(task_after=0.3, ttl=1.0)) as stage:
        task = await stage.task(slow=True)
        async with asyncio.timeout(60):
            while "result" in (found := await stage.ask("tasks/get", {"taskId": task})):  # noqa: ASYNC110 - of a clock
                await asyncio.sleep(0.05)
        others = [
            await stage.ask(method, {"taskId": task, "inputResponses": {}})
            for method in ("tasks/update", "tasks/cancel")
        ]

    assert [-32602] * 3 == [one["error"]["code"] for one in (found, *others)]


@pytest.mark.parametrize("method", sorted(tasks.METHODS))
@pytest.mark.parametrize("named", [None, "another"], ids=["missing", "another"])
async def test_the_field_has_to_name_the_task(tmp_path: Path, method: str, named: str | None) -> None:
    """`Mcp-Name` says what `params.taskId` says, or the request is refused unread."""
    async with lasting_lab(tmp_path) as stage:
        body, headers = said(method, {"taskId": "mine", "inputResponses": {}})
        wrong = {**headers, "mcp_name": named} if named else {k: v for k, v in headers.items() if k != "mcp_name"}
        refused = await stage.stage.post("/mcp/open", body, **wrong)
        control = await stage.stage.post("/mcp/open", body, **headers)

    assert (400, -32020) == (refused.status_code, refused.json()["error"]["code"])
    assert (400, -32602) == (control.status_code, control.json()["error"]["code"])


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tasks/get", {}),
        ("tasks/get", {"taskId": 1}),
        ("tasks/update", {"taskId": "x"}),
        ("tasks/update", {"taskId": "x", "inputResponses": []}),
        ("tasks/cancel", {"taskId": ["x"]}),
    ],
    ids=["none", "number", "no-answers", "list", "ids"],
)
async def test_malformed_requests_are_refused(tmp_path: Path, method: str, params: dict[str, Any]) -> None:
    """Nothing is looked for; a missing id is refused with the header field already."""
    async with lasting_lab(tmp_path) as stage:
        answer = await stage.ask(method, params)
        body, headers = said(method, {"taskId": "x", "inputResponses": {}})
        del body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        unsaid = (await stage.stage.post("/mcp/open", body, **headers)).json()

    assert answer["error"]["code"] in (-32602, -32020)
    assert (-32602, "SESS-004") == (unsaid["error"]["code"], unsaid["error"]["data"]["id"])


async def test_a_call_that_cannot_be_recorded_or_kept_stays_an_ordinary_one(tmp_path: Path) -> None:
    """No room, or no trail: its client gets what it would have got, progress and all, and nothing is kept."""
    full = JobBounds(task_after=0.3, running=1)
    async with lasting_lab(tmp_path, Server(slow=6.0), full) as stage:
        first = asyncio.create_task(stage.call(slow=True, a=1))
        await until(lambda: bool(stage.stage.recorder.named("job.accept")))
        stage.stage.server.slow = 1.0
        second = await stage.call(slow=True, a=2)
        await stage.ended((await first)["taskId"])
        stage.stage.recorder.fails_at = frozenset(("job.accept/intent",))
        third = await stage.call(slow=True, a=3)
        stage.stage.recorder.fails_at = frozenset()
        fourth = await stage.call(slow=True, a=4)

    assert ("complete", 2) == (second["resultType"], second["structuredContent"]["a"])
    assert ("complete", 3) == (third["resultType"], third["structuredContent"]["a"])
    assert "task" == fourth["resultType"], "the control"
    assert 4 == len(stage.stage.server.calls)


async def test_every_step_of_a_task_is_in_the_trail(tmp_path: Path) -> None:
    """The intent is there before the client is told, the outcome after; the call's own records are as ever."""
    async with lasting_lab(tmp_path, Server(slow=3.0)) as stage:
        task = await stage.task(slow=True)
        before = stage.stage.recorder.named("job.accept")
        await stage.ended(task)
        await until(lambda: len(stage.stage.recorder.named("job.accept")) > 1)
        after = stage.stage.recorder.named("job.accept")[1:]

    kept = ("job", "kind", "tool")
    assert [("intent", task, "task", "tool")] == [(one.phase, *(one.attrs[name] for name in kept)) for one in before]
    assert [("outcome", task, "success")] == [(one.phase, one.attrs["job"], one.attrs["status"]) for one in after]


async def test_progress_before_the_task_goes_to_the_request_and_after_it_to_nobody(tmp_path: Path) -> None:
    """A task says how far it is in words only; its request is over."""
    async with lasting_lab(tmp_path, Server(slow=3.0)) as stage:
        params = {"name": "tool", "arguments": {"steps": 2, "slow": True}, "_meta": {"progressToken": "t"}}
        body, headers = said("tools/call", params)
        response = await stage.stage.post("/mcp/open", body, **headers)
        done = await stage.ended(answer_of(response)["result"]["taskId"])

    said_so = [line for line in response.text.splitlines() if "notifications/progress" in line]
    assert (2, "task") == (len(said_so), answer_of(response)["result"]["resultType"])
    assert "completed" == done["status"]


async def test_an_orderly_end_gives_a_task_its_time_and_leaves_the_rest_as_a_crash_would(tmp_path: Path) -> None:
    """What ends within `drain` is completed; what does not is told as interrupted, and its server that nobody waits."""
    server = Server(slow=1.2)
    async with lasting_lab(tmp_path, server) as stage:
        ends = await stage.task(slow=True, a=1)
        server.slow = 60.0
        remains = await stage.task(slow=True, a=2)
    async with lasting_lab(tmp_path) as stage:
        found = [await stage.get(task) for task in (ends, remains)]

    assert ["completed", "failed"] == [one["status"] for one in found]
    assert "DIA-014" == found[1]["error"]["data"]["id"]
    assert 1 == len(server.cancelled)


async def test_the_common_endpoint_has_tasks_too(tmp_path: Path) -> None:
    """A tool under the name of its driver; the task belongs to the endpoint that it was made at."""
    async with lasting_lab(tmp_path, Server(slow=0.8)) as stage:
        call = {"name": "open__tool", "arguments": {"slow": True, "a": 1}}
        token = stage.stage.token("/mcp")
        made = (await stage.ask("tools/call", call, path="/mcp", token=token))["result"]
        done = await stage.ended(made["taskId"], path="/mcp", token=token)
        elsewhere = await stage.ask("tasks/get", {"taskId": made["taskId"]})

    assert ("task", "completed", 1) == (made["resultType"], done["status"], done["result"]["structuredContent"]["a"])
    assert "All servers of this gateway" == done["_meta"]["io.modelcontextprotocol/serverInfo"]["title"]
    assert -32602 == elsewhere["error"]["code"]
