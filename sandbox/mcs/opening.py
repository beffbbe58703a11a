"""Opens one sandbox for a driver: the flow of ``run``, with a socket pair where its stdin and stdout are.

 1. the settings become the arguments of ``run``, read by its own parser, so that no default differs
 2. a trail is opened; without one nothing starts
 3. review, plan, launch, read-back, vetting: :func:`sandbox.cli.bench.bench` and :func:`sandbox.supervisor.open_server`
 4. the session that serves a client of ``run`` serves one end of the pair; the other end is ours

The only module here that knows the command line's wiring.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio

from sandbox.cli import run
from sandbox.cli.approved import opening
from sandbox.cli.bench import bench
from sandbox.cli.evidence import trail
from sandbox.cli.progress import quiet_progress
from sandbox.errors import Refused, SandboxError, ServerFault
from sandbox.limits import DRAIN_GRACE
from sandbox.mcs.client import Client
from sandbox.mcs.settings import DriverSettings
from sandbox.supervisor import open_server
from sandbox.supervisor.admission import LiveServer
from sandbox.transport.descriptors import take
from sandbox.transport.stdio import StdioChannel, open_pair
from sandbox.vet.bind import RESULT_KEY, is_wrapped


@dataclass(frozen=True, slots=True)
class Opened:
    """One vetted server in its container, with a client of it.

    Attributes:
        client: of the session.
        live: the server.
        serving: ends when the session does, with the fault that ended it.
    """

    client: Client
    live: LiveServer
    serving: asyncio.Task[int]

    def value_of(self, tool: str, structured: Any) -> Any:
        """Return the contract's value of structured content: MCP wraps what is no object."""
        exposed = self.live.exposure.tools.get(tool)
        wrapped = exposed is not None and is_wrapped(exposed.binding.contract)
        return structured[RESULT_KEY] if wrapped else structured

    async def usage(self) -> dict[str, Any]:
        """Return the container's figures."""
        figures = await self.live.instance.usage()
        return {name: getattr(figures, name) for name in figures.__slots__}

    async def wait_over(self) -> SandboxError:
        """Return why the session ended by itself."""
        await asyncio.wait((self.serving,))
        error = None if self.serving.cancelled() else self.serving.exception()
        if isinstance(error, SandboxError):
            return error
        return ServerFault("MCS-007", "the session ended", "see the audit trail, and start it again")


Opener = Callable[[], AbstractAsyncContextManager[Opened]]
"""Opens a sandbox for as long as its context lasts."""


def arguments_of(settings: DriverSettings) -> argparse.Namespace:
    """Return the arguments of ``run`` (step 1)."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    run.add_arguments(parser)
    return parser.parse_args(settings.argv())


@asynccontextmanager
async def opened(settings: DriverSettings) -> AsyncIterator[Opened]:
    """Open the sandbox of one driver.

    Raises:
        Refused: ``MCS-015``, the folder is not the one that was pinned.
        SandboxError: as ``run``.
    """
    arguments = arguments_of(settings)  # 1
    with trail(arguments) as recorder:  # 2
        async with bench(arguments, recorder, quiet_progress()) as ready:  # 3
            if settings.digest and ready.spec.digest != settings.digest:
                message = f"{ready.spec.file} has the digest {ready.spec.digest}, not {settings.digest}"
                raise Refused("MCS-015", message, "review what changed, then correct `digest`")
            chosen = opening(arguments)
            async with (
                open_server(ready.backend, ready.spec, ready.plan, ready.scope, ready.secrets, chosen) as live,
                _served(live, ready, arguments) as both,
            ):
                yield both


@asynccontextmanager
async def _served(live: LiveServer, ready: Any, arguments: argparse.Namespace) -> AsyncIterator[Opened]:
    """Serve one end of a socket pair, and be the client at the other (step 4)."""
    from sandbox.cli.serving import serve  # noqa: PLC0415 - heavy, and imported beside the engine's work

    ours, theirs = socket.socketpair()
    channel = await _channel(theirs)
    serving = asyncio.create_task(serve(live, ready, arguments, channel))
    client: Client | None = None
    try:
        client = await _connected(ours, serving)
        yield Opened(client, live, serving)
    finally:
        with anyio.CancelScope(shield=True):
            if client is not None:
                await client.close()
            await asyncio.wait((serving,), timeout=DRAIN_GRACE)
            serving.cancel()
            with contextlib.suppress(BaseException):  # told by wait_over, or the end that was asked for
                await serving


async def _channel(theirs: socket.socket) -> StdioChannel:
    theirs.setblocking(False)
    with theirs:
        return await open_pair(take(theirs.fileno(), os.O_RDONLY), take(theirs.fileno(), os.O_WRONLY))


async def _connected(ours: socket.socket, serving: asyncio.Task[int]) -> Client:
    """Return the client; when the session fails first, raise what it failed with."""
    connecting = asyncio.create_task(Client.connect(ours))
    await asyncio.wait((connecting, serving), return_when=asyncio.FIRST_COMPLETED)
    if not connecting.done():
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
        serving.result()
    return connecting.result()
