"""A pretended internet host: answers on many ports and tells, one JSON line each, of everything that reaches it.

It is the independent observer of the egress tests: what it did not tell of did not arrive. Standard library only; runs
in ``mcp-sandbox/python`` as ``python3 decoy.py <name> <certificate and key, PEM, base64>``.
"""

# ruff: noqa: T201 - standard output is the record
from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
import tempfile
from contextlib import suppress
from typing import Any

NAME = sys.argv[1]
HTTP_PORTS = (80, 8080)
TLS_PORTS = (443, 8443)
ECHO_PORTS = (7777, 53, 853, 2375, 2376, 5432, 6379, 9999)
GREETING_PORTS = (22,)
UDP_PORTS = (53, 443, 9999)
BLOCK = b"x" * 262_144


def tell(**facts: Any) -> None:
    """Tell of one arrival."""
    print(json.dumps({"host": NAME, **facts}), flush=True)


def arrived(writer: asyncio.StreamWriter, protocol: str) -> None:
    """Tell of a connection."""
    tell(protocol=protocol, port=writer.get_extra_info("sockname")[1], peer=writer.get_extra_info("peername")[0])


async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer HTTP/1 requests; ``/redirect/<port>`` leads to the metadata service, ``/big/<MiB>`` is large."""
    arrived(writer, "web")
    with suppress(ConnectionError, asyncio.IncompleteReadError, ValueError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            line, *fields = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (f.partition(":") for f in fields)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            path = line.split()[1]
            tell(protocol="request", line=line, headers=headers, body=body.decode("latin-1"))
            if path.startswith("/redirect"):
                writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n")
            elif path.startswith("/big/"):
                size = int(path.split("/")[2]) << 20
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
                while size > 0:
                    writer.write(BLOCK[:size])
                    size -= len(BLOCK)
                    await writer.drain()
            else:
                echoed = json.dumps(
                    {"host": NAME, "line": line, "headers": headers, "body": body.decode("latin-1")}
                ).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(echoed), echoed))
            await writer.drain()
    writer.close()


class Echo(asyncio.Protocol):
    """Sends everything back; on greeting ports it speaks first."""

    def connection_made(self, transport: Any) -> None:
        """Tell, and greet where that is the custom."""
        self.transport = transport
        port = transport.get_extra_info("sockname")[1]
        tell(protocol="tcp", port=port, peer=transport.get_extra_info("peername")[0])
        if port in GREETING_PORTS:
            transport.write(b"SSH-2.0-decoy\r\n")

    def data_received(self, data: bytes) -> None:
        """Send it back."""
        self.transport.write(data)


class Datagrams(asyncio.DatagramProtocol):
    """Tells of and echoes datagrams."""

    def connection_made(self, transport: Any) -> None:
        """Keep the transport."""
        self.transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        """Tell and send it back."""
        tell(protocol="udp", port=self.transport.get_extra_info("sockname")[1], size=len(data))
        self.transport.sendto(data, address)


async def main() -> None:
    """Serve until killed."""
    loop = asyncio.get_running_loop()
    with tempfile.NamedTemporaryFile() as pem:
        pem.write(base64.b64decode(sys.argv[2]))
        pem.flush()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem.name)
    context.sni_callback = lambda _socket, name, _context: tell(protocol="sni", name=name or "")
    for port in HTTP_PORTS:
        await asyncio.start_server(web, "0.0.0.0", port)
    for port in TLS_PORTS:
        await asyncio.start_server(web, "0.0.0.0", port, ssl=context)
    for port in ECHO_PORTS + GREETING_PORTS:
        await loop.create_server(Echo, "0.0.0.0", port)
    for port in UDP_PORTS:
        await loop.create_datagram_endpoint(Datagrams, ("0.0.0.0", port))
    tell(protocol="ready")
    await asyncio.Event().wait()


asyncio.run(main())
