"""What tenants cost: hand-out of a warm instance, a cold start, and how much memory idle instances take.

    python benchmarks/pool.py [--driver FOLDER] [--tenants 9] [--idle 20] [--json benchmarks/results/pool.json]

Each tenant's first answer is timed from the lease to the result of a call, once with a warm instance on the shelf and
once without. Goal: warm ≤ 80 ms. Idle instances are counted until the pool refuses for the host's sake, or ``--idle``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from sandbox.cli.approved import opening as options_of
from sandbox.cli.bench import Bench, bench, run_async
from sandbox.cli.evidence import trail
from sandbox.errors import CallRefused
from sandbox.supervisor.bounds import PoolBounds
from sandbox.supervisor.headroom import read_host
from sandbox.supervisor.held import Served
from sandbox.supervisor.opening import opening
from sandbox.supervisor.pool import Instances
from sandbox.tenant import TenantId

ROOT = Path(__file__).resolve().parent.parent
MEGABYTE = 1 << 20
GOAL_MS = 80.0


def namespace(driver: Path, audit: Path) -> argparse.Namespace:
    """Return the arguments of a `run` of a driver."""
    return argparse.Namespace(
        driver=driver, root=[], memory=None, runtime="", policy=None, audit_dir=audit, rules=None, names="contract",
        tenant="local", user="",
    )  # fmt: skip


async def first_answer(pool: Instances, ready: Bench, tenant: str, call: tuple[str, dict[str, Any]]) -> float:
    """Return milliseconds from the lease to the answer of a tenant's first call."""
    started = time.perf_counter()
    async with pool.lease(ready.spec.id, TenantId(tenant)) as lease:
        await lease.request("tools/call", {"name": call[0], "arguments": call[1]}, timeout=60)
    return (time.perf_counter() - started) * 1e3


async def timed(ready: Bench, chosen: argparse.Namespace, *, warm: int) -> list[float]:
    """Return the first answers of some tenants, one after the other."""
    times = []
    bounds = PoolBounds(warm=warm, idle=3600)
    start = opening(ready.backend, ready.scope, options_of(chosen.run))
    async with Instances(start, ready.scope, bounds) as pool:
        pool.add(Served(ready.spec, lambda _tenant: ready.plan))
        for number in range(chosen.tenants):
            while warm and pool.figures()["warm"] < warm:  # noqa: ASYNC110 - the pool has no event for this
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.3 if warm else 0)  # the shelf is full, and its last instance is frozen
            times.append(await first_answer(pool, ready, f"t{number}", chosen.call))
    return times


async def idle(ready: Bench, chosen: argparse.Namespace) -> dict[str, Any]:
    """Start idle instances for one tenant each, and return how many there were and what they took."""
    before, count, refused = read_host().available, 0, ""
    start = opening(ready.backend, ready.scope, options_of(chosen.run))
    began = time.perf_counter()
    async with Instances(start, ready.scope, PoolBounds(idle=3600)) as pool:
        pool.add(Served(ready.spec, lambda _tenant: ready.plan))
        try:
            while count < chosen.idle:
                await first_answer(pool, ready, f"idle-{count}", chosen.call)
                count += 1
        except CallRefused as refusal:
            refused = refusal.id
        took = before - read_host().available
        seconds = time.perf_counter() - began
    return {
        "instances": count,
        "refused": refused,
        "mib_each_on_host": round(took / MEGABYTE / max(1, count), 1),
        "seconds": round(seconds, 1),
    }


async def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """Measure everything with one engine."""
    with trail(chosen.run) as recorder:
        async with bench(chosen.run, recorder) as ready:
            warm = await timed(ready, chosen, warm=1)
            cold = await timed(ready, chosen, warm=0)
            return {"warm_ms": warm, "cold_ms": cold, "idle": await idle(ready, chosen)}


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driver", type=Path, default=ROOT / "drivers" / "everything-mcp")
    parser.add_argument("--tenants", type=int, default=9)
    parser.add_argument("--idle", type=int, default=20)
    parser.add_argument("--audit", type=Path, default=ROOT / ".cache" / "bench-audit")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    chosen.run = namespace(chosen.driver, chosen.audit)
    chosen.call = ("echo", {"message": "hi"})
    found = run_async(lambda: measure(chosen))
    result = {
        "warm_p50_ms": round(statistics.median(found["warm_ms"]), 1),
        "warm_worst_ms": round(max(found["warm_ms"]), 1),
        "cold_p50_ms": round(statistics.median(found["cold_ms"]), 1),
        "goal_ms": GOAL_MS,
        "idle": found["idle"],
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "kernel": platform.release()},
    }
    print(json.dumps(result, indent=1))
    if chosen.json:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if result["warm_p50_ms"] <= GOAL_MS else 1)


if __name__ == "__main__":
    main()
