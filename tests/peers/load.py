"""Both ends of the egress benchmark: ``load.py serve`` and ``load.py measure <host>``; standard library only.

The server is threaded on blocking sockets for bulk and evented for echoes, so that it is never what limits.
"""

# ruff: noqa: T201 - standard output is the result
from __future__ import annotations

import json
import selectors
import socket
import sys
import threading
import time

ECHO, SOURCE, STREAM = 7001, 7002, 7003
BLOCK = b"x" * 262_144
MEBI = 1 << 20


def evented_echo() -> None:
    """Send small messages back, any number of connections."""
    chooser = selectors.DefaultSelector()
    ear = socket.create_server(("0.0.0.0", ECHO), backlog=1024)
    chooser.register(ear, selectors.EVENT_READ)
    while True:
        for key, _ in chooser.select():
            sock: socket.socket = key.fileobj  # type: ignore[assignment]
            if sock is ear:
                client, _ = ear.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                chooser.register(client, selectors.EVENT_READ)
                continue
            try:
                data = sock.recv(65536)
                if data:
                    sock.sendall(data)
                    continue
            except OSError:
                pass
            chooser.unregister(sock)
            sock.close()


def threaded(port: int, work: str) -> None:
    """Serve each connection of a port in a thread."""
    ear = socket.create_server(("0.0.0.0", port), backlog=1024)
    while True:
        client, _ = ear.accept()
        threading.Thread(target=bulk, args=(client, work), daemon=True).start()


def bulk(client: socket.socket, work: str) -> None:
    """Send as many mebibytes as the first byte says times 16, or send everything back."""
    with client:
        try:
            if work == "source":
                for _ in range(client.recv(1)[0] * 16 * MEBI // len(BLOCK)):
                    client.sendall(BLOCK)
            else:
                buffer = bytearray(len(BLOCK))
                while size := client.recv_into(buffer):
                    client.sendall(memoryview(buffer)[:size])
        except OSError:
            return


def connect(host: str, port: int) -> socket.socket:
    """Return a connection without delay of small segments."""
    sock = socket.create_connection((host, port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def round_trips(host: str, connections: int, count: int) -> dict[str, float]:
    """Return the round trip in microseconds and round trips a second, one in flight on each connection."""
    socks = [connect(host, ECHO) for _ in range(connections)]
    chooser = selectors.DefaultSelector()
    sent: dict[int, int] = {}
    times: list[int] = []
    for sock in socks:
        chooser.register(sock, selectors.EVENT_READ)
    message = b"y" * 64
    began = time.perf_counter_ns()
    for sock in socks:
        sent[sock.fileno()] = time.perf_counter_ns()
        sock.sendall(message)
    while len(times) < count:
        for key, _ in chooser.select():
            sock = key.fileobj  # type: ignore[assignment]
            sock.recv(64)
            now = time.perf_counter_ns()
            times.append(now - sent[sock.fileno()])
            sent[sock.fileno()] = now
            sock.sendall(message)
    seconds = (time.perf_counter_ns() - began) / 1e9
    for sock in socks:
        sock.close()
    times.sort()
    return {
        "p50": times[len(times) // 2] / 1e3,
        "p99": times[len(times) * 99 // 100] / 1e3,
        "rate": len(times) / seconds,
    }


def one_way(host: str, mebibytes: int) -> float:
    """Return megabytes a second of a download."""
    with connect(host, SOURCE) as sock:
        sock.sendall(bytes([mebibytes // 16]))
        buffer, got = bytearray(MEBI), 0
        began = time.perf_counter()
        while size := sock.recv_into(buffer):
            got += size
        return got / (time.perf_counter() - began) / 1e6


def both_ways(host: str, mebibytes: int) -> float:
    """Return megabytes a second, each way, of a stream that comes back."""
    with connect(host, STREAM) as sock:

        def send() -> None:
            for _ in range(mebibytes * MEBI // len(BLOCK)):
                sock.sendall(BLOCK)
            sock.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        buffer, got = bytearray(MEBI), 0
        began = time.perf_counter()
        sender.start()
        while size := sock.recv_into(buffer):
            got += size
        sender.join()
        return got / (time.perf_counter() - began) / 1e6


def first_byte(host: str, count: int) -> dict[str, float]:
    """Return milliseconds from connect to the first byte back, name lookup included where there is a name."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        with connect(host, ECHO) as sock:
            sock.sendall(b"y" * 64)
            sock.recv(64)
            times.append((time.perf_counter() - began) * 1e3)
    times.sort()
    return {"p50": times[count // 2], "p99": times[count * 99 // 100]}


def main() -> None:
    """Serve, or measure once and print."""
    if sys.argv[1] == "serve":
        for port, work in ((SOURCE, "source"), (STREAM, "stream")):
            threading.Thread(target=threaded, args=(port, work), daemon=True).start()
        print(json.dumps({"host": "load", "protocol": "ready"}), flush=True)
        evented_echo()
    host = sys.argv[2]
    result = {
        "rtt_1": round_trips(host, 1, 3000),
        "rtt_16": round_trips(host, 16, 6000),
        "rtt_256": round_trips(host, 256, 12000),
        "first_byte": first_byte(host, 100),
        "one_way": one_way(host, 1024),
        "both_ways": both_ways(host, 256),
    }
    print(json.dumps(result), flush=True)


main()
