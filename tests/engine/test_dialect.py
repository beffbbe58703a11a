"""The 2025-11 dialect on stdio in front of a real server in a real container."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.dialect_lab import invocation, shake
from tests.engine.drivers import COMMAND
from tests.engine.test_serve import free_port
from tests.gateway_lab import EVENTS
from tests.lasting_lab import answer_of, said
from tests.shared import ROOT


@pytest.mark.timeout(120)
def test_a_tool_in_a_container_is_called_through_pipes_and_as_a_job(tmp_path: Path) -> None:
    """Handshake, a call, a refused argument, a job with its pushed outcome, and an orderly end with the client's."""
    command = [
        sys.executable, "-m", "sandbox", "run", str(ROOT / "drivers" / "time-mcp" / "DRIVER.md"),
        "--dialect", "2025-11", "--audit-dir", str(tmp_path / "audit"), "--jobs", str(tmp_path / "jobs"),
    ]  # fmt: skip
    asked = [
        shake("stdio", server_id="time-mcp"),
        invocation(tool="time-now", timezone="UTC"),
        invocation(tool="time-now", timezone="; rm"),
        invocation(tool="time-now", mode="async", timezone="UTC"),
    ]
    heard = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for one in asked:
            process.stdin.write(json.dumps(one) + "\n")
            process.stdin.flush()
            heard.append(json.loads(process.stdout.readline()))
        pushed = json.loads(process.stdout.readline())
        process.stdin.close()
        ended = process.wait(30)

    assert ["async", "stream", "sandbox", "schema_ref"] == heard[0]["capabilities"]
    assert ("success", "UTC") == (heard[1]["status"], heard[1]["result"]["timezone"])
    assert "CALL-001" == heard[2]["error"]["id"]
    assert (heard[3]["job_id"], "success", "UTC") == (pushed["job_id"], pushed["status"], pushed["result"]["timezone"])
    assert 0 == ended


@pytest.mark.anyio
@pytest.mark.timeout(240)
async def test_a_call_of_a_tool_in_a_container_becomes_a_task(tmp_path: Path) -> None:
    """`task-after` of gateway.toml: the call goes on in its container, and another process knows its task."""
    shutil.copytree(ROOT / "drivers" / "time-mcp", tmp_path / "drivers" / "time-mcp")
    (tmp_path / "gateway.toml").write_text("[limits]\ntask-after = 0.0001\n")
    async with httpx2.AsyncClient(timeout=60, trust_env=False) as client:
        first, url = await serving(tmp_path)
        try:
            params = {"name": "time-now", "arguments": {"timezone": "UTC"}}
            made = (await ask(client, url, "tools/call", params))["result"]
            name = {"taskId": made["taskId"]}
            async with asyncio.timeout(60):
                while (done := await ask(client, url, "tasks/get", name))["result"]["status"] == "working":  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
        finally:
            await ending(first)
        second, url = await serving(tmp_path)
        try:
            again = await ask(client, url, "tasks/get", name)
        finally:
            await ending(second)

    assert ("task", "completed") == (made["resultType"], done["result"]["status"])
    assert "UTC" == done["result"]["result"]["structuredContent"]["timezone"]
    assert done["result"]["result"] == again["result"]["result"]


async def serving(folder: Path) -> tuple[asyncio.subprocess.Process, str]:
    """Serve the drivers of a folder, with its jobs; return the process and the address of the endpoint."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "serve", str(folder / "drivers"), "--config", str(folder / "gateway.toml"), "--unsafe-tenant", "me",
        "--listen", f"127.0.0.1:{port}", "--dialect", "2025-11", "--jobs", str(folder / "jobs.sqlite"),
        "--audit-dir", str(folder / "audit"), stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    async with asyncio.timeout(120):
        while b"time-mcp/2025-11/ speaks" not in (line := await process.stderr.readline()):
            assert line
    return process, f"http://127.0.0.1:{port}/mcp/time-mcp"


async def ending(process: asyncio.subprocess.Process) -> None:
    """End a gateway in an orderly way."""
    process.terminate()
    await asyncio.wait_for(process.wait(), 60)


async def ask(client: httpx2.AsyncClient, url: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Send one request that declares the extension and return its answer."""
    body, fields = said(method, params)
    headers = {**EVENTS, **{name.replace("_", "-"): value for name, value in fields.items()}}
    return answer_of(await client.post(url, json=body, headers=headers))
