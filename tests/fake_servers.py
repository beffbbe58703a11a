"""MCP servers for the in-memory backend: what pools and tenants are tested with."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox.testing.backend import FakeServer


@dataclass
class Whoami:
    """A server with one tool that answers with what it was called with, late and out of order.

    Attributes:
        delays: seconds of the slowest answer; each waits for a part of it.
        deadly: probability that a call ends the process instead.
        shuffle: answers that are held back and sent in random order.
        seen: what reached each process: list of (pid, arguments).
        starts: processes started.
        mute: process that answers no ping.
        refuse: answer to ``initialize`` with an error, this many times.
    """

    delays: float = 0.0
    deadly: float = 0.0
    shuffle: int = 1
    refuse: int = 0
    starts: int = 0
    pings: int = 0
    mute: int = 0
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    seen: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)

    async def __call__(self, server: FakeServer) -> int:
        """Be one process."""
        self.starts += 1
        pid = self.starts
        held: list[Any] = []
        tasks: set[asyncio.Future[None]] = set()
        try:
            while line := await server.read_line():
                message = json.loads(line)
                if message.get("method") == "tools/call":
                    if self.chance.random() < self.deadly:
                        return 1
                    self.seen.append((pid, message["params"]["arguments"]))
                    held.append(message)
                    if len(held) >= self.shuffle:
                        self._release(server, pid, held, tasks)
                    elif len(held) == 1:
                        tasks.add(asyncio.ensure_future(self._later(server, pid, held, tasks)))
                elif (answer := self._answer(message, pid)) is not None:
                    await server.write(json.dumps(answer).encode() + b"\n")
            return 0
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _later(self, server: FakeServer, pid: int, held: list[Any], tasks: set[Any]) -> None:
        await asyncio.sleep(0.02)
        self._release(server, pid, held, tasks)

    def _release(self, server: FakeServer, pid: int, held: list[Any], tasks: set[Any]) -> None:
        """Answer what was held back, in random order, each after its own delay."""
        self.chance.shuffle(held)
        for message in held:
            tasks.add(asyncio.ensure_future(self._reply(server, pid, message, self.chance.random() * self.delays)))
        held.clear()

    async def _reply(self, server: FakeServer, pid: int, message: Any, delay: float) -> None:
        await asyncio.sleep(delay)
        text = json.dumps({"pid": pid, "id": message["id"], **message["params"]["arguments"]})
        body = {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": text}]}}
        await server.write(json.dumps(body).encode() + b"\n")

    def _answer(self, message: Mapping[str, Any], pid: int) -> dict[str, Any] | None:
        if "id" not in message:
            return None
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        method = message.get("method")
        if method == "initialize" and self.refuse > 0:
            self.refuse -= 1
            return {**answer, "error": {"code": -32000, "message": "not today"}}
        if method == "ping":
            self.pings += 1
            return None if self.mute == pid else {**answer, "result": {}}
        results: dict[Any, dict[str, Any]] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "whoami", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "whoami", "inputSchema": {"type": "object"}}]},
        }
        if method in results:
            return {**answer, "result": results[method]}
        return {**answer, "error": {"code": -32601, "message": "unknown"}}
