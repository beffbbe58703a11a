"""A gateway over servers in memory, made from real driver folders and files of an operator, which tests change."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2

from sandbox.cli import hostfacts
from sandbox.cli.bounds import pool_bounds
from sandbox.cli.gateway.building import Parts, app_of
from sandbox.cli.gateway.config import DriverConfig, GatewayConfig
from sandbox.cli.gateway.dialect import Front
from sandbox.cli.gateway.figures import Figures
from sandbox.cli.gateway.listening import listening
from sandbox.cli.gateway.mounts import Mounted, driver_folders, for_tenant, said, served
from sandbox.cli.gateway.prints import Printer
from sandbox.cli.gateway.reload import Reloader, Wiring
from sandbox.cli.gateway.serving import _until_signalled
from sandbox.cli.gateway.sources import read_sources
from sandbox.cli.wiring import Review, load_policy
from sandbox.events import Scope, Trace
from sandbox.plan.derive import Overrides, derive
from sandbox.plan.model import SandboxPlan
from sandbox.registry.entity import entity_of
from sandbox.serve.http.app import App
from sandbox.spec.load import load_driver
from sandbox.supervisor.opening import opening
from sandbox.supervisor.pool import Instances
from sandbox.testing.backend import FakeBackend, FakeServer
from sandbox.testing.memory import MemoryRecorder
from tests.gateway_lab import EVENTS, V25, request
from tests.planning import ENGINE, IMAGE
from tests.unit.supervisor.test_pool import ROOMY

CALLS = 'principal, action == Action::"tools/call", resource is Tool'
RULES = f'@id("calls")\n@reason("bound")\npermit ({CALLS});\n'
FORBID = f'@id("no-more")\n@reason("a test")\nforbid ({CALLS});\n'

MANIFEST = """---
name: {name}
id: {name}
description: {said}
version: 1.0.0
kind: mcp
server: {{kind: binary, path: /usr/bin/env}}
transport: stdio
protocol_version: "2025-11-25"
{more}
implements:
{tools}
---
"""

TOOL = """---
name: {tool}
id: {tool}
description: {said}
version: 1.0.0
inputs: {{type: object}}
outputs: {{type: object}}
mutates: []
approval: auto
risk_level: 0
{more}
---
"""


@dataclass
class Process:
    """What one process of the fake server was started as."""

    number: int
    driver: str
    open: bool = True
    calls: list[Any] = field(default_factory=list)


@dataclass
class Programs:
    """Servers that offer every tool, and say which process answers.

    Attributes:
        gate: calls with ``{"wait": true}`` wait for it.
        broken: processes that start now end at once.
    """

    tools: tuple[str, ...] = ("tool-a", "tool-b", "tool-c", "shared")
    processes: list[Process] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: int = 0
    broken: bool = False

    async def __call__(self, server: FakeServer) -> int:
        """Be one process."""
        own = Process(len(self.processes) + 1, server.plan.driver_id)
        self.processes.append(own)
        if self.broken:
            own.open = False
            return 1
        tasks = set()
        while line := await server.read_line():
            message = json.loads(line)
            if "id" in message and "method" in message:
                tasks.add(asyncio.ensure_future(self._answer(server, message, own)))
        for task in tasks:
            task.cancel()
        own.open = False
        return 0

    async def _answer(self, server: FakeServer, message: Any, own: Process) -> None:
        method, params, result = message["method"], message.get("params", {}), {}
        if method == "initialize":
            result = {
                "protocolVersion": V25, "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"},
            }  # fmt: skip
        elif method == "tools/list":
            result = {"tools": [{"name": one, "inputSchema": {"type": "object"}} for one in self.tools]}
        elif method == "tools/call":
            own.calls.append(params["arguments"])
            if params["arguments"].get("wait"):
                self.waiting += 1
                await self.gate.wait()
            answer = {"process": own.number, "driver": own.driver, "tool": params["name"]}
            result = {"content": [{"type": "text", "text": json.dumps(answer)}], "structuredContent": answer}
        await server.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode() + b"\n")


@dataclass
class Place:
    """The files of a gateway."""

    root: Path

    @property
    def arguments(self) -> argparse.Namespace:
        """What the command line would give."""
        return argparse.Namespace(
            drivers=self.root / "drivers", config=self.root / "gateway.toml", policy=self.root / "policy.toml",
            rules=self.root / "rules", unsafe_tenant="", runtime="", audit_dir=None,
        )  # fmt: skip

    def driver(self, name: str, tools: tuple[str, ...] = ("tool-a",), said: str = "A driver.", more: str = "") -> Path:
        """Write a driver folder."""
        folder = self.root / "drivers" / name
        bound = []
        for tool in tools:
            (folder / "tools" / tool).mkdir(parents=True, exist_ok=True)
            (folder / "tools" / tool / "TOOL.md").write_text(TOOL.format(tool=tool, said="A tool.", more=""))
            bound.append(
                f'  - {{tool: ./tools/{tool}/TOOL.md, version: "^1.0.0", metadata: {{mcp: {{tool_name: {tool}}}}}}}'
            )
        manifest = MANIFEST.format(name=name, said=said, more=more, tools="\n".join(bound))
        (folder / "DRIVER.md").write_text(manifest)
        return folder

    def policy(self, more: str = "") -> None:
        """Write the policy."""
        (self.root / "policy.toml").write_text(f'version = 1\nname = "own"\nnarrows = "default"\n{more}')

    def rules(self, text: str = RULES) -> None:
        """Write the rules."""
        (self.root / "rules").mkdir(exist_ok=True)
        (self.root / "rules" / "own.cedar").write_text(text)

    def config(self, more: str = "", auth: tuple[str, ...] = ("one", "two", "lone")) -> None:
        """Write ``gateway.toml``."""
        open_to_all = "".join(f'[driver.{name}]\nauth = "none"\n' for name in auth)
        (self.root / "gateway.toml").write_text(f"{more}\n{open_to_all}")


@dataclass
class ReloadLab:
    """A gateway that listens and can be reloaded."""

    url: str
    place: Place
    parts: Parts
    app: App
    reloader: Reloader
    programs: Programs
    recorder: MemoryRecorder
    client: httpx2.AsyncClient
    task: asyncio.Task[int]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to this process, whose gateway handles it."""
        os.kill(os.getpid(), number)

    def facts(self, name: str, phase: str = "") -> list[Mapping[str, Any]]:
        """Return the attributes of records of a name."""
        return [one.attrs for one in self.recorder.facts if one.name == name and phase in ("", one.phase)]

    async def reload(self, *, force: bool = False) -> bool:
        """Reload."""
        return await self.reloader.reload("signal" if force else "watch", force=force)

    async def post(self, path: str, body: Any, **headers: str) -> httpx2.Response:
        """Send one message."""
        sent = {**EVENTS, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return await self.client.post(self.url + path, json=body, headers=sent)

    async def session(self, path: str = "/mcp/one") -> Session:
        """Open a handshake session."""
        params = {"protocolVersion": V25, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        opened = await self.post(path, request("initialize", params))
        assert opened.status_code == 200, opened.text
        headers = {"mcp_session_id": opened.headers["mcp-session-id"], "mcp_protocol_version": V25}
        await self.post(path, {"jsonrpc": "2.0", "method": "notifications/initialized"}, **headers)
        return Session(self, path, headers)


@dataclass
class Session:
    """A handshake session of a client."""

    lab: ReloadLab
    path: str
    headers: dict[str, str]

    async def ask(self, method: str, params: Any = None, number: Any = 7) -> httpx2.Response:
        """Send one request."""
        return await self.lab.post(self.path, request(method, params or {}, number), **self.headers)

    async def call(self, tool: str = "tool-a", number: Any = 8, **arguments: Any) -> dict[str, Any]:
        """Call a tool; return the result or the error."""
        response = await self.ask("tools/call", {"name": tool, "arguments": arguments}, number)
        return found_in(response)

    async def tools(self) -> list[str]:
        """Return the names of the tools."""
        listed = found_in(await self.ask("tools/list"))
        return [one["name"] for one in listed["tools"]]

    @contextlib.asynccontextmanager
    async def standing(self) -> AsyncIterator[asyncio.Queue[str]]:
        """Read the session's standing stream; methods of notifications arrive in the queue."""
        heard: asyncio.Queue[str] = asyncio.Queue()
        headers = {"accept": "text/event-stream", **{k.replace("_", "-"): v for k, v in self.headers.items()}}

        async def read() -> None:
            async with self.lab.client.stream("GET", self.lab.url + self.path, headers=headers) as stream:
                async for line in stream.aiter_lines():
                    if line.startswith("data: {"):
                        heard.put_nowait(json.loads(line[6:])["method"])

        reading = asyncio.create_task(read())
        try:
            yield heard
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


def found_in(response: httpx2.Response) -> dict[str, Any]:
    """Return the result or error of a response, whether it came as JSON or as events."""
    text = response.text
    if "text/event-stream" in response.headers.get("content-type", ""):
        datas = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        body = datas[-1]
    else:
        body = json.loads(text)
    return dict(body.get("result") or body.get("error"))


def review(folder: Path, config: GatewayConfig, place: Place) -> Mounted:
    """Review a folder as the gateway does, but for the image, which is there."""
    arguments = place.arguments
    spec = load_driver(folder / "DRIVER.md")
    chosen = config.driver.get(spec.id, DriverConfig())
    roots = {at: for_tenant(path, "local") for at, path in chosen.root.items() if "{tenant}" not in path}  # type: ignore[arg-type]
    overrides = Overrides(roots=roots)
    ceiling = load_policy(arguments.policy)
    own = hostfacts.own_paths(arguments)
    host = replace(hostfacts.local_facts(spec, overrides, "", own), engine=ENGINE, image=IMAGE)
    plan: SandboxPlan = derive(spec, ceiling, host, overrides=overrides)
    made = Review(spec, ceiling, host, overrides, plan)
    return Mounted(folder, made, entity_of(folder, spec, config.namespace, said(chosen)), chosen)


@contextlib.asynccontextmanager
async def reload_lab(
    root: Path, *names: str, drain: float = 5.0, config: str = "", warm: int = 0
) -> AsyncIterator[ReloadLab]:
    """Open a gateway over driver folders below ``root``; those that are not there yet are made.

    It ends as the command does: on SIGTERM, which is sent in the end where the test did not.
    """
    place = Place(root)
    for name in names or ("one", "two"):
        place.driver(name)
    place.policy()
    place.rules()
    place.config(f"{config}\n[limits]\ndrain = {drain}\n")
    printer = Printer(place.arguments)
    begun = printer.take({})
    listener = listening(("127.0.0.1", 0))
    listen = listener.getsockname()[:2]
    sources = read_sources(place.arguments, listen)
    programs, recorder = Programs(), MemoryRecorder()
    backend, scope = FakeBackend(programs), Scope(recorder, Trace.new())
    mounted = [review(folder, sources.config, place) for folder in driver_folders(root / "drivers")]
    own = hostfacts.own_paths(place.arguments)
    bounds = replace(pool_bounds(sources.bounds), idle_least=0.01)
    async with Instances(opening(backend, scope), scope, bounds, lambda: ROOMY) as pool:
        for one in mounted:
            pool.add(replace(served(one, own, ""), warm=warm))
        url = f"http://127.0.0.1:{listen[1]}"
        parts = Parts(sources.config, mounted, sources.rules, scope, pool, Figures(), url, listen, sources.bounds)
        app = app_of(parts)
        wiring = Wiring(
            lambda: read_sources(place.arguments, listen),
            lambda folder, config: review(folder, config, place),
            lambda one: served(one, own, ""),
        )
        reloader = Reloader(parts, app, wiring, printer, sources, begun)
        task = asyncio.create_task(_until_signalled(app, Front(app), listener, parts, reloader))
        async with httpx2.AsyncClient(timeout=20, trust_env=False) as client:
            lab = ReloadLab(url, place, parts, app, reloader, programs, recorder, client, task)
            await client.get(url + "/healthz")  # from here on signals are handled
            try:
                yield lab
            finally:
                programs.gate.set()
                if not task.done():
                    lab.signal(signal.SIGTERM)
                await task
        listener.close()
    assert not [one for one in programs.processes if one.open]
