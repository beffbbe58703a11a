"""One connection from accept to outcome, with a scripted namespace, real sockets and a dial that is only observed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from sandbox.launch.egress.inside import flow as flows
from sandbox.launch.egress.inside import hello, reasons
from sandbox.launch.egress.inside.flow import Flow
from sandbox.launch.egress.inside.reasons import Denied
from sandbox.policy.destinations import EgressRule, Network, networks
from sandbox.policy.hosts import parse_rules

pytestmark = pytest.mark.anyio

NAME = "allowed.test"
SYNTHETIC = "198.18.1.0"


@dataclass
class Namespace:
    """A scripted namespace: rules, what names resolve to (one list for each question), and what it was told."""

    rules: tuple[EgressRule, ...]
    answers: list[list[str]] = field(default_factory=lambda: [["198.51.100.7"]])
    allowed: tuple[Network, ...] = networks(("198.51.100.0/24",))
    learning: bool = False
    substitutes: None = None
    recorded: bool = True
    left: int = 10_000_000
    events: list[dict[str, Any]] = field(default_factory=list)
    dialled: list[tuple[str, int]] = field(default_factory=list)
    running: list[Flow] = field(default_factory=list)

    def name_of(self, address: str) -> str | None:
        return NAME if address == SYNTHETIC else None

    def refuse(self, reason: str, **facts: Any) -> None:
        self.events.append({"phase": "fact", "reason": reason, **facts})

    def tell(self, event: dict[str, Any]) -> None:
        self.events.append(event)

    async def intend(self, flow: Flow) -> None:
        self.events.append({"phase": "intent", "name": flow.name, "dialled": len(self.dialled)})
        if not self.recorded:
            raise Denied(reasons.EVIDENCE)

    async def resolve(self, name: str, port: int) -> list[str]:
        self.events.append({"phase": "resolve", "name": name})
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def spend(self, size: int) -> bool:
        self.left -= size
        if self.left < 0:
            for flow in self.running:
                flow.abort(reasons.BYTES)
        return self.left >= 0

    @property
    def outcome(self) -> dict[str, Any]:
        """The last event, which is how the connection ended."""
        return self.events[-1]


Server = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send everything back, then end."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def connected(
    space: Namespace,
    monkeypatch: pytest.MonkeyPatch,
    server: Server = echo,
    *,
    address: str = SYNTHETIC,
    port: int = 443,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, asyncio.Future[None]]]:
    """Yield a client's streams and the end of its flow; whatever the flow dials arrives at ``server``."""
    loop = asyncio.get_running_loop()
    real = flows._connect
    peer = await asyncio.start_server(server, "127.0.0.1", 0)
    here = peer.sockets[0].getsockname()

    async def dial(where: str, which: int, seconds: float) -> socket.socket:
        space.dialled.append((where, which))
        return await real(here[0], here[1], seconds)

    monkeypatch.setattr(flows, "_connect", dial)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    opened = asyncio.open_connection(*listener.getsockname())
    accepted, (reader, writer) = await asyncio.gather(loop.sock_accept(listener), opened)
    accepted[0].setblocking(False)
    ended: asyncio.Future[None] = loop.create_future()
    flow = Flow(space, 1, accepted[0], address, port)
    space.running.append(flow)
    flow.start(lambda _: ended.set_result(None))
    try:
        yield reader, writer, ended
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        async with asyncio.timeout(10):
            await ended
        listener.close()
        peer.close()
        await peer.wait_closed()


def client_hello(name: str | None) -> bytes:
    """Return OpenSSL's ClientHello for a name."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    sink = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), sink, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sink.read()


async def test_an_allowed_connection_is_carried_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intent comes before resolution and dial, the outcome after, with address, bytes both ways and no reason."""
    space = Namespace(parse_rules(["tcp://allowed.test:443"]))
    async with connected(space, monkeypatch) as (reader, writer, ended):
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        writer.write_eof()
        assert await reader.read() == b""
        await ended

    assert [event["phase"] for event in space.events] == ["intent", "resolve", "outcome"]
    assert space.events[0]["dialled"] == 0
    assert space.dialled == [("198.51.100.7", 443)]
    assert {key: space.outcome[key] for key in ("address", "up", "down", "reason")} == {
        "address": "198.51.100.7",
        "up": 5,
        "down": 5,
        "reason": "",
    }


async def test_megabytes_pass_unchanged_through_slow_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backpressure holds, and not a byte is lost, doubled or moved."""
    space = Namespace(parse_rules(["tcp://allowed.test:443"]))
    data = bytes(range(256)) * 12_000
    async with connected(space, monkeypatch) as (reader, writer, ended):

        async def send() -> None:
            for at in range(0, len(data), 70_001):
                writer.write(data[at : at + 70_001])
                await writer.drain()
            writer.write_eof()

        task = asyncio.create_task(send())
        got = b""
        while piece := await reader.read(30_000):
            got += piece
            if len(got) % 7 == 0:
                await asyncio.sleep(0)
        await task
        await ended

    assert got == data
    assert (space.outcome["up"], space.outcome["down"]) == (len(data), len(data))


async def test_a_server_that_speaks_first_is_heard_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ``auto`` rule does not wait for the client: SSH and SMTP greet before anybody asks."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-x\r\n")
        await echo(reader, writer)

    space = Namespace(parse_rules(["allowed.test:22"]))
    async with connected(space, monkeypatch, greet, port=22) as (reader, writer, _):
        assert await reader.readline() == b"SSH-2.0-x\r\n"
        writer.write(b"SSH-2.0-y\r\n")
        assert await reader.readline() == b"SSH-2.0-y\r\n"

    assert space.outcome["mode"] == "auto"


@pytest.mark.parametrize(
    "greeting", [b"*1\r\n$4\r\nPING\r\n", b"\0\0\0\x08\x04\xd2\x16\x2f", b"P", b"\x16"[:0] + b"\xff\xfe"]
)
async def test_a_protocol_that_is_neither_tls_nor_http_passes(greeting: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis, PostgreSQL and unknown first bytes are carried as they are, even when they could have become HTTP."""
    space = Namespace(parse_rules(["allowed.test:5432"]))
    async with connected(space, monkeypatch, port=5432) as (reader, writer, _):
        writer.write(greeting)
        assert await reader.readexactly(len(greeting)) == greeting


@pytest.mark.claim("P-EGR-02")
@pytest.mark.parametrize(
    ("entry", "port", "first", "reason"),
    [
        ("allowed.test", 443, client_hello("evil.test"), reasons.SNI),
        ("allowed.test", 443, client_hello(None), reasons.NO_SNI),
        ("allowed.test", 443, b"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n", reasons.NOT_TLS),
        ("allowed.test", 443, b"SSH-2.0-tunnel\r\n", reasons.NOT_TLS),
        ("http://allowed.test", 80, b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", reasons.HOST),
        ("http://allowed.test", 80, b"CONNECT evil.test:443 HTTP/1.1\r\nHost: allowed.test\r\n\r\n", reasons.TUNNEL),
        ("http://allowed.test", 80, client_hello("allowed.test"), reasons.HTTP),
        ("allowed.test:443", 22, b"", reasons.PORT),
    ],
)
async def test_domain_fronting_is_refused_before_anything_is_dialled(
    entry: str, port: int, first: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name inside that differs from the name that was looked up ends in a reset; the server hears nothing."""
    space = Namespace(parse_rules([entry]))
    async with connected(space, monkeypatch, port=port) as (reader, writer, _):
        writer.write(first)
        with pytest.raises(ConnectionResetError):
            await reader.read()

    assert [(event["phase"], event["reason"]) for event in space.events] == [("fact", reason)]
    assert space.dialled == []


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (client_hello("evil.test"), reasons.SNI),
        (b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", reasons.HOST),
    ],
)
async def test_an_auto_rule_holds_what_names_a_host(first: bytes, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On other ports TLS and HTTP are recognised and held to the name as well; nothing is sent on."""
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            heard.append(await reader.read())
        writer.close()

    space = Namespace(parse_rules(["allowed.test:8443"]))
    async with connected(space, monkeypatch, listen, port=8443) as (reader, writer, _):
        writer.write(first)
        with pytest.raises(ConnectionResetError):
            await reader.read()

    assert space.outcome["reason"] == reason
    assert b"".join(heard) == b""


@pytest.mark.claim("P-EGR-04")
async def test_dns_rebinding_finds_no_second_resolution(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address that was checked is the address that is dialled: a name that changes its mind is asked once."""
    space = Namespace(parse_rules(["tcp://allowed.test:443"]), answers=[["198.51.100.7"], ["169.254.169.254"]])
    async with connected(space, monkeypatch) as (_, writer, __):
        writer.write(b"x")

    assert space.dialled == [("198.51.100.7", 443)]
    assert [event["phase"] for event in space.events].count("resolve") == 1


@pytest.mark.claim("P-EGR-04")
@pytest.mark.parametrize(
    ("answers", "dialled"),
    [
        (["10.0.0.1", "198.51.100.7"], [("198.51.100.7", 443)]),
        (["::ffff:127.0.0.1", "::1", "fe80::1%eth0", "198.51.100.7"], [("198.51.100.7", 443)]),
        (["169.254.169.254"], []),
        (["127.0.0.1", "0.0.0.0", "::", "64:ff9b::a9fe:a9fe"], []),
    ],
)
async def test_mixed_answers_only_a_checked_address_is_dialled(
    answers: list[str], dialled: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several addresses those below the floor are never tried; with nothing left the connection is refused."""
    space = Namespace(parse_rules(["tcp://allowed.test:443"]), answers=[answers])
    async with connected(space, monkeypatch) as (_, writer, __):
        writer.write(b"x")
        await asyncio.sleep(0.05)

    assert space.dialled == dialled
    assert space.outcome["reason"] == ("" if dialled else reasons.FLOOR)


@pytest.mark.claim("P-EGR-07")
async def test_what_cannot_be_recorded_does_not_happen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the supervisor's word nothing is resolved and nothing dialled."""
    space = Namespace(parse_rules(["tcp://allowed.test:443"]), recorded=False)
    async with connected(space, monkeypatch) as (reader, _, __):
        with pytest.raises(ConnectionResetError):
            await reader.read()

    assert [event["phase"] for event in space.events] == ["intent", "outcome"]
    assert space.dialled == []


async def test_an_address_nobody_looked_up_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hard-coded address on a port that a wildcard opened is reset and recorded with address and port."""
    space = Namespace(parse_rules(["*.allowed.test"]))
    async with connected(space, monkeypatch, address="1.1.1.1") as (reader, _, __):
        with pytest.raises(ConnectionResetError):
            await reader.read()

    assert {key: space.outcome[key] for key in ("reason", "name", "port")} == {
        "reason": reasons.DIRECT,
        "name": "1.1.1.1",
        "port": 443,
    }


@pytest.mark.parametrize("entry", ["198.51.100.7:22", "198.51.100.0/24:22"])
async def test_an_address_the_driver_names_is_dialled_as_it_is(entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Literal rules need no name; the floor and its exception hold for them as well."""
    space = Namespace(parse_rules([entry]))
    async with connected(space, monkeypatch, address="198.51.100.7", port=22) as (reader, writer, _):
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"

    assert space.dialled == [("198.51.100.7", 22)]


async def test_the_byte_quota_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the quota is used up the connection is reset and says why."""
    space = Namespace(parse_rules(["tcp://allowed.test:443"]), left=1000)
    async with connected(space, monkeypatch) as (reader, writer, _):
        writer.write(b"x" * 5000)
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(5000)

    assert space.outcome["reason"] == reasons.BYTES


async def test_a_slow_greeting_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that connects and says nothing, or one byte at a time, does not hold the broker."""
    monkeypatch.setattr(flows, "HELLO_TIMEOUT", 0.05)
    space = Namespace(parse_rules(["allowed.test"]))
    async with connected(space, monkeypatch) as (reader, writer, _):
        writer.write(b"\x16")
        with pytest.raises(ConnectionResetError):
            await reader.read()

    assert space.outcome["reason"] == reasons.SILENT


def hello_for(name: bytes) -> bytes:
    """Return a small ClientHello."""
    value = struct.pack(">HBH", len(name) + 3, 0, len(name)) + name
    extensions = struct.pack(">HH", 0, len(value)) + value
    body = b"\x03\x03" + b"r" * 32 + b"\0" + b"\0\2\x13\x01" + b"\1\0" + struct.pack(">H", len(extensions)) + extensions
    return struct.pack(">BHH", 22, 0x301, len(body) + 4) + b"\x01" + len(body).to_bytes(3) + body


RETRY = struct.pack(">BHH", 22, 0x303, 90) + b"\x02\0\0\x56\x03\x03" + hello.RETRY_RANDOM + b"z" * 52


@pytest.mark.claim("P-EGR-02")
@pytest.mark.parametrize(("second", "reason"), [(b"allowed.test", ""), (b"evil.test", reasons.SECOND_HELLO)])
async def test_a_second_hello_cannot_ask_for_another_name(
    second: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a HelloRetryRequest the name is held again; the server never sees a hello for another one."""
    heard = bytearray()

    async def retrying(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.read(4096))
        writer.write(RETRY)
        with contextlib.suppress(ConnectionError):
            heard.extend(await reader.read(4096))
        writer.close()

    space = Namespace(parse_rules(["allowed.test"]))
    async with connected(space, monkeypatch, retrying) as (reader, writer, _):
        writer.write(hello_for(b"allowed.test"))
        assert await reader.readexactly(len(RETRY)) == RETRY
        writer.write(hello_for(second))
        with contextlib.suppress(ConnectionError):
            await reader.read()

    assert space.outcome["reason"] == reason
    assert (b"evil.test" in heard, heard.count(b"allowed.test")) == (False, 1 if reason else 2)


async def test_every_request_of_a_kept_connection_is_held_to_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request is answered, the second, to another host, resets the connection and is not sent on."""
    heard = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(4096):
                heard.extend(data)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()

    space = Namespace(parse_rules(["http://allowed.test"]))
    async with connected(space, monkeypatch, serve, port=80) as (reader, writer, _):
        writer.write(b"GET /1 HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
        assert (await reader.readuntil(b"ok")).endswith(b"ok")
        writer.write(b"GET /2 HTTP/1.1\r\nHost: evil.test\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            await reader.read()

    assert space.outcome["reason"] == reasons.HOST
    assert b"/2" not in heard


@pytest.mark.parametrize(
    ("status", "passed"), [(b"HTTP/1.1 101 Switching Protocols\r\n\r\n", True), (b"HTTP/1.1 403 No\r\n\r\n", False)]
)
async def test_a_websocket_is_carried_only_when_the_server_agrees(
    status: bytes, passed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 101 frames pass as they are; after a refusal they are no HTTP and end the connection."""
    heard = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(status)
        with contextlib.suppress(ConnectionError):
            heard.extend(await reader.read(100))
            writer.write(b"pong")
        writer.close()

    space = Namespace(parse_rules(["http://allowed.test"]))
    async with connected(space, monkeypatch, serve, port=80) as (reader, writer, _):
        writer.write(b"GET / HTTP/1.1\r\nHost: allowed.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        await reader.readexactly(len(status))
        writer.write(b"\x81\x04ping\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            await reader.read(10)

    assert bytes(heard) == (b"\x81\x04ping\r\n\r\n" if passed else b"")
