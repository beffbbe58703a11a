"""Clients that send slowly or do not read: none of them keeps a connection, or what waits for it, for ever."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import orjson
import pytest

from sandbox.cli.gateway import listening as server_module
from tests.gateway_lab import EVENTS, V25, Lab, call, lab, request
from tests.unit.supervisor.test_pool import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]
ASK = b"GET /nothing HTTP/1.1\r\nhost: %s\r\n\r\n"
BIG = 3 << 20


async def connected(stage: Lab) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    """Return a connection, and the host to name."""
    host = stage.url.partition("//")[2]
    reader, writer = await asyncio.open_connection("127.0.0.1", int(host.rpartition(":")[2]))
    return reader, writer, host.encode()


async def answered(reader: asyncio.StreamReader) -> bytes:
    """Read one answer and return its status line."""
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.partition(b":")[2]))
    return head.partition(b"\r\n")[0]


@pytest.mark.claim("P-GATE-14")
@pytest.mark.parametrize("part", [b"G", ASK[:30]], ids=["letter", "half"])
async def test_a_second_request_that_is_never_finished_ends_its_connection(
    part: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack (slowloris): one answer, then the beginning of another request; a whole second one is answered."""
    monkeypatch.setattr(server_module, "HEAD_TIMEOUT", 1.0)
    async with lab() as stage:
        reader, writer, host = await connected(stage)
        writer.write(ASK % host)
        first = await answered(reader)
        writer.write(ASK % host)
        second = await answered(reader)
        writer.write(part)
        rest = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    assert (first[:12], second[:12], rest) == (b"HTTP/1.1 404", b"HTTP/1.1 404", b"")


async def test_a_body_that_nobody_waits_for_does_not_keep_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a request is refused before its body, of which one byte comes afterwards and then nothing."""
    monkeypatch.setattr(server_module, "HEAD_TIMEOUT", 1.0)
    async with lab() as stage:
        reader, writer, host = await connected(stage)
        writer.write(b"POST /mcp/closed HTTP/1.1\r\nhost: %s\r\ncontent-length: 1000\r\n\r\n" % host)
        refused = await answered(reader)
        writer.write(b"{")
        rest = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    assert (refused[:12], rest) == (b"HTTP/1.1 401", b"")


@pytest.mark.claim("P-GATE-14")
async def test_who_does_not_read_an_answer_loses_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a large answer is asked for and not read; it is given up, and who reads gets the same answer whole."""
    monkeypatch.setattr(server_module, "WRITE_TIMEOUT", 1.0)
    monkeypatch.setattr(server_module, "KEEP_ALIVE", 600)
    lost: list[Any] = []
    ended = server_module.BoundedProtocol.connection_lost

    def connection_lost(self: Any, exc: Exception | None) -> None:
        lost.append(self.client)
        ended(self, exc)

    monkeypatch.setattr(server_module.BoundedProtocol, "connection_lost", connection_lost)
    async with lab() as stage:
        headers = await stage.session()
        whole = await stage.post("/mcp/open", call(2, text="x" * BIG), **headers)
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        host = stage.url.partition("//")[2]
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, ("127.0.0.1", int(host.rpartition(":")[2])))
        body = orjson.dumps(call(3, text="x" * BIG))
        fields = {**EVENTS, **{name.replace("_", "-"): value for name, value in headers.items()}, "host": host}
        fields["content-length"] = str(len(body))
        head = "POST /mcp/open HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        await loop.sock_sendall(client, head.encode() + b"\r\n" + body)
        own = client.getsockname()
        await until(lambda: own in lost, 40)
        await until(lambda: not stage.app.gateway.quotas.active, 40)
        client.close()

    assert whole.status_code == 200
    assert len(whole.content) > 2 * BIG


async def test_answers_do_not_pile_up_on_a_stream_that_nobody_reads() -> None:
    """Attack on HTTP+SSE: calls are posted, and the stream with their answers is not read; then they are refused."""
    async with lab() as stage:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        host, loop, token = stage.url.partition("//")[2], asyncio.get_running_loop(), stage.token()
        await loop.sock_connect(client, ("127.0.0.1", int(host.rpartition(":")[2])))
        head = f"GET /mcp/closed/sse HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\r\n"
        await loop.sock_sendall(client, head.encode())
        await until(lambda: len(stage.app.sessions), 30)
        (session,) = stage.app.sessions._all.values()
        path = f"/mcp/closed/messages?session={session.id}"
        opening = request("initialize", {"protocolVersion": V25, "capabilities": {}, "clientInfo": {"name": "t"}})
        opening["params"]["clientInfo"]["version"] = "1"
        statuses = [(await stage.post(path, opening, token)).status_code]
        await stage.post(path, {"jsonrpc": "2.0", "method": "notifications/initialized"}, token)
        for number in range(2, 60):
            last = await stage.post(path, call(number, text="x" * (1 << 20)), token)
            if last.status_code != 202:
                break
            statuses.append(last.status_code)
            await until(lambda: not session._session._inflight._calls, 30)  # type: ignore[union-attr]
        client.close()

    assert set(statuses) == {202}
    assert (last.status_code, last.json()["error"]["data"]["id"]) == (429, "GATE-013")
    assert last.headers["retry-after"]
