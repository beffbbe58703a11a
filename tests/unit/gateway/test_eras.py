"""Streamable HTTP in both eras: sessions, answers as JSON or events, resumption, cancellation, open streams."""

from __future__ import annotations

import asyncio
import json

import pytest
from mcp import Client, ClientSession
from mcp.client.sse import sse_client

from sandbox.serve.http.bounds import MAX_KEPT_BYTES
from sandbox.serve.http.sessions import HttpSession
from sandbox.serve.ratelimit import Rate
from tests.gateway_lab import EVENTS, SECRET, V25, Server, call, events, lab, modern, request

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28", "auto"])
@pytest.mark.parametrize("path", ["/mcp/open", "/mcp"])
async def test_the_sdk_client_of_either_era_lists_and_calls(mode: str, path: str) -> None:
    """The Python SDK's client uses a handshake server through the gateway, whatever it speaks itself."""
    name = "open__tool" if path == "/mcp" else "tool"
    async with lab() as stage, Client(stage.url + path, mode=mode) as client:  # type: ignore[arg-type]
        listed = [tool.name for tool in (await client.list_tools()).tools]
        said = await client.call_tool(name, {"a": 1})

    assert [name] == listed
    assert 1 == json.loads(said.content[0].text)["a"]  # type: ignore[union-attr]


async def test_a_quick_answer_is_plain_json_and_a_slow_one_an_event_stream() -> None:
    """What takes long becomes a stream, so that nothing in between takes it for dead."""
    async with lab() as stage:
        headers = await stage.session()
        quick = await stage.post("/mcp/open", call(2), **headers)
        slow = await stage.post("/mcp/open", call(3, slow=True), **headers)

    assert "application/json" == quick.headers["content-type"]
    assert "text/event-stream" == slow.headers["content-type"]
    assert [3] == [message["id"] for _, message in events(slow)]


async def test_progress_comes_on_the_response_of_its_request() -> None:
    """Of two requests at once each hears its own progress, in order, before its answer."""
    async with lab() as stage:
        headers = await stage.session()

        async def one(number: int) -> list[object]:
            body = call(number, steps=3, slow=True)
            body["params"]["_meta"] = {"progressToken": f"t{number}"}
            return [
                message.get("id") or message["params"]["progressToken"]
                for _, message in events(await stage.post("/mcp/open", body, **headers))
            ]

        heard = await asyncio.gather(one(5), one(6))

    assert [["t5", "t5", "t5", 5], ["t6", "t6", "t6", 6]] == heard


async def test_a_broken_stream_is_resumed_where_it_broke() -> None:
    """A client that lost its connection gets the rest, and nothing twice (2025-11-25, resumability)."""
    async with lab() as stage:
        headers = await stage.session()
        body = call(7, steps=2, slow=True)
        body["params"]["_meta"] = {"progressToken": "t"}
        sent = {**EVENTS, **{name.replace("_", "-"): value for name, value in headers.items()}}
        last = ""
        async with stage.client.stream("POST", stage.url + "/mcp/open", json=body, headers=sent) as response:
            async for line in response.aiter_lines():
                last = line[4:] if line.startswith("id: ") else last
                if '"progress":1' in line:
                    break
        again = await stage.client.get(stage.url + "/mcp/open", headers={**sent, "last-event-id": last})

        numbers = [message.get("id") or message["params"]["progress"] for _, message in events(again)]
        assert [2, 7] == numbers
        assert 1 == len(stage.server.calls)


async def kept_by(session: HttpSession) -> list[int]:
    """Return the bytes of each stream that a session keeps, when the gateway has seen the last response end too."""
    streams = session._streams
    async with asyncio.timeout(30):
        while any(one.reader or (one.over and not one.told) for one in streams.values()):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)
    return [one.size for one in streams.values() if one is not session.standing]


async def test_what_is_kept_for_clients_that_come_back_is_bounded() -> None:
    """Nothing of a plain answer is kept, for it had no id to come back with; of event streams so many bytes in all."""
    async with lab(json_wait=5.0, rate=Rate(1e6, 1_000_000)) as stage:
        headers = await stage.session()
        (session,) = stage.app.sessions._all.values()
        for number in range(20):
            assert 200 == (await stage.post("/mcp/open", call(number + 10, mark="x" * 5000), **headers)).status_code
        after_plain = await kept_by(session)
        for number in range(12):
            body = call(number + 50, steps=1, mark="x" * 40_000)
            body["params"]["_meta"] = {"progressToken": "t"}
            answer = await stage.post("/mcp/open", body, **headers)
            assert "event-stream" in answer.headers["content-type"]
        kept = await kept_by(session)

    assert [] == after_plain
    assert 1 < len(kept) < 12
    assert max(kept) * 12 > MAX_KEPT_BYTES >= sum(kept) - max(kept)


async def test_a_stream_begins_with_an_id_for_clients_that_know_it_and_only_for_them() -> None:
    """Clients before 2025-11-25 would read an event without data as a broken message."""
    async with lab() as stage:
        new, old = await stage.session(), await stage.initialize(version="2025-06-18")
        first = await stage.post("/mcp/open", call(2, slow=True), **new)
        second = await stage.post("/mcp/open", call(2, slow=True), mcp_session_id=old.headers["mcp-session-id"])

    assert "data: \n" in first.text
    assert "data: \n" not in second.text


async def test_a_deleted_session_is_gone() -> None:
    """DELETE ends it; requests with its id are told 404, so that clients open another."""
    async with lab() as stage:
        headers = await stage.session()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        deleted = await stage.client.delete(stage.url + "/mcp/open", headers=sent)
        after = await stage.post("/mcp/open", call(), **headers)

    assert (200, 404) == (deleted.status_code, after.status_code)


async def test_a_session_ends_with_its_server_and_the_next_one_works() -> None:
    """The call in flight is answered with an error, the session is 404 after that, and a new one has a new process."""
    async with lab() as stage:
        headers = await stage.session()
        died = await stage.post("/mcp/open", call(2, die=True), **headers)
        await asyncio.sleep(0.5)
        gone = await stage.post("/mcp/open", call(3), **headers)
        fresh = await stage.post("/mcp/open", call(4), **(await stage.session()))

        assert "error" in died.json()
        assert 404 == gone.status_code
        assert 2 == json.loads(fresh.json()["result"]["content"][0]["text"])["process"]


async def test_an_unused_session_ends_and_lets_go_of_its_server() -> None:
    """Nobody's session keeps a server for ever."""
    async with lab(session_idle=0.1) as stage:
        headers = await stage.session()
        async with asyncio.timeout(10):
            while len(stage.app.sessions):  # noqa: ASYNC110 - it has no event for it
                await asyncio.sleep(0.05)
        after = await stage.post("/mcp/open", call(), **headers)

    assert 404 == after.status_code


async def test_a_lost_stateless_client_cancels_and_a_lost_handshake_client_does_not() -> None:
    """2026-07-28: closing the response cancels; 2025-11-25: it must not be taken for that."""
    async with lab(Server(slow=1.0)) as stage:
        headers = await stage.session()
        body, fields = modern("tools/call", {"name": "tool", "arguments": {"slow": True}}, 9)
        for number, sent, more in ((8, call(8, slow=True), headers), (9, body, fields)):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(stage.post("/mcp/open", sent, **more), 0.5)
            assert number
        await asyncio.sleep(0.8)

        assert [9] == stage.server.cancelled


async def test_a_subscription_stays_open_and_ends_in_an_orderly_way() -> None:
    """``subscriptions/listen`` is acknowledged at once and answered when the gateway ends."""
    async with lab() as stage:
        body, headers = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, "listen")
        listening = asyncio.create_task(stage.post("/mcp/open", body, **headers))
        await asyncio.sleep(0.5)
        assert not listening.done()
        await stage.app.drain()
        heard = [message.get("method") or message["id"] for _, message in events(await listening)]

    assert ["notifications/subscriptions/acknowledged", "listen"] == heard


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"mcp_method": "tools/list"}, 400, -32020),
        ({"mcp_method": ""}, 400, -32020),
        ({"mcp_name": "other"}, 400, -32020),
        ({"mcp_name": "=?base64?dG9vbA==?="}, 200, None),
        ({"mcp_name": "=?base64?dG9vbA=?="}, 400, -32020),
        ({"mcp_protocol_version": V25}, 400, -32020),
    ],
)
async def test_header_fields_have_to_say_what_the_body_says(
    change: dict[str, str], status: int, code: int | None
) -> None:
    """A proxy that decides by the fields and a server that reads the body must not see two requests."""
    body, headers = modern("tools/call", {"name": "tool", "arguments": {}})
    async with lab() as stage:
        answer = await stage.post("/mcp/open", body, **{**headers, **change})

    assert (status, code) == (answer.status_code, answer.json().get("error", {}).get("code"))


async def test_an_unknown_method_is_404_and_starts_nothing() -> None:
    """The stateless era says so with the status; no server is started for it."""
    async with lab() as stage:
        answers = [
            await stage.post("/mcp/open", *[modern(m)[0]], **modern(m)[1]) for m in ("no/such", "initialize", "ping")
        ]

        assert [(404, -32601)] * 3 == [(one.status_code, one.json()["error"]["code"]) for one in answers]
        assert 0 == stage.server.starts


async def test_get_needs_a_session_and_other_methods_are_refused() -> None:
    """405 says what is used."""
    async with lab() as stage:
        got = await stage.client.get(stage.url + "/mcp/open", headers={"accept": "text/event-stream"})
        put = await stage.client.put(stage.url + "/mcp/open")

    assert [(405, "POST"), (405, "GET, POST, DELETE")] == [
        (one.status_code, one.headers["allow"]) for one in (got, put)
    ]


async def test_drain_answers_what_is_in_progress_and_refuses_what_comes() -> None:
    """SIGTERM loses no answer."""
    async with lab() as stage:
        headers = await stage.session()
        running = asyncio.create_task(stage.post("/mcp/open", call(2, slow=True), **headers))
        await asyncio.sleep(0.1)
        draining = asyncio.create_task(stage.app.drain())
        await asyncio.sleep(0.05)
        late = await stage.post("/mcp/open", request("ping", number=3), **headers)
        await draining

        assert SECRET in (await running).text
        assert (503, "2") == (late.status_code, late.headers["retry-after"])
        assert 0 == len(stage.app.sessions)


REGION = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}


@pytest.mark.parametrize(
    ("given", "sent", "status"),
    [
        ({"region": "eu"}, {"mcp_param_region": "eu"}, 200),
        ({"region": "zürich"}, {"mcp_param_region": "=?base64?esO8cmljaA==?="}, 200),
        ({}, {}, 200),
        ({"region": "eu"}, {}, 400),
        ({"region": "eu"}, {"mcp_param_region": "us"}, 400),
        ({}, {"mcp_param_region": "us"}, 400),
        ({"region": "eu"}, {"mcp_param_region": "=?base64?ZX?="}, 400),
        ({"region": "eu"}, {"mcp_param_region": "eu", "mcp_param_other": "x"}, 200),
    ],
)
async def test_repeated_arguments_have_to_agree(given: dict[str, str], sent: dict[str, str], status: int) -> None:
    """``Mcp-Param-…`` of a contract that asks for it; fields that nobody asked for are not looked at."""
    async with lab(inputs=REGION) as stage:
        body, headers = modern("tools/call", {"name": "tool", "arguments": given})
        answer = await stage.post("/mcp/open", body, **headers, **sent)

    assert status == answer.status_code
    assert status == 200 or -32020 == answer.json()["error"]["code"]


async def test_an_unknown_version_is_told_which_ones_are_spoken() -> None:
    """The list is that of ``server/discover``: a client that cannot use it looks for the other era itself."""
    async with lab() as stage:
        body, headers = modern("tools/list")
        body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "1900-01-01"
        refused = await stage.post("/mcp/open", body, **{**headers, "mcp_protocol_version": "1900-01-01"})
        body, headers = modern("server/discover")
        offered = await stage.post("/mcp/open", body, **headers)

    error = refused.json()["error"]
    assert (400, -32022) == (refused.status_code, error["code"])
    assert offered.json()["result"]["supportedVersions"] == error["data"]["supported"]


async def test_a_client_of_the_oldest_transport_is_served_where_it_is_offered() -> None:
    """HTTP+SSE: the SDK's client lists and calls; the session ends with its stream, and is its holder's alone."""
    async with lab() as stage:
        headers = {"authorization": f"Bearer {stage.token()}"}
        url = stage.url + "/mcp/closed/sse"
        async with sse_client(url, headers=headers) as (read, write), ClientSession(read, write) as client:
            await client.initialize()
            said = await client.call_tool("tool", {"a": 1})
            (session_id,) = stage.app.sessions._all
            stolen = await stage.post(f"/mcp/closed/messages?session={session_id}", call(5), stage.token(sub="mallory"))
        async with asyncio.timeout(5):
            while len(stage.app.sessions):  # noqa: ASYNC110 - it has no event for it
                await asyncio.sleep(0.02)
        nobody = await stage.client.get(url)
        not_offered = await stage.client.get(stage.url + "/mcp/open/sse")

    assert 1 == json.loads(said.content[0].text)["a"]  # type: ignore[union-attr]
    assert [404, 401, 404] == [answer.status_code for answer in (stolen, nobody, not_offered)]
