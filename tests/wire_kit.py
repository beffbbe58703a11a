"""Scripts for protocol tests: a server and a client of either era at the ends of in-memory channels."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from sandbox.events import Scope, Trace
from sandbox.serve.client_model import Handler, SessionOptions
from sandbox.serve.forwarding import ForwardingHandler
from sandbox.serve.session import ClientSession
from sandbox.spec.model import Binding, Origin, PromptDecl, ResourceDecl, ToolContract
from sandbox.testing.memory import MemoryRecorder
from sandbox.testing.scripted import Script, ScriptedChannel, scripted
from sandbox.transport.peer import ServerPeer
from sandbox.vet.model import ExposedTool, Exposure, ServerSurface
from sandbox.wire import meta
from sandbox.wire.jsonrpc import Failure, Notification, Request, Result

STATELESS = "2026-07-28"
HANDSHAKE = "2025-11-25"
EVERYTHING = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "logging": {},
    "completions": {},
}
US = {"name": "us", "version": "0"}
THEM = {"name": "them", "version": "1"}


def envelope(version: str = STATELESS, **more: Any) -> dict[str, Any]:
    """Return the per-request fields of a stateless client."""
    return {"_meta": {meta.PROTOCOL_VERSION: version, meta.CLIENT_CAPABILITIES: {}, meta.CLIENT_INFO: THEM, **more}}


def tool(name: str, server_name: str = "", **definition: Any) -> ExposedTool:
    """Return an exposed tool."""
    here = Origin(file="DRIVER.md", line=1)
    contract = ToolContract(
        id=name, name=name, description="", version="1.0.0", inputs={}, outputs={}, origin=here, digest=""
    )
    shown = {"name": name, "inputSchema": {"type": "object"}, **definition}
    bound = Binding(contract=contract, version_range="*", tool_name=server_name or name, origin=here)
    return ExposedTool(name, shown, server_name or name, shown, bound)


def exposure(*tools: ExposedTool, prompts: tuple[str, ...] = (), resources: tuple[str, ...] = ()) -> Exposure:
    """Return an exposure of some tools, prompts and resource templates."""
    return Exposure(
        tools={one.name: one for one in tools or (tool("echo"),)},
        prompts={name: PromptDecl(name=name, integrate_as="raw") for name in prompts},
        resources=tuple(ResourceDecl(uri_template=uri, integrate_as="raw") for uri in resources),
        surface=ServerSurface("handshake", HANDSHAKE, {}, {}, resources=({"uri": "note://one", "name": "one"},)),
    )


def scope_of(recorder: MemoryRecorder | None = None) -> Scope:
    """Return a scope that records in memory."""
    return Scope(recorder or MemoryRecorder(), Trace.new())


async def open_server(server: Script, era: str, capabilities: Mapping[str, Any], *, acknowledge: bool = True) -> None:
    """Play the opening of a server of an era."""
    probe = await server.receive(Request)
    if era == STATELESS:
        result = {
            "resultType": "complete",
            "supportedVersions": [STATELESS],
            "capabilities": dict(capabilities),
            "ttlMs": 0,
            "cacheScope": "public",
            "_meta": {meta.SERVER_INFO: THEM},
        }
        server.send(Result(probe.id, result))
        if acknowledge and any(isinstance(one, dict) and one.get("listChanged") for one in capabilities.values()):
            listen = await server.expect("subscriptions/listen")
            server.send(acknowledgement(listen))
        return
    if probe.method == "server/discover":
        server.send(Failure(probe.id, -32601, "Method not found"))
        probe = await server.receive(Request)
    result = {"protocolVersion": era, "capabilities": dict(capabilities), "serverInfo": THEM}
    server.send(Result(probe.id, result))
    ready = await server.receive(Notification)
    assert ready.method == "notifications/initialized"


def acknowledgement(listen: Request) -> Notification:
    """Return the first message on a subscription."""
    params = {"notifications": listen.params["notifications"], "_meta": {meta.SUBSCRIPTION_ID: listen.id}}
    return Notification("notifications/subscriptions/acknowledged", params)


@dataclass
class Stage:
    """A server, our two sides, and a client, ready to play."""

    peer: ServerPeer
    server: Script
    server_channel: ScriptedChannel
    recorder: MemoryRecorder = field(default_factory=MemoryRecorder)
    session: ClientSession = field(init=False)
    client: Script = field(init=False)
    client_channel: ScriptedChannel = field(init=False)
    running: asyncio.Task[None] = field(init=False)

    def facts(self, name: str) -> list[Mapping[str, Any]]:
        """Return the attributes of recorded facts of a name."""
        return [fact.attrs for fact in self.recorder.facts if fact.name == name]


@asynccontextmanager
async def connected(
    era: str = HANDSHAKE, capabilities: Mapping[str, Any] = EVERYTHING, **more: Any
) -> AsyncIterator[Stage]:
    """Play a connected server of an era."""
    channel, server = scripted("server")
    recorder = MemoryRecorder()
    opening = asyncio.create_task(open_server(server, era, capabilities))
    peer = await ServerPeer.connect(
        channel, client_info=US, capabilities={}, scope=scope_of(recorder), **{"timeout": 5.0, **more}
    )
    await opening
    try:
        yield Stage(peer, server, channel, recorder)
    finally:
        channel.abort()
        await channel.wait_closed()


@asynccontextmanager
async def serving(
    server_era: str = HANDSHAKE,
    client_era: str = HANDSHAKE,
    *,
    shown: Exposure | None = None,
    handler: Handler | None = None,
    options: SessionOptions | None = None,
    capabilities: Mapping[str, Any] = EVERYTHING,
    opened: bool = True,
) -> AsyncIterator[Stage]:
    """Play a whole session: a server of one era, a client of another, and us between them."""
    async with connected(server_era, capabilities) as stage:
        channel, client = scripted("client")
        session = ClientSession(
            channel,
            shown or exposure(prompts=("greet",), resources=("note://{name}",)),
            stage.peer,
            handler or ForwardingHandler(),
            scope_of(stage.recorder),
            options,
        )
        stage.session, stage.client, stage.client_channel = session, client, channel
        stage.running = asyncio.create_task(session.run())
        await asyncio.sleep(0)
        if opened and client_era != STATELESS:
            await client.ask("initialize", {"protocolVersion": client_era, "capabilities": {}, "clientInfo": THEM})
            client.send(Notification("notifications/initialized", {}))
        try:
            yield stage
        finally:
            client.close()
            await asyncio.gather(stage.running, return_exceptions=True)


def of_client(era: str, params: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return params as a client of an era sends them."""
    if era != STATELESS:
        return {**(params or {}), **({"_meta": more} if more else {})}
    return {**(params or {}), "_meta": {**envelope()["_meta"], **more}}


async def refused(stage: Stage, method: str, params: dict[str, Any] | None = None, request_id: Any = None) -> Failure:
    """Send a request that is refused and return the error."""
    stage.client.call(method, params, request_id)
    return await stage.client.receive(Failure)


async def settled() -> None:
    """Let everything that is ready happen."""
    for _ in range(20):
        await asyncio.sleep(0)
