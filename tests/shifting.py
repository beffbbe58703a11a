"""A client in front of a server that changes what it offers, over everything of ours but the container."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox.events import Scope, Trace
from sandbox.plan.model import Mount
from sandbox.serve.calls import BoundOnly, Caller, Collaborators, Pipeline
from sandbox.serve.guard import UriGuard
from sandbox.serve.handler import ServerHandler
from sandbox.serve.inservice import InService
from sandbox.serve.results import ResultCleaner
from sandbox.serve.session import ClientSession
from sandbox.spec.model import Binding, DriverSpec, Origin, PromptDecl, ResourceDecl, ToolContract
from sandbox.supervisor import Options, open_server
from sandbox.supervisor.survey import survey
from sandbox.tenant import TenantContext, TenantId
from sandbox.testing.backend import FakeBackend, FakeServer
from sandbox.testing.memory import MemoryRecorder
from sandbox.testing.plans import baseline_plan
from sandbox.testing.scripted import Script, ScriptedChannel
from sandbox.testing.servers.shifting import Shifting
from sandbox.vet import pins
from sandbox.wire.jsonrpc import Message, Notification, Result
from tests.unit.serve.builders import spec_of

HERE = Origin(file="DRIVER.md", line=1)
THEM = {"name": "them", "version": "1"}
INPUTS: dict[str, dict[str, Any]] = {
    "read": {"type": "object", "properties": {"path": {"type": "string", "maxLength": 40}}, "required": ["path"]},
    "write": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}
PATIENCE = 10.0


def bound(name: str, **inputs: Any) -> Binding:
    """Return a binding of one of the server's tools under the contract ``my-<name>``."""
    schema = {**INPUTS[name], "additionalProperties": False}
    schema["properties"] = {**schema["properties"], **inputs}
    contract = ToolContract(
        id=f"my-{name}",
        name=name,
        description="As reviewed.",
        version="1.0.0",
        inputs=schema,
        outputs={"type": "string"},
        origin=HERE,
        digest="",
    )
    return Binding(contract=contract, version_range="*", tool_name=name, origin=HERE)


def driver(folder: Path) -> DriverSpec:
    """Return a driver that binds everything of the server."""
    spec = spec_of(bound("read").contract)
    tenant = {"tenant": {"type": "string"}}
    return spec.model_copy(
        update={
            "folder": str(folder),
            "bindings": (bound("read", **tenant), bound("write")),
            "prompts": (PromptDecl(name="greet", integrate_as="raw"),),
            "resources": (ResourceDecl(uri_template="note://{name}", integrate_as="raw"),),
        }
    )


def backend(mode: str, made: list[Shifting] | None = None) -> FakeBackend:
    """Return a backend whose servers shift in a mode."""

    async def script(end: FakeServer) -> int:
        server = Shifting(mode)
        if made is not None:
            made.append(server)
        while line := await end.read_line():
            for message in server.take(json.loads(line)):
                await end.write(json.dumps(message).encode() + b"\n")
        return 0

    return FakeBackend(script)


def plan_of(*, roots: bool = False) -> Any:
    """Return a plan; with ``roots`` the server's client declares some."""
    mount = Mount("/srv", "/workspace", writable=False) if roots else None
    return baseline_plan(mounts=(mount,) if mount else ())


async def approve(folder: Path, mode: str = "honest", *, roots: bool = False) -> None:
    """Write the pins of a server that has not shifted."""
    scope = Scope(MemoryRecorder(), Trace.new())
    surface = await survey(backend(mode), driver(folder), plan_of(roots=roots), scope, {})
    pins.write(str(folder), pins.pins_of(surface))


@dataclass
class Stage:
    """A client, everything between, and the server.

    Attributes:
        wire: every message that reached the client.
    """

    client: Script
    recorder: MemoryRecorder
    live: Any
    server: Shifting
    wire: list[Message] = field(default_factory=list)

    async def ask(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the result of a request, or its error, keeping whatever comes before."""
        wanted = self.client.call(method, params)
        while True:
            message = await asyncio.wait_for(self.client.unread.get(), PATIENCE)
            self.wire.append(message)
            if getattr(message, "id", None) == wanted:
                return message.result if isinstance(message, Result) else {"error": message}

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool."""
        given = {"path": "a"} if tool == "my-read" else {"text": "a"}
        return await self.ask("tools/call", {"name": tool, "arguments": {**given, **arguments}})

    async def tools(self) -> list[str]:
        """Return the names that are listed."""
        return [tool["name"] for tool in (await self.ask("tools/list"))["tools"]]

    async def told(self, method: str) -> None:
        """Wait for a notification."""
        while not any(isinstance(one, Notification) and one.method == method for one in self.wire):
            self.wire.append(await asyncio.wait_for(self.client.unread.get(), PATIENCE))

    def said(self) -> str:
        """Return everything that has reached the client, as text."""
        while not self.client.unread.empty():
            self.wire.append(self.client.unread.get_nowait())
        return "\n".join(map(repr, self.wire))

    def facts(self, name: str) -> list[Mapping[str, Any]]:
        """Return the attributes of recorded facts of a name."""
        return [fact.attrs for fact in self.recorder.facts if fact.name == name]


@contextlib.asynccontextmanager
async def playing(
    mode: str, folder: Path, *, roots: bool = False, options: Options | None = None
) -> AsyncIterator[Stage]:
    """Serve a shifting server to a client."""
    recorder = MemoryRecorder()
    made: list[Shifting] = []
    scope = Scope(recorder, Trace.new())
    spec, plan = driver(folder), plan_of(roots=roots)
    async with open_server(backend(mode, made), spec, plan, scope, {}, options) as live:
        channel = ScriptedChannel("client")
        pipeline = Pipeline(live.exposure, Collaborators(BoundOnly()))
        rules = _uris(live)
        caller = Caller(TenantContext(TenantId("t"), "", source="flags"))
        inner = ServerHandler(pipeline, ResultCleaner(rules), caller, UriGuard(rules))
        session = ClientSession(channel, live.exposure, live.peer, InService(inner, live.revetter), scope)
        live.revetter.subscribe(session.replace_exposure)
        running = asyncio.create_task(session.run())
        await asyncio.sleep(0)
        stage = Stage(channel.script, recorder, live, made[-1])
        opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": THEM}
        await stage.ask("initialize", opening)
        channel.script.send(Notification("notifications/initialized", {}))
        try:
            yield stage
        finally:
            channel.script.close()
            await asyncio.gather(running, return_exceptions=True)


def _uris(live: Any) -> Any:
    from sandbox.cli.pipeline import uri_rules

    return uri_rules(live)
