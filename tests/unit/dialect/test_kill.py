"""A hundred jobs and a SIGKILL of the gateway that runs them, in real processes."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from sandbox.dialect.bounds import RUNNING_OF_TENANT
from tests.dialect_gateway import ANSWERED
from tests.dialect_lab import OPEN, invocation, shake, until
from tests.gateway_lab import EVENTS
from tests.lasting_lab import answer_of, said
from tests.shared import ROOT

pytestmark = pytest.mark.anyio

JOBS = 100


@contextlib.asynccontextmanager
async def gateway(folder: Path, kind: str) -> AsyncIterator[str]:
    """Start the gateway in a process of its own; kill it at the end. Yields its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.dialect_gateway", str(folder), kind, stdout=subprocess.PIPE, cwd=ROOT
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), 30)
        yield line.decode().strip()
    finally:
        process.kill()
        await process.wait()


async def take(client: httpx2.AsyncClient, url: str) -> dict[str, str]:
    """Ask for a hundred jobs; return their ids with the mark of each."""
    session = (await client.post(f"{url}{OPEN}/handshake", json=shake())).json()["session"]
    taken = {}
    for mark in range(JOBS):
        body = invocation(session, mode="async", slow=True, mark=str(mark))
        answer = await client.post(f"{url}{OPEN}/invoke", json=body)
        taken[answer.json()["job_id"]] = str(mark)
    return taken


async def outcome(client: httpx2.AsyncClient, url: str, job: str) -> str:
    """Poll a job to its end; return the mark of its result, or the id of its error."""
    while True:
        said = (await client.get(f"{url}{OPEN}/jobs/{job}")).json()
        if said["status"] != "in_progress":
            return str(said["result"]["mark"] if said["status"] == "success" else said["error"]["id"])
        await asyncio.sleep(0.2)


@pytest.mark.claim("P-DIA-01")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["once", "idempotent"])
async def test_a_hundred_jobs_survive_a_sigkill_of_the_gateway(tmp_path: Path, kind: str) -> None:
    """Every job has its own outcome afterwards; what may not be repeated was carried out at most once."""
    calls, held = tmp_path / "calls", ANSWERED + RUNNING_OF_TENANT
    async with httpx2.AsyncClient(timeout=20, trust_env=False) as client:
        async with gateway(tmp_path, kind) as url:
            jobs = await take(client, url)
            await until(lambda: calls.read_bytes().count(b"\n") == held)
        async with gateway(tmp_path, kind) as url, asyncio.timeout(60):
            found = await asyncio.gather(*(outcome(client, url, job) for job in jobs))
    marks, said = Counter(calls.read_text().split()), Counter(found)

    kept = [(mark, one) for mark, one in zip(jobs.values(), found, strict=True) if one != "DIA-014"]
    assert [mark for mark, _ in kept] == [one for _, one in kept]
    assert set(jobs.values()) == set(marks)
    if kind == "once":
        assert (RUNNING_OF_TENANT, {1}) == (said["DIA-014"], set(marks.values()))
    else:
        assert (0, RUNNING_OF_TENANT) == (said["DIA-014"], list(marks.values()).count(2))


@pytest.mark.claim("P-DIA-01")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["once", "idempotent"])
async def test_calls_that_became_tasks_survive_a_sigkill_of_the_gateway(tmp_path: Path, kind: str) -> None:
    """Each is there afterwards under its id: failed, since nobody knows, and called once; or called again and done."""
    calls = tmp_path / "calls"
    async with httpx2.AsyncClient(timeout=30, trust_env=False) as client:
        async with gateway(tmp_path, kind) as url:
            for mark in range(ANSWERED):
                await ask(client, url, "tools/call", {"name": "tool", "arguments": {"mark": f"before-{mark}"}})
            marks = [str(mark) for mark in range(RUNNING_OF_TENANT)]
            made = await asyncio.gather(
                *(ask(client, url, "tools/call", {"name": "tool", "arguments": {"mark": mark}}) for mark in marks)
            )
            told = {one["result"]["taskId"]: mark for one, mark in zip(made, marks, strict=True)}
        async with gateway(tmp_path, kind) as url, asyncio.timeout(60):
            found = {task: await task_of(client, url, task) for task in told}
    sent = Counter(calls.read_text().split())

    assert ["task"] * len(marks) == [one["result"]["resultType"] for one in made]
    if kind == "once":
        assert {("failed", "DIA-014")} == {(one["status"], one["error"]["data"]["id"]) for one in found.values()}
        assert {1} == {sent[mark] for mark in marks}
    else:
        assert list(told.values()) == [one["result"]["structuredContent"]["mark"] for one in found.values()]
        assert {2} == {sent[mark] for mark in marks}


async def ask(client: httpx2.AsyncClient, url: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Send one request that declares the extension and return its answer."""
    body, fields = said(method, params)
    headers = {**EVENTS, **{name.replace("_", "-"): value for name, value in fields.items()}}
    return answer_of(await client.post(f"{url}/mcp/open", json=body, headers=headers))


async def task_of(client: httpx2.AsyncClient, url: str, task: str) -> dict[str, Any]:
    """Poll a task to its end."""
    while True:
        found = (await ask(client, url, "tasks/get", {"taskId": task}))["result"]
        if found["status"] != "working":
            return dict(found)
        await asyncio.sleep(0.2)
