"""``kind: remote`` against servers of the Python SDK over TLS: both transports, both eras, the whole flow."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from sandbox.events import Scope, Trace
from sandbox.testing.memory import MemoryRecorder
from sandbox.transport.peer import ServerPeer
from sandbox.transport.remote.opening import open_remote
from tests.engine.drivers import COMMAND
from tests.remote_lab import ADDRESS, command, driver, network, plan_of, policy, sdk_server

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.timeout(180)]

KEY = "c4nary-remote-key"


@pytest.fixture(scope="module", autouse=True)
def _network() -> Iterator[None]:
    """An address of the documentation range."""
    with network():
        yield


@pytest.mark.parametrize(
    ("kind", "version"),
    [("http", ""), ("http", "2025-11-25"), ("http", "2025-06-18"), ("http", "2025-03-26"), ("sse", "2024-11-05")],
)
async def test_every_version_over_every_transport(kind: str, version: str, tmp_path: Path) -> None:
    """Tools, results, progress, server requests and list changes arrive, whatever the server speaks."""
    recorder = MemoryRecorder()
    scope = Scope(recorder, Trace.new())
    heard: list[str] = []
    with sdk_server(kind, tmp_path) as served:
        assert served.pki is not None
        rule = f"{ADDRESS}:{served.port}"
        plan = plan_of(served.url, rule, transport=kind, authorities=(str(served.pki.bundle),))
        peer = await ServerPeer.connect(
            open_remote(plan, {}, scope),
            client_info={"name": "test", "version": "1"},
            capabilities={},
            scope=scope,
            protocol_version=version,
            roots=[{"uri": "file:///a", "name": "a"}],
        )
        peer.on_notification = lambda method, _: heard.append(method)
        steps: list[dict[str, Any]] = []

        async def call(name: str, **arguments: Any) -> str:
            asked = {"name": name, "arguments": arguments}
            answer = await peer.request("tools/call", asked, timeout=20, on_progress=steps.append)
            return str(answer["content"][0]["text"])

        tools = await peer.list_all("tools/list")
        answers = [
            await call("echo", message="hé\r\n"),
            await call("progress"),
            await call("roots"),
            await call("change"),
        ]
        async with asyncio.timeout(20):
            while "notifications/tools/list_changed" not in heard:  # noqa: ASYNC110 - it comes on another stream
                await asyncio.sleep(0.05)
        await peer.close()

    assert 11 == len(tools)
    assert ["hé\r\n", "done", "file:///a", "changed"] == answers
    assert [1, 2, 3] == [step["progress"] for step in steps]
    assert peer.protocol_version == (version or "2026-07-28")
    intents, outcomes = (
        [fact.attrs["flow"] for fact in recorder.named("egress.connect") if fact.phase == phase]
        for phase in ("intent", "outcome")
    )
    assert sorted(intents) == sorted(outcomes), "every connection has its outcome"
    if kind == "http" and version:
        assert served.seen(method="DELETE"), "the session is ended"
        assert all("mcp-session-id" in one for one in served.requests[2:])
    if kind == "http" and not version:
        assert served.seen(**{"mcp-method": "tools/call", "mcp-name": "echo", "mcp-protocol-version": "2026-07-28"})
        assert not any("mcp-session-id" in one for one in served.requests)


@pytest.mark.parametrize("kind", ["http", "sse"])
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_client_uses_a_remote_server_through_run(kind: str, mode: str, tmp_path: Path) -> None:
    """`mcp-sandbox run` serves a stdio client of either era from a remote server, under its contract."""
    with sdk_server(kind, tmp_path) as served:
        made = driver(tmp_path, served.url, f"{ADDRESS}:{served.port}", transport=kind)
        own = policy(tmp_path, ca=str(served.pki.bundle) if served.pki else "", hosts=("198.51.100.0/24",))
        argv = [*COMMAND, "run", str(made), "--policy", str(own), "--audit-dir", str(tmp_path / "audit")]
        parameters = StdioServerParameters(command=argv[0], args=argv[1:], env=dict(os.environ))
        async with Client(stdio_client(parameters), mode=mode) as client:  # type: ignore[arg-type]
            tools = [tool.name for tool in (await client.list_tools()).tools]
            result = await client.call_tool("remote-echo", {"message": "hi"})

    assert ["remote-echo"] == tools
    assert "hi" in result.model_dump_json()


def trail(folder: Path) -> str:
    """Return every record of the audit trail."""
    return "".join(path.read_text() for path in sorted((folder / "audit" / "segments").glob("*.jsonl")))


def test_a_secret_goes_to_the_server_and_into_no_record(tmp_path: Path) -> None:
    """The header reaches the server; plan, trail, output and errors never have its value."""
    with sdk_server("http", tmp_path) as served:
        headers = {"Authorization": "Bearer ${secrets.API_KEY}"}
        made = driver(tmp_path, served.url, f"{ADDRESS}:{served.port}", headers=headers)
        policy(tmp_path, ca=str(served.pki.bundle) if served.pki else "", hosts=("198.51.100.0/24",))
        call = ("remote-echo", "--args", json.dumps({"message": "hi"}))
        done = command("call", made, tmp_path, *call, env={"API_KEY": KEY})
        shown = command("plan", made, tmp_path, "--json", env={"API_KEY": KEY})

    assert (0, "hi\n") == (done.returncode, done.stdout), done.stderr
    assert {f"Bearer {KEY}"} == {one.get("authorization") for one in served.requests}
    assert 0 == shown.returncode, shown.stderr
    assert KEY not in done.stdout + done.stderr + shown.stdout + shown.stderr + trail(tmp_path)
    assert '"egress.connect"' in trail(tmp_path)
    assert [{"name": "Authorization", "value": "Bearer ", "secret": "api-key"}] == json.loads(shown.stdout)["headers"]


def test_an_unknown_authority_is_refused(tmp_path: Path) -> None:
    """Without the operator's authority the same server is not spoken to, and no request reaches it."""
    with sdk_server("http", tmp_path) as served:
        made = driver(tmp_path, served.url, f"{ADDRESS}:{served.port}")
        policy(tmp_path, hosts=("198.51.100.0/24",))
        done = command("tools", made, tmp_path)

    assert 4 == done.returncode
    assert "EGR-127" in done.stderr
    assert not served.requests


def test_plain_http_needs_the_operator(tmp_path: Path) -> None:
    """Plain HTTP is refused with the line that would allow it for this host; with it, it works and is audited."""
    with sdk_server("http", tmp_path, tls=False) as served:
        made = driver(tmp_path, served.url, f"http://{ADDRESS}:{served.port}")
        policy(tmp_path, hosts=("198.51.100.0/24",))
        refused = command("tools", made, tmp_path)
        policy(tmp_path, hosts=("198.51.100.0/24",), unsafe=("unsafe_plain_http:198.51.100.162",))
        other = command("tools", made, tmp_path)
        policy(tmp_path, hosts=("198.51.100.0/24",), unsafe=(f"unsafe_plain_http:{ADDRESS}",))
        allowed = command("tools", made, tmp_path)

    assert (3, 3) == (refused.returncode, other.returncode)
    assert "PLAN-062" in refused.stderr
    assert f"unsafe_plain_http:{ADDRESS}" in refused.stderr
    assert 0 == allowed.returncode, allowed.stderr
    assert f"unsafe_plain_http:{ADDRESS}" in trail(tmp_path)


def test_an_address_that_is_not_public_needs_the_operator(tmp_path: Path) -> None:
    """A reviewed rule alone does not open a private network."""
    with sdk_server("http", tmp_path) as served:
        made = driver(tmp_path, served.url, f"{ADDRESS}:{served.port}")
        own = policy(tmp_path, ca=str(served.pki.bundle) if served.pki else "", hosts=("198.51.100.0/24",))
        own.write_text(own.read_text().replace('[[egress.private]]\ncidr = "198.51.100.0/24"\nreason = "test"\n', ""))
        done = command("tools", made, tmp_path)

    assert 3 == done.returncode
    assert "EGR-113" in done.stderr
    assert not served.requests


def test_no_engine_is_needed(tmp_path: Path) -> None:
    """A remote server is used on a host without a container engine."""
    with sdk_server("http", tmp_path) as served:
        made = driver(tmp_path, served.url, f"{ADDRESS}:{served.port}")
        policy(tmp_path, ca=str(served.pki.bundle) if served.pki else "", hosts=("198.51.100.0/24",))
        done = command("tools", made, tmp_path, env={"DOCKER_HOST": "unix:///nonexistent.sock"})

    assert 0 == done.returncode, done.stderr
    assert "remote-echo" in done.stdout
