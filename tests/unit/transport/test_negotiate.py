from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandbox.errors import SandboxError
from sandbox.testing.scripted import Script, scripted
from sandbox.transport import negotiate
from sandbox.transport.peer import ServerPeer
from sandbox.wire.jsonrpc import Failure, Notification, Request, Result
from tests.wire_kit import THEM, US, scope_of, settled

pytestmark = pytest.mark.anyio

DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}


def initialized(version: str) -> dict[str, Any]:
    """Return an answer to ``initialize``."""
    return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": THEM, "instructions": "do"}


def connecting(version: str = "", timeout: float = 5.0) -> tuple[asyncio.Task[ServerPeer], Script]:
    """Begin to connect to a script."""
    channel, server = scripted("server")
    task = asyncio.create_task(
        ServerPeer.connect(
            channel,
            client_info=US,
            capabilities={},
            scope=scope_of(),
            protocol_version=version,
            timeout=timeout,
        )
    )
    return task, server


async def settle_handshake(server: Script, task: asyncio.Task[ServerPeer], version: str = "2025-11-25") -> ServerPeer:
    """Play the rest of a handshake."""
    request = await server.expect("initialize")
    server.send(Result(request.id, initialized(version)))
    ready = await server.receive(Notification)
    assert "notifications/initialized" == ready.method
    return await task


async def error_of(task: asyncio.Task[ServerPeer]) -> SandboxError:
    """Return the error of a connection."""
    with pytest.raises(SandboxError) as caught:
        await task
    return caught.value


async def test_a_stateless_server() -> None:
    """A discovery result settles the era at once."""
    task, server = connecting()
    probe = await server.expect("server/discover")
    server.send(Result(probe.id, {**DISCOVERED, "_meta": {"io.modelcontextprotocol/serverInfo": THEM}}))
    peer = await task

    assert ("stateless", "2026-07-28", THEM) == (peer.era, peer.protocol_version, peer.server_info)
    assert server.unread.empty()


@pytest.mark.parametrize("code", [-32601, -32602, -32600, -32603, -32000, -32001, 1, 0])
async def test_any_other_error_means_the_handshake(code: int) -> None:
    """The fallback is not keyed to a code (basic/transports/stdio, backward compatibility)."""
    task, server = connecting()
    probe = await server.expect("server/discover")
    server.send(Failure(probe.id, code, "what?"))
    peer = await settle_handshake(server, task)

    assert ("handshake", "2025-11-25", "do") == (peer.era, peer.protocol_version, peer.instructions)


@pytest.mark.parametrize("result", [{}, {"supportedVersions": "2026-07-28"}, {"tools": []}])
async def test_a_result_that_is_no_discovery_means_the_handshake(result: dict[str, Any]) -> None:
    """Servers that answer anything to anything are old."""
    task, server = connecting()
    probe = await server.expect("server/discover")
    server.send(Result(probe.id, result))

    assert "handshake" == (await settle_handshake(server, task)).era


async def test_silence_means_the_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not answer the probe is asked to initialize."""
    monkeypatch.setattr(negotiate, "PROBE_TIMEOUT", 0.01)
    task, server = connecting()
    await server.expect("server/discover")

    assert "handshake" == (await settle_handshake(server, task)).era


@pytest.mark.parametrize("code", [-32022, -32600])
async def test_a_slow_stateless_server(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """A probe that is answered after we fell back still settles the era when ``initialize`` is refused."""
    monkeypatch.setattr(negotiate, "PROBE_TIMEOUT", 0.01)
    task, server = connecting()
    probe = await server.expect("server/discover")
    request = await server.expect("initialize")
    if code == -32022:
        server.send(Failure(request.id, code, "no", {"supported": ["2026-07-28"], "requested": "2025-11-25"}))
        await settled()
        server.send(Result(probe.id, DISCOVERED))
    else:
        server.send(Result(probe.id, DISCOVERED), Failure(request.id, code, "no"))

    assert "stateless" == (await task).era


async def test_a_server_that_names_another_stateless_version() -> None:
    """A modern error leads to a version of its list, never to ``initialize``."""
    task, server = connecting()
    probe = await server.expect("server/discover")
    server.send(Failure(probe.id, -32022, "no", {"supported": ["2026-07-28"], "requested": "x"}))
    again = await server.expect("server/discover")
    server.send(Result(again.id, DISCOVERED))

    assert "stateless" == (await task).era


@pytest.mark.parametrize(
    "answer",
    [
        {"result": {"supportedVersions": ["2025-06-18"], "capabilities": {}}},
        {"error": (-32022, {"supported": ["2025-06-18", "2027-01-01"], "requested": "2026-07-28"})},
    ],
)
async def test_a_server_that_lists_only_handshake_versions(answer: dict[str, Any]) -> None:
    """Such a list is an advertisement of the handshake era."""
    task, server = connecting()
    probe = await server.expect("server/discover")
    if "result" in answer:
        server.send(Result(probe.id, answer["result"]))
    else:
        server.send(Failure(probe.id, answer["error"][0], "no", answer["error"][1]))

    assert "handshake" == (await settle_handshake(server, task, "2025-06-18")).era


@pytest.mark.parametrize(
    "answer",
    [
        Result("", {"supportedVersions": ["2027-01-01"], "capabilities": {}}),
        Failure("", -32022, "no", {"supported": ["2027-01-01"], "requested": "2026-07-28"}),
        Failure("", -32022, "no"),
    ],
)
async def test_no_common_version(answer: Result | Failure) -> None:
    """A server that speaks only what we do not is refused, with what it offers."""
    task, server = connecting()
    probe = await server.expect("server/discover")
    if isinstance(answer, Result):
        server.send(Result(probe.id, answer.result))
    else:
        server.send(Failure(probe.id, answer.code, answer.message, answer.data))

    assert "WIRE-053" == (await error_of(task)).id


@pytest.mark.parametrize("answered", ["2026-07-28", "2023-01-01", 1, None])
async def test_a_handshake_that_answers_another_era(answered: object) -> None:
    """Only a version that we speak with a handshake can come out of one."""
    task, server = connecting("2025-11-25")
    request = await server.expect("initialize")
    server.send(Result(request.id, {**initialized("x"), "protocolVersion": answered}))

    assert "WIRE-053" == (await error_of(task)).id


async def test_the_drivers_version_is_used_and_nothing_else() -> None:
    """A version that the driver names is neither probed nor negotiated down."""
    task, server = connecting("2025-03-26")
    request = await server.expect("initialize")
    server.send(Result(request.id, initialized("2024-11-05")))

    assert "2025-03-26" == request.params["protocolVersion"]
    assert "WIRE-053" == (await error_of(task)).id


async def test_the_drivers_stateless_version_does_not_fall_back() -> None:
    """A driver that names a stateless version gets that or nothing."""
    task, server = connecting("2026-07-28")
    probe = await server.expect("server/discover")
    server.send(Failure(probe.id, -32601, "Method not found"))

    assert "WIRE-050" == (await error_of(task)).id
    assert server.unread.empty()


async def test_an_unknown_version_of_the_driver() -> None:
    """A version that we do not speak is the caller's mistake and reaches no server."""
    task, server = connecting("2023-01-01")
    error = await error_of(task)

    assert "WIRE-052" == error.id
    assert "2026-07-28" in error.mend
    assert server.unread.empty()


@pytest.mark.parametrize("broken", [{"capabilities": []}, {"instructions": 1}, {"capabilities": None}])
async def test_an_introduction_that_is_none(broken: dict[str, Any]) -> None:
    """A server must say what it offers in the right types."""
    task, server = connecting("2025-11-25")
    request = await server.expect("initialize")
    server.send(Result(request.id, {**initialized("2025-11-25"), **broken}))

    assert "WIRE-054" == (await error_of(task)).id


async def test_a_server_that_ends_on_the_probe() -> None:
    """A server that cannot stand an unknown request is explained, with what helps."""
    task, server = connecting()
    await server.expect("server/discover")
    server.close()
    error = await error_of(task)

    assert "WIRE-055" == error.id
    assert "protocol_version" in error.mend


async def test_a_server_that_says_nothing_at_all() -> None:
    """Without any answer the connection times out."""
    task, _server = connecting(timeout=0.05)

    assert "WIRE-043" == (await error_of(task)).id


async def test_requests_before_the_version_is_settled() -> None:
    """Real servers ask for roots before we are done; they are answered in the handshake's way."""
    task, server = connecting("2025-11-25")
    request = await server.expect("initialize")
    server.send(Request("early", "ping", {}), Result(request.id, initialized("2025-11-25")))

    assert Result("early", {}) == await server.receive(Result)
    assert "handshake" == (await task).era
