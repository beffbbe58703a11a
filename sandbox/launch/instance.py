"""A started, read-back container: waiting for it, measuring, freezing and ending it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from typing import Final

import anyio

from sandbox.errors import AuditUnavailable, PlatformError
from sandbox.events import Scope
from sandbox.launch import usage
from sandbox.launch.engine import Engine, EngineError
from sandbox.launch.interface import ExitStatus, NetworkAttachment, Usage
from sandbox.limits import ENGINE_TIMEOUT
from sandbox.plan.model import SandboxPlan

KILLED: Final = 137
"""128 + SIGKILL."""

TERM_SHARE: Final = 0.5
"""Share of the grace after which SIGTERM follows the closed stdin (MCP, stdio shutdown: close, SIGTERM, SIGKILL)."""

SAMPLE_SECONDS: Final = 30.0
"""Between two samples of an instance's figures, where telemetry is exported; collectors ask once a minute."""

PAUSE_ATTEMPTS: Final = 3
"""Times that a failed freeze is tried; runc has tried for two seconds each time."""

REMOVAL_SECONDS: Final = 30.0
"""An engine that is being restarted is asked again for this long before the rest is left to the watchdog."""

MAX_WHY: Final = 500
"""Characters of why a network was lost that are recorded."""

REMOVAL_PAUSE: Final = 0.5
"""Between two attempts to remove."""


class DockerInstance:
    """One running server; see :class:`sandbox.launch.interface.Instance`.

    Its life is bounded by ``plan.limits.lifetime``: afterwards it is stopped, whoever uses it.
    """

    def __init__(
        self,
        engine: Engine,
        container: str,
        plan: SandboxPlan,
        stream: socket.socket | None,
        scope: Scope,
        attachment: NetworkAttachment | None,
        forget: Callable[[str], None],
    ) -> None:
        self.id = container
        self.plan = plan
        self.stream = stream
        self._engine = engine
        self._scope = scope
        self._attachment = attachment
        self._forget = forget
        self._lost: PlatformError | None = None
        self._paused = False
        self._stopping = asyncio.Lock()
        self._removed = False
        self._status = ExitStatus(-1)
        self._exit: asyncio.Task[ExitStatus | PlatformError] = asyncio.create_task(self._watch_exit())
        self._expiry: asyncio.Task[None] = asyncio.create_task(self._expire())
        # Who exports wants to see figures while a server lives; the ledger alone has them at its end.
        self._sampling = asyncio.create_task(self._sample()) if scope.exported else None
        self._network: asyncio.Task[None] | None = None
        if attachment is not None:
            attachment.serves(container)
            self._network = asyncio.create_task(self._watch_network(attachment))

    def during(self, call: str) -> AbstractContextManager[None]:
        """Return a context in which what the server does on the network is recorded with a call, named by its span."""
        return self._attachment.during(call) if self._attachment is not None else contextlib.nullcontext()

    async def wait(self) -> ExitStatus:
        """Return when the process has ended.

        Raises:
            PlatformError: the engine vanished, or the server's network did; never raised for the server's own exit.
        """
        outcome = await asyncio.shield(self._exit)
        if self._lost is not None:
            raise self._lost.with_traceback(None)
        if isinstance(outcome, PlatformError):
            raise outcome
        return outcome

    async def usage(self) -> Usage:
        """Return current resource figures; those of the container are ``None`` once it does not run.

        Raises:
            PlatformError: the engine or the container is gone.
        """
        figures = usage.from_stats(await self._engine.stats(self.id))
        if figures.memory_peak_bytes is None:  # cgroup version 2: the engine does not say
            state = (await self._engine.inspect(self.id)).get("State") or {}
            figures = replace(figures, memory_peak_bytes=usage.peak_of(int(state.get("Pid") or 0)))
        return replace(figures, **self._carried())

    def _carried(self) -> dict[str, int]:
        if self._attachment is None:
            return {}
        return dict(zip(("bytes_up", "bytes_down"), self._attachment.carried, strict=True))

    async def pause(self) -> None:
        """Freeze every process of the instance.

        Raises:
            PlatformError: the engine could not.
        """
        for attempt in range(1, PAUSE_ATTEMPTS + 1):
            try:
                await self._engine.pause(self.id)
            except EngineError as error:
                # Under load the kernel's freezer (cgroup version 1) sometimes misses a process that is being made.
                if attempt == PAUSE_ATTEMPTS or "freeze" not in error.reason:
                    raise
            else:
                break
        self._paused = True

    async def unpause(self) -> None:
        """Thaw it.

        Raises:
            PlatformError: the engine could not.
        """
        await self._engine.unpause(self.id)
        self._paused = False

    async def stop(self, grace: float) -> ExitStatus:
        """End the process within ``grace`` seconds and remove every trace.

        Steps: 1. its stdin is closed; 2. after half the grace SIGTERM, after all of it SIGKILL; 3. the container is
        removed with its volumes, then its network attachment. Idempotent; a container that is gone already is no error.

        Raises:
            PlatformError: the engine stayed away; the watchdog removes the container when it is back.
        """
        with anyio.CancelScope(shield=True):
            async with self._stopping:
                if not self._removed:
                    self._status = await self._end(grace)
                    self._removed = True
                    self._scope.outcome("launch.stop", container=self.id, **_plain(self._status), **self._carried())
        return self._status

    async def _end(self, grace: float) -> ExitStatus:
        try:
            self._scope.intent("launch.stop", container=self.id, grace=grace)
        finally:  # ending a server is the safe direction: it happens also when it cannot be recorded
            try:
                ended = await self._leave(grace)
            finally:
                await self._release()
        return ended

    async def _leave(self, grace: float) -> ExitStatus:
        if grace > 0 and not self._exit.done():
            # 1. the end of input asks the server to leave
            await self._thaw()
            self._shut(socket.SHUT_WR)
            # 2. then signals
            if not await self._ended_within(grace * TERM_SHARE):
                with contextlib.suppress(PlatformError):  # it may end at this moment, or the engine be away
                    await self._engine.kill(self.id, "SIGTERM")
                await self._ended_within(grace * (1 - TERM_SHARE))
        # 3. removal ends what still runs, with SIGKILL; an engine whose client does not read waits for it for ever
        self._shut(socket.SHUT_RDWR)
        await self._remove()
        with anyio.move_on_after(ENGINE_TIMEOUT):
            outcome = await asyncio.shield(self._exit)
            if isinstance(outcome, ExitStatus):
                return outcome
        return ExitStatus(-1, error="the engine did not say how it ended")

    async def _thaw(self) -> None:
        if self._paused:
            with contextlib.suppress(PlatformError):  # SIGKILL works on frozen processes as well
                await self.unpause()

    def _shut(self, how: int) -> None:
        if self.stream is not None and self.stream.fileno() >= 0:
            with contextlib.suppress(OSError):  # the engine's side may be closed already
                self.stream.shutdown(how)

    async def _ended_within(self, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            await asyncio.shield(self._exit)
            return True
        return False

    async def _remove(self) -> None:
        """Remove the container, asking again while the engine is away or removing it itself."""
        deadline = time.monotonic() + REMOVAL_SECONDS
        while True:
            try:
                await self._engine.remove(self.id)
            except PlatformError:
                if time.monotonic() > deadline:
                    raise
                await anyio.sleep(REMOVAL_PAUSE)
            else:
                return

    async def _release(self) -> None:
        self._forget(self.id)
        self._expiry.cancel()
        if self._sampling is not None:
            self._sampling.cancel()
        if self._network is not None:
            self._network.cancel()
        if self._attachment is not None:
            await self._attachment.close()

    async def _watch_exit(self) -> ExitStatus | PlatformError:
        """Wait for the end; errors are a value, so that an instance nobody waits for does not warn."""
        try:
            answer = await self._engine.wait(self.id)
        except PlatformError as error:
            return error
        code = int(answer.get("StatusCode", -1))
        reason = (answer.get("Error") or {}).get("Message") or ""
        try:
            state = (await self._engine.inspect(self.id)).get("State") or {}
        except PlatformError:
            state = {}  # removed at this moment: then nobody asked for more than the status
        return ExitStatus(code, bool(state.get("OOMKilled")), str(reason or state.get("Error") or ""))

    async def _watch_network(self, attachment: NetworkAttachment) -> None:
        """End a server whose way out is gone for good: it would go on, deaf, and nobody would be told why."""
        self._lost = await attachment.until_lost()
        try:
            self._scope.fact("launch.lost", container=self.id, error=self._lost.id, why=self._lost.message[:MAX_WHY])
        except AuditUnavailable:
            pass  # what cannot be recorded is often the cause; ending the server is the safe direction
        finally:
            with contextlib.suppress(PlatformError):  # it ended at this moment, or the engine is away
                await self._engine.kill(self.id, "SIGKILL")

    async def _sample(self) -> None:
        """Record figures now and then, for metrics."""
        scope = self._scope.within(instance=self.id)
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            with contextlib.suppress(
                PlatformError, AuditUnavailable
            ):  # it ended at this moment, or nothing is recorded
                scope.fact("instance.usage", usage=asdict(await self.usage()))

    async def _expire(self) -> None:
        await asyncio.sleep(self.plan.limits.lifetime)
        self._scope.fact("launch.expired", container=self.id, lifetime=self.plan.limits.lifetime)
        with contextlib.suppress(PlatformError):  # it ended at this moment, or the engine is away: then wait() tells
            await self._engine.kill(self.id, "SIGKILL")


def _plain(status: ExitStatus) -> dict[str, object]:
    return {"code": status.code, "oom_killed": status.oom_killed, "error": status.error}
