"""Every forwarded method in all four combinations of eras."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.wire import meta
from sandbox.wire.jsonrpc import Result
from tests.wire_kit import HANDSHAKE, STATELESS, exposure, of_client, serving, settled, tool

pytestmark = pytest.mark.anyio

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", HANDSHAKE, STATELESS)

FORWARDED = [
    (
        "tools/call",
        {"name": "safe-echo", "arguments": {"a": [1, {"b": None}]}},
        {"name": "echo", "arguments": {"a": [1, {"b": None}]}},
        {"content": [{"type": "text", "text": "hé\u2028"}], "isError": False},
    ),
    (
        "prompts/get",
        {"name": "greet", "arguments": {"who": "x"}},
        {"name": "greet", "arguments": {"who": "x"}},
        {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "description": "d"},
    ),
    (
        "resources/read",
        {"uri": "note://one"},
        {"uri": "note://one"},
        {"contents": [{"uri": "note://one", "text": "t", "mimeType": "text/plain"}]},
    ),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "who", "value": "a"}},
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "who", "value": "a"}},
        {"completion": {"values": ["ada"], "hasMore": False, "total": 1}},
    ),
]


def without_meta(params: dict[str, Any]) -> dict[str, Any]:
    """Return params without ``_meta``."""
    return {name: value for name, value in params.items() if name != "_meta"}


@pytest.mark.parametrize("client", [HANDSHAKE, STATELESS], ids=["client-handshake", "client-stateless"])
@pytest.mark.parametrize("server", [HANDSHAKE, STATELESS], ids=["server-handshake", "server-stateless"])
@pytest.mark.parametrize(("method", "asked", "sent", "result"), FORWARDED, ids=[one[0] for one in FORWARDED])
async def test_forwarding(
    client: str, server: str, method: str, asked: dict[str, Any], sent: dict[str, Any], result: dict[str, Any]
) -> None:
    """The server gets the request in its era, and the client the result in its own."""
    shown = exposure(tool("safe-echo", "echo"), prompts=("greet",), resources=("note://{name}",))
    native = {**result, "resultType": "complete", "_meta": {meta.SERVER_INFO: {"name": "x", "version": "9"}, "v/k": 1}}
    async with serving(server, client, shown=shown) as stage:
        stage.client.call(method, of_client(client, asked), "id-1")
        request = await stage.server.expect(method)
        stage.server.send(Result(request.id, native if server == STATELESS else {**result, "_meta": {"v/k": 1}}))
        answer = await stage.client.receive(Result)

        own = request.params.get("_meta", {})
        shown_meta = answer.result["_meta"]
        assert ("id-1", "id-1") == (request.id, answer.id)
        assert sent == without_meta(request.params)
        assert (meta.PROTOCOL_VERSION in own) == (server == STATELESS)
        assert result == {name: answer.result[name] for name in result}
        assert ("complete" if client == STATELESS else None) == answer.result.get("resultType")
        assert 1 == shown_meta["v/k"]
        assert ({"name": "mcp-sandbox", "version": "0"} if client == STATELESS else None) == shown_meta.get(
            meta.SERVER_INFO
        )


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_version_of_a_client(version: str) -> None:
    """A client of each version lists and calls."""
    async with serving(HANDSHAKE, version, shown=exposure(tool("echo", title="Echo", outputSchema={}))) as stage:
        listed = (await stage.client.ask("tools/list", of_client(version)))["tools"][0]
        stage.client.call("tools/call", of_client(version, {"name": "echo"}))
        request = await stage.server.expect("tools/call")
        stage.server.send(Result(request.id, {"content": [], "structuredContent": {"a": 1}}))
        answer = await stage.client.receive(Result)

        modern = version >= "2025-06-18"
        assert modern == ("outputSchema" in listed) == ("title" in listed)
        assert modern == ("structuredContent" in answer.result)


@pytest.mark.parametrize("version", VERSIONS[:-1])
async def test_every_version_of_a_server(version: str) -> None:
    """A server of each handshake version, which the opening settles on, is used by a stateless client."""
    async with serving(version, STATELESS) as stage:
        stage.client.call("tools/call", of_client(STATELESS, {"name": "echo"}))
        request = await stage.server.expect("tools/call")
        stage.server.send(Result(request.id, {"content": []}))

        assert version == stage.peer.protocol_version
        assert "complete" == (await stage.client.receive(Result)).result["resultType"]


@pytest.mark.parametrize("client", [HANDSHAKE, STATELESS])
async def test_a_refused_input_request_is_a_readable_result(client: str) -> None:
    """What a server may not ask for ends the call in a readable result, and no client sees the question."""
    async with serving(STATELESS, client) as stage:
        stage.client.call("tools/call", of_client(client, {"name": "echo"}))
        request = await stage.server.expect("tools/call")
        wanted = {"q": {"method": "elicitation/create", "params": {"message": "password?"}}}
        stage.server.send(Result(request.id, {"resultType": "input_required", "inputRequests": wanted, "content": []}))
        answer = await stage.client.receive(Result)
        await settled()

        assert answer.result["isError"]
        assert "password" not in str(answer)
        assert "inputRequests" not in answer.result
        assert stage.server.unread.empty()
