"""Instances by tenant in real containers: nothing of one tenant is found by another, and nothing is left."""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sandbox.cli.approved import opening as options_of
from sandbox.cli.bench import bench
from sandbox.launch.docker import DockerBackend
from sandbox.launch.interface import LABEL_RUN
from sandbox.supervisor.bounds import PoolBounds
from sandbox.supervisor.held import Served
from sandbox.supervisor.opening import opening
from sandbox.supervisor.pool import Instances
from sandbox.tenant import TenantId
from sandbox.testing.memory import MemoryRecorder
from tests.shared import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.timeout(180)]
COUNT = re.compile(r"thoughtHistoryLength\\*['\"]: (\d+)")
THOUGHT = {"nextThoughtNeeded": True, "thoughtNumber": 1, "totalThoughts": 3}


@pytest.fixture
def arguments(tmp_path: Path) -> argparse.Namespace:
    """Return what `run` of a server that remembers is given."""
    return argparse.Namespace(
        driver=ROOT / "drivers" / "sequential-thinking-mcp", root=[], memory=None, runtime="", policy=None,
        audit_dir=tmp_path, rules=None, names="contract", tenant="local", user="",
    )  # fmt: skip


async def think(pool: Instances, tenant: str, thought: str) -> str:
    """Tell a tenant's server one thought and return what it says."""
    arguments: dict[str, Any] = {**THOUGHT, "thought": thought}
    async with pool.lease("sequential-thinking-mcp", TenantId(tenant)) as lease:
        params = {"name": "sequentialthinking", "arguments": arguments}
        return str(await lease.request("tools/call", params, timeout=60))


def containers(run: str) -> list[str]:
    """Return the containers of a run that are left."""
    argv = ["docker", "ps", "-aq", "--filter", f"label={LABEL_RUN}={run}"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.claim("P-TENANT-03")
@pytest.mark.parametrize("warm", [0, 1])
async def test_what_one_tenant_leaves_another_does_not_find(warm: int, arguments: argparse.Namespace) -> None:
    """T03: the server counts its thoughts; a tenant's third is its third, another's first its first, warm or cold."""
    recorder = MemoryRecorder()
    async with bench(arguments, recorder) as ready:
        start = opening(ready.backend, ready.scope, options_of(arguments))
        assert isinstance(ready.backend, DockerBackend)
        run = ready.backend.run_id
        async with Instances(start, ready.scope, PoolBounds(warm=warm)) as pool:
            pool.add(Served(ready.spec, lambda _tenant: ready.plan))
            mine = [await think(pool, "a", f"secret of a {number}") for number in range(3)]
            other = await think(pool, "b", "first of b")
        listed = await asyncio.to_thread(containers, run)

    assert [1, 2, 3, 1] == [int(COUNT.findall(said)[0]) for said in (*mine, other)]
    owners = {fact.instance: fact.tenant for fact in recorder.facts if fact.name == "pool.bind"}
    assert {"a", "b"} == set(owners.values())
    assert [] == listed
