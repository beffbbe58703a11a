"""A server's question on its way to the client and back, in all combinations of eras; denied unless policy allows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from sandbox.errors import CallRefused
from sandbox.serve.asking import Asking
from sandbox.serve.calls import Caller
from sandbox.serve.client_model import SessionOptions
from sandbox.serve.client_parking import MAX_REPEATS
from sandbox.tenant import TenantContext
from sandbox.wire import meta
from sandbox.wire.jsonrpc import Failure, Notification, Request, Result
from tests.wire_kit import HANDSHAKE, STATELESS, THEM, Stage, serving

pytestmark = pytest.mark.anyio
ERAS = [HANDSHAKE, STATELESS]
QUESTION = {
    "message": "Which colour?",
    "requestedSchema": {"type": "object", "properties": {"colour": {"type": "string"}}},
}
ANSWER = {"action": "accept", "content": {"colour": "red"}}
DONE = {"content": [{"type": "text", "text": "done"}]}
CAN: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}}


class Policy:
    """Allows, or denies."""

    def __init__(self, *, allow: bool) -> None:
        self.allow = allow

    def decide_ask(self, caller: Caller, method: str, facts: Mapping[str, Any]) -> Sequence[str]:
        if not self.allow:
            raise CallRefused("POL-020", "no")
        return ("asks",)


def options(*, allow: bool = True) -> SessionOptions:
    """Return options of a session whose server may ask, by policy or not."""
    return SessionOptions(
        asking=Asking(Policy(allow=allow), "srv", lambda params: params), asker=Caller(TenantContext()), call_timeout=5
    )


def own(era: str, can: Mapping[str, Any] = CAN) -> dict[str, Any]:
    """Return the per-request fields of a client."""
    if era != STATELESS:
        return {}
    return {"_meta": {meta.PROTOCOL_VERSION: era, meta.CLIENT_CAPABILITIES: dict(can), meta.CLIENT_INFO: THEM}}


async def opened(stage: Stage, era: str, can: Mapping[str, Any] = CAN) -> None:
    """Open a handshake client's session."""
    if era != STATELESS:
        await stage.client.ask("initialize", {"protocolVersion": era, "capabilities": dict(can), "clientInfo": THEM})
        stage.client.send(Notification("notifications/initialized", {}))


async def ask(stage: Stage, server_era: str, call: Request, question: Mapping[str, Any] = QUESTION) -> str:
    """Let the server ask while it carries a call; return the state that it wants back."""
    state = "st=ate\u00e9 /\\\u2028" + str(call.id)
    if server_era == STATELESS:
        wanted = {"q": {"method": "elicitation/create", "params": dict(question)}}
        result = {"resultType": "input_required", "inputRequests": wanted, "requestState": state}
        stage.server.send(Result(call.id, result))
    else:
        stage.server.send(Request("srv-1", "elicitation/create", dict(question)))
    return state


async def answered(stage: Stage, server_era: str, call: Request, state: str) -> dict[str, Any]:
    """Return the answer that reaches the server, and let it finish the call."""
    if server_era == STATELESS:
        again = await stage.server.receive(Request)
        assert (state, "tools/call") == (again.params["requestState"], again.method)
        assert call.params["arguments"] == again.params["arguments"]
        stage.server.send(Result(again.id, {"resultType": "complete", **DONE}))
        return dict(again.params["inputResponses"]["q"])
    result = await stage.server.receive(Result)
    assert "srv-1" == result.id
    stage.server.send(Result(call.id, DONE))
    return result.result


@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
async def test_an_allowed_question_reaches_the_client_and_its_answer_the_server(
    server_era: str, client_era: str
) -> None:
    """Whatever eras they speak: labelled question there, bare answer back, the call answered once under the last id."""
    async with serving(server_era, client_era, options=options(), opened=False) as stage:
        await opened(stage, client_era)
        sent = {"name": "echo", "arguments": {"x": 1}, **own(client_era)}
        stage.client.call("tools/call", sent, 7)
        call = await stage.server.expect("tools/call")
        state = await ask(stage, server_era, call)
        if client_era == STATELESS:
            first = await stage.client.receive(Result)
            [(name, request)] = first.result["inputRequests"].items()
            assert ("q" if server_era == STATELESS else "question") == name
            shown, token = request["params"], first.result["requestState"]
            assert ("input_required", 7) == (first.result["resultType"], first.id)
            assert state not in str(first.result)
            more = {"requestState": token, "inputResponses": {name: {**ANSWER, "evil": 1}}}
            stage.client.call("tools/call", {**sent, **more}, 8)
        else:
            asked = await stage.client.expect("elicitation/create")
            shown = asked.params
            stage.client.send(Result(asked.id, {**ANSWER, "evil": 1}))
        got = await answered(stage, server_era, call, state)
        final = await stage.client.receive(Result)

        assert shown["message"].endswith("not by your application] Which colour?")
        assert ANSWER == got
        assert (8 if client_era == STATELESS else 7, DONE["content"]) == (final.id, final.result["content"])
        assert [{"method": "elicitation/create", "status": "accept"}] == [
            fact.attrs for fact in stage.recorder.facts if (fact.name, fact.phase) == ("ask.forward", "outcome")
        ]


@pytest.mark.claim("P-ASK-02")
@pytest.mark.parametrize("why", ["no policy", "policy denies", "the client cannot", "an evil url"])
@pytest.mark.parametrize("server_era", ERAS)
async def test_a_question_that_is_not_allowed_never_reaches_the_client(server_era: str, why: str) -> None:
    """J07: the server gets a refusal without a reason, the client nothing; denied by default."""
    chosen = SessionOptions(call_timeout=5) if why == "no policy" else options(allow=why != "policy denies")
    can = {} if why == "the client cannot" else CAN
    evil = {"mode": "url", "message": "x", "url": "http://evil.test", "elicitationId": "1"}
    async with serving(server_era, HANDSHAKE, options=chosen, opened=False) as stage:
        await opened(stage, HANDSHAKE, can)
        stage.client.call("tools/call", {"name": "echo", "arguments": {}}, 7)
        call = await stage.server.expect("tools/call")
        await ask(stage, server_era, call, evil if why == "an evil url" else QUESTION)
        if server_era == HANDSHAKE:
            refusal = await stage.server.receive(Failure)
            assert "srv-1" == refusal.id
            assert "POL" not in refusal.message
            stage.server.send(Result(call.id, DONE))
        final = await stage.client.receive(Result)

        assert (7, server_era == STATELESS) == (final.id, bool(final.result.get("isError")))
        assert stage.client.unread.empty()


@pytest.mark.claim("P-ASK-03")
@pytest.mark.parametrize("change", ["token", "arguments", "method", "twice"])
async def test_a_state_is_good_once_and_for_the_same_request(change: str) -> None:
    """J08, J20: a guessed, replayed or re-pointed state is refused, and nothing of it reaches the server."""
    async with serving(HANDSHAKE, STATELESS, options=options(), opened=False) as stage:
        sent = {"name": "echo", "arguments": {"x": 1}, **own(STATELESS)}
        stage.client.call("tools/call", sent, 7)
        call = await stage.server.expect("tools/call")
        await ask(stage, HANDSHAKE, call)
        token = (await stage.client.receive(Result)).result["requestState"]
        good = {**sent, "requestState": token, "inputResponses": {"question": ANSWER}}
        bad = dict(good)
        if change == "token":
            bad["requestState"] = token[:-1] + ("A" if token[-1] != "A" else "B")
        elif change == "arguments":
            bad["arguments"] = {"x": 2}
        method = "prompts/get" if change == "method" else "tools/call"
        if change == "twice":
            stage.client.call("tools/call", good, 8)
            await answered(stage, HANDSHAKE, call, "")
            assert 8 == (await stage.client.receive(Result)).id
        stage.client.call(method, bad, 9)
        refusal = await stage.client.receive(Failure)

        assert (9, "SESS-018") == (refusal.id, refusal.data["id"])
        assert stage.server.unread.empty()


async def test_all_questions_of_a_round_are_put_together_and_what_is_left_open_is_asked_again() -> None:
    """Three questions at once; one answer, then none, then the rest under the state that came last; old states die."""
    async with serving(STATELESS, STATELESS, options=options(), opened=False) as stage:
        sent = {"name": "echo", "arguments": {}, **own(STATELESS)}
        stage.client.call("tools/call", sent, 1)
        call = await stage.server.expect("tools/call")
        wanted = {name: {"method": "elicitation/create", "params": dict(QUESTION)} for name in ("a", "b", "c")}
        stage.server.send(Result(call.id, {"resultType": "input_required", "inputRequests": wanted}))
        asked = [await stage.client.receive(Result)]
        for number, given in enumerate(({"b": ANSWER, "x": ANSWER}, {}, {"a": 5, "c": ANSWER}), 2):
            state = asked[-1].result["requestState"]
            stage.client.call("tools/call", {**sent, "requestState": state, "inputResponses": given}, number)
            asked.append(await stage.client.receive(Result))
        last = {**sent, "requestState": asked[-1].result["requestState"], "inputResponses": {"a": ANSWER}}
        stage.client.call("tools/call", {**last, "requestState": asked[0].result["requestState"]}, 8)
        refused = await stage.client.receive(Failure)
        stage.client.call("tools/call", last, 9)
        again = await stage.server.receive(Request)
        stage.server.send(Result(again.id, {"resultType": "complete", **DONE}))
        final = await stage.client.receive(Result)

        assert ["abc", "ac", "ac", "a"] == ["".join(one.result["inputRequests"]) for one in asked]
        assert "SESS-018" == refused.data["id"]
        assert dict.fromkeys("abc", ANSWER) == again.params["inputResponses"]
        assert (9, DONE["content"]) == (final.id, final.result["content"])


async def test_a_client_that_repeats_without_answering_is_stopped() -> None:
    """A call holds a server while it waits: repetitions without an answer are bounded, and the server hears nothing."""
    async with serving(STATELESS, STATELESS, options=options(), opened=False) as stage:
        sent = {"name": "echo", "arguments": {}, **own(STATELESS)}
        stage.client.call("tools/call", sent, 0)
        await ask(stage, STATELESS, await stage.server.expect("tools/call"))
        answer: Any = await stage.client.receive(Result)
        repeats = 0
        while isinstance(answer, Result) and repeats < 50:
            repeats += 1
            stage.client.call("tools/call", {**sent, "requestState": answer.result["requestState"]}, repeats)
            answer = await stage.client.receive(Result | Failure)  # type: ignore[arg-type]

        assert isinstance(answer, Failure)
        assert MAX_REPEATS + 1 == repeats
        assert stage.server.unread.empty()


@pytest.mark.claim("P-ASK-03")
async def test_a_state_of_one_session_is_unknown_to_another() -> None:
    """J20: another tenant's session cannot answer for this one; the call that waits is untouched."""
    async with serving(HANDSHAKE, STATELESS, options=options(), opened=False) as mine:
        sent = {"name": "echo", "arguments": {}, **own(STATELESS)}
        mine.client.call("tools/call", sent, 7)
        await ask(mine, HANDSHAKE, await mine.server.expect("tools/call"))
        token = (await mine.client.receive(Result)).result["requestState"]
        async with serving(HANDSHAKE, STATELESS, options=options(), opened=False) as other:
            other.client.call("tools/call", {**sent, "requestState": token, "inputResponses": {"question": ANSWER}}, 1)
            refusal = await other.client.receive(Failure)

            assert "SESS-018" == refusal.data["id"]
            assert other.server.unread.empty()
        assert mine.server.unread.empty()


async def test_a_huge_state_of_a_server_is_refused() -> None:
    """J08: what a server wants echoed is bounded."""
    async with serving(STATELESS, HANDSHAKE, options=options(), opened=False) as stage:
        await opened(stage, HANDSHAKE)
        stage.client.call("tools/call", {"name": "echo", "arguments": {}}, 7)
        call = await stage.server.expect("tools/call")
        huge = {"resultType": "input_required", "inputRequests": {}, "requestState": "x" * 100_000}
        stage.server.send(Result(call.id, huge))
        final = await stage.client.receive(Result)

        assert "WIRE-051" in str(final.result)


async def test_a_server_that_asks_for_ever_is_stopped() -> None:
    """J08: after a few rounds the call ends."""
    async with serving(STATELESS, HANDSHAKE, options=options(), opened=False) as stage:
        await opened(stage, HANDSHAKE)
        stage.client.call("tools/call", {"name": "echo", "arguments": {}}, 7)
        call = await stage.server.expect("tools/call")
        rounds = 0
        async with asyncio.timeout(5):
            while True:
                await ask(stage, STATELESS, call)
                message = await stage.client.unread.get()
                if isinstance(message, Result):
                    break
                assert isinstance(message, Request)
                stage.client.send(Result(message.id, ANSWER))
                call = await stage.server.receive(Request)
                rounds += 1

        assert 4 == rounds
        assert message.result["isError"]
