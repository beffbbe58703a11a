from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandbox.errors import AuditUnavailable, PlatformError, UsageError
from sandbox.limits import MAX_CLIENT_GARBAGE_LINES
from sandbox.serve.client_model import CallInfo, SessionOptions
from sandbox.serve.forwarding import ForwardingHandler
from sandbox.vet.model import ExposedTool
from sandbox.wire.jsonrpc import Failure, Notification, Result
from tests.wire_kit import (
    HANDSHAKE,
    STATELESS,
    THEM,
    refused,
    serving,
    settled,
)

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("era", [HANDSHAKE, STATELESS])
OPENING = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": THEM}


# --- lines, pressure and the end -------------------------------------------------------------------------
async def test_a_bad_line_is_answered() -> None:
    """A line that is no message gets an error, under its id when it has one, and the session goes on."""
    async with serving() as stage:
        stage.client.send_bytes(b'{"jsonrpc":"2.0","id":5,"method":"a","extra":1}\nnonsense\n')
        first, second = await stage.client.receive(Failure), await stage.client.receive(Failure)

        assert (5, -32600) == (first.id, first.code)
        assert (None, -32700) == (second.id, second.code)
        assert ["WIRE-018", "WIRE-010"] == [fact["reason"] for fact in stage.facts("session.drop")]
        assert await stage.client.ask("tools/list")


async def test_a_line_too_long_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing after it can be read, so the client is told and the session ends."""
    async with serving() as stage:
        stage.client_channel._decoder._max = 100
        stage.client.send_bytes(b"x" * 200)
        answer = await stage.client.receive(Failure)

        assert "WIRE-001" == answer.data["id"]
        with pytest.raises(UsageError):
            await stage.running


async def test_patience_with_clients_ends() -> None:
    """A client that sends nothing but noise is told each time, and then dropped."""
    async with serving() as stage:
        stage.client.send_bytes(b"noise\n" * (MAX_CLIENT_GARBAGE_LINES + 1))

        with pytest.raises(UsageError) as caught:
            await stage.running
        assert "SESS-022" == caught.value.id


async def test_answers_of_a_client_are_dropped() -> None:
    """Nothing is ever asked of a client, so an answer is noise."""
    async with serving() as stage:
        stage.client.send(Result(1, {}))
        await settled()

        assert ["SESS-021"] == [fact["reason"] for fact in stage.facts("session.drop")]


@pytest.mark.claim("P-WIRE-10")
async def test_a_client_that_does_not_read_stops_both_sides() -> None:
    """While our buffer for the client is full nothing is read from client or server."""
    async with serving() as stage:
        stage.client_channel.make_full(True)
        assert (False, False) == (stage.client_channel.reading, stage.server_channel.reading)
        stage.client_channel.make_full(False)

        assert (True, True) == (stage.client_channel.reading, stage.server_channel.reading)


async def test_a_server_that_does_not_read_stops_the_client() -> None:
    """While our buffer for the server is full nothing is read from the client; the server may go on writing."""
    async with serving() as stage:
        stage.server_channel.make_full(True)
        assert (False, True) == (stage.client_channel.reading, stage.server_channel.reading)
        stage.server_channel.make_full(False)

        assert stage.client_channel.reading


async def test_requests_in_flight_may_finish_after_eof() -> None:
    """A client that wrote everything and closed its side still gets its answers."""
    async with serving() as stage:
        stage.client.call("tools/call", {"name": "echo"}, 1)
        request = await stage.server.expect("tools/call")
        stage.client.close()
        await settled()
        stage.server.send(Result(request.id, {"content": []}))

        assert 1 == (await stage.client.receive(Result)).id
        await stage.running


async def test_what_does_not_finish_is_cancelled() -> None:
    """After the grace the server is told to stop."""
    async with serving(options=SessionOptions(drain_grace=0.01)) as stage:
        stage.client.call("tools/call", {"name": "echo"}, 1)
        await stage.server.expect("tools/call")
        stage.client.close()
        await stage.running

        assert "notifications/cancelled" == (await stage.server.receive(Notification)).method


async def test_a_client_that_is_gone_ends_everything_at_once() -> None:
    """When nobody can read the answers no grace is given."""
    async with serving(options=SessionOptions(drain_grace=60)) as stage:
        stage.client.call("tools/call", {"name": "echo"}, 1)
        await stage.server.expect("tools/call")
        stage.client_channel.abort()
        await asyncio.wait_for(stage.running, 5)

        assert "notifications/cancelled" == (await stage.server.receive(Notification)).method


async def test_evidence_that_cannot_be_written_ends_the_session() -> None:
    """A refusal that cannot be recorded is not given: the session ends with that error."""
    async with serving() as stage:
        stage.recorder.fails_at = frozenset(("session.drop",))
        stage.client.send_bytes(b"nonsense\n")

        with pytest.raises(AuditUnavailable):
            await asyncio.wait_for(stage.running, 5)


async def test_a_defect_in_handling_a_message_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception of ours ends the channel with an error instead of leaving the client waiting."""
    async with serving() as stage:
        monkeypatch.setattr(stage.session, "_take_request", lambda _request: 1 / 0)
        stage.client.call("tools/list")

        with pytest.raises(PlatformError) as caught:
            await asyncio.wait_for(stage.running, 5)
        assert "WIRE-033" == caught.value.id


async def test_a_result_that_is_not_json() -> None:
    """A handler's mistake is an internal error for the client, and recorded."""

    class Careless(ForwardingHandler):
        async def call_tool(self, tool: ExposedTool, arguments: dict[str, Any], call: CallInfo) -> dict[str, Any]:
            return {"content": [object()]}

    async with serving(handler=Careless()) as stage:
        answer = await refused(stage, "tools/call", {"name": "echo"})

        assert -32603 == answer.code
        assert [{"method": "tools/call", "error": "TypeError"}] == stage.facts("session.defect")


async def test_a_full_client_that_leaves_frees_the_server() -> None:
    """A session that ends under pressure does not leave the server paused."""
    async with serving() as stage:
        stage.client_channel.make_full(True)
        stage.client_channel.abort()
        await asyncio.wait_for(stage.running, 5)

        assert stage.server_channel.reading


async def test_a_dead_server_fails_requests_one_by_one() -> None:
    """The client is told why, and stays connected."""
    async with serving() as stage:
        stage.client.call("tools/call", {"name": "echo"}, 1)
        await stage.server.expect("tools/call")
        stage.server.close()
        first = await stage.client.receive(Failure)
        second = await refused(stage, "tools/call", {"name": "echo"}, 2)

        assert (-31010, -31010) == (first.code, second.code)
        assert await stage.client.ask("tools/list")


async def test_the_supervisor_may_end_a_session() -> None:
    """``end`` is like the client's EOF."""
    async with serving() as stage:
        stage.session.end()
        await asyncio.wait_for(stage.running, 5)

        assert stage.client.eof.is_set()


async def test_a_call_takes_no_longer_than_allowed() -> None:
    """The deadline of the session bounds what a handler may wait for the server."""
    async with serving(options=SessionOptions(call_timeout=0.02)) as stage:
        assert -31011 == (await refused(stage, "tools/call", {"name": "echo"})).code
