"""What a hostile or ordinary server tries on the network: one expression a line, one JSON answer a line.

Standard library only; runs in ``mcp-sandbox/python``, inside a sandbox or, as the positive control, outside of one.
"""

# ruff: noqa: T201 - standard output is the record
from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import ssl
import struct
import sys
import time
from collections.abc import Iterator
from typing import Any

SECONDS = 4.0
"""No probe waits longer; one that does is a hang."""


def connect(host: str, port: int) -> socket.socket:
    """Return a connection."""
    return socket.create_connection((host, port), SECONDS)


def tcp(host: str, port: int, send: bytes = b"ping", size: int = 4096) -> str:
    """Connect, send, and return what comes back."""
    with connect(host, port) as sock:
        if send:
            sock.sendall(send)
        return sock.recv(size).decode("latin-1")


def udp(host: str, port: int, send: bytes = b"ping") -> str:
    """Send a datagram and return the answer."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.settimeout(SECONDS)
        sock.connect((host, port))
        sock.send(send)
        return sock.recv(4096).decode("latin-1")


def resolve(name: str) -> list[str]:
    """Return a name's addresses through the system's resolver."""
    return sorted({str(info[4][0]) for info in socket.getaddrinfo(name, 443, type=socket.SOCK_STREAM)})


def question(name: str, kind: int = 1) -> bytes:
    """Return a DNS question; bytes of the name are sent as they are."""
    labels = b"".join(bytes([len(part)]) + part for part in (p.encode("latin-1") for p in name.split(".")))
    return struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)


def dns(server: str, name: str, kind: int = 1, *, stream: bool = False, port: int = 53) -> dict[str, int]:
    """Ask a name server of one's own choice; return its RCODE and how many answers it gave."""
    data = question(name, kind)
    if stream:
        with connect(server, port) as sock:
            sock.sendall(struct.pack(">H", len(data)) + data)
            answer = sock.recv(4096)[2:]
    else:
        answer = udp(server, port, data).encode("latin-1")
    return {"code": answer[3] & 15, "answers": struct.unpack(">H", answer[6:8])[0]}


def tls(host: str, port: int = 443, sni: str | None = None, path: str = "/", inner: str = "") -> str:
    """Speak HTTPS with any server name and any Host; certificates are not checked."""
    context = ssl._create_unverified_context()
    with connect(host, port) as sock, context.wrap_socket(sock, server_hostname=sni) as secure:
        secure.sendall(f"GET {path} HTTP/1.1\r\nHost: {inner or host}\r\n\r\n".encode())
        return secure.recv(65536).decode("latin-1")


def http(host: str, port: int = 80, name: str = "", path: str = "/", extra: str = "", method: str = "GET") -> str:
    """Speak HTTP with any Host, target and header lines."""
    return tcp(host, port, f"{method} {path} HTTP/1.1\r\nHost: {name or host}\r\n{extra}\r\n".encode("latin-1"), 65536)


def kinds(family: int, kind: int, protocol: int = 0) -> str:
    """Make a socket of a kind."""
    with socket.socket(family, kind, protocol):
        return "made"


def interfaces() -> list[str]:
    """Return the names of network interfaces."""
    return [name for _, name in socket.if_nameindex()]


def abstract_names() -> list[str]:
    """Return the abstract unix sockets in sight."""
    with open("/proc/net/unix", encoding="latin-1") as table:  # noqa: PTH123 - small
        return sorted({line.split()[-1] for line in table if "@" in line})


def timed(call: Any) -> Any:
    """Return the milliseconds that a call takes, whatever comes of it."""
    began = time.monotonic()
    with contextlib.suppress(OSError):
        call()
    return (time.monotonic() - began) * 1000


def answers() -> Iterator[dict[str, Any]]:
    """Answer each line of standard input."""
    for line in sys.stdin:
        began = time.monotonic()
        answer: dict[str, Any] = {}
        try:
            answer["value"] = eval(line, globals())
        except OSError as error:
            number = error.errno if isinstance(error.errno, int) else 0
            name = errno.errorcode.get(number, "") if not isinstance(error, socket.gaierror) else ""
            answer["error"] = name or (
                f"GAI{error.errno}" if isinstance(error, socket.gaierror) else type(error).__name__
            )
        except Exception as error:  # noqa: BLE001 - told, not hidden
            answer["error"] = f"{type(error).__name__}: {error}"
        answer["ms"] = (time.monotonic() - began) * 1000
        yield answer


if __name__ == "__main__":
    os.environ.pop("HOME", None)
    for found in answers():
        print(json.dumps(found), flush=True)
