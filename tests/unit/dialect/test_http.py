"""The dialect over HTTP: handshakes, invocations, what is refused, and that nothing goes past the gateway's rules."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sandbox.dialect.versions import RELEASES
from sandbox.serve.ratelimit import Rate
from sandbox.testing.backend import FakeServer
from tests.dialect_lab import ALL, CLOSED, OPEN, dialect_lab, invocation, shake, until
from tests.gateway_lab import Server

pytestmark = pytest.mark.anyio


async def test_a_client_shakes_hands_and_calls_a_tool(tmp_path: Path) -> None:
    """The whole way: agreement, request, response with result and figures, one record of the call."""
    async with dialect_lab(tmp_path) as lab:
        agreed = await lab.send("POST", OPEN + "/handshake", shake(capabilities=["async", "nonsense", "sandbox"]))
        session = agreed.json()["session"]
        request = invocation(session, a=1)
        answer = await lab.send("POST", OPEN + "/invoke", request)

    assert ("2025-11", "same", ["async", "sandbox"]) == tuple(
        agreed.json()[k] for k in ("version", "how", "capabilities")
    )
    said = answer.json()
    assert (200, "success", request["request_id"], 1) == (
        answer.status_code, said["status"], said["request_id"], said["result"]["a"],
    )  # fmt: skip
    assert said["metadata"]["tokens_used"] > 0
    assert [{"a": 1}] == lab.stage.server.calls


@pytest.mark.parametrize("version", RELEASES)
async def test_versions_are_negotiated_at_the_door(tmp_path: Path, version: str) -> None:
    """Within one release the older is agreed; beyond it the client is told what it may speak."""
    async with dialect_lab(tmp_path) as lab:
        answer = await lab.send("POST", OPEN + "/handshake", shake(version=version))

    if version in RELEASES[-2:]:
        assert (200, version) == (answer.status_code, answer.json()["version"])
    else:
        assert (400, "DIA-003") == (answer.status_code, answer.json()["error"]["id"])
        assert list(RELEASES[-2:]) == answer.json()["error"]["supported"]


@pytest.mark.parametrize(
    ("change", "number"),
    [
        ({"transport": "ws"}, "DIA-007"),
        ({"server_id": "another"}, "DIA-006"),
        ({"version": "2025-13"}, "DIA-004"),
        ({"version": None}, "DIA-004"),
        ({"mcp_version": "2025-06"}, "DIA-004"),
        ({"extra": 1}, "DIA-004"),
        ({"capabilities": "async"}, "DIA-004"),
        ({"capabilities": ["x"] * 33}, "DIA-004"),
        ({"client_id": ""}, "DIA-004"),
    ],
)
async def test_a_handshake_that_does_not_fit_is_refused(tmp_path: Path, change: dict[str, object], number: str) -> None:
    """Each broken handshake has its own reason, in the dialect's own shape."""
    async with dialect_lab(tmp_path) as lab:
        answer = await lab.send("POST", OPEN + "/handshake", {**shake(), **change})

    assert (400, "error", number) == (answer.status_code, answer.json()["status"], answer.json()["error"]["id"])


@pytest.mark.claim("P-DIA-04")
async def test_nobody_comes_in_without_the_endpoint_s_credential(tmp_path: Path) -> None:
    """Every path asks for the same token as the endpoint, and says where to get one; with it, the same path answers."""
    async with dialect_lab(tmp_path) as lab:
        token = lab.stage.token()
        for method, path in (
            ("POST", "/handshake"), ("POST", "/invoke"), ("GET", "/tools/"), ("GET", f"/jobs/{uuid.uuid4()}"),
            ("GET", "/metadata"), ("GET", "/resources/"), ("GET", "/nothing"),
        ):  # fmt: skip
            refused = await lab.send(method, CLOSED + path, shake() if method == "POST" else None)
            wrong = await lab.send(method, CLOSED + path, None, lab.stage.token(audience="https://elsewhere.example"))
            assert (401, "GATE-020") == (refused.status_code, refused.json()["error"]["id"]), path
            assert 401 == wrong.status_code, path
            assert "resource_metadata=" in refused.headers["www-authenticate"]
        known = await lab.send("GET", CLOSED + "/tools/tool.json", token=token)

    assert (200, "tool") == (known.status_code, known.json()["tool_id"])
    assert [] == lab.stage.server.calls


async def test_a_session_belongs_to_its_opener_and_endpoint(tmp_path: Path) -> None:
    """Another tenant, another endpoint and no session are told the same: there is none."""
    async with dialect_lab(tmp_path) as lab:
        alice, bob = lab.stage.token(), lab.stage.token(tenant="other", sub="bob")
        session = await lab.session(CLOSED, alice)
        own = await lab.invoke(CLOSED, alice, session, a=1)
        others = [
            await lab.invoke(CLOSED, bob, session),
            await lab.invoke(OPEN, "", session),
            await lab.send("POST", CLOSED + "/invoke", invocation(None), alice),
            await lab.invoke(CLOSED, alice, str(uuid.uuid4())),
        ]

    assert "success" == own.json()["status"]
    assert [(404, "DIA-005")] * 4 == [(one.status_code, one.json()["error"]["id"]) for one in others]
    assert 1 == len(lab.stage.server.calls)


async def test_calls_count_towards_the_gateway_s_rate(tmp_path: Path) -> None:
    """The third call of two is refused with when to come back; the tool was called twice."""
    async with dialect_lab(tmp_path, rate=Rate(0.01, 2)) as lab:
        session = await lab.session()
        answers = [await lab.invoke(session=session) for _ in range(3)]

    assert [200, 200, 429] == [one.status_code for one in answers]
    assert "GATE-012" == answers[2].json()["error"]["id"]
    assert answers[2].headers["retry-after"]
    assert "remaining=0;retry=" in answers[2].headers["x-mcp-limit"]
    assert 2 == len(lab.stage.server.calls)


async def test_asking_for_tools_that_are_not_there_counts_too(tmp_path: Path) -> None:
    """A flood of requests for unknown tools meets the rate of the endpoint, as it does over MCP."""
    async with dialect_lab(tmp_path) as lab:
        session = await lab.session()
        lab.stage.app.gateway.quotas._overall = Rate(0.01, 3)
        answers = [await lab.invoke(session=session, tool="nothing") for _ in range(5)]

    assert {"DIA-012", "GATE-012"} == {one.json()["error"]["id"] for one in answers}
    assert 429 == answers[-1].status_code


async def test_errors_have_the_dialect_s_shape_and_our_ids(tmp_path: Path) -> None:
    """What is refused, unknown, malformed or failed is a response with an error, never a JSON-RPC message."""
    async with dialect_lab(tmp_path, inputs={"type": "object", "properties": {"a": {"type": "integer"}}}) as lab:
        session = await lab.session()
        unknown = await lab.invoke(session=session, tool="server_tool")
        broken = await lab.send("POST", OPEN + "/invoke", b'{"request_id":1}')
        twice = await lab.send("POST", OPEN + "/invoke", b'{"a":1,"a":2}')
        typed = await lab.send("POST", OPEN + "/invoke", b"{}", headers={"content-type": "text/plain"})
        method = await lab.send("GET", OPEN + "/invoke")
        died = await lab.invoke(session=session, die=True)
        nothing = await lab.send("GET", OPEN + "/nothing")

    found = [(one.status_code, one.json()["error"]["id"]) for one in (unknown, broken, twice, typed, method, nothing)]
    assert [
        (404, "DIA-012"), (400, "DIA-004"), (400, "DIA-004"), (415, "DIA-026"), (405, "DIA-011"), (404, "DIA-010"),
    ] == found  # fmt: skip
    assert "POST" == method.headers["allow"]
    assert "error" == died.json()["status"]
    for one in (unknown, broken, twice, typed, method, nothing, died):
        assert "jsonrpc" not in one.json()
        assert {"id", "code", "message", "retryable"} <= set(one.json()["error"])


async def test_a_lost_client_cancels_its_call(tmp_path: Path) -> None:
    """Whoever hangs up during a synchronous call is told of to the server."""
    async with dialect_lab(tmp_path) as lab:
        lab.stage.server.slow = 10.0
        session = await lab.session()
        calling = asyncio.create_task(lab.invoke(session=session, slow=True))
        await until(lambda: bool(lab.stage.server.calls))
        calling.cancel()
        await until(lambda: bool(lab.stage.server.cancelled))

    assert 1 == len(lab.stage.server.cancelled)


async def test_progress_comes_as_events_before_the_response(tmp_path: Path) -> None:
    """With `stream` a client hears how far its call is; without it, events are refused."""
    async with dialect_lab(tmp_path) as lab:
        session, without = await lab.session(), await lab.session(capabilities=[])
        events = {"accept": "text/event-stream"}
        answer = await lab.send("POST", OPEN + "/invoke", invocation(session, steps=3, slow=True), headers=events)
        refused = await lab.send("POST", OPEN + "/invoke", invocation(without), headers=events)

    names = [line[7:] for line in answer.text.splitlines() if line.startswith("event: ")]
    last = json.loads([line[6:] for line in answer.text.splitlines() if line.startswith("data: ")][-1])
    assert ["progress", "progress", "progress", "response"] == names
    assert ("text/event-stream", "success") == (answer.headers["content-type"], last["status"])
    assert (403, "DIA-008") == (refused.status_code, refused.json()["error"]["id"])


async def test_an_id_in_use_is_refused(tmp_path: Path) -> None:
    """Of two requests with one id at the same time the second is refused, and the tool is called once."""
    async with dialect_lab(tmp_path) as lab:
        body = invocation(await lab.session(), slow=True)
        first = asyncio.create_task(lab.send("POST", OPEN + "/invoke", body))
        await until(lambda: bool(lab.stage.server.calls))
        second = await lab.send("POST", OPEN + "/invoke", body)
        done = await first

    assert (409, "DIA-009") == (second.status_code, second.json()["error"]["id"])
    assert ("success", 1) == (done.json()["status"], len(lab.stage.server.calls))


class Noting(Server):
    """The server of the lab, keeping the `_meta` of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.metas: list[Mapping[str, Any]] = []

    async def _call(self, server: FakeServer, params: Any, process: int) -> Any:
        self.metas.append(params.get("_meta", {}))
        return await super()._call(server, params, process)


async def test_a_trace_of_the_caller_is_that_of_the_call(tmp_path: Path) -> None:
    """`context.trace_id` arrives at the server as W3C trace context; without it nothing is said."""
    trace, server = uuid.uuid4(), Noting()
    async with dialect_lab(tmp_path, server) as lab:
        session = await lab.session()
        body = {**invocation(session), "context": {"trace_id": str(trace), "client_name": "flow"}}
        await lab.send("POST", OPEN + "/invoke", body)
        await lab.invoke(session=session)

    assert [True, False] == [f"00-{trace.hex}-" in one.get("traceparent", "") for one in server.metas]


async def test_every_answer_says_how_it_may_be_kept_and_where_one_stands(tmp_path: Path) -> None:
    """Nothing is stored but files, nothing is sniffed, and who was admitted sees the limit."""
    async with dialect_lab(tmp_path) as lab:
        session = await lab.session()
        answers = {
            "handshake": await lab.send("POST", OPEN + "/handshake", shake()),
            "invoke": await lab.invoke(session=session),
            "metadata": await lab.send("GET", OPEN + "/metadata"),
            "jobs": await lab.send("GET", OPEN + "/jobs/"),
            "refused": await lab.send("GET", CLOSED + "/metadata"),
        }
        file = await lab.send("GET", OPEN + "/tools/tool.json")

    for name, one in answers.items():
        assert ("no-store", "nosniff") == (one.headers["cache-control"], one.headers["x-content-type-options"]), name
        assert ("x-mcp-limit" in one.headers) == (name != "refused"), name
        assert "strict-transport-security" not in one.headers
    assert "private, no-cache" == file.headers["cache-control"]
    assert ["tool"] == answers["metadata"].json()["tools"]
    assert "ready" == answers["metadata"].json()["status"]


async def test_the_aggregate_speaks_it_too(tmp_path: Path) -> None:
    """At `/mcp/2025-11` the tools of every driver that the caller may use are there, and of no other."""
    async with dialect_lab(tmp_path) as lab:
        listed = (await lab.send("GET", ALL + "/tools/")).json()
        answer = await lab.invoke(ALL, tool="open__tool", a=2)
        closed = await lab.invoke(ALL, tool="closed__tool", a=3)

    assert ["tools/open__tool.json"] == [one["path"] for one in listed["files"]]
    assert ("success", 2) == (answer.json()["status"], answer.json()["result"]["a"])
    assert "error" == closed.json()["status"]
    assert [{"a": 2}] == lab.stage.server.calls


async def test_places_are_checked_before_anything_else(tmp_path: Path) -> None:
    """Another host and a page of another origin get nothing, whatever they bring."""
    async with dialect_lab(tmp_path) as lab:
        host = await lab.send("GET", OPEN + "/tools/", headers={"host": "evil.example"})
        page = await lab.send("GET", OPEN + "/tools/", headers={"origin": "https://evil.example"})

    assert (421, 403) == (host.status_code, page.status_code)
