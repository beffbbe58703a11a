"""``mcp-sandbox serve`` in front of real containers: two tenants with tokens, both eras, SIGTERM, and what is left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from sandbox.limits import MIB
from sandbox.resources import shipped
from tests.engine.drivers import COMMAND, give
from tests.gateway_lab import Issuing
from tests.shared import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.timeout(240)]


@pytest.fixture
def issuer() -> Iterator[tuple[Issuing, str]]:
    """An issuer whose metadata and keys are on loopback."""
    made = Issuing()

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = f"http://127.0.0.1:{self.server.server_port}"  # type: ignore[attr-defined]
            described = {"issuer": url, "jwks_uri": f"{url}/keys"}
            found = {"/keys": made.jwks(), "/.well-known/oauth-authorization-server": described}.get(self.path)
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write(json.dumps(found or {}).encode())

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield made, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@dataclass
class Served:
    """A gateway in a process of its own."""

    url: str
    process: asyncio.subprocess.Process
    audit: Path
    tenants: Path
    scratch: Path

    async def reloaded(self) -> str:
        """Have it reload, and return what it says of that."""
        assert self.process.stderr is not None
        self.process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(60):
            while b"reloaded" not in (line := await self.process.stderr.readline()):
                assert line
        return line.decode()


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def gateway(scratch: Path, issuer_url: str) -> AsyncIterator[Served]:
    """Serve two drivers: one with a folder for each tenant, one for everybody."""
    drivers, tenants = scratch / "drivers", scratch / "tenants"
    for name in ("memory-mcp", "text-mcp"):
        shutil.copytree(ROOT / "drivers" / name, drivers / name)
    for tenant in ("acme", "beta"):
        (tenants / tenant).mkdir(parents=True)
        give(tenants / tenant)
    config = scratch / "gateway.toml"
    config.write_text(
        f'[[issuer]]\nurl = "{issuer_url}"\n[driver.memory-mcp]\nroot = {{ "/data" = "{tenants}/{{tenant}}" }}\n'
        '[driver.text-mcp]\nauth = "none"\n'
    )
    rules = scratch / "rules"
    rules.mkdir()
    shutil.copy(shipped("policies", "starter.cedar"), rules)
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "serve", str(drivers), "--listen", f"127.0.0.1:{port}", "--config", str(config),
        "--rules", str(rules), "--audit-dir", str(scratch / "audit"), stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    said = b""
    try:
        async with asyncio.timeout(120):
            while b"/mcp/text-mcp serves" not in said:
                line = await process.stderr.readline()
                assert line, said.decode()
                said += line
        yield Served(f"http://127.0.0.1:{port}", process, scratch / "audit", tenants, scratch)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.wait(), 60)


@contextlib.asynccontextmanager
async def client(served: Served, path: str, token: str, mode: str) -> AsyncIterator[Client]:
    """Connect the Python SDK's client with a token."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(headers=headers, timeout=90, trust_env=False) as http:
        transport = streamable_http_client(served.url + path, http_client=http)
        async with Client(transport, mode=mode) as made:  # type: ignore[arg-type]
            yield made


def containers() -> set[str]:
    """Return the names of every container of ours."""
    listed = subprocess.run(
        ["docker", "ps", "-a", "--filter", "label=io.mcp-sandbox.run", "--format", "{{.Names}}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(listed.stdout.split())


async def settled(served: Served, wanted: int) -> set[str]:
    """Return the containers of a gateway, when so many are left: what is retired takes its time."""
    async with asyncio.timeout(60):
        while wanted < len(running := launched(served.audit) & containers()):  # noqa: ASYNC110 - the engine has no event of ours
            await asyncio.sleep(0.1)
    return running


@pytest.mark.claim("P-GATE-07")
async def test_tenants_with_tokens_share_nothing_and_nothing_is_left(
    tmp_path: Path, issuer: tuple[Issuing, str]
) -> None:
    """What one tenant stores another does not find; containers are one each; SIGTERM leaves nothing but the trail."""
    signing, issuer_url = issuer
    entity = {"name": "Rosebud", "entityType": "word", "observations": ["of acme"]}
    async with gateway(tmp_path, issuer_url) as served:

        def token(tenant: str) -> str:
            return signing.token(served.url + "/mcp/memory-mcp", iss=issuer_url, tenant=tenant)

        graphs = {}
        async with client(served, "/mcp/memory-mcp", token("acme"), "legacy") as acme:
            made = await acme.call_tool("mem-create-entities", {"entities": [entity]})
            graphs["acme"] = (await acme.call_tool("mem-read-graph", {})).model_dump_json()
        async with client(served, "/mcp/memory-mcp", token("beta"), "2026-07-28") as beta:
            graphs["beta"] = (await beta.call_tool("mem-read-graph", {})).model_dump_json()
        async with client(served, "/mcp", "", "auto") as stranger:
            names = [tool.name for tool in (await stranger.list_tools()).tools]
            crc = await stranger.call_tool("text-mcp__text-crc32", {"text": "123456789"})
        async with client(served, "/mcp/text-mcp", "", "legacy") as session:
            told = [await reloads(served, session) for reloads in (driver_changed, rule_added)]
        running = await settled(served, 3)
        served.process.send_signal(signal.SIGTERM)
        status = await asyncio.wait_for(served.process.wait(), 60)

    assert not made.is_error
    assert "Rosebud" in graphs["acme"]
    assert "Rosebud" not in graphs["beta"]
    assert names
    assert all(name.startswith("text-mcp__") for name in names)
    assert "cbf43926" in crc.model_dump_json()
    assert 0 == status
    assert [("changed text-mcp", True), ("rules is new", False)] == told
    own = launched(served.audit)
    assert 3 == len(running), "one of each tenant; that of the driver's earlier version has ended"
    assert not own & containers()
    assert 0 == verify(served.audit)


async def driver_changed(served: Served, session: Client) -> tuple[str, bool]:
    """Give a driver another limit while a session is open; return what the gateway says, and whether calls go on."""
    before = memory_limits()
    manifest = served.scratch / "drivers" / "text-mcp" / "DRIVER.md"
    manifest.write_text(manifest.read_text().replace("memory_mb: 32", "memory_mb: 53"))
    told = await served.reloaded()
    found = await session.call_tool("text-crc32", {"text": "123456789"})
    assert 53 * MIB not in before
    assert 53 * MIB in memory_limits()
    return told.split("reloaded: ")[1].strip(), "cbf43926" in found.model_dump_json()


async def rule_added(served: Served, session: Client) -> tuple[str, bool]:
    """Forbid a tool while a session is open; return what the gateway says, and whether it can still be called."""
    rule = '@id("stop")\n@reason("a test")\nforbid (principal, action == Action::"tools/call", resource is Tool);\n'
    (served.scratch / "rules" / "stop.cedar").write_text(rule)
    told = await served.reloaded()
    found = await session.call_tool("text-crc32", {"text": "123456789"})
    return told.split("reloaded: ")[1].strip(), not found.is_error


def memory_limits() -> set[int]:
    """Return the memory limits of the containers of ours that run, in bytes."""
    names = sorted(containers())
    asked = ["docker", "inspect", "--format", "{{.HostConfig.Memory}}", *names]
    return {int(line) for line in subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()}


def launched(audit: Path) -> set[str]:
    """Return the names of the containers that the trail speaks of."""
    text = "".join(path.read_text() for path in audit.rglob("*.jsonl"))
    return set(re.findall(r'"container_name":"([^"]+)"', text))


def verify(audit: Path) -> int:
    """Return the status of ``audit verify``."""
    done = subprocess.run([*COMMAND, "audit", "verify", "--audit-dir", str(audit)], capture_output=True, check=False)
    return done.returncode
