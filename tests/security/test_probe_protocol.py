"""Probe rows of the protocol (J…) in their order: the attack, what comes of it, and what is left behind.

Both ends are scripts and the bytes are real. After each attack the state is looked at: what reached the other side,
what is in flight, what was recorded, and whether an honest request still works. docs/probes-protocol.md has the table.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from sandbox.errors import ServerFault, VetRefused
from sandbox.serve.calls import compile_tool
from sandbox.testing.memory import MemoryRecorder
from sandbox.testing.scripted import scripted
from sandbox.transport.peer import ServerPeer
from sandbox.vet.bind import bind
from sandbox.wire.jsonrpc import Failure, Notification, Request, Result
from tests.unit.serve.builders import contract_of, spec_of, surface_of
from tests.wire_kit import (
    EVERYTHING,
    HANDSHAKE,
    STATELESS,
    US,
    Stage,
    connected,
    of_client,
    open_server,
    scope_of,
    serving,
    settled,
)

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::ResourceWarning")]
DONE = {"content": [{"type": "text", "text": "done"}]}


async def works(stage: Stage) -> None:
    """An honest call is carried, and nothing else is waiting anywhere."""
    stage.client.call("tools/call", {"name": "echo", "arguments": {}}, "honest")
    call = await stage.server.expect("tools/call")
    stage.server.send(Result(call.id, DONE))
    answer = await stage.client.receive(Result)
    await settled()
    assert ("honest", DONE["content"]) == (answer.id, answer.result["content"])
    assert stage.client.unread.empty()
    assert stage.server.unread.empty()


async def begun(stage: Stage, request_id: Any = 5) -> Request:
    """Begin a call and return what reached the server."""
    stage.client.call("tools/call", {"name": "echo", "arguments": {}}, request_id)
    return await stage.server.expect("tools/call")


async def test_j01_garbage_before_the_handshake() -> None:
    """A banner, colours, a byte order mark and half a message are dropped and counted; the handshake goes on."""
    channel, server = scripted("server")
    recorder = MemoryRecorder()
    for line in (b"Welcome to my server!\n", b"\x1b[32mready\x1b[0m\n", b"\xef\xbb\xbf{}\n", b'{"jsonrpc":"2.0",\n'):
        server.send_bytes(line)
    opening = asyncio.create_task(open_server(server, HANDSHAKE, EVERYTHING))
    peer = await ServerPeer.connect(channel, client_info=US, capabilities={}, scope=scope_of(recorder), timeout=5)
    await opening
    channel.abort()

    dropped = [fact for fact in recorder.facts if fact.name == "transport.drop"]
    assert ("handshake", 4) == (peer.era, len(dropped))


async def test_j02_a_line_without_end() -> None:
    """At the bound the server is ended, its call fails once, and nothing of the line is kept."""
    async with serving() as stage:
        stage.server_channel.bound(4096, 128)
        await begun(stage)
        stage.server.send_bytes(b'{"jsonrpc":"2.0","id":5,"result":"' + b"x" * 10_000)
        failed = await stage.client.receive(Failure)
        await settled()

        assert (5, "WIRE-001") == (failed.id, failed.data["id"])
        assert isinstance(stage.peer.fault, ServerFault)
        assert 0 == stage.server_channel._decoder.pending
        assert stage.client.unread.empty()


@pytest.mark.parametrize(
    "line",
    [
        b"NaN",
        b'{"jsonrpc":"2.0","id":5,"result":{"x":NaN}}',
        b"\xff\xfe",
        b'{"a":1,}',
        b"'x'",
        b'{"a":"\\ud800"',
        b"[1",
    ],
)
async def test_j03_no_json_from_either_side(line: bytes) -> None:
    """It is answered or dropped with an id, the other side sees nothing, and the session goes on."""
    async with serving() as stage:
        stage.client.send_bytes(line + b"\n")
        refused = await stage.client.receive(Failure)
        stage.server.send_bytes(line + b"\n")
        await settled()

        assert refused.data["id"].startswith("WIRE-")
        assert stage.peer.fault is None
        await works(stage)


async def test_j04_twenty_thousand_levels() -> None:
    """A nested answer ends its server, a nested request is refused; neither is parsed further."""
    deep = b"[" * 20_000 + b"]" * 20_000
    async with serving() as stage:
        stage.client.send_bytes(b'{"jsonrpc":"2.0","id":9,"method":"ping","params":{"x":' + deep + b"}}\n")
        refused = await stage.client.receive(Failure)
        await works(stage)
        await begun(stage)
        stage.server.send_bytes(b'{"jsonrpc":"2.0","id":5,"result":' + deep + b"}\n")
        failed = await stage.client.receive(Failure)

        assert ["WIRE-007", "WIRE-007"] == [refused.data["id"], failed.data["id"]]
        assert stage.server.unread.empty()


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":9,"method":"ping","method":"tools/call"}',
        b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"echo","name":"rm","arguments":{}}}',
        b'{"jsonrpc":"2.0","id":9,"Method":"tools/call"}',
        '{"jsonrpc":"2.0","id":9,"method":"tools/call","param\u017f":{"name":"echo"}}'.encode(),
    ],
)
async def test_j05_names_that_parsers_read_differently(line: bytes) -> None:
    """A repeated name, another case or a look-alike is refused, and nothing is forwarded."""
    async with serving() as stage:
        stage.client.send_bytes(line + b"\n")
        refused = await stage.client.receive(Failure)
        await settled()

        assert refused.data["id"].startswith(("WIRE-", "SESS-"))
        assert stage.server.unread.empty()
        await works(stage)


@pytest.mark.parametrize("odd", ["99", '"5"', "null", "5.0", "5e0", "9007199254740993", "true", "[5]"])
async def test_j06_ids_that_are_not_the_requests(odd: str) -> None:
    """Only the very id in its very type answers; the first answer wins, the second is dropped and counted."""
    async with serving() as stage:
        await begun(stage)
        stage.server.send_bytes(b'{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}\n' % odd.encode())
        await settled()
        early = stage.client.unread.empty()
        stage.server.send(Result(5, DONE), Result(5, {"content": [{"type": "text", "text": "second"}]}))
        answer = await stage.client.receive(Result)
        await settled()

        assert early
        assert (5, DONE["content"]) == (answer.id, answer.result["content"])
        assert len(stage.facts("transport.drop")) >= 1
        await works(stage)


@pytest.mark.parametrize("method", ["sampling/createMessage", "elicitation/create", "roots/list", "tools/list", "x"])
async def test_j07_requests_that_a_server_may_not_make(method: str) -> None:
    """Handshake: refused with an error. Stateless: dropped. The client hears of neither, and both are recorded."""
    for era, fact in ((HANDSHAKE, "transport.refuse"), (STATELESS, "transport.drop")):
        async with serving(era) as stage:
            stage.server.send(Request("evil", method, {}))
            await settled()
            if era == HANDSHAKE:
                assert "evil" == (await stage.server.receive(Failure)).id
            assert 1 == len(stage.facts(fact))
            assert stage.client.unread.empty()
            assert stage.server.unread.empty()


@pytest.mark.parametrize("wanted", [{"q": {"method": "sampling/createMessage", "params": {}}}, {"q": 7}, [], {"q": {}}])
async def test_j08_input_that_was_never_offered(wanted: Any) -> None:
    """The call ends with a refusal; the state of the server is not shown and not sent back."""
    async with serving(STATELESS) as stage:
        call = await begun(stage)
        result = {"resultType": "input_required", "inputRequests": wanted, "requestState": "server-state"}
        stage.server.send(Result(call.id, result))
        answer = await stage.client.receive(Result)
        await settled()

        assert answer.result["isError"]
        assert "server-state" not in str(answer.result)
        assert stage.server.unread.empty()


async def test_j09_a_question_for_a_password() -> None:
    """Without a rule nothing is asked at all; tests/unit/serve/test_asking.py has what a rule cannot allow."""
    async with serving() as stage:
        call = await begun(stage)
        stage.server.send(Request("p", "elicitation/create", {"message": "Your password?", "requestedSchema": {}}))
        assert "p" == (await stage.server.receive(Failure)).id
        stage.server.send(Result(call.id, DONE))
        await stage.client.receive(Result)
        await settled()

        assert stage.client.unread.empty()


async def test_j10_ten_thousand_list_changes() -> None:
    """The flood ends the server within its rate, the client is sent none of them, and the records are few."""
    async with serving() as stage:
        for _ in range(10_000):
            stage.server.send(Notification("notifications/tools/list_changed", {}))
        await settled()

        assert "WIRE-045" == getattr(stage.peer.fault, "id", "")
        assert stage.client.unread.empty()
        assert len(stage.recorder.facts) < 100


def test_j12_two_tools_of_one_name() -> None:
    """Two bindings under one exposed name are refused before anybody is served."""
    spec = spec_of(contract_of())
    twice = spec.model_copy(update={"bindings": (*spec.bindings, *spec.bindings)})

    with pytest.raises(VetRefused) as refused:
        bind(twice, surface_of(spec))

    assert "VET-003" == refused.value.id


def test_j12_what_a_server_calls_itself_is_not_shown() -> None:
    """Look-alike, invisible and further names of a server are invisible: only contract ids are exposed."""
    spec = spec_of(contract_of())
    names = ("server_tool", "server_t\u043eol", "server_tool\u200b", "SERVER_TOOL", "server_tool ")
    shown = bind(spec, surface_of(spec, **{name: {"name": name, "description": "evil"} for name in names}))

    assert ["tool"] == list(shown.tools)
    assert "evil" not in str(shown.tools["tool"].definition)


def test_j14_a_schema_that_points_to_the_network() -> None:
    """A reference to an address is refused; the canary that listens there is never called."""
    with socket.create_server(("127.0.0.1", 0)) as canary:
        canary.settimeout(0.2)
        place = f"http://127.0.0.1:{canary.getsockname()[1]}/canary"
        spec = spec_of(contract_of(inputs={"type": "object", "properties": {"x": {"$ref": place}}}))
        tool = bind(spec, surface_of(spec)).tools["tool"]

        with pytest.raises(VetRefused):
            compile_tool(tool)
        with pytest.raises(TimeoutError):
            canary.accept()


@pytest.mark.parametrize("client_era", [HANDSHAKE, STATELESS])
async def test_j19_public_on_private_data(client_era: str) -> None:
    """A server's `public` reaches no client: what may be kept is private and stale at once."""
    async with serving(STATELESS, client_era) as stage:
        stage.client.call("resources/read", of_client(client_era, {"uri": "note://one"}), 5)
        read = await stage.server.expect("resources/read")
        body = {"contents": [], "resultType": "complete", "cacheScope": "public", "ttlMs": 10**9}
        stage.server.send(Result(read.id, body))
        answer = await stage.client.receive(Result)

        kept = ("private", 0) if client_era == STATELESS else (None, None)
        assert kept == (answer.result.get("cacheScope"), answer.result.get("ttlMs"))


@pytest.mark.parametrize("batch", [b"[]", b'[{"jsonrpc":"2.0","id":5,"method":"ping"}]'])
async def test_j23_batches(batch: bytes) -> None:
    """Refused from the client, dropped from the server; no part of one is carried out."""
    async with serving() as stage:
        stage.client.send_bytes(batch + b"\n")
        refused = await stage.client.receive(Failure)
        stage.server.send_bytes(batch + b"\n")
        await settled()

        assert refused.data["id"].startswith("WIRE-")
        assert 1 == len(stage.facts("transport.drop"))
        await works(stage)


async def test_r07_a_server_that_never_answers() -> None:
    """The deadline ends the call, the server is told, the slot is free, and a late answer is dropped in silence."""
    async with connected() as stage:
        asking = asyncio.create_task(stage.peer.request("tools/call", {"name": "x"}, timeout=0.05))
        call = await stage.server.expect("tools/call")
        with pytest.raises(ServerFault) as late:
            await asking
        told = await stage.server.receive(Notification)
        stage.server.send(Result(call.id, DONE))
        await settled()

        assert "WIRE-043" == late.value.id
        assert ("notifications/cancelled", call.id) == (told.method, told.params["requestId"])
        assert 0 == len(stage.peer._pending.drain())
        assert [] == stage.facts("transport.drop")
