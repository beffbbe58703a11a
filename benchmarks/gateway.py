"""Calls through `mcp-sandbox serve` on loopback: calls a second, p50 and p99, both eras, a bounded number of clients.

Usage: python benchmarks/gateway.py [CALLS] [CLIENTS]. Starts a gateway over drivers/text-mcp, measures and ends it.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
FIELDS = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: text-crc32\r\n"


async def exchange(streams: tuple, port: int, body: dict, fields: str) -> tuple[dict[str, str], bytes]:
    """Send one POST on a connection that is kept, and return the header fields and the body of its answer."""
    reader, writer = streams
    data = json.dumps(body).encode()
    head = (
        f"POST /mcp/text-mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: application/json, text/event-stream\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n{fields}\r\n"
    )
    writer.write(head.encode() + data)
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    if not lines[0].startswith("HTTP/1.1 20"):
        raise SystemExit(f"{lines[0]}: {await reader.read(500)!r}")
    return headers, await reader.readexactly(int(headers.get("content-length", "0")))


async def client(port: int, calls: int, era: str, taken: list[float]) -> None:
    """Make calls one after the other."""
    streams = await asyncio.open_connection("127.0.0.1", port)
    fields = FIELDS
    if era == "handshake":
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        headers, _ = await exchange(streams, port, body, "")
        fields = f"Mcp-Session-Id: {headers['mcp-session-id']}\r\nMCP-Protocol-Version: 2025-11-25\r\n"
    for number in range(1, calls + 1):
        params = {"name": "text-crc32", "arguments": {"text": "123456789"}}
        if era == "stateless":
            params["_meta"] = META
        started = time.perf_counter()
        _, answer = await exchange(
            streams, port, {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}, fields
        )
        taken.append(time.perf_counter() - started)
        if b"cbf43926" not in answer:
            raise SystemExit(answer.decode())
    streams[1].close()


async def measure(port: int, calls: int, clients: int, pid: int) -> None:
    """Print the figures of both eras."""
    for era in ("stateless", "handshake"):
        await asyncio.gather(*(client(port, 20, era, []) for _ in range(clients)))
        taken: list[float] = []
        started, before = time.perf_counter(), cpu(pid)
        await asyncio.gather(*(client(port, calls // clients, era, taken) for _ in range(clients)))
        lasted, used = time.perf_counter() - started, cpu(pid) - before
        taken.sort()
        p50, p99 = (taken[int(len(taken) * part)] * 1000 for part in (0.5, 0.99))
        print(
            f"{era}: {len(taken)} calls, {clients} clients: {len(taken) / lasted:.0f}/s, "
            f"{len(taken) / used:.0f} a core-second, "
            f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, rss {rss(pid)} MiB"
        )


def cpu(pid: int) -> float:
    """Return the processor seconds of a process."""
    parts = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(parts[11]) + int(parts[12])) / 100


def rss(pid: int) -> int:
    """Return the memory of a process, MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4 // 1024


async def main() -> None:
    """Start, measure, end."""
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    clients = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as scratch:
        config = Path(scratch) / "gateway.toml"
        names = ("calls-per-second", "calls-at-once", "requests-per-second", "requests-at-once")
        config.write_text("[limits]\n" + "".join(f"{name} = 100000\n" for name in names))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "sandbox", "serve", str(ROOT / "drivers" / "text-mcp"), "--unsafe-tenant", "bench",
            "--listen", f"127.0.0.1:{port}", "--config", str(config), "--audit-dir", f"{scratch}/audit",
            stderr=asyncio.subprocess.PIPE, cwd=ROOT,
        )  # fmt: skip
        while b"unsafe-tenant" not in await process.stderr.readline():
            pass
        try:
            await measure(port, calls, clients, process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            await process.wait()


asyncio.run(main())
