from __future__ import annotations

from typing import Any

import pytest

from sandbox.errors import AuditUnavailable, CallRefused, PlatformError, ServerFault, ServerTimeout, UsageError
from sandbox.serve.client_model import CallInfo, SessionOptions
from sandbox.serve.forwarding import ForwardingHandler
from sandbox.vet.model import ExposedTool
from sandbox.wire.jsonrpc import Failure, Notification, Result
from tests.wire_kit import (
    HANDSHAKE,
    STATELESS,
    THEM,
    envelope,
    exposure,
    of_client,
    refused,
    serving,
    tool,
)

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("era", [HANDSHAKE, STATELESS])
OPENING = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": THEM}


class Raising(ForwardingHandler):
    """A handler whose calls end in an error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def call_tool(self, tool: ExposedTool, arguments: dict[str, Any], call: CallInfo) -> dict[str, Any]:
        raise self.error

    async def read_resource(self, uri: str, call: CallInfo) -> dict[str, Any]:
        raise self.error


# --- calls -----------------------------------------------------------------------------------------------
@pytest.mark.claim("P-WIRE-07")
@BOTH
async def test_unknown_tools(era: str) -> None:
    """A tool that is not exposed is unknown, also when the server has it."""
    shown = exposure(tool("safe-echo", "echo"))
    async with serving(client_era=era, shown=shown) as stage:
        for name in ("echo", "delete-everything", ""):
            answer = await refused(stage, "tools/call", of_client(era, {"name": name}))
            assert (-32602, "SESS-015") == (answer.code, answer.data["id"])
        assert stage.server.unread.empty()
        refused_names = [fact["target"] for fact in stage.facts("session.refuse")]
        assert ["echo", "delete-everything", ""] == refused_names


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {}),
        ("tools/call", {"name": 1}),
        ("tools/call", {"name": "echo", "arguments": []}),
        ("tools/call", {"name": "echo", "arguments": None}),
        ("tools/call", {"name": "echo", "inputResponses": {}, "requestState": "x"}),
        ("tools/call", {"name": "echo", "requestState": "x"}),
        ("prompts/get", {"name": "other"}),
        ("prompts/get", {"name": "greet", "requestState": "x"}),
        ("resources/read", {"uri": 1}),
        ("completion/complete", {}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "other"}}),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": "file:///etc"}}),
    ],
)
@BOTH
async def test_malformed_requests(era: str, method: str, params: dict[str, Any]) -> None:
    """Parameters that are not what the protocol says are refused, and reach no server."""
    async with serving(client_era=era) as stage:
        assert -32602 == (await refused(stage, method, of_client(era, params))).code
        assert stage.server.unread.empty()


@pytest.mark.claim("P-WIRE-07")
@pytest.mark.parametrize(("era", "code"), [(HANDSHAKE, -32002), (STATELESS, -32602)])
async def test_unknown_resources(era: str, code: int) -> None:
    """A resource outside the declarations is unknown, with the code of the client's version."""
    async with serving(client_era=era) as stage:
        assert code == (await refused(stage, "resources/read", of_client(era, {"uri": "file:///etc/passwd"}))).code
        assert stage.server.unread.empty()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ServerFault("CALL-021", "the server broke"), -31010),
        (ServerTimeout("WIRE-043", "too late"), -31011),
        (PlatformError("LAUNCH-001", "no engine"), -31020),
        (AuditUnavailable("AUDIT-001", "disk full"), -31021),
        (UsageError("CLI-001", "what"), -31030),
        (RuntimeError("secret /root/key"), -32603),
    ],
)
@BOTH
async def test_errors_are_protocol_errors(era: str, error: Exception, code: int) -> None:
    """Each kind of failure has its own code, and an unforeseen one says nothing of itself."""
    async with serving(client_era=era, handler=Raising(error)) as stage:
        answer = await refused(stage, "tools/call", of_client(era, {"name": "echo"}))

        assert code == answer.code
        assert "secret" not in str(answer)


@BOTH
async def test_refusals_can_be_read_by_a_model(era: str) -> None:
    """A refused call is a result with ``isError``; a refused read, which has no such form, is an error."""
    async with serving(client_era=era, handler=Raising(CallRefused("CALL-003", "that path is outside"))) as stage:
        result = await stage.client.ask("tools/call", of_client(era, {"name": "echo"}))
        answer = await refused(stage, "resources/read", of_client(era, {"uri": "note://x"}))

        assert result["isError"]
        assert "CALL-003" in result["content"][0]["text"]
        assert ("complete" if era == STATELESS else None) == result.get("resultType")
        assert -31004 == answer.code


async def test_an_error_of_the_server_keeps_its_code() -> None:
    """A JSON-RPC error of the server is passed on; one that borrows our codes is not."""
    async with serving() as stage:
        for code, expected in ((-32602, -32602), (42, 42), (-31020, -32603)):
            stage.client.call("tools/call", {"name": "echo"})
            request = await stage.server.expect("tools/call")
            stage.server.send(Failure(request.id, code, "no"))

            assert expected == (await stage.client.receive(Failure)).code


@pytest.mark.claim("P-WIRE-08")
async def test_the_clients_meta_is_cleaned() -> None:
    """The handler sees vendor and trace keys, and the server sees none of the client's."""
    seen: list[Any] = []

    class Watching(ForwardingHandler):
        async def call_tool(self, tool: ExposedTool, arguments: dict[str, Any], call: CallInfo) -> dict[str, Any]:
            seen.append(call)
            return await super().call_tool(tool, arguments, call)

    own = {
        "com.example/x": 1,
        "traceparent": "00-a-b-01",
        "baggage": "tenant=other",
        "dev.mcp/y": 2,
        "progressToken": 5,
    }
    async with serving(client_era=STATELESS, handler=Watching()) as stage:
        params = {"name": "echo", **envelope(**own)}
        stage.client.call("tools/call", params)
        request = await stage.server.expect("tools/call")

        assert {"com.example/x": 1, "traceparent": "00-a-b-01"} == seen[0].meta
        assert (5, THEM, STATELESS) == (seen[0].progress_token, seen[0].client_info, seen[0].protocol_version)
        assert {"progressToken": 5} == request.params["_meta"]


# --- ids, numbers, tokens --------------------------------------------------------------------------------
@pytest.mark.parametrize("request_id", [1, "1", 0, -7, "", "a b", "é", 2**53 - 1])
async def test_ids_are_preserved(request_id: str | int) -> None:
    """The server sees the client's id, the client gets its answer under it."""
    async with serving() as stage:
        stage.client.call("tools/call", {"name": "echo"}, request_id)
        request = await stage.server.expect("tools/call")
        stage.server.send(Result(request.id, {"content": []}))
        answer = await stage.client.receive(Result)

        assert (request_id, request_id) == (request.id, answer.id)
        assert type(request_id) is type(request.id)


async def test_our_ids_are_ours() -> None:
    """A client cannot use an id that we use towards the server."""
    async with serving() as stage:
        assert "SESS-007" == (await refused(stage, "tools/list", None, "mcp-sandbox:1")).data["id"]


async def test_an_id_in_flight_cannot_be_used_again() -> None:
    """The error carries no id, so that it is not taken for the answer of the first request."""
    async with serving() as stage:
        stage.client.call("tools/call", {"name": "echo"}, 1)
        request = await stage.server.expect("tools/call")
        again = await refused(stage, "tools/call", {"name": "echo"}, 1)
        stage.server.send(Result(request.id, {"content": []}))

        assert (None, "SESS-008") == (again.id, again.data["id"])
        assert 1 == (await stage.client.receive(Result)).id
        assert stage.server.unread.empty()


async def test_too_many_requests() -> None:
    """The bound on requests in flight is exact; the next is refused, and served again when one is answered."""
    async with serving(options=SessionOptions(max_in_flight=3)) as stage:
        for number in (1, 2, 3):
            stage.client.call("tools/call", {"name": "echo"}, number)
        requests = [await stage.server.expect("tools/call") for _ in range(3)]
        over = await refused(stage, "tools/call", {"name": "echo"}, 4)
        stage.server.send(Result(requests[0].id, {"content": []}))
        await stage.client.receive(Result)
        stage.client.call("tools/call", {"name": "echo"}, 5)

        assert "SESS-009" == over.data["id"]
        assert 5 == (await stage.server.expect("tools/call")).id


@BOTH
async def test_progress_of_the_requests_own_token(era: str) -> None:
    """Progress reaches the client under its token; a token of nobody goes nowhere."""
    async with serving(client_era=era) as stage:
        stage.client.call("tools/call", of_client(era, {"name": "echo"}, progressToken="t"))
        request = await stage.server.expect("tools/call")
        stage.server.send(
            Notification("notifications/progress", {"progressToken": "other", "progress": 1}),
            Notification("notifications/progress", {"progressToken": "t", "progress": 1, "message": "m"}),
            Result(request.id, {"content": []}),
        )

        assert {"progressToken": "t", "progress": 1, "message": "m"} == (
            await stage.client.receive(Notification)
        ).params
        assert await stage.client.receive(Result)


@pytest.mark.parametrize("token", [1.5, True, None, [], {}, "x" * 300, 2**60])
async def test_malformed_tokens(token: object) -> None:
    """A token is a string or an integer; null is none."""
    async with serving() as stage:
        stage.client.call("tools/call", {"name": "echo", "_meta": {"progressToken": token}})
        if token is None:
            assert await stage.server.expect("tools/call")
        else:
            assert "SESS-014" == (await stage.client.receive(Failure)).data["id"]


async def test_tokens_are_unique_in_flight() -> None:
    """Two requests cannot share a token; after the first is answered it is free."""
    async with serving() as stage:
        params = {"name": "echo", "_meta": {"progressToken": 1}}
        stage.client.call("tools/call", params)
        request = await stage.server.expect("tools/call")
        assert "SESS-014" == (await refused(stage, "tools/call", params)).data["id"]
        stage.server.send(Result(request.id, {"content": []}))
        await stage.client.receive(Result)
        stage.client.call("tools/call", params)

        assert await stage.server.expect("tools/call")
