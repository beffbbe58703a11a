"""Step 7 of a flow: what goes between client and server, by the mode of the rule."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final

from sandbox.launch.egress.inside import hello
from sandbox.launch.egress.inside.bounds import HELLO_TIMEOUT, MAX_HELLO
from sandbox.launch.egress.inside.reasons import BYTES, PLACEHOLDER, SECOND_HELLO, Denied
from sandbox.launch.egress.inside.relay import Pump
from sandbox.launch.egress.inside.requests import Gate, looks_like_http, switched

if TYPE_CHECKING:
    from sandbox.launch.egress.inside.flow import Flow

READ: Final = 64 * 1024
"""Bytes of one read where bytes are looked at."""

GREETING_SECONDS: Final = 30.0
"""For a server to answer a ClientHello or an upgrade request."""

SNIFF_SECONDS: Final = 1.0
"""For the rest of a first line that could become HTTP; then it is taken for something else."""


async def raw(flow: Flow) -> None:
    """Carry any protocol unchanged."""
    await Relay(flow).both()


async def tls(flow: Flow, first: bytes) -> None:
    """Carry TLS whose ClientHello was held to the name.

    A HelloRetryRequest is answered with a second ClientHello, in the clear, that a server might serve by another
    name; so it is held to the name as well (RFC 8446 §4.1.2 lets only a few fields change).
    """
    server = _server(flow)
    await _send(flow, server, first, up=True)
    seen = b""
    async with asyncio.timeout(GREETING_SECONDS):
        while (retry := hello.is_retry(seen)) is None:
            piece = await _receive(server)
            if not piece:
                break
            seen += piece
            await _send(flow, flow.client, piece, up=False)
    if retry:
        await _second_hello(flow, server)
    await Relay(flow).both()


async def _second_hello(flow: Flow, server: socket.socket) -> None:
    first = flow.sni
    data = b""
    async with asyncio.timeout(HELLO_TIMEOUT):
        while (found := hello.second(data)) is None:
            if len(data) > 4 * MAX_HELLO:
                raise Denied(SECOND_HELLO, "no second ClientHello")
            data += await flow.receive()
    if found.sni != first or found.ech:
        raise Denied(SECOND_HELLO, found.sni)
    await _send(flow, server, data, up=True)


async def http(flow: Flow, gate: Gate, first: bytes) -> None:
    """Carry HTTP/1, every request held to the name; WebSocket after the server has agreed to it."""
    server = _server(flow)
    await _send(flow, server, first, up=True)
    if gate.upgrading:
        if await _switched(flow, server):
            await Relay(flow).both(gate.rest())
            return
        await _send(flow, server, gate.refused(), up=True)
    await _requests(flow, gate, Relay(flow), server)


async def watched(flow: Flow) -> None:
    """Carry any protocol; what begins like TLS or HTTP is held to the name, so far as it names one.

    The server may speak first: its bytes go to the client at once. This guards ordinary clients against confusion; a
    hostile one can disguise what it says, but not to whom (docs/egress.md, *auto*).
    """
    server = _server(flow)
    relay = Relay(flow)
    relay.down()
    first = await relay.while_open(_opening(flow))
    if first and first[0] == hello.HANDSHAKE:
        await _send(flow, server, first, up=True)
        await relay.both(b"", down=False)
    elif first and looks_like_http(first):
        gate = flow.gate()
        await _send(flow, server, gate.feed(first), up=True)
        await _requests(flow, gate, relay, server)
    else:
        await relay.both(first, down=False)


async def _opening(flow: Flow) -> bytes:
    """Return the client's first bytes: a whole ClientHello, held to the name; the start of a request; or anything."""
    loop = asyncio.get_running_loop()
    data = await loop.sock_recv(flow.client, READ)
    if data and data[0] == hello.HANDSHAKE:
        async with asyncio.timeout(HELLO_TIMEOUT):
            while (found := hello.read(data)) is None:
                data += await flow.receive()
        flow.hold(found, strict=False)
        return data
    try:
        async with asyncio.timeout(SNIFF_SECONDS):
            while data and looks_like_http(data) is None:
                more = await loop.sock_recv(flow.client, READ)
                if not more:
                    break
                data += more
    except TimeoutError:
        pass
    return data


class Relay:
    """Both directions of a flow, and their end."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._server = _server(flow)
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._open = 2
        flow.pumps = [
            Pump(flow.client, self._server, self._end, self._spend, flow.guard()),
            Pump(self._server, flow.client, self._end, self._spend),
        ]

    def down(self) -> None:
        """Begin to carry the server's bytes."""
        self._flow.pumps[1].start()

    async def both(self, first: bytes = b"", *, down: bool = True) -> None:
        """Carry both directions until both have ended or one has broken.

        Args:
            first: bytes that the client has sent already and that were not counted.
            down: whether the server's direction still has to be begun.
        """
        self._flow.up += len(first)
        guard = self._flow.guard()
        if guard is not None and not guard(first):
            raise Denied(PLACEHOLDER)
        if down:
            self.down()
        self._flow.pumps[0].start(first)
        await self.end()

    async def while_open(self, work: object) -> bytes:
        """Return what ``work`` gives, or raise why the connection broke meanwhile."""
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        try:
            await asyncio.wait({task, self._ended}, return_when=asyncio.FIRST_COMPLETED)
            if self._ended.done() and not task.done():
                raise ConnectionResetError(0, self._ended.result())
            return bytes(await task)
        finally:
            task.cancel()

    async def end(self) -> None:
        """Wait until both directions have ended."""
        why = await self._ended
        if why:
            self._flow.detail = why

    def client_ended(self) -> None:
        """The client's direction has ended, by the word of who carries it."""
        self._end("")

    def _end(self, why: str) -> None:
        self._open -= 1
        if (why or self._open == 0) and not self._ended.done():
            self._ended.set_result(why)

    def _spend(self, size: int) -> bool:
        return self._flow.host.spend(size)


async def _requests(flow: Flow, gate: Gate, relay: Relay, server: socket.socket) -> None:
    """Carry a client's requests through the gate, the server's bytes as they are."""
    loop = asyncio.get_running_loop()
    if not flow.pumps[1].started:
        relay.down()
    while not gate.upgrading:
        data = await relay.while_open(loop.sock_recv(flow.client, READ))
        out = gate.feed(data)
        if not data:
            server.shutdown(socket.SHUT_WR)
            relay.client_ended()
            await relay.end()
            return
        await relay.while_open(_send(flow, server, out, up=True))
    await relay.both(gate.rest(), down=False)


async def _switched(flow: Flow, server: socket.socket) -> bool:
    """Pass the beginning of the server's answer on and return whether it accepts the upgrade."""
    seen = b""
    async with asyncio.timeout(GREETING_SECONDS):
        while (verdict := switched(seen)) is None:
            piece = await _receive(server)
            if not piece:
                return False
            seen += piece
            await _send(flow, flow.client, piece, up=False)
    return verdict


async def _receive(sock: socket.socket) -> bytes:
    return await asyncio.get_running_loop().sock_recv(sock, READ)


async def _send(flow: Flow, sock: socket.socket, data: bytes, *, up: bool) -> bytes:
    """Send and count; data of no length is nothing."""
    if not data:
        return b""
    if not flow.host.spend(len(data)):
        raise Denied(BYTES)
    if up:
        flow.up += len(data)
    else:
        flow.down += len(data)
    await asyncio.get_running_loop().sock_sendall(sock, data)
    return b""


def _server(flow: Flow) -> socket.socket:
    if flow.server is None:
        raise Denied(SECOND_HELLO, "nothing was dialled")
    return flow.server
