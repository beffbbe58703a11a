"""The dialect over WebSocket: who gets a connection, what comes on it, and what ends it."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from sandbox.cli.gateway import listening
from sandbox.dialect import bounds
from tests.dialect_lab import CLOSED, OPEN, DialectLab, dialect_lab, invocation, shake, until

pytestmark = pytest.mark.anyio


def connecting(lab: DialectLab, base: str = OPEN, token: str = "", **more: Any) -> connect:
    """Return a connection to be made."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = lab.stage.url.replace("http", "ws", 1) + base + "/ws"
    return connect(url, additional_headers=headers, max_size=None, proxy=None, **more)


async def tell(socket: ClientConnection, body: Any) -> dict[str, Any]:
    """Send one message and return the next one."""
    await socket.send(body if isinstance(body, str | bytes) else json.dumps(body))
    return await heard(socket)


async def heard(socket: ClientConnection) -> dict[str, Any]:
    """Return the next message."""
    return dict(json.loads(await asyncio.wait_for(socket.recv(), 15)))


async def code_after(socket: ClientConnection, messages: Sequence[str | bytes]) -> int:
    """Send messages and return the code with which the connection is closed after them."""
    try:
        for message in messages:
            await socket.send(message)
        while True:
            await heard(socket)
    except ConnectionClosed as closed:
        return closed.rcvd.code if closed.rcvd is not None else 0


async def opened(socket: ClientConnection, **more: Any) -> dict[str, Any]:
    """Shake hands."""
    return await tell(socket, shake("ws", **more))


async def test_a_client_shakes_hands_calls_hears_progress_and_imports(tmp_path: Path) -> None:
    """Everything of the dialect comes on one connection: agreement, progress, responses, files."""
    async with dialect_lab(tmp_path) as lab, connecting(lab) as socket:
        agreed = await opened(socket)
        request = invocation(steps=2, slow=True)
        await socket.send(json.dumps(request))
        said = [await heard(socket)]
        while said[-1]["status"] == "in_progress":
            said.append(await heard(socket))
        file = await tell(socket, {"import": "tools/tool.json"})

    assert ("2025-11", "ws") == (agreed["version"], agreed["transport"])
    assert {request["request_id"]} == {one["request_id"] for one in said}
    assert ("in_progress", "success") == (said[0]["status"], said[-1]["status"])
    assert "tool" == file["file"]["tool_id"]


async def test_a_job_s_outcome_is_pushed_and_can_be_resumed_on_another_connection(tmp_path: Path) -> None:
    """The handle comes at once, the outcome when it is there; who comes later asks for it."""
    async with dialect_lab(tmp_path) as lab:
        async with connecting(lab) as socket:
            await opened(socket)
            handle = await tell(socket, invocation(mode="async", slow=True, a=4))
            pushed = await heard(socket)
        async with connecting(lab) as socket:
            await opened(socket)
            resumed = await tell(socket, {"resume": handle["job_id"]})

    assert ("in_progress", "success", "success") == (handle["status"], pushed["status"], resumed["status"])
    assert 4 == pushed["result"]["a"] == resumed["result"]["a"]


async def test_a_call_is_cancelled_by_its_id_and_by_the_end_of_its_connection(tmp_path: Path) -> None:
    """Both tell the server; a job goes on without its connection."""
    async with dialect_lab(tmp_path) as lab:
        lab.stage.server.slow = 1.0
        async with connecting(lab) as socket:
            await opened(socket)
            job = await tell(socket, invocation(mode="async", slow=True))
            first = invocation(slow=True, steps=0)
            await socket.send(json.dumps(first))
            await until(lambda: len(lab.stage.server.calls) == 2)
            cancelled = await tell(socket, {"cancel": first["request_id"]})
            await socket.send(json.dumps(invocation(slow=True)))
            await until(lambda: len(lab.stage.server.calls) == 3)
        await until(lambda: len(lab.stage.server.cancelled) == 2)
        done = await lab.ended(job["job_id"])

    assert "DIA-016" == cancelled["error"]["id"]
    assert "success" == done["status"]


@pytest.mark.claim("P-DIA-04")
async def test_nobody_gets_a_connection_without_what_every_request_needs(tmp_path: Path) -> None:
    """No token, another's page, another host, another path: refused before the upgrade; with a token it is made."""
    async with dialect_lab(tmp_path) as lab:
        refused = []
        for base, more in (
            (CLOSED, {}),
            (OPEN, {"origin": "https://evil.example"}),
            (OPEN + "/tools", {}),
            ("/mcp/nothing/2025-11", {}),
        ):
            with pytest.raises(InvalidStatus) as status:
                await connecting(lab, base, **more)
            refused.append(status.value.response.status_code)
        async with connecting(lab, CLOSED, lab.stage.token()) as socket:
            agreed = await opened(socket)
        reasons = lab.stage.reasons()

    assert [401, 403, 404, 404] == refused
    assert ["GATE-020", "GATE-002", "GATE-036", "GATE-036"] == reasons
    assert "com.example/closed" == agreed["server_id"]


@pytest.mark.parametrize(
    "first",
    [
        invocation(),
        shake("http"),
        shake("ws", version="2024-10"),
        shake("ws", server_id="x"),
        [],
        "no json",
        '{"a":1,"a":2}',
    ],
)
async def test_what_begins_with_no_good_handshake_ends(tmp_path: Path, first: Any) -> None:
    """The reason is said, the connection is closed, and no tool was called."""
    async with dialect_lab(tmp_path) as lab, connecting(lab) as socket:
        said = await tell(socket, first)
        with pytest.raises(ConnectionClosed) as closed:
            await heard(socket)

    assert "error" == said["status"]
    assert closed.value.rcvd is not None
    assert 1008 == closed.value.rcvd.code
    assert [] == lab.stage.server.calls


async def test_a_message_that_does_not_fit_is_refused_and_the_rest_goes_on(tmp_path: Path) -> None:
    """After the handshake one broken message costs an error, not the connection."""
    async with dialect_lab(tmp_path) as lab, connecting(lab) as socket:
        await opened(socket)
        broken = [
            await tell(socket, body)
            for body in ("no json", {"tool_id": "tool"}, {"resume": 1}, {"resume": "x"}, {"import": "../x"},
                         {"import": "/etc/passwd"}, invocation(tool="server_tool"), {"cancel": str(uuid.uuid4())})
        ]  # fmt: skip
        good = await tell(socket, invocation(a=1))

    ids = ["DIA-004", "DIA-004", "DIA-004", "DIA-013", "DIA-022", "DIA-022", "DIA-012", "DIA-013"]
    assert ids == [one["error"]["id"] for one in broken]
    assert "success" == good["status"]


async def test_floods_large_messages_and_bytes_end_a_connection(tmp_path: Path) -> None:
    """What is beyond a bound ends the connection that sent it, and no other."""
    async with dialect_lab(tmp_path) as lab, connecting(lab) as other:
        await opened(other)
        codes = []
        for messages in (
            [b"\x00bytes"],
            ["x" * (bounds.MAX_MESSAGE + 1)],
            [json.dumps({"resume": "x"})] * (bounds.MESSAGES_AT_ONCE * 3),
        ):
            async with connecting(lab) as socket:
                await opened(socket)
                codes.append(await code_after(socket, messages))
        good = await tell(other, invocation(a=1))

    assert [1003, 1009, 1008] == codes
    assert "success" == good["status"]


async def test_a_tenant_has_so_many_connections_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One beyond the bound is refused; when another has ended there is room again."""
    monkeypatch.setattr(bounds, "MAX_SOCKETS_OF_TENANT", 2)
    async with dialect_lab(tmp_path) as lab, connecting(lab) as first, connecting(lab):
        with pytest.raises(InvalidStatus) as refused:
            await connecting(lab)
        await first.close()
        await asyncio.sleep(0.1)
        async with connecting(lab) as again:
            agreed = await opened(again)

    assert 429 == refused.value.response.status_code
    assert "2025-11" == agreed["version"]


async def test_a_connection_that_says_nothing_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody holds a connection without a handshake."""
    monkeypatch.setattr(bounds, "HANDSHAKE_TIMEOUT", 0.1)
    async with dialect_lab(tmp_path) as lab, connecting(lab) as socket:
        said = await heard(socket)

    assert "DIA-020" == said["error"]["id"]


async def test_a_connection_outlives_the_time_that_a_head_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound on heads ends with the upgrade: a connection that is used rarely stays open."""
    monkeypatch.setattr(listening, "HEAD_TIMEOUT", 0.2)
    async with dialect_lab(tmp_path) as lab, connecting(lab) as socket:
        await opened(socket)
        await asyncio.sleep(0.5)
        said = await tell(socket, invocation(a=1))

    assert "success" == said["status"]


@pytest.mark.claim("P-DIA-04")
async def test_a_connection_does_not_outlive_what_it_was_admitted_with(tmp_path: Path) -> None:
    """Once the credential counts no more nothing is answered or called, and the connection ends; a good one works."""
    async with dialect_lab(tmp_path) as lab:
        keeper = lab.stage.app.gateway.keeper
        async with connecting(lab, CLOSED, lab.stage.token()) as socket:
            await opened(socket, capabilities=["async"])
            first = await tell(socket, {"import": "tools/tool.json"})
            issuers, keeper.verifier._issuers = keeper.verifier._issuers, {}  # type: ignore[union-attr]
            said = await tell(socket, invocation())
            code = await code_after(socket, [])
        keeper.verifier._issuers = issuers  # type: ignore[union-attr]
        calls = len(lab.stage.server.calls)
        async with connecting(lab, CLOSED, lab.stage.token()) as socket:
            await opened(socket)
            after = await tell(socket, invocation())

    assert ("tool", "GATE-025", 1008) == (first["file"]["tool_id"], said["error"]["id"], code)
    assert (0, "success") == (calls, after["status"])
