"""Two ``mcp-sandbox serve`` processes behind a plain round-robin balancer, and real containers; one is killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from sandbox.dialect.client import Client as Dialect
from sandbox.dialect.links import HttpLink
from sandbox.resources import shipped
from tests.engine.drivers import COMMAND, give
from tests.engine.test_serve import containers, free_port, launched, verify
from tests.shared import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.timeout(240)]
LEASE = 12.0


def config_of(scratch: Path, ports: tuple[int, ...]) -> Path:
    """Write the one file that both read; return it."""
    folder = scratch / "data"
    folder.mkdir()
    give(folder)
    peers = ", ".join(f'"http://127.0.0.1:{port}"' for port in ports)
    file = scratch / "gateway.toml"
    file.write_text(
        f'allowed-hosts = ["balancer.test"]\n[state]\nurl = "sqlite://{scratch}/state.db"\npeers = [{peers}]\n'
        f'lease = {LEASE}\n[driver.memory-mcp]\nroot = {{ "/data" = "{folder}" }}\n'
        "[driver.text-mcp]\nstateless = true\n"
    )
    return file


@contextlib.asynccontextmanager
async def serving(scratch: Path, port: int, config: Path, *more: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run one gateway."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "serve", str(scratch / "drivers"), "--listen", f"127.0.0.1:{port}", "--config", str(config),
        "--unsafe-tenant", "me", "--rules", str(scratch / "rules"), "--audit-dir", str(scratch / f"audit-{port}"),
        *more, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    said = b""
    try:
        async with asyncio.timeout(120):
            while b"/mcp/text-mcp serves" not in said:
                line = await process.stderr.readline()
                assert line, said.decode()
                said += line
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.wait(), 60)


class Balancer:
    """Gives each connection to the next gateway; knows nothing of HTTP. A gateway that is gone is left out."""

    def __init__(self, ports: tuple[int, ...]) -> None:
        self.ports = list(ports)
        self.given: list[int] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection."""
        while True:
            port = self.ports[len(self.given) % len(self.ports)]
            self.given.append(port)
            with contextlib.suppress(OSError):
                there = await asyncio.open_connection("127.0.0.1", port)
                break
        await asyncio.gather(relay(reader, there[1]), relay(there[0], writer))


async def relay(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy until the end."""
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    target.close()


@contextlib.asynccontextmanager
async def client(url: str, mode: str) -> AsyncIterator[Client]:
    """Connect the SDK's client, each of whose requests is a connection of its own."""
    limits = httpx2.Limits(max_keepalive_connections=0)
    async with httpx2.AsyncClient(timeout=60, trust_env=False, limits=limits) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, mode=mode) as made:  # type: ignore[arg-type]
            yield made


async def behind_a_balancer(scratch: Path) -> tuple[tuple[int, int], Path, Balancer, asyncio.Server, str]:
    """Prepare two gateways; return their ports and file, and the balancer with its address."""
    for name in ("memory-mcp", "text-mcp"):
        shutil.copytree(ROOT / "drivers" / name, scratch / "drivers" / name)
    (scratch / "rules").mkdir()
    shutil.copy(shipped("policies", "starter.cedar"), scratch / "rules")
    ports = (free_port(), free_port())
    config, balancer = config_of(scratch, ports), Balancer(ports)
    balanced = await asyncio.start_server(balancer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{balanced.sockets[0].getsockname()[1]}"
    config.write_text(f'public-url = "{url}"\n' + config.read_text())
    return ports, config, balancer, balanced, url


async def test_a_fleet_is_one_gateway_and_survives_the_loss_of_one(tmp_path: Path) -> None:
    """Clients of both eras work across both; the one with the tenant's servers is killed, and the other goes on."""
    ports, config, balancer, balanced, url = await behind_a_balancer(tmp_path)
    entity = {"name": "Rosebud", "entityType": "word", "observations": ["kept"]}
    async with contextlib.AsyncExitStack() as stack:
        one, other = await asyncio.gather(
            *(stack.enter_async_context(serving(tmp_path, port, config)) for port in ports)
        )
        async with client(url + "/mcp/memory-mcp", "legacy") as first:
            await first.call_tool("mem-create-entities", {"entities": [entity]})
            seen = [(await first.call_tool("mem-read-graph", {})).model_dump_json() for _ in range(4)]
        async with client(url + "/mcp/memory-mcp", "2026-07-28") as modern:
            seen += [(await modern.call_tool("mem-read-graph", {})).model_dump_json() for _ in range(2)]
        mine = [launched(tmp_path / f"audit-{port}") for port in ports]
        home = 0 if len(mine[0]) == 1 else 1
        async with client(url + "/mcp/text-mcp", "legacy") as free:
            before = [await free.call_tool("text-crc32", {"text": "123456789"}) for _ in range(4)]
            used = set(balancer.given)
            (one, other)[home].kill()
            await (one, other)[home].wait()
            killed = time.monotonic()
            after = [await free.call_tool("text-crc32", {"text": "123456789"}) for _ in range(2)]
        again = ""
        while "Rosebud" not in again and time.monotonic() < killed + 4 * LEASE:
            with contextlib.suppress(Exception):
                async with client(url + "/mcp/memory-mcp", "legacy") as second:
                    again = (await second.call_tool("mem-read-graph", {})).model_dump_json()
            await asyncio.sleep(0.5)
        waited = time.monotonic() - killed
        dead = launched(tmp_path / f"audit-{ports[home]}")
        left = dead & containers()
        (one, other)[1 - home].send_signal(signal.SIGTERM)
        status = await asyncio.wait_for((one, other)[1 - home].wait(), 60)
    balanced.close()

    assert set(ports) == used
    assert [len(mine[home]), len(mine[1 - home])] == [1, 0], "the tenant's server ran at one gateway"
    assert all("Rosebud" in graph for graph in seen)
    assert all("cbf43926" in one.model_dump_json() for one in (*before, *after))
    assert "Rosebud" in again
    assert waited < LEASE + 10
    assert not left, "containers of the killed gateway"
    assert 0 == status
    survivor = tmp_path / f"audit-{ports[1 - home]}"
    assert not launched(survivor) & containers()
    assert 0 == verify(survivor)


async def test_the_dialect_works_at_either_gateway_and_jobs_wait_for_theirs(tmp_path: Path) -> None:
    """Our own client calls and asks for jobs through the balancer; a killed keeper's job is 503 until it is back."""
    ports, config, balancer, balanced, url = await behind_a_balancer(tmp_path)
    entity = {"name": "Rosebud", "entityType": "word", "observations": ["kept"]}

    def gateway(port: int) -> contextlib.AbstractAsyncContextManager[asyncio.subprocess.Process]:
        jobs = str(tmp_path / f"jobs-{port}.sqlite")
        return serving(tmp_path, port, config, "--dialect", "2025-11", "--jobs", jobs)

    limits = httpx2.Limits(max_keepalive_connections=0)
    async with contextlib.AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=60, trust_env=False, limits=limits))
        running = dict(zip(ports, await asyncio.gather(
            *(stack.enter_async_context(gateway(port)) for port in ports)
        ), strict=True))  # fmt: skip
        text = Dialect(HttpLink(url + "/mcp/text-mcp/2025-11", "", http))
        memory = Dialect(HttpLink(url + "/mcp/memory-mcp/2025-11", "", http))
        await text.connect()
        await memory.connect()
        sums = [await text.call("text-crc32", {"text": "123456789"}) for _ in range(4)]
        sums += [await text.call("text-crc32", {"text": "123456789"}, mode="async") for _ in range(2)]
        job = str((await memory.submit("mem-create-entities", {"entities": [entity]}, mode="async")).job_id)
        made = await memory.resume(job)
        seen = [json.dumps(await memory.call("mem-read-graph", {})) for _ in range(2)]
        keeper = next(port for port in ports if len(launched(tmp_path / f"audit-{port}")) == 2)
        running[keeper].kill()
        await running[keeper].wait()
        gone = await memory.link.job(job)
        free = await text.call("text-crc32", {"text": "123456789"})
        await stack.enter_async_context(gateway(keeper))
        told = [(await memory.link.job(job)).body for _ in range(2)]
    balanced.close()

    assert set(ports) == set(balancer.given)
    assert all("cbf43926" in json.dumps(one) for one in (*sums, free))
    assert all("Rosebud" in one for one in seen)
    assert (503, "DIA-080") == (gone.status, gone.body["error"]["id"])
    assert gone.headers["retry-after"]
    assert [("success", made)] * 2 == [(one["status"], one["result"]) for one in told]
    assert not {name for port in ports for name in launched(tmp_path / f"audit-{port}")} & containers()
