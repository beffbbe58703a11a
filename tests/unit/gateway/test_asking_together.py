"""Questions of several servers at ``/mcp``: judged as at each server's own endpoint, and answered to it alone."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitRequestParams, ElicitResult

from sandbox.errors import CallRefused
from sandbox.serve.asking import AskBounds, Asking
from sandbox.serve.calls import Caller
from sandbox.serve.forwarding import ForwardingHandler
from sandbox.serve.http.doors import DriverDoor, Equipment
from sandbox.serve.http.questions import AllAsking
from sandbox.supervisor.held import Served
from sandbox.tenant import TenantContext
from sandbox.testing.backend import FakeServer
from sandbox.testing.plans import baseline_plan
from tests.gateway_lab import V25, V26, Lab, Server, events, lab, modern
from tests.unit.serve.builders import contract_of, spec_of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
ERAS = [V25, V26]
ALL = "/mcp"
ID = "q-1"
"""What every handshake server here calls its question: its client must not need it to tell them apart."""


def question(process: int) -> dict[str, Any]:
    """Return what a server asks."""
    form = {"type": "object", "properties": {"colour": {"type": "string"}}}
    return {"mode": "form", "message": f"process {process}: which colour?", "requestedSchema": form}


@dataclass
class Asker(Server):
    """A server of either era that asks its client when a call says so, and tells what it was answered.

    Attributes:
        era: protocol version.
        go: what calls with ``{"hold": true}`` wait for before they ask.
        holding: calls that wait.
    """

    era: str = V25
    go: asyncio.Event = field(default_factory=asyncio.Event)
    holding: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, server: FakeServer) -> int:
        """Be one process."""
        self.starts += 1
        process, waiting, tasks = self.starts, {}, set[asyncio.Task[None]]()
        while line := await server.read_line():
            message = json.loads(line)
            if "method" not in message:
                waiting[message["id"]].set_result(message.get("result", {"error": message.get("error")}))
            elif "id" in message:
                tasks.add(asyncio.create_task(self._one(server, message, process, waiting)))
        for task in tasks:
            task.cancel()
        return 0

    async def _one(self, server: FakeServer, message: Any, process: int, waiting: dict[str, Any]) -> None:
        if message["method"] == "tools/call":
            result = await (self._asked if self.era == V25 else self._again)(server, message, process, waiting)
        elif message["method"] == "server/discover" and self.era == V26:
            own = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}}
            result = {"supportedVersions": [V26], "capabilities": {"tools": {}}, "_meta": own}
        else:
            await self._answer(server, message, process)
            return
        await self._send(server, {"id": message["id"], "result": result})

    async def _answer(self, server: FakeServer, message: Any, process: int) -> None:
        if self.era == V26 and message["method"] == "tools/list":
            tool = {"name": "server_tool", "description": "x", "inputSchema": {"type": "object"}}
            result = {"tools": [tool], "resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
            await self._send(server, {"id": message["id"], "result": result})
            return
        await super()._answer(server, message, process)

    async def _asked(self, server: FakeServer, message: Any, process: int, waiting: dict[str, Any]) -> Any:
        """Handshake: a request of its own while it carries the call."""
        if message["params"]["arguments"].get("hold"):
            self.holding.set()
            await self.go.wait()
        waiting[ID] = asyncio.get_running_loop().create_future()
        await self._send(server, {"id": ID, "method": "elicitation/create", "params": question(process)})
        return self._said(process, await waiting[ID])

    async def _again(self, server: FakeServer, message: Any, process: int, _waiting: dict[str, Any]) -> Any:
        """Stateless: a result that asks, then a repetition of the call."""
        params, state = message["params"], f"state of {process}"
        token = params.get("_meta", {}).get("progressToken")
        if "inputResponses" not in params:
            wanted = {"q": {"method": "elicitation/create", "params": question(process)}}
            return {"resultType": "input_required", "inputRequests": wanted, "requestState": state}
        assert state == params["requestState"]
        if token is not None:
            await self._send(
                server, {"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}
            )
        return {"resultType": "complete", **self._said(process, params["inputResponses"]["q"])}

    def _said(self, process: int, got: Any) -> dict[str, Any]:
        said = {"process": process, "got": got}
        return {"content": [{"type": "text", "text": json.dumps(said)}], "structuredContent": said}


@dataclass
class Policy:
    """Allows the questions of some servers.

    Attributes:
        denied: whose questions it denies.
    """

    denied: set[str] = field(default_factory=set)

    def of(self, driver: str) -> Any:
        """Return the decider of one server."""
        policy = self

        class Decider:
            def decide_ask(self, _caller: Caller, _method: str, _facts: Mapping[str, Any]) -> Sequence[str]:
                if driver in policy.denied:
                    raise CallRefused("POL-020", "no")
                return (f"rule of {driver}",)

        return Decider()

    def asking(self, questions: int = 20) -> Callable[[str], Callable[[], Asking]]:
        """Return what makes the judges."""
        bounds = AskBounds(questions=questions)
        return lambda driver: lambda: Asking(self.of(driver), driver, lambda said: said, bounds)


@contextlib.asynccontextmanager
async def gateway(script: Asker, asking: Callable[[str], Callable[[], Asking] | None]) -> AsyncIterator[Lab]:
    """Open a gateway over servers that may ask; ``asking`` makes the judges of each driver's."""
    async with lab(script) as one:
        for door in (door for door in one.app.doors if isinstance(door, DriverDoor)):
            contract = contract_of(inputs={"type": "object"})
            spec = spec_of(contract).model_copy(update={"id": door.name, "protocol_version": script.era})
            door._lender.add(Served(spec, lambda _tenant: baseline_plan()))
            door._equip = functools.partial(_equipped, asking(door.name))
        yield one


async def _equipped(asking: Callable[[], Asking] | None, _live: Any) -> Equipment:
    return Equipment(lambda _caller: ForwardingHandler(), asking=asking)


@contextlib.asynccontextmanager
async def session(one: Lab, mode: str, answer: Any) -> AsyncIterator[Client]:
    """Open the SDK's client at ``/mcp``, for everything that a token opens."""
    headers = {"authorization": f"Bearer {one.token(ALL)}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http:
        transport = streamable_http_client(one.url + ALL, http_client=http)
        async with Client(transport, mode="legacy" if mode == V25 else mode, elicitation_callback=answer) as client:  # type: ignore[arg-type]
            yield client


def said(result: Any) -> Any:
    """Return what a server says that it was answered."""
    return json.loads(result.content[0].text)


def asks(name: str, number: Any = 1, more: Mapping[str, Any] | None = None, **own: Any) -> Any:
    """Return a call of the stateless era whose client can be asked, with its header fields."""
    body, headers = modern("tools/call", {"name": name, "arguments": {}, **(more or {})}, number)
    body["params"]["_meta"] |= {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}, **own}
    return body, headers


async def asked(one: Lab, name: str, token: str, path: str = ALL) -> Any:
    """Send a call of the stateless era; return its result."""
    body, headers = asks(name)
    return (await one.post(path, body, token, **headers)).json()["result"]


def answers(first: Any, colour: str) -> dict[str, Any]:
    """Return what a repetition has more."""
    given = {"action": "accept", "content": {"colour": colour}}
    return {"requestState": first["requestState"], "inputResponses": dict.fromkeys(first["inputRequests"], given)}


@pytest.mark.claim("P-ASK-04")
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
async def test_each_answer_reaches_the_server_that_asked(server_era: str, client_era: str) -> None:
    """Two servers ask at once, under one id, and are answered in turn: each gets its own, in every pair of eras."""
    seen: list[str] = []
    both = asyncio.Event()

    async def answer(_context: Any, params: ElicitRequestParams) -> ElicitResult:
        driver = re.findall(r"the MCP server (\w+),", params.message)[0]
        seen.append(driver)
        if len(seen) == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 60)
        if driver == seen[0]:  # who asked first is answered last
            await asyncio.sleep(0.05)
        return ElicitResult(action="accept", content={"colour": f"for {driver}: {params.message[-25:]}"})

    async with (
        gateway(Asker(era=server_era), Policy().asking()) as one,
        session(one, client_era, answer) as client,
    ):
        names = sorted(tool.name for tool in (await client.list_tools()).tools)
        results = await asyncio.gather(*(client.call_tool(name, {}) for name in names))
        told = [said(result) for result in results]
        forwarded = [fact for fact in one.recorder.facts if (fact.name, fact.phase) == ("ask.forward", "intent")]

    assert ["closed__tool", "open__tool"] == names
    assert ["closed", "open"] == sorted(seen)
    for driver, got in zip(("closed", "open"), told, strict=True):
        assert got["got"]["content"]["colour"].startswith(f"for {driver}: ")
        assert f"process {got['process']}:" in got["got"]["content"]["colour"]
    assert [("closed", ["rule of closed"]), ("open", ["rule of open"])] == sorted(
        (fact.driver, fact.attrs["rules"]) for fact in forwarded
    )


@pytest.mark.claim("P-ASK-04")
@pytest.mark.parametrize("client_era", ERAS)
async def test_the_rules_of_one_server_allow_nothing_to_another(client_era: str) -> None:
    """Who is denied at its own endpoint is denied here, on record under its name; the other one is heard."""
    heard: list[str] = []

    async def answer(_context: Any, params: ElicitRequestParams) -> ElicitResult:
        heard.append(params.message)
        return ElicitResult(action="decline")

    async with (
        gateway(Asker(), Policy({"closed"}).asking()) as one,
        session(one, client_era, answer) as client,
    ):
        denied = said(await client.call_tool("closed__tool", {}))
        control = said(await client.call_tool("open__tool", {}))
        decided = [(fact.driver, fact.attrs["reason"]) for fact in one.recorder.facts if fact.name == "ask.decide"]

    assert "error" in denied["got"]
    assert {"action": "decline"} == control["got"]
    assert ["[asked by the MCP server open, not by your application]"] == [text.split("] ")[0] + "]" for text in heard]
    assert [("closed", "POL-020")] == decided


@pytest.mark.claim("P-ASK-04")
async def test_a_server_without_rules_asks_nobody_beside_one_that_has_some() -> None:
    """A driver for which no rule could allow a question gets no answer through the session of another."""
    policy = Policy().asking()
    async with gateway(Asker(), lambda driver: policy(driver) if driver == "open" else None) as one:
        token = one.token(ALL)
        denied = await asked(one, "closed__tool", token)
        control = await asked(one, "open__tool", token)

    assert "error" in denied["structuredContent"]["got"]
    assert "input_required" == control["resultType"]


@pytest.mark.claim("P-ASK-04")
@pytest.mark.parametrize("server_era", ERAS)
async def test_a_state_answers_for_its_own_server_and_caller_only(server_era: str) -> None:
    """With another credential, at another endpoint, for another server's tool it opens nothing; its call goes on."""
    async with gateway(Asker(era=server_era), Policy().asking()) as one:
        alice, bob, elsewhere = one.token(ALL), one.token(ALL, sub="bob"), one.token("/mcp/open")
        first = await asked(one, "open__tool", alice)
        more, refused = answers(first, "red"), []
        for name, token, path in (("open__tool", bob, ALL), ("tool", elsewhere, "/mcp/open")):
            body, headers = asks(name, 2, more)
            refused.append((await one.post(path, body, token, **headers)).json()["error"]["data"]["id"])
        body, headers = asks("open__tool", 3, more)
        done = (await one.post(ALL, body, alice, **headers)).json()
        second = await asked(one, "open__tool", alice)
        body, headers = asks("closed__tool", 4, answers(second, "blue"))
        crossed = (await one.post(ALL, body, alice, **headers)).json()
        given = [fact.driver for fact in one.recorder.facts if fact.attrs.get("status") == "accept"]

    assert ["SESS-018"] * 3 == [*refused, crossed["error"]["data"]["id"]]
    assert (3, {"colour": "red"}) == (done["id"], done["result"]["structuredContent"]["got"]["content"])
    assert ["open"] == given


async def test_progress_after_an_answer_goes_to_the_repetition() -> None:
    """The token of the request that was answered with a question is good no more; the repetition's own is used."""
    async with gateway(Asker(era=V26), Policy().asking()) as one:
        token = one.token(ALL)
        body, headers = asks("open__tool", 1, progressToken="first")
        first = (await one.post(ALL, body, token, **headers)).json()["result"]
        body, headers = asks("open__tool", 2, answers(first, "red"), progressToken="second")
        told = [message for _, message in events(await one.post(ALL, body, token, **headers))]

    assert ["second"] == [one["params"]["progressToken"] for one in told if "method" in one]
    assert 2 == told[-1]["id"]


async def test_both_ways_to_a_server_share_its_budget() -> None:
    """Who was asked as often as a server may at one endpoint is not asked at the other; another server may still."""
    async with gateway(Asker(era=V26), Policy().asking(questions=2)) as one:
        token = one.token("", audience=[one.url + path for path in (ALL, "/mcp/open", "/mcp/closed")])
        asked_for = [
            await asked(one, "closed__tool", token),
            await asked(one, "tool", token, "/mcp/closed"),
            await asked(one, "closed__tool", token),
            await asked(one, "open__tool", token),
        ]
        decided = [(fact.driver, fact.attrs["reason"]) for fact in one.recorder.facts if fact.name == "ask.decide"]

    assert ["input_required", "input_required", "complete", "input_required"] == [
        result["resultType"] for result in asked_for
    ]
    assert [("closed", "CALL-092")] == decided


async def test_a_reload_gives_no_new_budget_and_its_rules_hold_at_once() -> None:
    """A call that began before asks by what holds now; a session that has moved goes on counting."""
    policy, script, heard = Policy(), Asker(), []

    async def answer(_context: Any, params: ElicitRequestParams) -> ElicitResult:
        heard.append(params.message)
        return ElicitResult(action="decline")

    async with gateway(script, policy.asking(questions=1)) as one, session(one, V25, answer) as client:
        door = next(door for door in one.app.doors if door.path == ALL)
        before = said(await client.call_tool("open__tool", {}))
        door.turn.next()
        counted = said(await client.call_tool("open__tool", {}))
        held = asyncio.create_task(client.call_tool("closed__tool", {"hold": True}))
        await asyncio.wait_for(script.holding.wait(), 60)
        policy.denied.add("closed")
        door.turn.next()
        await client.list_tools()
        script.go.set()
        later = said(await held)
        reasons = [fact.attrs["reason"] for fact in one.recorder.facts if fact.name == "ask.decide"]

    assert [{"action": "decline"}, True, True] == [before["got"], "error" in counted["got"], "error" in later["got"]]
    assert ["CALL-092", "POL-020"] == reasons
    assert 1 == len(heard)


def test_nothing_is_judged_for_nobody_and_a_server_that_was_away_goes_on_counting() -> None:
    """Without a server there is no rule; who is left out for a while has asked as often as before when it is back."""
    make, caller = Policy().asking(questions=1), Caller(TenantContext())
    first, without, back = AllAsking({"a": make("a")()}), AllAsking({}), AllAsking({"a": make("a")()})
    first.of("a").judge("elicitation/create", question(1), caller)
    found = []
    for step, at in ((None, first), (without, first), (back, first), (None, back)):
        if step is not None:
            step.go_on_from(first if step is without else without)
        with pytest.raises(CallRefused) as refused:
            at.of("a").judge("elicitation/create", question(1), caller)
        found.append(refused.value.id)
    with pytest.raises(CallRefused) as refused:
        back.judge("elicitation/create", question(1), caller)

    assert ["CALL-092", "GATE-051", "CALL-092", "CALL-092", "GATE-051"] == [*found, refused.value.id]
