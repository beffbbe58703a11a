"""A backend without containers: it keeps the promises of :mod:`sandbox.launch.interface` in memory, for unit tests.

A test writes a server as a coroutine over a :class:`FakeServer`; its bytes pass through a real socket pair in the
engine's framing, so transports are tested with the real thing. Isolation is what it does *not* have: for that there is
:mod:`sandbox.testing.conformance` against a real backend.

Example::

    async def echo(server: FakeServer) -> int:
        while line := await server.read_line():
            await server.write(line)
        return 0

    backend = FakeBackend(echo)
    instance = await backend.launch(plan, scope, {})
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final

from sandbox.errors import SandboxError
from sandbox.events import Scope
from sandbox.launch.interface import ExitStatus, Usage
from sandbox.plan.model import EngineFacts, ImageFacts, SandboxPlan

STDOUT: Final = 1
STDERR: Final = 2
READ_BYTES: Final = 1 << 16
KILLED: Final = 137
"""128 + SIGKILL."""

FACTS: Final = EngineFacts(
    kind="fake", version="0", api_version="0", runtimes=("runc", "runsc"), default_runtime="runc", runc_version="99.0"
)
"""A host that lacks nothing."""


class FakeServer:
    """The server's side of one instance.

    Attributes:
        plan: what it was started from.
        env: its variables, secrets resolved.
    """

    def __init__(self, plan: SandboxPlan, env: Mapping[str, str], end: socket.socket) -> None:
        self.plan = plan
        self.env = env
        self._end = end
        self._buffer = b""
        self.running = asyncio.Event()
        self.running.set()

    async def read_line(self) -> bytes:
        """Return the next line of stdin with its line feed; what is left at the end of input, then nothing."""
        loop = asyncio.get_running_loop()
        while b"\n" not in self._buffer:
            data = await loop.sock_recv(self._end, READ_BYTES)
            await self.running.wait()
            if not data:
                rest, self._buffer = self._buffer, b""
                return rest
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line + b"\n"

    async def write(self, data: bytes, stream: int = STDOUT) -> None:
        """Write bytes to stdout or stderr, in one frame of the engine's."""
        await self.running.wait()
        header = bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big")
        await asyncio.get_running_loop().sock_sendall(self._end, header + data)

    async def write_raw(self, data: bytes) -> None:
        """Write bytes that need not be a frame, as a broken engine would."""
        await asyncio.get_running_loop().sock_sendall(self._end, data)


Script = Callable[[FakeServer], Awaitable[int]]
"""A server: returns its exit status."""


class FakeInstance:
    """One running script; see :class:`sandbox.launch.interface.Instance`."""

    def __init__(self, name: str, server: FakeServer, script: Script, stream: socket.socket, scope: Scope) -> None:
        self.id = name
        self.plan = server.plan
        self.stream: socket.socket | None = stream
        self._server = server
        self._scope = scope
        self._stopped = False
        self._task = asyncio.create_task(self._run(script))

    async def _run(self, script: Script) -> ExitStatus:
        try:
            return ExitStatus(await script(self._server))
        except (ConnectionError, asyncio.CancelledError):
            return ExitStatus(KILLED)
        finally:
            self._server._end.close()  # noqa: SLF001 - both ends are this module's

    def during(self, call: str) -> AbstractContextManager[None]:  # noqa: ARG002 - a script has no network
        """Return a context that does nothing."""
        return nullcontext()

    async def wait(self) -> ExitStatus:
        """Return when the script has ended."""
        return await asyncio.shield(self._task)

    async def usage(self) -> Usage:
        """Return figures that never change."""
        return Usage(memory_bytes=1, memory_peak_bytes=1, cpu_seconds=0.0, pids=1)

    async def pause(self) -> None:
        """Hold the script at its next read or write."""
        self._server.running.clear()

    async def unpause(self) -> None:
        """Let it go on."""
        self._server.running.set()

    async def stop(self, grace: float) -> ExitStatus:
        """End the script within ``grace`` seconds; idempotent."""
        if not self._stopped:
            self._stopped = True
            self._scope.intent("launch.stop", container=self.id, grace=grace)
            await self._end(grace)
            status = await self._task
            self._scope.outcome("launch.stop", container=self.id, code=status.code, oom_killed=False, error="")
        return await self._task

    async def _end(self, grace: float) -> None:
        self._server.running.set()
        if self.stream is not None and self.stream.fileno() >= 0:
            self.stream.shutdown(socket.SHUT_WR)
        await asyncio.wait([self._task], timeout=grace)
        self._task.cancel()


@dataclass(slots=True)
class FakeBackend:
    """Starts scripts instead of containers.

    Attributes:
        script: the server of every plan.
        images: what :meth:`image` finds.
        fails: raised by the next launches, in order; ``None`` stands for a launch that works.
        launched: every plan that was launched.
    """

    script: Script
    images: dict[str, ImageFacts] = field(default_factory=dict)
    fails: list[SandboxError | None] = field(default_factory=list)
    launched: list[SandboxPlan] = field(default_factory=list)
    instances: list[FakeInstance] = field(default_factory=list)
    engine_facts: EngineFacts = FACTS
    name: str = "fake"
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    async def facts(self) -> EngineFacts:
        """Return the facts it was given."""
        return self.engine_facts

    async def image(self, reference: str) -> ImageFacts | None:
        """Return an image it was given."""
        return self.images.get(reference)

    async def launch(self, plan: SandboxPlan, scope: Scope, secrets: Mapping[str, str]) -> FakeInstance:
        """Start the script, with the same record as a real launch.

        Raises:
            SandboxError: the next of ``fails``.
        """
        name = f"fake-{next(self._numbers)}"
        scope.intent("launch.create", container_name=name, image=plan.image_id, plan=plan.digest(), network="none")
        error = self.fails.pop(0) if self.fails else None
        if error is not None:
            scope.outcome("launch.create", ok=False, container_name=name, error=error.id)
            raise error
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        env = {entry.name: secrets[entry.secret] if entry.secret else entry.value for entry in plan.env}
        scope.outcome("launch.create", ok=True, container=name, container_name=name, unseen=[])
        instance = FakeInstance(name, FakeServer(plan, env, theirs), self.script, ours, scope)
        self.launched.append(plan)
        self.instances.append(instance)
        return instance

    async def close(self) -> None:
        """Stop every script."""
        for instance in self.instances:
            await instance.stop(0)
