"""What the whole call pipeline costs, step by step and in one, on the real objects and with a real ledger's cost apart.

    python benchmarks/calls.py [--rounds 3000] [--json benchmarks/results/calls.json]

Twenty rules, a tool with a path, a URI, a text and injected context, as in ``benchmarks/policy.py``, whose rules and
arguments this uses. The server is a function that answers at once, so that what is measured is ours alone. Goal: p50 of
a call with everything but durable evidence ≤ 0.25 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from policy import GOAL_US, INPUTS, rules

from sandbox.audit.recorder import open_recorder
from sandbox.events import Fact, Recorder, Scope, Trace
from sandbox.policy.cedar import PolicySet
from sandbox.policy.hosts import parse_rules
from sandbox.serve.calls import BoundTool, Caller, Collaborators, Pipeline
from sandbox.serve.decide import CedarDecider
from sandbox.serve.guard import ContextInjector, ToolGuard
from sandbox.serve.paths import Roots
from sandbox.serve.ratelimit import Buckets, Rate, RateLimiter
from sandbox.serve.redact import Redactor
from sandbox.serve.results import ResultCleaner
from sandbox.serve.uris import UriRules, egress_of
from sandbox.spec.model import Binding, DriverSpec, NpmServer, Origin, ToolContract
from sandbox.supervisor.fair import Gate
from sandbox.tenant import TenantContext, TenantId
from sandbox.vet.bind import bind
from sandbox.vet.model import Exposure, ServerSurface

HERE = Origin(file="TOOL.md")
RULES = UriRules(Roots(["/workspace", "/tmp"]), "/workspace", (), egress_of(parse_rules(["api.example.com"])))
RESULT = {"content": [{"type": "text", "text": "line of text\n" * 80}]}
CALLER = Caller(TenantContext(TenantId("t3"), "alice"))


class Nowhere:
    """A recorder that keeps nothing: what evidence costs is measured apart."""

    def record(self, fact: Fact) -> None:
        """Drop it."""


def exposed() -> tuple[DriverSpec, Exposure]:
    """Return a driver of one tool and what it exposes."""
    contract = ToolContract(
        id="edit", name="Edit", description="d", version="1.0.0", inputs=INPUTS, outputs={"type": "string"},
        origin=HERE, digest="sha256:0",
    )  # fmt: skip
    context = {"tenant_id": "tenant.id", "user_id": "user.sub"}
    binding = Binding(contract=contract, version_range="^1", tool_name="edit", origin=HERE, context=context)
    spec = DriverSpec(
        folder="/d", file="DRIVER.md", digest="sha256:0", id="files", name="D", description="d", version="1.0.0",
        server=NpmServer(kind="npm", package="x"), transport="stdio", bindings=(binding,),
    )  # fmt: skip
    surface = ServerSurface("handshake", "2025-11-25", {}, {}, tools={"edit": {"name": "edit", "inputSchema": {}}})
    return spec, bind(spec, surface)


def pipeline(*without: str) -> Pipeline:
    """Return the pipeline without some of its steps."""
    spec, exposure = exposed()
    decider = CedarDecider(PolicySet.load([("rules.cedar", rules())]), spec, exposure)
    limiter = RateLimiter(Buckets(Rate(1e9, 10**9)), Gate(), time.monotonic)
    cleaner = ResultCleaner(RULES, Redactor({f"k{i}": f"secret-{i:030}" for i in range(5)}))

    class Anything:
        def decide_call(self, *_: Any) -> tuple[str, ...]:
            return ("any",)

    def equip(bound: BoundTool) -> BoundTool:
        bound.guard = None if "guard" in without else ToolGuard(bound.tool.binding, RULES)
        bound.injector = None if "context" in without else ContextInjector(bound.tool.binding)
        return bound

    parts = Collaborators(
        Anything() if "policy" in without else decider,
        None if "rate" in without else limiter,
        None if "cleaning" in without else cleaner,
    )
    return Pipeline(exposure, parts, equip)


async def forward(_name: str, _sent: dict[str, Any]) -> Mapping[str, Any]:
    """Be a server that answers at once."""
    return RESULT


def arguments(index: int) -> dict[str, Any]:
    """Return the arguments of one call; no two alike, so that nothing is remembered."""
    path, edits = f"/workspace/src/module_{index}.py", [{"old": "x" * 40} for _ in range(10)]
    return {"path": path, "source": "https://api.example.com/v1/x?q=1", "text": "y" * 2000, "edits": edits}


Call = Callable[[int], Awaitable[None]]


def caller(made: Pipeline, recorder: Recorder) -> Call:
    """Return one call of a pipeline."""
    scope = Scope(recorder, Trace.new(), "files", "t3", "i")

    async def call(index: int) -> None:
        result = await made.call("edit", arguments(index), CALLER, scope.child(), forward)
        if result["isError"]:
            raise AssertionError(f"the benchmark's call is allowed: {result}")

    return call


async def measure(calls: Mapping[str, Call], rounds: int) -> dict[str, dict[str, float]]:
    """Return p50 and p99 of wall time and p50 of processor time of each, in microseconds; the calls take turns."""
    wall: dict[str, list[int]] = {name: [] for name in calls}
    used: dict[str, list[int]] = {name: [] for name in calls}
    for index in range(-300, rounds):
        for name, call in calls.items():
            started, before = time.perf_counter_ns(), time.thread_time_ns()
            await call(index)
            if index >= 0:
                used[name].append(time.thread_time_ns() - before)
                wall[name].append(time.perf_counter_ns() - started)
    found = {}
    for name in calls:
        ordered, cpu = sorted(wall[name]), sorted(used[name])
        p50, p99 = ordered[rounds // 2] / 1000, ordered[int(rounds * 0.99)] / 1000
        found[name] = {"p50": p50, "p99": p99, "cpu_p50": cpu[rounds // 2] / 1000}
    return found


async def run(rounds: int) -> dict[str, dict[str, float]]:
    """Measure the whole, the whole without each step, and the whole with a real ledger."""
    nowhere = Nowhere()
    without = {
        "whole": (),
        "8 policy, 20 rules": ("policy",),
        "9 rate, gate": ("rate",),
        "11 injection": ("context",),
        "13 cleaning, 5 secrets": ("cleaning",),
        "6+7 and 8": ("policy", "guard"),
        "5, 11, 13 contract in and out, shapes": ("policy", "guard", "rate", "context", "cleaning"),
    }
    with tempfile.TemporaryDirectory() as folder:
        recorder = open_recorder(Path(folder), "bench")
        try:
            calls = {name: caller(pipeline(*parts), nowhere) for name, parts in without.items()}
            calls["whole, with the ledger (10, 14)"] = caller(pipeline(), recorder)
            found = await measure(calls, rounds)
        finally:
            recorder.close()
    whole, rest = found["whole"], "5, 11, 13 contract in and out, shapes"
    steps = {
        name: {key: whole[key] - less[key] for key in whole}
        for name, less in found.items()
        if without.get(name) and name != rest
    }
    return {
        "whole": whole,
        **steps,
        rest: found[rest],
        "whole, with the ledger (10, 14)": found["whole, with the ledger (10, 14)"],
    }


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    found = asyncio.run(run(chosen.rounds))
    print(f"{'step (numbers of docs/calls.md)':<44} {'p50 us':>9} {'p99 us':>9} {'cpu p50':>9}")
    for name, one in found.items():
        print(f"{name:<44} {one['p50']:9.1f} {one['p99']:9.1f} {one['cpu_p50']:9.1f}")
    met = found["whole"]["p50"] <= GOAL_US
    result = {
        "us": {name: {key: round(value, 1) for key, value in one.items()} for name, one in found.items()},
        "goal_p50_us": GOAL_US,
        "met": met,
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "kernel": platform.release()},
    }
    print(json.dumps({"goal_p50_us": GOAL_US, "met": met}))
    if chosen.json:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
