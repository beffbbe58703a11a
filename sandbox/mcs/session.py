"""A sandbox that synchronous code can hold: it lives in a thread of its own and ends with whoever holds it.

The thread runs an event loop in which the whole flow lies: the engine's connection, the container, the session. What
synchronous callers ask for is sent there and waited for; asynchronous callers wait without blocking their own loop.

How it ends, whichever comes first:

1. ``close``, or the end of a ``with`` block;
2. nobody holds the object any more, or the interpreter ends: the same, by a finaliser;
3. the process is killed: the watchdog that outlives it removes every container by label (``sandbox.launch``).

Sandboxes of one process start one at a time: the libraries that a start stands on build their tables at first use and
are not all safe for threads there (msgspec crashes the interpreter when two threads meet a type for the first time).

A process that was forked from the holder has no such thread; what it asks for is refused (``MCS-008``).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import os
import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio

from sandbox.cli.bench import run_async
from sandbox.errors import SandboxError, UsageError
from sandbox.mcs.opening import Opened, Opener

T = TypeVar("T")

CLOSE_TIMEOUT: Final = 30.0
"""Seconds that ``close`` waits for the container's removal; the watchdog does it otherwise."""


_STARTS: Final = threading.Lock()


class Turn:
    """The turn of one start: begun when no other has it, ended once."""

    def __init__(self) -> None:
        self._held = _STARTS.acquire()

    def end(self) -> None:
        """Let the next one start; idempotent."""
        if self._held:
            self._held = False
            _STARTS.release()


class _Thread:
    """The thread of one sandbox; refers to nothing of its holder, so that the holder can be finalised."""

    def __init__(self, opener: Opener) -> None:
        self.ready: concurrent.futures.Future[Opened] = concurrent.futures.Future()
        self.fault: SandboxError | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        self._opener = opener
        self._scope: anyio.CancelScope | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mcp-sandbox-mcs", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the sandbox is there."""
        return self._thread.is_alive() and self.fault is None and not self._stopped.is_set()

    @property
    def failed(self) -> bool:
        """Whether there never was a sandbox; the next call tries again."""
        return self.ready.done() and self.ready.exception() is not None

    def stop(self) -> None:
        """End the sandbox and wait for it; idempotent, and nothing in a forked process."""
        if os.getpid() != self._pid:
            return
        self._stopped.set()
        loop = self.loop
        if loop is not None and not loop.is_closed():
            with contextlib.suppress(RuntimeError):  # it ended meanwhile
                loop.call_soon_threadsafe(self._cancel)
        if self._thread is not threading.current_thread():
            self._thread.join(CLOSE_TIMEOUT)

    def _cancel(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    def _run(self) -> None:
        turn = Turn()
        try:
            run_async(functools.partial(self._main, turn))
            self._give_up(UsageError("MCS-006", "the driver is closed", "make another one"))
        except SandboxError as error:
            self._give_up(error)
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits; there is nobody else to tell
            if not self.ready.done():
                self.ready.set_exception(error)
            self.fault = self.fault or UsageError("MCS-006", f"the driver broke: {error}", "make another one")
        finally:
            turn.end()

    def _give_up(self, error: SandboxError) -> None:
        self.fault = self.fault or error
        if not self.ready.done():
            self.ready.set_exception(error)

    async def _main(self, turn: Turn) -> None:
        self.loop = asyncio.get_running_loop()
        with anyio.CancelScope() as self._scope:
            if self._stopped.is_set():
                return
            async with self._opener() as found:
                turn.end()
                self.ready.set_result(found)
                self.fault = await found.wait_over()


class Session:
    """One sandbox, opened when it is first needed.

    Args:
        opener: opens it.
    """

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._thread: _Thread | None = None
        self._finalizer: weakref.finalize[[], Session] | None = None
        self._closed = False

    @property
    def state(self) -> str:
        """``new``, ``starting``, ``open``, ``ended`` (by itself) or ``closed``."""
        if self._closed:
            return "closed"
        if self._thread is None:
            return "new"
        if not self._thread.alive:
            return "ended"
        return "open" if self._thread.ready.done() else "starting"

    @property
    def fault(self) -> SandboxError | None:
        """Why it ended by itself."""
        return self._thread.fault if self._thread is not None else None

    def open(self) -> Opened:
        """Return the sandbox, after starting it if there is none; one that ended is started anew.

        Raises:
            UsageError: ``MCS-006``, closed; ``MCS-008``, in a forked process.
            SandboxError: it cannot be planned, started or vetted.
        """
        return self._started(anew=True).ready.result()

    def call(self, work: Callable[[Opened], Awaitable[T]]) -> T:
        """Return what work gives in the sandbox's loop; an interrupted caller cancels it.

        Raises:
            SandboxError: as :meth:`open`; or why the sandbox ended.
        """
        future = self._submit(work)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise self.fault or UsageError("MCS-006", "the driver was closed meanwhile", "make another one") from None
        except BaseException:
            future.cancel()
            raise

    async def acall(self, work: Callable[[Opened], Awaitable[T]]) -> T:
        """Do the same without blocking the caller's loop; a cancelled caller cancels the work."""
        await asyncio.get_running_loop().run_in_executor(None, self._submit_ready)
        return await asyncio.wrap_future(self._submit(work))

    def close(self) -> None:
        """End the sandbox and remove everything of it; idempotent."""
        with self._lock:
            self._closed = True
            if self._finalizer is not None and os.getpid() == self._pid:
                self._finalizer()

    def _submit_ready(self) -> None:
        self._started(anew=False).ready.result()

    def _submit(self, work: Callable[[Opened], Awaitable[T]]) -> concurrent.futures.Future[T]:
        thread = self._started(anew=False)
        found = thread.ready.result()
        loop = thread.loop
        if thread.fault is not None or loop is None or loop.is_closed():
            raise thread.fault or UsageError("MCS-006", "the driver is closed", "make another one")

        async def carried() -> T:
            return await work(found)

        return asyncio.run_coroutine_threadsafe(carried(), loop)

    def _started(self, *, anew: bool) -> _Thread:
        if os.getpid() != self._pid:
            raise UsageError("MCS-008", "this process was forked from the driver's", "make the driver after forking")
        with self._lock:
            if self._closed:
                raise UsageError("MCS-006", "the driver is closed", "make another one")
            if self._thread is None or self._thread.failed or (anew and not self._thread.alive):
                self._thread = _Thread(self._opener)
                self._finalizer = weakref.finalize(self, self._thread.stop)
            return self._thread
