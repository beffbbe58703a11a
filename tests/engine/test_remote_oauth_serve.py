"""A gateway in front of a remote server that wants OAuth: each tenant has a login of its own, or none."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from mcp import MCPError

from tests.engine.drivers import COMMAND
from tests.engine.test_remote_oauth import Desk, desk_of, log_in
from tests.engine.test_serve import Issuing, Served, client, free_port, issuer
from tests.oauth_remote_lab import world
from tests.remote_lab import network

__all__ = ["issuer"]

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.timeout(280)]
PATH = "/mcp/remote-mcp"


@pytest.fixture(scope="module", autouse=True)
def _network() -> Iterator[None]:
    """An address of the documentation range."""
    with network():
        yield


@contextlib.asynccontextmanager
async def gateway(desk: Desk, issuer_url: str) -> AsyncIterator[Served]:
    """Serve the driver to tenants with tokens."""
    drivers, config = desk.scratch / "drivers", desk.scratch / "gateway.toml"
    drivers.mkdir()
    (drivers / "remote-mcp").symlink_to(desk.made)
    config.write_text(f'[[issuer]]\nurl = "{issuer_url}"\n')
    port, audit = free_port(), desk.scratch / "audit"
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "serve", str(drivers), "--listen", f"127.0.0.1:{port}", "--config", str(config),
        "--policy", str(desk.scratch / "policy.toml"), "--audit-dir", str(audit),
        stderr=asyncio.subprocess.PIPE, env={**os.environ, **desk.env},
    )  # fmt: skip
    assert process.stderr is not None
    said = b""
    try:
        async with asyncio.timeout(120):
            while f"{PATH} serves".encode() not in said:
                line = await process.stderr.readline()
                assert line, said.decode()
                said += line
        yield Served(f"http://127.0.0.1:{port}", process, audit, desk.scratch, desk.scratch)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.wait(), 60)


@pytest.mark.claim("P-OAU-16")
async def test_a_tenants_login_is_its_own(tmp_path: Path, issuer: tuple[Issuing, str]) -> None:
    """At a gateway a tenant without a login is refused, whoever else has one; with its own, its own token is sent."""
    signing, issuer_url = issuer
    with world(tmp_path) as found:
        desk = desk_of(tmp_path, found, {"scopes": ["echo:use"]})
        await asyncio.to_thread(log_in, desk, "--tenant", "acme")
        first = set(found.issuer.tokens)
        async with gateway(desk, issuer_url) as served:

            async def call(tenant: str) -> str:
                token = signing.token(served.url + PATH, iss=issuer_url, tenant=tenant)
                async with client(served, PATH, token, "2026-07-28") as session:
                    try:
                        return (await session.call_tool("remote-echo", {"message": "token"})).model_dump_json()
                    except MCPError as refusal:
                        return str(refusal)

            acme, beta = await call("acme"), await call("beta")
            sent = {one.headers.get("authorization", "")[7:] for one in found.server.requests} - {""}
            await asyncio.to_thread(log_in, desk, "--tenant", "beta")
            second = set(found.issuer.tokens) - first
            async with asyncio.timeout(90):
                while "you sent" not in (later := await call("beta")):  # noqa: ASYNC110 - the gateway waits after a failure
                    await asyncio.sleep(0.5)
            sent_later = {one.headers.get("authorization", "")[7:] for one in found.server.requests} - {"", *sent}

    assert "you sent [redacted" in acme
    assert "could not be started" in beta
    assert "OAU-001" in desk.trail()
    assert first == sent
    assert "you sent [redacted" in later
    assert second == sent_later
    assert not [one for one in found.issuer.secrets_given() if one in desk.trail() + acme + beta + later]
