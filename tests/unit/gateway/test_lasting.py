"""The moment in which a call is made a task: nothing that its server says meanwhile is lost, whatever comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import pytest

from sandbox.errors import CallRefused, PlatformError, SandboxError
from sandbox.serve.http.lasting import Going
from sandbox.wire.jsonrpc import Result
from tests.gateway_lab import Lab, Server, events, lab
from tests.lasting_lab import DECLARED, FORMS, answer_of, asking, said, until

pytestmark = pytest.mark.anyio

RED = {"action": "accept", "content": {"colour": "red"}}


class Keeper:
    """Keeps tasks in memory, when it is let to; implements ``Lasting``.

    Attributes:
        go: set when :meth:`keep` may end.
        refuse: what it ends with.
        going: what it was given.
    """

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.refuse: SandboxError | None = None
        self.going: list[Going] = []
        self.reasons: list[str] = []
        self.after = 0.3

    async def keep(self, going: Going) -> dict[str, Any]:
        self.going.append(going)
        await self.go.wait()
        if self.refuse is not None:
            raise self.refuse
        return {"taskId": "t", "status": "working"}

    async def told(self, task: str) -> dict[str, Any]:
        raise PlatformError("DIA-019", f"/private/path of {task}", "look")

    async def update(self, task: str, responses: Mapping[str, Any]) -> None:
        await self.told(task)

    async def cancel(self, task: str) -> None:
        await self.told(task)

    async def known(self, wanted: Sequence[str]) -> tuple[str, ...]:
        await self.told(wanted[0])
        return ()

    async def news(self, task: str) -> AsyncGenerator[dict[str, Any], None]:
        yield await self.told(task)

    def refused(self, _method: str, error: SandboxError) -> None:
        self.reasons.append(error.id)


async def call(stage: Lab, able: Mapping[str, Any] = DECLARED, **more: Any) -> Any:
    """Call the tool."""
    body, headers = said("tools/call", {"name": "tool", **more}, able)
    return await stage.post("/mcp/open", body, **headers)


def keeping(stage: Lab) -> Keeper:
    """Let a gateway keep tasks."""
    keeper = Keeper()
    stage.app.sessions.lasting = lambda _identity, _door: keeper
    return keeper


@pytest.mark.parametrize("late", [True, False], ids=["answered-meanwhile", "answered-later"])
async def test_a_call_that_is_not_kept_is_answered_as_ever(late: bool) -> None:
    """What came while it was tried is put back, in order, and what comes later follows."""
    async with lab(Server(slow=0.8)) as stage:
        keeper = keeping(stage)
        keeper.refuse = CallRefused("DIA-015", "no room")
        params = {"arguments": {"slow": True, "steps": 2}, "_meta": {"progressToken": "t"}}
        calling = asyncio.create_task(call(stage, **params))
        await until(lambda: bool(keeper.going))
        if late:
            await until(lambda: keeper.going[0].stream.over)
        keeper.go.set()
        response = await calling
        again = await call(stage, arguments={"a": 2})

    answer = answer_of(response)
    methods = [one.get("method", "answer") for _, one in events(response)]
    assert ["notifications/progress", "notifications/progress", "answer"] == methods
    assert ("complete", True) == (answer["result"]["resultType"], answer["result"]["structuredContent"]["slow"])
    assert 2 == answer_of(again)["result"]["structuredContent"]["a"]


async def test_an_answer_that_comes_while_a_task_is_made_is_the_task_s() -> None:
    """The client is told of the task, and whoever keeps it finds the answer."""
    async with lab(Server(slow=0.6)) as stage:
        keeper = keeping(stage)
        calling = asyncio.create_task(call(stage, arguments={"slow": True}))
        await until(lambda: bool(keeper.going) and keeper.going[0].stream.over)
        keeper.go.set()
        made = answer_of(await calling)["result"]
        (kept,) = keeper.going[0].stream.take()
        await keeper.going[0].close(cancelled=False)

    assert ("task", "t") == (made["resultType"], made["taskId"])
    assert isinstance(kept.message, Result)
    assert kept.message.result["structuredContent"]["slow"]


async def test_a_client_that_leaves_while_its_task_is_made_cancels_the_call() -> None:
    """It was told of nothing; its server is, and whoever keeps the task knows."""
    async with lab(Server(slow=30.0)) as stage:
        keeper = keeping(stage)
        calling = asyncio.create_task(call(stage, arguments={"slow": True}))
        await until(lambda: bool(keeper.going))
        calling.cancel()
        await until(lambda: bool(stage.server.cancelled))
        keeper.go.set()
        await until(lambda: keeper.going[0].alone.handing is None)

    assert keeper.going[0].lost
    assert keeper.going[0].stream.drained


async def test_a_client_that_leaves_once_it_has_its_task_cancels_nothing() -> None:
    """The connection is over; the call is not."""
    async with lab(Server(slow=1.5)) as stage:
        keeper = keeping(stage)
        keeper.go.set()
        made = answer_of(await call(stage, arguments={"slow": True}))["result"]
        await until(lambda: keeper.going[0].stream.over)
        (kept,) = keeper.going[0].stream.take()
        await keeper.going[0].close(cancelled=False)

    assert ("task", False, []) == (made["resultType"], keeper.going[0].lost, stage.server.cancelled)
    assert isinstance(kept.message, Result)


async def test_a_question_that_comes_while_a_call_is_not_kept_reaches_its_client() -> None:
    """With a state that its repetition is known by."""
    async with lab(Server(slow=0.6), asking=asking) as stage:
        keeper = keeping(stage)
        keeper.refuse = CallRefused("DIA-015", "no room")
        asks = {"arguments": {"slow": True, "ask": ["Which?"]}}
        calling = asyncio.create_task(call(stage, FORMS, **asks))
        await until(lambda: bool(keeper.going) and keeper.going[0].stream.over)
        keeper.go.set()
        first = answer_of(await calling)["result"]
        (name,) = first["inputRequests"]
        more = {**asks, "requestState": first["requestState"], "inputResponses": {name: RED}}
        done = answer_of(await call(stage, FORMS, **more))["result"]

    assert ("input_required", "complete") == (first["resultType"], done["resultType"])
    assert RED == done["structuredContent"]["told0"]


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel", "subscriptions/listen"])
async def test_a_failure_of_ours_is_an_internal_error_without_its_text(method: str) -> None:
    """The client learns no path; the operator finds the reason in the trail."""
    async with lab() as stage:
        keeper = keeping(stage)
        params = {"notifications": {"taskIds": ["x"]}} if method.startswith("sub") else {"taskId": "x"}
        body, headers = said(method, {**params, "inputResponses": {}})
        answer = await stage.post("/mcp/open", body, **headers)
        recorded = keeper.reasons or [fact["reason"] for fact in stage.facts("session.refuse")]

    assert -32603 == answer_of(answer)["error"]["code"]
    assert "private" not in answer.text
    assert ["DIA-019"] == recorded
