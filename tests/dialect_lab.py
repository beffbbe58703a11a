"""The gateway of :mod:`tests.gateway_lab`, speaking the 2025-11 dialect too, with its jobs in a file of the test's."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx2
import orjson

from sandbox.cli.gateway.dialect import Dialect, speaking
from sandbox.dialect.bounds import MAX_MESSAGE, JobBounds
from sandbox.serve.http.app import App
from sandbox.serve.ratelimit import Rate
from tests.gateway_lab import Lab, Server, lab

OPEN, CLOSED, ALL = "/mcp/open/2025-11", "/mcp/closed/2025-11", "/mcp/2025-11"
EVERYTHING = ("async", "stream", "sandbox", "schema_ref", "code_exec", "registry")


def shake(transport: str = "http", version: str = "2025-11", **more: Any) -> dict[str, Any]:
    """Return a handshake."""
    return {
        "version": version, "client_id": "tests", "server_id": "", "transport": transport,
        "capabilities": list(EVERYTHING), **more,
    }  # fmt: skip


def invocation(session: str | None = None, tool: str = "tool", mode: str = "sync", **arguments: Any) -> dict[str, Any]:
    """Return a request."""
    body = {"request_id": str(uuid.uuid4()), "tool_id": tool, "arguments": arguments, "mode": mode}
    return {**body, "session": session} if session else body


async def until(condition: Callable[[], bool]) -> None:
    """Return when something holds; fail when it does not in time."""
    async with asyncio.timeout(15):
        while not condition():  # noqa: ASYNC110 - of a server in memory, which has no event for it
            await asyncio.sleep(0.01)


class DialectLab:
    """A gateway that speaks the dialect, as its clients see it."""

    def __init__(self, stage: Lab) -> None:
        self.stage = stage

    async def send(
        self, method: str, path: str, body: Any = None, token: str = "", headers: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        """Send one request; a body that is no bytes goes as JSON."""
        sent = dict(headers or {})
        if token:
            sent["authorization"] = f"Bearer {token}"
        if body is not None:
            sent.setdefault("content-type", "application/json")
            body = body if isinstance(body, bytes) else orjson.dumps(body)
        return await self.stage.client.request(method, self.stage.url + path, content=body, headers=sent)

    async def session(self, base: str = OPEN, token: str = "", **more: Any) -> str:
        """Shake hands and return the session."""
        answer = await self.send("POST", base + "/handshake", shake(**more), token)
        return str(answer.json()["session"])

    async def invoke(self, base: str = OPEN, token: str = "", session: str = "", **more: Any) -> httpx2.Response:
        """Call the tool in a session, a fresh one by default."""
        session = session or await self.session(base, token)
        return await self.send("POST", base + "/invoke", invocation(session, **more), token)

    async def ended(self, job: str, base: str = OPEN, token: str = "") -> dict[str, Any]:
        """Poll a job until it has ended."""
        async with asyncio.timeout(20):
            while True:
                said = (await self.send("GET", f"{base}/jobs/{job}", token=token)).json()
                if said["status"] != "in_progress":
                    return dict(said)
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def dialect_lab(
    folder: Path, server: Server | None = None, jobs: JobBounds | None = None, **more: Any
) -> AsyncIterator[DialectLab]:
    """Open a gateway that speaks the dialect."""

    def speaks(app: App) -> Any:
        known = Dialect(
            "com.example", folder / "jobs.sqlite", Rate(1000, 1000), lambda name: name != "closed",
            bounds=jobs or JobBounds(),
        )  # fmt: skip
        return speaking(app, known)

    async with lab(server, speaks=speaks, sockets=MAX_MESSAGE, **more) as stage:
        yield DialectLab(stage)
