"""What egress costs: a direct bridge, this broker and HAProxy, on the same server and client, in one run.

    python benchmarks/egress.py [--rounds 5] [--json benchmarks/results/egress.json]

The three ways are interleaved, so that a slow moment of the machine meets all of them; medians over the rounds are what
to quote. Goals: round trip at most 2.5 times the direct bridge, 1 GB/s one way, a policy attached within 5 ms, holder
and broker within 40 MB together, and a sandbox with egress (from a pooled holder) starting no slower than one without.
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

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sandbox.events import Scope, Trace
from sandbox.launch import owner
from sandbox.launch.docker import DockerBackend
from sandbox.launch.egress.provider import EgressProvider
from sandbox.launch.interface import LABEL_ROLE, LABEL_RUN
from sandbox.plan.model import NetworkPlan
from sandbox.policy.hosts import parse_rules
from sandbox.testing.memory import MemoryRecorder
from sandbox.testing.plans import baseline_plan
from tests.conftest import ENGINE_SOCKET
from tests.egress_lab import ALLOWED_CIDRS, PEERS, PYTHON, Lab, Stream, image, laboratory
from tests.peer_image import peer_image

LOAD = (PEERS / "load.py").read_text()
RULES = ("tcp://services.test:7001,7002,7003",)
HAPROXY = """
global
    maxconn 4000
defaults
    mode tcp
    timeout connect 5s
    timeout client 60s
    timeout server 60s
{}
"""
SECTION = "listen p{0}\n    bind *:{0}\n    server s {1}:{0}\n"


def scope() -> Scope:
    """Return a scope that records to memory."""
    return Scope(MemoryRecorder(), Trace.new())


def network(*rules: str) -> NetworkPlan:
    """Return a network plan."""
    return NetworkPlan("broker", parse_rules(rules), ALLOWED_CIDRS) if rules else NetworkPlan()


async def measured(lab: Lab, mode: str, host: str) -> dict[str, Any]:
    """Run the client once in a network and return what it measured."""
    body = lab.body(image("python"), [PYTHON, "-c", LOAD, "measure", host], {"NetworkMode": mode})
    del body["HostConfig"]["Sysctls"]
    container, _ = await lab.engine.create(body, f"egress-bench-{os.urandom(4).hex()}")
    sock = await lab.engine.attach(container)
    try:
        await lab.engine.start(container)
        return await Stream(sock).line()
    finally:
        sock.close()
        await lab.engine.remove(container)


async def ways(lab: Lab, provider: EgressProvider) -> dict[str, tuple[str, str]]:
    """Return way → network mode and host name to measure."""
    await lab.host("load", image("python"), ["-c", LOAD, "serve"], lab.services)
    sections = "".join(SECTION.format(port, lab.services) for port in (7001, 7002, 7003))
    config = HAPROXY.format(sections)
    script = f"cat >/tmp/h.cfg <<'X'\n{config}X\nexec haproxy -q -f /tmp/h.cfg"
    body = lab.body(peer_image(), ["/usr/bin/sh", "-c", script], {"NetworkMode": lab.net})
    body["NetworkingConfig"] = {"EndpointsConfig": {lab.net: {"IPAMConfig": {"IPv4Address": lab.at(7)}}}}
    await lab.container("haproxy", body)
    attachment = await provider.attach(baseline_plan(network=network(*RULES)), scope(), provider.run_id)
    await asyncio.sleep(2)
    return {
        "bridge": (lab.net, lab.services),
        "broker": (attachment.network_mode, "services.test"),
        "haproxy": (lab.net, lab.at(7)),
    }


async def attaching(provider: EgressProvider, count: int) -> list[float]:
    """Return milliseconds to attach a policy to holders that are ready."""
    await provider.warm(count)
    await asyncio.sleep(2)
    times = []
    for _ in range(count):
        plan = baseline_plan(network=network("a.test", "b.test:22"))
        began = time.perf_counter()
        attachment = await provider.attach(plan, scope(), provider.run_id)
        times.append((time.perf_counter() - began) * 1e3)
        await attachment.close()
    return times


async def memory(lab: Lab, provider: EgressProvider) -> dict[str, float]:
    """Return resident megabytes of one holder and the broker."""
    found = {}
    for row in await lab.engine.labelled("containers", f"{LABEL_RUN}={provider.run_id}"):
        pid = (await lab.engine.inspect(row["Id"]))["State"]["Pid"]
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()  # noqa: ASYNC240 - a benchmark
        kib = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
        found[row["Labels"][LABEL_ROLE]] = round(kib * 1024 / 1e6, 1)
    return found


async def starting(lab: Lab, rounds: int) -> dict[str, list[float]]:
    """Return milliseconds to a server's first answer, without egress and with it from a pooled holder, interleaved."""
    run_id = owner.new_run_id()
    provider = await lab.provider(run_id, spare=0)
    backend = DockerBackend(ENGINE_SOCKET, run_id, provider)
    times: dict[str, list[float]] = {"none": [], "egress": []}
    program = (PEERS / "prober.py").read_text()
    try:
        for _ in range(rounds):
            for name, rules in (("none", ()), ("egress", ("a.test",))):
                await provider.warm()
                await asyncio.sleep(0.5)
                plan = baseline_plan(
                    image_id=image("python"), argv=(PYTHON, "-c", program), network=network(*rules), seccomp="net"
                )
                began = time.perf_counter()
                instance = await backend.launch(plan, scope(), {})
                assert instance.stream is not None
                stream = Stream(instance.stream)
                await stream.send("1+1")
                await stream.line()
                times[name].append((time.perf_counter() - began) * 1e3)
                await instance.stop(0)
                instance.stream.close()
    finally:
        await backend.close()
    return times


def medians(rounds: list[Any]) -> Any:
    """Return the median of each figure over the rounds."""
    first = rounds[0]
    if isinstance(first, dict):
        return {key: medians([each[key] for each in rounds]) for key in first}
    return round(statistics.median(rounds), 2)


async def run(count: int) -> dict[str, Any]:
    """Return all results."""
    async with laboratory(slot=96) as lab:
        provider = await lab.provider(owner.new_run_id(), spare=0)
        try:
            measurements: dict[str, list[Any]] = {}
            found = await ways(lab, provider)
            for mode, host in found.values():
                await measured(lab, mode, host)  # warm
            for _ in range(count):
                for name, (mode, host) in found.items():
                    measurements.setdefault(name, []).append(await measured(lab, mode, host))
            result: dict[str, Any] = {"ways": {name: medians(rounds) for name, rounds in measurements.items()}}
            result["megabytes"] = await memory(lab, provider)
            result["attach_ms"] = round(statistics.median(await attaching(provider, 9)), 2)
        finally:
            await provider.close()
        starts = await starting(lab, count)
        result["start_ms"] = {name: round(statistics.median(values)) for name, values in starts.items()}
    return result


def report(result: dict[str, Any]) -> None:
    """Print a table for people."""
    bridge = result["ways"]["bridge"]
    print(
        f"{'':10}{'rtt µs':>9}{'x':>6}{'16: µs':>9}{'256: µs':>9}{'256: /s':>10}"
        f"{'first ms':>10}{'MB/s':>8}{'both MB/s':>11}"
    )
    for name, way in result["ways"].items():
        factor = way["rtt_1"]["p50"] / bridge["rtt_1"]["p50"]
        print(
            f"{name:10}{way['rtt_1']['p50']:>9.0f}{factor:>6.2f}{way['rtt_16']['p50']:>9.0f}{way['rtt_256']['p50']:>9.0f}"
            f"{way['rtt_256']['rate']:>10.0f}{way['first_byte']['p50']:>10.2f}{way['one_way']:>8.0f}{way['both_ways']:>11.0f}"
        )
    print(f"attach {result['attach_ms']} ms; memory {result['megabytes']} MB; start {result['start_ms']} ms")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    result = asyncio.run(run(options.rounds))
    result["machine"] = {"cpus": os.cpu_count(), "kernel": platform.release(), "load": os.getloadavg()}
    report(result)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
