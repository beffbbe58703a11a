"""Two gateways of :mod:`tests.together_lab` that speak the 2025-11 dialect, each with a file of jobs of its own."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2

from sandbox.cli.gateway.dialect import Dialect, speaking
from sandbox.dialect.bounds import MAX_MESSAGE, JobBounds
from sandbox.dialect.jobs.model import Asked
from sandbox.dialect.registrations import SCOPE
from sandbox.serve.http.app import App
from sandbox.serve.identity.model import Identity, owner_of
from sandbox.serve.ratelimit import Rate
from sandbox.tenant import TenantContext, TenantId
from tests.dialect_lab import DialectLab
from tests.together_lab import Member, Options, together

FREE, HOME, ALL = "/mcp/open/2025-11", "/mcp/closed/2025-11", "/mcp/2025-11"
"""Below the endpoints of a driver that is declared stateless, of one that is not, and of both."""


class Pair:
    """Two gateways as a client sees them, and as they are."""

    def __init__(self, members: list[Member]) -> None:
        self.members = members
        self.one, self.other = (DialectLab(member) for member in members)
        self.server = members[0].server

    def token(self, tenant: str = "acme", **claims: Any) -> str:
        """Return a token for every endpoint of both."""
        return self.members[0].token(tenant=tenant, **claims)


@contextlib.asynccontextmanager
async def fleet(folder: Path, store: str = "", jobs: JobBounds | None = None, **more: Any) -> AsyncIterator[Pair]:
    """Open two gateways that speak the dialect, each with a file of jobs of its own."""

    def speaks(app: App, number: int) -> Any:
        file = folder / f"jobs-{number}.sqlite"
        known = Dialect(
            "com.example", file, Rate(1000, 1000), lambda _name: True, registry=True, bounds=jobs or JobBounds()
        )
        return speaking(app, known)

    options = Options(speaks=speaks, sockets=MAX_MESSAGE, **more)
    async with together(store or f"sqlite://{folder}/state.db", options=options) as members:
        yield Pair(members)


def error_of(answer: httpx2.Response) -> tuple[int, str]:
    """Return status and id of a refusal."""
    return answer.status_code, answer.json()["error"]["id"]


async def wait_ended(at: DialectLab, job: str, base: str, token: str) -> dict[str, Any]:
    """Poll a job, also while its gateway is away, until it has ended."""
    async with asyncio.timeout(60):
        while True:
            answer = await at.send("GET", f"{base}/jobs/{job}", token=token)
            if answer.status_code == 200 and answer.json()["status"] != "in_progress":
                return dict(answer.json())
            await asyncio.sleep(0.05)


def who(tenant: str = "acme", user: str = "alice") -> Identity:
    """Return somebody who may register servers."""
    owner = owner_of("issuer", tenant, user, "client")
    return Identity(TenantContext(TenantId(tenant), user), frozenset((SCOPE,)), owner)


def asked(identity: Identity | None = None) -> Asked:
    """Return a fresh request for a job."""
    given = identity or who(tenant=str(uuid.uuid4()))
    return Asked("dialect", str(uuid.uuid4()), "/mcp/x", "tool", given, {"arguments": {}}, "digest", 60.0)
