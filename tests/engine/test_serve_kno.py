"""An entity alone, whole: a remote server that only a ``.kno`` file names is served, told of, installed and probed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.engine.drivers import COMMAND
from tests.engine.test_serve import free_port
from tests.remote_lab import ADDRESS, TOOL, Served, network, policy, sdk_server
from tests.unit.gateway.test_register_clients import Editor
from tests.unit.registry.test_history import git

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.timeout(180)]


def entity(served: Served, version: str) -> str:
    """Return an entity that names a server."""
    values: dict[str, Any] = {
        "$schema": "kno@0.0.9", "id": "01KMQRYG4M0XS5HZ2KQAPF3A09", "slug": "pspace-echo-mcp", "title": "Echo",
        "type": "service-config", "subtype": "mcp-server", "version": version, "endpoint_path": "/mcp/echo",
        "description": "Says what it hears.", "required_scopes": [], "visibility": "public", "auth": "none",
        "remotes": [{"type": "streamable-http", "url": served.url}],
        "_meta": {"local.mcp-sandbox/tools": {"echo": "remote-echo"}},
    }  # fmt: skip
    return yaml.safe_dump(values, sort_keys=False)


def folder_of(place: Path, served: Served) -> Path:
    """Return a folder of drivers in a work tree: one entity, at its second version."""
    made = place / "drivers" / "echo-mcp"
    (made / "tools" / "echo").mkdir(parents=True)
    (made / "tools" / "echo" / "TOOL.md").write_text(TOOL)
    git(made.parent, "init", "-q", "-b", "main")
    for day, version in enumerate(("1.0.0", "1.1.0"), 1):
        (made / "echo.kno").write_text(entity(served, version))
        git(made.parent, "add", "-A")
        git(made.parent, "commit", "-q", "-m", version, day=day)
    return made.parent


@asynccontextmanager
async def gateway(scratch: Path, drivers: Path, own_policy: Path) -> AsyncIterator[str]:
    """Serve a folder, and give the gateway's address."""
    url = f"http://127.0.0.1:{free_port()}"
    own = {name: str(scratch / name.lower()) for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")}
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "serve", str(drivers), "--listen", url.removeprefix("http://"), "--policy", str(own_policy),
        "--audit-dir", str(scratch / "audit"), stderr=asyncio.subprocess.PIPE, env={**os.environ, **own},
    )  # fmt: skip
    assert process.stderr is not None
    said = b""
    try:
        async with asyncio.timeout(60):
            while b"/mcp/echo serves" not in said:
                line = await process.stderr.readline()
                assert line, said.decode()
                said += line
        yield url
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.wait(), 60)


async def probed(place: Path, url: str) -> tuple[int | None, str]:
    """Return what `kno lint --probe` says of a folder."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "kno", "lint", str(place), "--probe", url, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return process.returncode, out.decode()


async def test_an_entity_alone_is_served_told_of_and_probed(tmp_path: Path) -> None:
    """The register lists its two versions, an editor installs the latest, the call arrives, the probe agrees."""
    with network(), sdk_server("http", tmp_path) as served:
        drivers = folder_of(tmp_path, served)
        own = policy(tmp_path, ca=str(served.pki.bundle) if served.pki else "", hosts=("198.51.100.0/24",))
        async with gateway(tmp_path, drivers, own) as url, httpx2.AsyncClient(trust_env=False) as http:
            editor = Editor(url, http.get)
            await editor.find()
            (found,) = await editor.list()
            versions = (await http.get(f"{editor.servers}/local.mcp-sandbox%2Fecho-mcp/versions")).json()
            async with asyncio.timeout(30), Client(streamable_http_client(editor.installed(found)["url"])) as client:
                tools = [tool.name for tool in (await client.list_tools()).tools]
                result = await client.call_tool("remote-echo", {"message": "hé"})
            honest = await probed(drivers, url)
            closed = tmp_path / "closed.kno"
            said = {"auth": "bearer", "visibility": "authenticated", "required_scopes": ["pspace:echo:read"]}
            closed.write_text(yaml.safe_dump({**yaml.safe_load(entity(served, "1.1.0")), **said}))
            lying = await probed(closed, url)

    listed = versions["servers"]
    assert ("1.1.0", "Echo", f"{url}/mcp/echo") == (found["version"], found["title"], found["remotes"][0]["url"])
    assert [("1.1.0", "active"), ("1.0.0", "deprecated")] == [
        (one["server"]["version"], one["_meta"]["io.modelcontextprotocol.registry/official"]["status"])
        for one in listed
    ]
    assert ADDRESS not in str(listed)
    assert ["remote-echo"] == tools
    assert "hé" in result.model_dump_json()
    assert (0, False) == (honest[0], "KNO-017" in honest[1]), honest[1]
    assert (1, True) == (lying[0], "KNO-017" in lying[1]), lying[1]
