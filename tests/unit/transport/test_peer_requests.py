from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandbox.errors import SandboxError, ServerTimeout
from sandbox.transport.outcomes import RemoteError
from sandbox.wire import meta
from sandbox.wire.jsonrpc import Failure, Notification, Request, Result
from tests.wire_kit import HANDSHAKE, STATELESS, Stage, connected, settled

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("era", [HANDSHAKE, STATELESS])
TOOLS_ONLY = {"tools": {}}


def asking(stage: Stage, method: str = "tools/call", **more: Any) -> asyncio.Task[dict[str, Any]]:
    """Send a request of ours in the background."""
    return asyncio.create_task(stage.peer.request(method, {"name": "echo"}, **{"timeout": 5.0, **more}))


async def failed(task: asyncio.Task[Any]) -> SandboxError:
    """Return the error of a request."""
    with pytest.raises(SandboxError) as caught:
        await task
    return caught.value


@BOTH
async def test_a_request_and_its_answer(era: str) -> None:
    """The client's id is kept, and the result comes back without what belongs to the era."""
    async with connected(era) as stage:
        task = asking(stage, id="abc")
        request = await stage.server.expect("tools/call")
        stage.server.send(Result(request.id, {"content": [], "resultType": "complete", "ttlMs": 1}))

        assert "abc" == request.id
        assert {"content": []} == await task


@BOTH
async def test_per_request_fields(era: str) -> None:
    """A stateless server gets version, capabilities and our name with every request; a handshake server gets none."""
    async with connected(era) as stage:
        task = asking(stage)
        request = await stage.server.expect("tools/call")
        stage.server.send(Result(request.id, {}))
        await task
        own = request.params.get("_meta", {})

        expected = {meta.PROTOCOL_VERSION, meta.CLIENT_CAPABILITIES, meta.CLIENT_INFO} if era == STATELESS else set()
        assert expected == set(own)


@BOTH
async def test_answers_in_any_order(era: str) -> None:
    """Answers are matched by id, whatever their order."""
    async with connected(era) as stage:
        tasks = [asking(stage, id=n) for n in (1, "1", 2)]
        requests = [await stage.server.expect("tools/call") for _ in tasks]
        for request in reversed(requests):
            stage.server.send(Result(request.id, {"for": repr(request.id)}))

        assert [{"for": "1"}, {"for": "'1'"}, {"for": "2"}] == await asyncio.gather(*tasks)


@pytest.mark.claim("P-WIRE-02")
async def test_an_id_of_another_type_answers_nothing() -> None:
    """An answer to "1" is not an answer to 1."""
    async with connected() as stage:
        task = asking(stage, id=1)
        await stage.server.expect("tools/call")
        stage.server.send(Result("1", {"stolen": True}))
        await settled()

        assert not task.done()
        assert [{"reason": "WIRE-044", "what": stage.facts("transport.drop")[0]["what"]}] == stage.facts(
            "transport.drop"
        )
        stage.server.send(Result(1, {}))
        assert {} == await task


@pytest.mark.claim("P-WIRE-02")
async def test_the_first_answer_wins() -> None:
    """A second answer to a request is dropped and recorded."""
    async with connected() as stage:
        task = asking(stage, id=1)
        await stage.server.expect("tools/call")
        stage.server.send(Result(1, {"n": 1}), Result(1, {"n": 2}))

        assert {"n": 1} == await task
        assert ["WIRE-044"] == [fact["reason"] for fact in stage.facts("transport.drop")]


async def test_an_id_in_flight_is_replaced() -> None:
    """Two requests with one id, as of two clients, reach the server under two ids."""
    async with connected() as stage:
        first, second = asking(stage, id=7), asking(stage, id=7)
        one, two = await stage.server.expect("tools/call"), await stage.server.expect("tools/call")
        stage.server.send(Result(two.id, {"n": 2}), Result(one.id, {"n": 1}))

        assert 7 == one.id
        assert str(two.id).startswith("mcp-sandbox:")
        assert [{"n": 1}, {"n": 2}] == await asyncio.gather(first, second)


@pytest.mark.claim("P-WIRE-02")
async def test_a_late_answer_cannot_answer_a_reused_id() -> None:
    """After a timeout the id is not used towards the server again while its answer may still come."""
    async with connected() as stage:
        late = asking(stage, id=7, timeout=0.01)
        assert "WIRE-043" == (await failed(late)).id
        again = asking(stage, id=7)
        _first, _cancelled, second = [await stage.server.unread.get() for _ in range(3)]
        stage.server.send(Result(7, {"stale": True}))
        await settled()

        assert not again.done()
        assert isinstance(second, Request)
        assert second.id != 7
        assert [] == stage.facts("transport.drop")
        stage.server.send(Result(second.id, {"fresh": True}))
        assert {"fresh": True} == await again


@BOTH
async def test_a_timeout_is_told_to_the_server(era: str) -> None:
    """A request that takes too long ends with a timeout and a cancellation."""
    async with connected(era) as stage:
        error = await failed(asking(stage, id=3, timeout=0.01))
        await stage.server.expect("tools/call")
        told = await stage.server.receive(Notification)

        assert isinstance(error, ServerTimeout)
        assert ("notifications/cancelled", 3) == (told.method, told.params["requestId"])


async def test_a_cancelled_task_is_told_to_the_server() -> None:
    """Whoever stops waiting stops the server's work too."""
    async with connected() as stage:
        task = asking(stage, id=3)
        await stage.server.expect("tools/call")
        task.cancel()
        told = await stage.server.receive(Notification)

        assert ("notifications/cancelled", 3) == (told.method, told.params["requestId"])
        assert not stage.peer.cancel(3)


@BOTH
async def test_an_error_is_an_answer(era: str) -> None:
    """A JSON-RPC error becomes a RemoteError with its code and data, its text without control characters."""
    async with connected(era) as stage:
        task = asking(stage)
        request = await stage.server.expect("tools/call")
        stage.server.send(Failure(request.id, -32602, "bad\x1b[31m" + "x" * 9999, {"a": 1}))
        error = await failed(task)

        assert isinstance(error, RemoteError)
        assert (-32602, {"a": 1}) == (error.code, error.data)
        assert "\x1b" not in str(error)
        assert 5000 > len(error.text)


@BOTH
async def test_progress_of_a_request(era: str) -> None:
    """Progress reaches the request whose token it carries, in order, without the token."""
    async with connected(era) as stage:
        heard: list[dict[str, Any]] = []
        task = asking(stage, on_progress=heard.append, progress_token="mine")
        request = await stage.server.expect("tools/call")
        token = request.params["_meta"]["progressToken"]
        for step in (1, 2):
            params = {"progressToken": token, "progress": step, "total": 2, "message": "m", "other": "x"}
            stage.server.send(Notification("notifications/progress", params))
        stage.server.send(Notification("notifications/progress", {"progressToken": "other", "progress": 1}))
        stage.server.send(Notification("notifications/progress", {"progressToken": token, "progress": "much"}))
        stage.server.send(Result(request.id, {}))
        await task

        assert "mine" == token
        assert [{"progress": n, "total": 2, "message": "m"} for n in (1, 2)] == heard


@pytest.mark.claim("P-WIRE-02")
async def test_a_token_in_use_is_replaced() -> None:
    """Two requests with one token, as of two clients, do not hear each other's progress."""
    async with connected() as stage:
        heard: dict[int, list[Any]] = {1: [], 2: []}
        tasks = [asking(stage, id=n, on_progress=heard[n].append, progress_token="t") for n in (1, 2)]
        requests = [await stage.server.expect("tools/call") for _ in tasks]
        tokens = [request.params["_meta"]["progressToken"] for request in requests]
        stage.server.send(Notification("notifications/progress", {"progressToken": tokens[1], "progress": 5}))
        stage.server.send(*(Result(request.id, {}) for request in requests))
        await asyncio.gather(*tasks)

        assert ["t", 2] == tokens
        assert {1: [], 2: [{"progress": 5}]} == heard


@pytest.mark.claim("P-WIRE-02")
@BOTH
async def test_no_progress_after_the_answer(era: str) -> None:
    """A token is forgotten with its request."""
    async with connected(era) as stage:
        heard: list[Any] = []
        task = asking(stage, on_progress=heard.append)
        request = await stage.server.expect("tools/call")
        stage.server.send(Result(request.id, {}))
        await task
        token = request.params["_meta"]["progressToken"]
        stage.server.send(Notification("notifications/progress", {"progressToken": token, "progress": 1}))

        assert [] == heard
