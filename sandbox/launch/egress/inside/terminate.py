"""Step 7 of a flow to a host that secrets are put in for: TLS ends here, and begins anew towards the real server.

1. The client is answered with the certificate that was made for this host and this sandbox; HTTP/1.1 is all that is
   offered to it (ALPN), so that every request can be read (ADR 0077).
2. The real server is verified against its name before anything is sent to it.
3. Each request is held to the name and gets its values (:mod:`.replacing`); what comes back is looked through, so that
   no value enters the sandbox.
4. After a WebSocket upgrade bytes pass as they are, both ways looked through.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import ssl
from typing import TYPE_CHECKING, Final

from sandbox.launch.egress.inside.bounds import HELLO_TIMEOUT
from sandbox.launch.egress.inside.reasons import BYTES, CERTIFICATE, HTTP, NOT_TLS, PLACEHOLDER, Denied
from sandbox.launch.egress.inside.replacing import LENGTH, Mirror, Replacer, Substitutes
from sandbox.launch.egress.inside.requests import switched
from sandbox.launch.egress.inside.rewriting import RewritingGate

if TYPE_CHECKING:
    from sandbox.launch.egress.inside.flow import Flow

READ: Final = 64 * 1024

HOLD_SECONDS: Final = 0.05
"""A server's silence after which the end of what it said, which might begin a value, goes on to the client."""


class Tls:
    """TLS over a connected, non-blocking socket."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, name: str = "", first: bytes = b"") -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._in.write(first)
        self._tls = context.wrap_bio(self._in, self._out, server_side=not name, server_hostname=name or None)
        self._sending = asyncio.Lock()

    async def handshake(self) -> None:
        """Shake hands.

        Raises:
            ssl.SSLError: it failed.
        """
        async with asyncio.timeout(HELLO_TIMEOUT):
            while True:
                try:
                    self._tls.do_handshake()
                except ssl.SSLWantReadError:
                    await self._flush()
                    if not await self._fill():
                        raise ConnectionResetError(0, "closed while shaking hands") from None
                except ssl.SSLError:
                    await self._flush()  # the alert
                    raise
                else:
                    await self._flush()
                    return

    async def read(self) -> bytes:
        """Return the next bytes, empty at the end."""
        while True:
            try:
                return self._tls.read(READ)
            except ssl.SSLWantReadError:
                await self._flush()
                if not await self._fill():
                    return b""
            except ssl.SSLZeroReturnError:
                return b""

    async def write(self, data: bytes) -> None:
        """Send bytes."""
        if data:
            self._tls.write(data)
            await self._flush()

    async def _fill(self) -> bool:
        data = await self._loop.sock_recv(self._sock, READ)
        if data:
            self._in.write(data)
        else:
            self._in.write_eof()
        return bool(data)

    async def _flush(self) -> None:
        async with self._sending:
            data = self._out.read()
            if data:
                await self._loop.sock_sendall(self._sock, data)


async def carry(flow: Flow, first: bytes) -> None:
    """Carry one connection whose ClientHello (``first``) was held to the name, and whose server was dialled."""
    found = flow.host.substitutes
    if found is None or flow.server is None:
        raise Denied(HTTP, "nothing is put in here")
    client = Tls(flow.client, _serving(found.leaves[flow.name]), first=first)
    server = Tls(flow.server, _verifying(found.authorities), flow.name)
    # 2
    try:
        await server.handshake()
    except ssl.SSLCertVerificationError as error:
        raise Denied(CERTIFICATE, error.verify_message) from None
    except ssl.SSLError as error:
        raise Denied(NOT_TLS, f"the server: {error.reason}") from None
    # 1
    await client.handshake()
    # 3, 4
    await _Talk(flow, client, server, found).run()


class _Talk:
    """Both directions of one connection."""

    def __init__(self, flow: Flow, client: Tls, server: Tls, substitutes: Substitutes) -> None:
        self._flow, self._client, self._server = flow, client, server
        self._all = substitutes
        self._gate = RewritingGate(flow.name, flow.port, Replacer(substitutes, flow.name))
        self._mirror = Mirror(substitutes.values[flow.name])
        self._upgraded: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._seen = b""

    async def run(self) -> None:
        """Carry until either side ends."""
        ways = [asyncio.ensure_future(way) for way in (self._up(), self._down())]
        try:
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in done:
                way.result()
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _up(self) -> None:
        while not self._gate.upgrading:
            data = await self._client.read()
            self._count(len(data), up=True)
            await self._server.write(self._gate.feed(data))
            await self._client.write(self._gate.interim())
            if not data:
                await self._ended()
                return
            if await self._declined():
                await self._server.write(self._gate.refused())
        await self._pass(self._gate.rest())

    async def _declined(self) -> bool:
        """Return whether an upgrade was asked for, and the server does not agree to it."""
        if not self._gate.upgrading:
            return False
        accepted = await self._upgraded
        self._upgraded = asyncio.get_running_loop().create_future()
        return not accepted

    async def _pass(self, data: bytes) -> None:
        """Carry what follows an upgrade."""
        tail = b""
        while True:
            seen = tail + data
            if self._all.on_its_way(seen):
                raise Denied(PLACEHOLDER, "after an upgrade")
            tail = seen[-LENGTH + 1 :]
            await self._server.write(data)
            data = await self._client.read()
            self._count(len(data), up=True)
            if not data:
                return

    async def _ended(self) -> None:
        """The client has finished; the server may still answer, until it ends or the idle bound ends both."""
        await asyncio.get_running_loop().create_future()

    async def _down(self) -> None:
        while data := await self._answered():
            self._count(len(data), up=False)
            self._verdict(data)
            await self._client.write(self._mirror.feed(data))
        await self._client.write(self._mirror.rest())

    async def _answered(self) -> bytes:
        """Return the server's next bytes; when it falls silent, what was held back goes on."""
        if not self._mirror.holding:
            return await self._server.read()
        reading = asyncio.ensure_future(self._server.read())
        try:
            if not (await asyncio.wait((reading,), timeout=HOLD_SECONDS))[0]:
                await self._client.write(self._mirror.rest())
            return await reading
        finally:
            reading.cancel()

    def _verdict(self, data: bytes) -> None:
        """Tell whoever waits for it whether the server accepts an upgrade."""
        if self._gate.upgrading and not self._upgraded.done():
            self._seen = (self._seen + data)[:READ]
            verdict = switched(self._seen)
            if verdict is not None:
                self._seen = b""
                self._upgraded.set_result(verdict)

    def _count(self, size: int, *, up: bool) -> None:
        if not self._flow.host.spend(size):
            raise Denied(BYTES)
        if up:
            self._flow.up += size
        else:
            self._flow.down += size


@functools.lru_cache(maxsize=256)
def _serving(leaf: str) -> ssl.SSLContext:
    """Return what answers clients with a certificate; OpenSSL reads it from paths only, so it goes through pipes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    mark = "-----BEGIN PRIVATE KEY-----"
    certificate, _, key = leaf.partition(mark)
    ends = [_piped(certificate.encode()), _piped((mark + key).encode())]
    try:
        context.load_cert_chain(*(f"/proc/self/fd/{end}" for end in ends))
    finally:
        for end in ends:
            os.close(end)
    return context


def _piped(data: bytes) -> int:
    """Return a descriptor from which this data can be read once; it is far below what a pipe holds."""
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    return reading


@functools.lru_cache(maxsize=16)
def _verifying(authorities: str) -> ssl.SSLContext:
    """Return what verifies real servers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_verify_locations(cadata=authorities)
    return context
