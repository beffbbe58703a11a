"""A gateway under load while its servers are killed: nothing delivered wrongly, nothing missing in the trail.

Usage: python benchmarks/load.py [--seconds 60] [--clients 200] [--tenants 20] [--json FILE]

Clients of both eras and of many tenants call a tool on loopback; each call carries a text that nobody else sends, and
the answer must be that text's CRC-32. Meanwhile a container is killed now and then. Afterwards: ``audit verify``, and
for every answered call an intent and an outcome in the trail, under its own tenant. Memory is read all the while.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "benchmarks"))

from posting import Posting, Refused  # noqa: E402

from tests.gateway_lab import Issuing  # noqa: E402

KILL_EVERY = 4.0
SAMPLE_EVERY = 1.0
PATIENCE = 20.0
"""Seconds for one call; a server that is killed is there again within three."""

PATH = "/mcp/text-mcp"


def issuing() -> tuple[Issuing, str, HTTPServer]:
    """Serve the keys of an issuer on loopback."""
    issuer = Issuing()

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = f"http://127.0.0.1:{self.server.server_port}"  # type: ignore[attr-defined]
            described = {"issuer": url, "jwks_uri": f"{url}/keys"}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(issuer.jwks() if self.path == "/keys" else described).encode())

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return issuer, f"http://127.0.0.1:{server.server_port}", server


class Load:
    """What clients see."""

    def __init__(self) -> None:
        self.answered: dict[str, str] = {}
        self.failed: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.taken: list[float] = []
        self.memory: list[int] = []
        self.killed = 0

    async def client(self, port: int, tenant: str, token: str, name: str, until: float) -> None:
        """Call one after the other until the time is over."""
        one = Posting(port, PATH, "handshake" if hash(name) % 2 else "stateless", token)
        number, connected = 0, False
        while time.monotonic() < until:
            number += 1
            text = f"{tenant}/{name}/{number}"
            try:
                if not connected:
                    async with asyncio.timeout(PATIENCE):
                        await one.open()
                    connected = True
                started = time.perf_counter()
                async with asyncio.timeout(PATIENCE):
                    answer = await one.call("text-crc32", {"text": text}, text)
                self._judge(text, tenant, answer, time.perf_counter() - started)
            except (Refused, OSError) as error:  # a time-out is an OSError too
                self.failed[f"{type(error).__name__} {getattr(error, 'status', '')}".strip()] += 1
                connected = connected and isinstance(error, Refused) and error.status != 404  # 404: the session is gone
                await asyncio.sleep(0.05)
        one.close()

    def _judge(self, text: str, tenant: str, answer: dict[str, Any], seconds: float) -> None:
        if answer.get("id") != text:
            self.wrong.append(f"{text}: under the id {answer.get('id')}")
        found = answer.get("result", {}).get("structuredContent", {}).get("crc32")
        if found is None:
            self.failed[why(answer)] += 1
        elif found != f"{zlib.crc32(text.encode()):08x}":
            self.wrong.append(f"{text}: {found}")
        else:
            self.answered[text] = tenant
            self.taken.append(seconds)

    async def killer(self, audit: Path, until: float) -> None:
        """Kill one of this gateway's containers now and then."""
        while time.monotonic() + KILL_EVERY < until:
            await asyncio.sleep(KILL_EVERY)
            names = await asyncio.to_thread(running, audit)
            if names:
                victim = random.choice(sorted(names))
                done = await asyncio.create_subprocess_exec(
                    "docker", "kill", victim, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
                )
                self.killed += await done.wait() == 0

    async def sampler(self, pid: int, until: float) -> None:
        """Read the memory of the gateway."""
        while time.monotonic() < until:
            self.memory.append(resident(pid))
            await asyncio.sleep(SAMPLE_EVERY)


def why(answer: dict[str, Any]) -> str:
    """Return the id of our own refusal, else the code of the error."""
    result = answer.get("result", {})
    error = answer.get("error") or {"data": result.get("_meta"), "code": "isError"}
    found = re.search(r"[A-Z]+-[0-9]{3}", json.dumps(error.get("data")) + json.dumps(result))
    return found.group() if found else f"{error.get('code')} {error.get('message', '')}"[:80]


def resident(pid: int) -> int:
    """Return the memory of a process, MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4 // 1024


def running(audit: Path) -> set[str]:
    """Return the names of the containers that run and that this gateway started, by its own trail."""
    ours = set(re.findall(r'"container_name":"([^"]+)"', "".join(one.read_text() for one in audit.rglob("*.jsonl"))))
    listed = subprocess.run(["docker", "ps", "--format", "{{.Names}}"], capture_output=True, text=True, check=True)
    return ours & set(listed.stdout.split())


def missing(audit: Path, answered: dict[str, str]) -> dict[str, int]:
    """Return how many answered calls have no intent, no outcome, or another tenant in the trail."""
    intents: dict[str, tuple[str, str]] = {}
    outcomes = set()
    for file in sorted(audit.rglob("*.jsonl")):
        for line in file.open():
            if '"call.forward"' not in line:
                continue
            record = json.loads(line)
            if record.get("phase") == "intent":
                intents[record["attrs"]["request_id"]] = (record["span"], record["tenant"])
            elif record.get("phase") == "outcome":
                outcomes.add(record["span"])
    found = Counter({"intent": 0, "outcome": 0, "tenant": 0})
    for text, tenant in answered.items():
        span, recorded = intents.get(text, ("", ""))
        found["intent"] += not span
        found["outcome"] += span not in outcomes
        found["tenant"] += recorded != tenant
    return dict(found)


async def main() -> None:
    """Start, load, end, judge."""
    parser = argparse.ArgumentParser()
    for name, value in (("seconds", 60), ("clients", 200), ("tenants", 20)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    issuer, issuer_url, pages = issuing()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as scratch:
        config, audit = Path(scratch) / "gateway.toml", Path(scratch) / "audit"
        limits = ("calls-per-second", "calls-at-once", "requests-per-second", "requests-at-once", "sessions")
        lines = [f'[[issuer]]\nurl = "{issuer_url}"\n[limits]', *(f"{name} = 100000" for name in limits)]
        config.write_text("\n".join(lines) + "\n")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "sandbox", "serve", str(ROOT / "drivers" / "text-mcp"), "--config", str(config),
            "--listen", f"127.0.0.1:{port}", "--audit-dir", str(audit), stderr=asyncio.subprocess.PIPE, cwd=ROOT,
        )  # fmt: skip
        while b"/mcp/text-mcp serves" not in await process.stderr.readline():
            pass
        reading = asyncio.create_task(process.stderr.read())
        load = Load()
        try:
            base = f"http://127.0.0.1:{port}"
            for number in range(arguments.tenants):  # every tenant's server is there before the clock runs
                own = issuer.token(base + PATH, iss=issuer_url, tenant=f"tenant-{number}", sub="warm")
                first = Posting(port, PATH, "stateless", own)
                await first.open()
                await first.call("text-crc32", {"text": "warm"}, f"warm-{number}")
                first.close()
            until = time.monotonic() + arguments.seconds
            clients = []
            for number in range(arguments.clients):
                tenant = f"tenant-{number % arguments.tenants}"
                token = issuer.token(base + PATH, iss=issuer_url, tenant=tenant, sub=f"user-{number}")
                clients.append(load.client(port, tenant, token, f"client-{number}", until))
            await asyncio.gather(*clients, load.killer(audit, until), load.sampler(process.pid, until))
        finally:
            process.send_signal(signal.SIGTERM)
            await process.wait()
            await reading
            pages.shutdown()
        result = summary(load, arguments, audit)
    print(json.dumps(result, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    if load.wrong or any(result["missing"].values()) or result["verify"] != 0:
        raise SystemExit("something was delivered wrongly or is missing")


def summary(load: Load, arguments: argparse.Namespace, audit: Path) -> dict[str, Any]:
    """Return the figures."""
    verify = subprocess.run(
        [sys.executable, "-m", "sandbox", "audit", "verify", "--audit-dir", str(audit)],
        capture_output=True, check=False, cwd=ROOT,
    )  # fmt: skip
    taken = sorted(load.taken) or [0.0]
    quarter = max(1, len(load.memory) // 4)
    return {
        "seconds": arguments.seconds,
        "clients": arguments.clients,
        "tenants": arguments.tenants,
        "killed": load.killed,
        "answered": len(load.answered),
        "calls_per_second": round(len(load.answered) / arguments.seconds),
        "p50_ms": round(taken[len(taken) // 2] * 1000, 1),
        "p99_ms": round(taken[int(len(taken) * 0.99)] * 1000, 1),
        "failed": dict(load.failed.most_common(8)),
        "wrong": len(load.wrong),
        "wrong_first": load.wrong[:3],
        "missing": missing(audit, load.answered),
        "verify": verify.returncode,
        "memory_mib": {
            "second quarter": max(load.memory[quarter : 2 * quarter] or [0]),
            "last quarter": max(load.memory[-quarter:] or [0]),
        },
    }


asyncio.run(main())
