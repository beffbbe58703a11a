"""`serve` as a process over an entity alone: its register has a history, and follows what changes; no engine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from sandbox.registry.project import OFFICIAL
from tests.unit.registry.test_history import git
from tests.unit.registry.test_kno_driver import CONTRACT, values

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
NAME = "local.mcp-sandbox%2Fweather-mcp"


def write(folder: Path, version: str, **changes: Any) -> None:
    """Write the entity at a version; its server is never reached here."""
    open_ = {"visibility": "public", "auth": "none", "required_scopes": [], "_history": None}
    text = yaml.safe_dump(values(version=version, **{**open_, **changes}), sort_keys=False)
    fresh = folder / "entity.new"
    fresh.write_text(text)
    fresh.replace(folder / "weather.kno")


def drivers_of(place: Path) -> Path:
    """Return a folder of drivers in a work tree; the entity is at its second version, and that is not committed."""
    folder = place / "drivers" / "weather-mcp"
    (folder / "tools" / "forecast").mkdir(parents=True)
    (folder / "tools" / "forecast" / "TOOL.md").write_text(CONTRACT)
    git(folder.parent, "init", "-q", "-b", "main")
    write(folder, "1.0.0")
    git(folder.parent, "add", "-A")
    git(folder.parent, "commit", "-q", "-m", "x")
    write(folder, "1.1.0")
    return folder.parent


@contextlib.asynccontextmanager
async def serving(place: Path, drivers: Path) -> AsyncIterator[str]:
    """Serve, and give the address that the gateway says."""
    own = {name: str(place / name.lower()) for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sandbox", "serve", str(drivers), "--listen", "127.0.0.1:0",
        "--audit-dir", str(place / "audit"), stderr=asyncio.subprocess.PIPE, env={**os.environ, **own},
    )  # fmt: skip
    assert process.stderr is not None
    said = b""
    try:
        async with asyncio.timeout(120):
            while b"/mcp/admin serves weather-mcp to everybody" not in said:
                line = await process.stderr.readline()
                assert line, said.decode()
                said += line
        yield said.split(b"/mcp/admin serves")[0].split()[-1].decode()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.wait(), 60)


async def listed(http: httpx2.AsyncClient, url: str, more: str = "") -> list[tuple[str, str]]:
    """Return versions and statuses of the server."""
    answer = await http.get(f"{url}/v0.1/servers/{NAME}/versions{more}")
    found = answer.json().get("servers", [])
    return [(one["server"]["version"], one["_meta"][OFFICIAL]["status"]) for one in found]


async def test_the_register_of_a_running_gateway_remembers_and_follows(tmp_path: Path) -> None:
    """Git's version and the served one at first; a change while it runs; a later start that serves the first again."""
    drivers = drivers_of(tmp_path)
    async with httpx2.AsyncClient(trust_env=False) as http:
        async with serving(tmp_path, drivers) as url:
            first = await listed(http, url)
            told = (await http.get(f"{url}/v0.1/servers")).json()["servers"]
            write(drivers / "weather-mcp", "2.0.0", description="Another server.")
            async with asyncio.timeout(60):
                while (changed := await listed(http, url))[0][0] != "2.0.0":  # noqa: ASYNC110 - it looks at its files
                    await asyncio.sleep(0.2)
        write(drivers / "weather-mcp", "1.0.0")
        async with serving(tmp_path, drivers) as url:
            back = await listed(http, url, "?include_deleted=true")
            shown = await listed(http, url)

    assert [("1.1.0", "active"), ("1.0.0", "deprecated")] == first
    assert {f"{url.rpartition(':')[0]}"} == {one["server"]["remotes"][0]["url"].rpartition(":")[0] for one in told}
    assert "weather.example" not in str(told)
    assert [("2.0.0", "active"), ("1.1.0", "deprecated"), ("1.0.0", "deprecated")] == changed
    assert [("2.0.0", "deleted"), ("1.1.0", "deleted"), ("1.0.0", "active")] == back
    assert [("1.0.0", "active")] == shown
