"""A plain blocking MCP client over a child's pipes: as little of its own cost as Python allows."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import Any

INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "benchmark", "version": "0"},
}
CHUNK = 1 << 20


class Client:
    """One server behind a command; handshake era."""

    def __init__(self, argv: list[str]) -> None:
        self.started = time.perf_counter()
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in = self.process.stdin.fileno()
        self._out = self.process.stdout.fileno()
        self._buffer = bytearray()
        self._next = 0

    def send(self, message: dict[str, Any]) -> None:
        """Write one message."""
        data = memoryview(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n")
        while data:
            data = data[os.write(self._in, data) :]

    def receive(self) -> dict[str, Any]:
        """Return the next message."""
        while (end := self._buffer.find(b"\n")) < 0:
            chunk = os.read(self._out, CHUNK)
            if not chunk:
                raise ConnectionError("the server closed its stdout")
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        message: dict[str, Any] = json.loads(line)
        return message

    def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send one request and return its answer, passing over everything else."""
        self._next += 1
        wanted = self._next
        self.send({"id": wanted, "method": method, **({"params": params} if params is not None else {})})
        while (answer := self.receive()).get("id") != wanted or "method" in answer:
            pass
        return answer

    def open(self) -> list[dict[str, Any]]:
        """Do the handshake and return the tools."""
        self.request("initialize", INITIALIZE)
        self.send({"method": "notifications/initialized"})
        tools: list[dict[str, Any]] = self.request("tools/list")["result"]["tools"]
        return tools

    def pipelined(self, method: str, params: dict[str, Any], total: int, in_flight: int) -> float:
        """Return calls per second with a fixed number of requests in flight."""
        start = time.perf_counter()
        sent = done = 0
        base = self._next
        while done < total:
            while sent < total and sent - done < in_flight:
                sent += 1
                self.send({"id": base + sent, "method": method, "params": params})
            answer = self.receive()
            done += "method" not in answer
        self._next = base + total
        return total / (time.perf_counter() - start)

    def close(self) -> None:
        """Close the server's stdin and wait for it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
