"""A chain as a server that lives in this process, so that clients use it under the same rules as any other.

The chain has no program of its own: what it does is done by its steps, each in a sandbox that is planned and launched
as ever. Towards its callers it is vetted, policed, bounded and recorded like a server in a container, because it is
reached the same way: :class:`ChainBackend` is a :class:`~sandbox.launch.interface.Backend` whose instances answer MCP
over a socket pair in the engine's framing.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from sandbox import jsontext
from sandbox.errors import SandboxError
from sandbox.events import Scope
from sandbox.launch.interface import ExitStatus, Usage
from sandbox.limits import MAX_LINE_BYTES
from sandbox.mcpkg.chainspec import PROTOCOL
from sandbox.mcpkg.model import Manifest
from sandbox.plan.model import EngineFacts, ImageFacts, SandboxPlan
from sandbox.wire.attach import STDOUT

Run = Callable[[dict[str, Any]], Awaitable[Any]]
"""Runs the chain with its arguments and returns its result value."""

_HEADER: Final = struct.Struct(">BxxxL")
_UNKNOWN_METHOD, _FAILED = -32601, True


class ChainInstance:
    """A chain that answers on a socket; ended with it."""

    def __init__(self, plan: SandboxPlan, manifest: Manifest, run: Run) -> None:
        self.id = f"chain/{plan.driver_id}"
        self.plan = plan
        self.stream: socket.socket | None
        self.stream, self._own = socket.socketpair()
        self._manifest, self._run = manifest, run
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._writing = asyncio.Lock()
        self._serving = asyncio.create_task(self._serve())

    def during(self, call: str) -> AbstractContextManager[None]:
        """Return nothing to hold: steps record themselves."""
        del call
        return contextlib.nullcontext()

    async def wait(self) -> ExitStatus:
        """Return when the other side has gone."""
        await asyncio.wait((self._serving,))
        return ExitStatus(0)

    async def usage(self) -> Usage:
        """Return nothing: each step has its own figures."""
        return Usage()

    async def pause(self) -> None:
        """Do nothing: there is no process to freeze."""

    async def unpause(self) -> None:
        """Do nothing."""

    async def stop(self, grace: float) -> ExitStatus:
        """End every call, with the sandbox of its step, and the chain; idempotent."""
        del grace
        tasks = [*self._calls.values(), self._serving]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._own.close()
        return ExitStatus(0)

    async def _serve(self) -> None:
        self._own.setblocking(False)
        reader, _ = await asyncio.open_connection(sock=self._own.dup(), limit=2 * MAX_LINE_BYTES)
        while line := await reader.readline():
            message = jsontext.parse(line)
            if message.get("method") == "notifications/cancelled":
                self._cancel(message.get("params", {}).get("requestId"))
            elif "id" in message and "method" in message:
                key = json.dumps(message["id"])
                task = asyncio.create_task(self._answer(message))
                self._calls[key] = task
                task.add_done_callback(functools.partial(self._done, key))

    def _done(self, key: str, _task: asyncio.Task[None]) -> None:
        self._calls.pop(key, None)

    def _cancel(self, request: Any) -> None:
        task = self._calls.get(json.dumps(request))
        if task is not None:
            task.cancel()

    async def _answer(self, message: Mapping[str, Any]) -> None:
        params = message.get("params") or {}
        result: dict[str, Any]
        match message["method"]:
            case "initialize":
                info = {"name": self._manifest.tool_id, "version": self._manifest.version}
                result = {"protocolVersion": PROTOCOL, "capabilities": {"tools": {}}, "serverInfo": info}
            case "tools/list":
                result = {"tools": [self._tool()]}
            case "tools/call":
                result = await self._call(params.get("arguments") or {})
            case "ping":
                result = {}
            case _:
                await self._send({"id": message["id"], "error": {"code": _UNKNOWN_METHOD, "message": "no such method"}})
                return
        await self._send({"id": message["id"], "result": result})

    def _tool(self) -> dict[str, Any]:
        manifest = self._manifest
        tool = {
            "name": manifest.tool_id,
            "description": manifest.description,
            "inputSchema": manifest.input_schema,
        }
        wrapped = manifest.output_schema.get("type") != "object"
        return tool if wrapped else {**tool, "outputSchema": manifest.output_schema}

    async def _call(self, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            value = await self._run(arguments)
        except SandboxError as error:
            return {"content": [{"type": "text", "text": str(error)}], "isError": _FAILED}
        wrapped = self._manifest.output_schema.get("type") != "object"
        text = jsontext.dump(value).decode()
        structured = {"result": value} if wrapped else value
        return {"content": [{"type": "text", "text": text}], "structuredContent": structured, "isError": False}

    async def _send(self, body: dict[str, Any]) -> None:
        data = jsontext.dump({"jsonrpc": "2.0", **body}) + b"\n"
        async with self._writing:
            await asyncio.get_running_loop().sock_sendall(self._own, _HEADER.pack(STDOUT, len(data)) + data)


class ChainBackend:
    """Starts one chain.

    Args:
        manifest: of the chain.
        run: runs it.
    """

    name = "chain"

    def __init__(self, manifest: Manifest, run: Run) -> None:
        self._manifest, self._run = manifest, run

    async def facts(self) -> EngineFacts:
        """Return what no engine can do."""
        return EngineFacts("chain", "", "", (), "")

    async def image(self, reference: str) -> ImageFacts | None:
        """Return nothing: a chain has no image."""
        del reference
        return None

    async def launch(self, plan: SandboxPlan, scope: Scope, secrets: Mapping[str, str]) -> ChainInstance:
        """Return the chain, listening."""
        del secrets
        scope.fact("pkg.chain", chain=self._manifest.tool_id, tools=[step.tool for step in self._manifest.chain])
        return ChainInstance(plan, self._manifest, self._run)

    async def close(self) -> None:
        """Do nothing: every instance is ended by its owner."""
