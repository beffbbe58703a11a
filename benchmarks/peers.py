"""One client program, one stdio server, and the ways to it: pipes, this gateway, and peers of it.

Usage: python benchmarks/peers.py [--calls 2000] [--clients 8] [--rounds 3] [--json FILE]

The server is drivers/text-mcp (a C program on stdio). Every way but the pipes is HTTP on loopback, handshake era, one
session for each client, connections kept. A core-second counts the processor time of the proxy's own processes, not of
the server or the client. The peers come from virtual environments below .cache/peers (`--install` makes them); one that
is not there is left out and named. Rounds are interleaved, and the median round is told.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import httpx2  # noqa: E402
from client import Client  # noqa: E402
from posting import Posting  # noqa: E402

SERVER = ROOT / "drivers" / "text-mcp" / "text-server"
PEERS = ROOT / ".cache" / "peers"
ARGUMENTS, ANSWER = {"text": "123456789"}, "cbf43926"
ADMIN = "admin@example.com"
PACKAGES = {"fastmcp": "fastmcp==4.1.2", "contextforge": "mcp-contextforge-gateway==1.0.7.post20260921"}
FASTMCP = """
import sys
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy
proxy = create_proxy(StdioTransport(command=sys.argv[1], args=[]), name="proxy")
proxy.run(transport="http", host="127.0.0.1", port=int(sys.argv[2]), log_level="error", show_banner=False)
"""


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Way:
    """One way to the server: where to post, what the tool is called there, and whose processor time counts."""

    def __init__(self, port: int, path: str, tool: str, pids: list[int], token: str = "") -> None:
        self.port, self.path, self.tool, self.pids, self.token = port, path, tool, pids, token

    def cpu(self) -> float:
        """Return the processor seconds that the proxy has used."""
        used = 0
        for pid in self.pids:
            parts = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            used += int(parts[11]) + int(parts[12])
        return used / os.sysconf("SC_CLK_TCK")


@contextlib.asynccontextmanager
async def started(port: int, *argv: str, env: dict[str, str] | None = None) -> AsyncIterator[int]:
    """Start a program, wait until its port answers, give its process id, and end it."""
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **(env or {})}, cwd=ROOT
    )
    try:
        async with asyncio.timeout(90):
            while True:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                await asyncio.sleep(0.1)
        yield process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await process.wait()


@contextlib.asynccontextmanager
async def ours() -> AsyncIterator[Way]:
    """This gateway, as it is: container, contracts, policy, audit trail."""
    port = free_port()
    with tempfile.TemporaryDirectory() as scratch:
        config = Path(scratch) / "gateway.toml"
        names = ("calls-per-second", "calls-at-once", "requests-per-second", "requests-at-once")
        config.write_text("[limits]\n" + "".join(f"{name} = 100000\n" for name in names))
        argv = [
            sys.executable,
            "-m",
            "sandbox",
            "serve",
            str(ROOT / "drivers" / "text-mcp"),
            "--unsafe-tenant",
            "bench",
        ]
        argv += ["--listen", f"127.0.0.1:{port}", "--config", str(config), "--audit-dir", f"{scratch}/audit"]
        async with started(port, *argv) as pid:
            yield Way(port, "/mcp/text-mcp", "text-crc32", [pid])


@contextlib.asynccontextmanager
async def fastmcp() -> AsyncIterator[Way]:
    """The `fastmcp` proxy: it forwards, and checks nothing."""
    port = free_port()
    python = str(PEERS / "fastmcp" / "bin" / "python")
    async with started(port, python, "-c", FASTMCP, str(SERVER), str(port)) as pid:
        yield Way(port, "/mcp", "crc32", [pid])


@contextlib.asynccontextmanager
async def contextforge() -> AsyncIterator[Way]:
    """`mcp-contextforge-gateway`: SQLite, signing in, no rate limit; and its own bridge to stdio, both counted."""
    port, bridge = free_port(), free_port()
    python = str(PEERS / "contextforge" / "bin" / "python")
    secret = "benchmark-" + secrets.token_hex(16)
    words = ("JWT_SECRET_KEY", "AUTH_ENCRYPTION_SECRET", "BASIC_AUTH_PASSWORD", "PLATFORM_ADMIN_PASSWORD")
    with tempfile.TemporaryDirectory() as scratch:
        env = dict.fromkeys((*words, "DEFAULT_USER_PASSWORD"), secret)
        env |= {"HOME": scratch, "DATABASE_URL": f"sqlite:///{scratch}/mcp.db", "CACHE_TYPE": "memory"}
        env |= {"PLATFORM_ADMIN_EMAIL": ADMIN, "LOG_LEVEL": "ERROR", "PLUGINS_ENABLED": "false"}
        env |= {
            "ENVIRONMENT": "development",
            "PASSWORD_CHANGE_ENFORCEMENT_ENABLED": "false",
            "RATE_LIMITING_ENABLED": "false",
        }
        env |= {"SSRF_ALLOW_LOCALHOST": "true", "SSRF_ALLOW_PRIVATE_NETWORKS": "true", "MCPGATEWAY_UI_ENABLED": "false"}
        argv = [python, "-m", "mcpgateway.translate", "--stdio", str(SERVER), "--expose-streamable-http"]
        argv += ["--host", "127.0.0.1", "--port", str(bridge)]
        serve = [str(PEERS / "contextforge" / "bin" / "mcpgateway"), "--host", "127.0.0.1", "--port", str(port)]
        async with started(bridge, *argv, env=env) as one, started(port, *serve, env=env) as other:
            yield Way(port, "/mcp", "text-crc32", [one, other], await registered(port, bridge, secret))


async def registered(port: int, bridge: int, secret: str) -> str:
    """Sign in at contextforge, tell it of the bridge, and return the token of its callers."""
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as http:
        answer = await http.post("/auth/login", json={"email": ADMIN, "password": secret})
        token = str(answer.json()["access_token"])
        body = {"name": "text", "url": f"http://127.0.0.1:{bridge}/mcp", "transport": "STREAMABLEHTTP"}
        made = await http.post("/gateways", json=body, headers={"authorization": f"Bearer {token}"})
        made.raise_for_status()
    return token


WAYS = {"mcp-sandbox": ours, "fastmcp": fastmcp, "contextforge": contextforge}


def pipes(calls: int) -> dict[str, float]:
    """Measure the server on its pipes, one call after the other."""
    client = Client([str(SERVER)])
    client.open()
    taken = []
    for _ in range(calls):
        begun = time.perf_counter()
        client.request("tools/call", {"name": "crc32", "arguments": ARGUMENTS})
        taken.append(time.perf_counter() - begun)
    client.close()
    return {"calls_per_second": round(len(taken) / sum(taken)), **quantiles(taken)}


def quantiles(taken: list[float]) -> dict[str, float]:
    """Return p50 and p99 in milliseconds."""
    taken = sorted(taken)
    return {"p50_ms": round(taken[len(taken) // 2] * 1000, 2), "p99_ms": round(taken[int(len(taken) * 0.99)] * 1000, 2)}


async def measured(way: Way, calls: int, clients: int) -> dict[str, float]:
    """Measure one way."""

    async def one(count: int, taken: list[float]) -> None:
        posting = Posting(way.port, way.path, "handshake", way.token)
        await posting.open()
        for number in range(count):
            begun = time.perf_counter()
            answer = await posting.call(way.tool, ARGUMENTS, number)
            taken.append(time.perf_counter() - begun)
            if ANSWER not in json.dumps(answer):
                raise SystemExit(f"{way.path}: {answer}")
        posting.close()

    await asyncio.gather(*(one(20, []) for _ in range(clients)))
    taken: list[float] = []
    begun, before = time.perf_counter(), way.cpu()
    await asyncio.gather(*(one(calls // clients, taken) for _ in range(clients)))
    lasted, used = time.perf_counter() - begun, way.cpu() - before
    return {
        "calls_per_second": round(len(taken) / lasted),
        "calls_per_core_second": round(len(taken) / used),
        **quantiles(taken),
    }


def install() -> None:
    """Make the environments of the peers."""
    for name, package in PACKAGES.items():
        subprocess.run([sys.executable, "-m", "venv", str(PEERS / name)], check=True)
        subprocess.run([str(PEERS / name / "bin" / "python"), "-m", "pip", "install", "-q", package], check=True)


async def main() -> None:
    """Start all, measure in turns, tell medians."""
    parser = argparse.ArgumentParser()
    for name, value in (("calls", 2000), ("clients", 8), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.install:
        install()
    rounds: dict[str, list[dict[str, Any]]] = {}
    load = round(os.getloadavg()[0], 1)
    async with contextlib.AsyncExitStack() as stack:
        ways = {}
        for name, way in WAYS.items():
            if name == "mcp-sandbox" or (PEERS / name).exists():
                ways[name] = await stack.enter_async_context(way())
            else:
                print(f"{name} is not installed: --install", file=sys.stderr)
        for _ in range(arguments.rounds):
            rounds.setdefault("pipes", []).append(pipes(arguments.calls))
            for name, one in ways.items():
                rounds.setdefault(name, []).append(await measured(one, arguments.calls, arguments.clients))
    result = {
        "calls": arguments.calls, "clients": arguments.clients, "rounds": arguments.rounds, "load_before": load,
        "ways": {
            name: {key: statistics.median(one[key] for one in found) for key in found[0]}
            for name, found in rounds.items()
        },
    }  # fmt: skip
    print(json.dumps(result, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


asyncio.run(main())
