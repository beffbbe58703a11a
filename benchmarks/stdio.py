"""What the sandbox costs on stdio: direct, `docker run -i` and `mcp-sandbox run`, on the same server, in one run.

    python benchmarks/stdio.py [--calls 2000] [--starts 9] [--json benchmarks/results/stdio.json]

The runs are interleaved, so that a slow moment of the machine meets all three. Medians are what to quote. Goals, as
differences to `docker run -i` of the same image: start ≤ +150 ms, call p50 ≤ +0.15 ms, p99 ≤ +0.5 ms, supervisor ≤ 80
MB.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parent))
from client import Client

ROOT = Path(__file__).resolve().parent.parent
DRIVER = ROOT / "drivers" / "everything-mcp"
MEGABYTE = 1_000_000


def quantile(values: list[float], q: float) -> float:
    """Return the q-quantile by rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * q))]


def plan_of(command: str) -> dict[str, Any]:
    """Return the plan of the benchmark's driver."""
    out = subprocess.run([command, "plan", str(DRIVER), "--json"], check=True, capture_output=True).stdout
    plan: dict[str, Any] = json.loads(out)
    return plan


def unpacked(image: str, into: Path) -> None:
    """Copy the image's file system to the host, so that the direct run is of the very same files."""
    container = subprocess.run(
        ["docker", "create", image, "x"], check=True, capture_output=True, text=True
    ).stdout.strip()
    try:
        with subprocess.Popen(["docker", "export", container], stdout=subprocess.PIPE) as export:
            subprocess.run(["tar", "-x", "-C", str(into)], stdin=export.stdout, check=True)
    finally:
        subprocess.run(["docker", "rm", container], check=True, capture_output=True)


def direct_argv(plan: dict[str, Any], root: Path) -> list[str]:
    """Return the argv that runs the same server on the host, from the unpacked image."""
    return [str(root) + part if part.startswith("/") and (root / part[1:]).exists() else part for part in plan["argv"]]


def docker_argv(plan: dict[str, Any]) -> list[str]:
    """Return the `docker run -i` that a careful person would write for the same image."""
    return [
        *("docker", "run", "-i", "--rm", "--network", "none", "--log-driver", "none", "--read-only", "--tmpfs", "/tmp"),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--init", "--user", plan["user"]),
        *("--memory", str(plan["limits"]["memory_bytes"]), "--memory-swap", str(plan["limits"]["memory_bytes"])),
        *("--pids-limit", str(plan["limits"]["pids"]), "--cpus", str(plan["limits"]["cpus"])),
        *("--entrypoint", plan["argv"][0], plan["image_id"], *plan["argv"][1:]),
    ]


def measure(argv: list[str], tool: str, calls: int) -> dict[str, float]:
    """Return the figures of one process."""
    client = Client(argv)
    client.open()
    first = (time.perf_counter() - client.started) * 1e3
    small = {"name": tool, "arguments": {"message": "hello"}}
    for _ in range(200):
        client.request("tools/call", small)
    times = []
    for _ in range(calls):
        before = time.perf_counter()
        client.request("tools/call", small)
        times.append((time.perf_counter() - before) * 1e3)
    big = {"name": tool, "arguments": {"message": "x" * MEGABYTE}}
    large = []
    for _ in range(12):
        before = time.perf_counter()
        client.request("tools/call", big)
        large.append((time.perf_counter() - before) * 1e3)
    figures = {
        "first_tools_list_ms": first,
        "call_p50_ms": quantile(times, 0.5),
        "call_p99_ms": quantile(times, 0.99),
        "calls_per_s_1": client.pipelined("tools/call", small, calls, 1),
        "calls_per_s_16": client.pipelined("tools/call", small, calls, 16),
        "megabyte_echo_p50_ms": quantile(large, 0.5),
        "rss_mb": psutil.Process(client.process.pid).memory_info().rss / MEGABYTE,
    }
    client.close()
    return figures


def starts(argv: list[str]) -> float:
    """Return milliseconds from process start to the first tools/list."""
    client = Client(argv)
    client.open()
    elapsed = (time.perf_counter() - client.started) * 1e3
    client.close()
    return elapsed


def help_ms(command: str) -> float:
    """Return the median milliseconds of `--help`."""
    times = []
    for _ in range(7):
        before = time.perf_counter()
        subprocess.run([command, "--help"], check=True, capture_output=True)
        times.append((time.perf_counter() - before) * 1e3)
    return statistics.median(times)


def run(command: str, calls: int, rounds: int) -> dict[str, Any]:
    """Measure all three, interleaved, and return the medians."""
    plan = plan_of(command)
    with tempfile.TemporaryDirectory() as folder:
        unpacked(plan["image_id"], Path(folder))
        ways: dict[str, tuple[list[str], str]] = {
            "direct": (direct_argv(plan, Path(folder)), "echo"),
            "docker run -i": (docker_argv(plan), "echo"),
            "mcp-sandbox run": ([command, "run", str(DRIVER)], "demo-echo"),
        }
        first: dict[str, list[float]] = {name: [] for name in ways}
        figures: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, (argv, _tool) in ways.items():
                first[name].append(starts(argv))
        for _ in range(3):
            for name, (argv, tool) in ways.items():
                figures[name].append(measure(argv, tool, calls))
    result: dict[str, Any] = {
        name: {key: statistics.median(one[key] for one in figures[name]) for key in figures[name][0]} for name in ways
    }
    for name in ways:
        result[name]["first_tools_list_ms"] = statistics.median(first[name])
    return {"help_ms": help_ms(command), "ways": result}


def table(result: dict[str, Any]) -> str:
    """Return the figures as a Markdown table with the differences to `docker run -i`."""
    ways = result["ways"]
    base, ours = ways["docker run -i"], ways["mcp-sandbox run"]
    lines = [
        "| figure | direct | docker run -i | mcp-sandbox run | difference to docker run -i |",
        "|---|---|---|---|---|",
    ]
    for key in base:
        cells = " | ".join(f"{ways[name][key]:.2f}" for name in ways)
        lines.append(f"| {key} | {cells} | {ours[key] - base[key]:+.2f} |")
    lines.append(f"| help_ms | | | {result['help_ms']:.0f} | |")
    return "\n".join(lines)


def main(show: Callable[[str], None] = print) -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--starts", type=int, default=9)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    command = str(Path(sys.executable).parent / "mcp-sandbox")
    if not Path(command).exists():
        command = shutil.which("mcp-sandbox") or command
    result = run(command, arguments.calls, arguments.starts)
    result["machine"] = {"cpus": os.cpu_count(), "python": platform.python_version(), "kernel": platform.release()}
    show(table(result))
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
