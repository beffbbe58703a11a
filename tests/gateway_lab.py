"""A gateway over servers in memory, on a real socket, and an issuer of tokens with keys of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2
import jwt
import orjson
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from sandbox.cli.gateway.listening import listening, server_of
from sandbox.events import Scope, Trace
from sandbox.serve.asking import Asking
from sandbox.serve.calls import Caller
from sandbox.serve.forwarding import ForwardingHandler
from sandbox.serve.http import fields
from sandbox.serve.http.aggregate import AggregateDoor
from sandbox.serve.http.app import App, Gateway
from sandbox.serve.http.bounds import HttpBounds
from sandbox.serve.http.doors import DriverDoor, Equipment
from sandbox.serve.http.quotas import Quotas
from sandbox.serve.identity.certificates import PinnedClient
from sandbox.serve.identity.keeper import Gatekeeper
from sandbox.serve.identity.keys import KeySource
from sandbox.serve.identity.model import Access
from sandbox.serve.identity.tokens import Issuer, JwtVerifier
from sandbox.serve.ratelimit import Rate
from sandbox.supervisor.bounds import PoolBounds
from sandbox.supervisor.held import Served
from sandbox.supervisor.opening import opening
from sandbox.supervisor.pool import Instances
from sandbox.testing.backend import FakeBackend, FakeServer
from sandbox.testing.memory import MemoryRecorder
from sandbox.testing.plans import baseline_plan
from tests.unit.serve.builders import contract_of, spec_of
from tests.unit.supervisor.test_pool import ROOMY

ISSUER = "https://issuer.example"
SECRET = "only for those who may"
EVENTS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
V25, V26 = "2025-11-25", "2026-07-28"


class Issuing:
    """An issuer of tokens."""

    def __init__(self) -> None:
        self.keys = {"one": rsa.generate_private_key(public_exponent=65537, key_size=2048)}
        self.fetches = 0
        self.down = False

    def jwks(self) -> Mapping[str, Any]:
        """Return its public keys."""
        made = []
        for kid, key in self.keys.items():
            body = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
            made.append({**body, "kid": kid, "use": "sig", "alg": "RS256"})
        return {"keys": made}

    async def fetch(self) -> Mapping[str, Any]:
        """Be asked for them."""
        self.fetches += 1
        if self.down:
            raise OSError("down")
        return self.jwks()

    def token(self, audience: Any, kid: str = "one", key: Any = None, alg: str = "RS256", **claims: Any) -> str:
        """Return a token; claims that are ``None`` are left out."""
        now = int(time.time())
        body = {
            "iss": ISSUER,
            "aud": audience,
            "sub": "alice",
            "tenant": "acme",
            "iat": now,
            "exp": now + 300,
            **claims,
        }
        body = {name: value for name, value in body.items() if value is not None}
        head = {"kid": kid, "typ": claims.pop("typ", "at+jwt")}
        body.pop("typ", None)
        return jwt.encode(body, key if key is not None else self.keys.get(kid), algorithm=alg, headers=head)


@dataclass
class Server:
    """An MCP server of the handshake era whose one tool says who was called with what.

    Attributes:
        slow: seconds before an answer to ``{"slow": true}``.
        calls: arguments of every call that reached it.
        cancelled: ids of requests that were cancelled.
        answers: of its client, by the id of its own request.
    """

    slow: float = 0.3
    starts: int = 0
    calls: list[Any] = field(default_factory=list)
    cancelled: list[Any] = field(default_factory=list)
    answers: dict[Any, asyncio.Future[Any]] = field(default_factory=dict)

    async def __call__(self, server: FakeServer) -> int:
        """Be one process."""
        self.starts += 1
        tasks: set[asyncio.Future[None]] = set()
        process = self.starts
        while line := await server.read_line():
            message = json.loads(line)
            if message.get("method") == "notifications/cancelled":
                self.cancelled.append(message["params"]["requestId"])
            if "id" in message and "method" in message:
                task = asyncio.ensure_future(self._answer(server, message, process))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            elif message.get("id") in self.answers:
                self.answers[message["id"]].set_result(message)
        for task in list(tasks):
            task.cancel()
        return 0

    async def _answer(self, server: FakeServer, message: Any, process: int) -> None:
        method, params = message["method"], message.get("params", {})
        result: Any = {}
        if method == "initialize":
            result = {
                "protocolVersion": V25,
                "capabilities": {"tools": {"listChanged": True}, "logging": {}},
                "serverInfo": {"name": "s", "version": "1"},
            }
        elif method == "tools/list":
            result = {"tools": [{"name": "server_tool", "description": SECRET, "inputSchema": {"type": "object"}}]}
        elif method == "tools/call":
            result = await self._call(server, params, process)
            if result is None:
                return
        elif method == "server/discover":
            await self._send(server, {"id": message["id"], "error": {"code": -32601, "message": "no"}})
            return
        await self._send(server, {"id": message["id"], "result": result})

    async def _call(self, server: FakeServer, params: Any, process: int) -> Any:
        arguments = params["arguments"]
        self.calls.append(arguments)
        if arguments.get("die"):
            server._end.close()
            return None
        token = params.get("_meta", {}).get("progressToken")
        for step in range(arguments.get("steps", 0)):
            note = {"progressToken": token, "progress": step + 1}
            await self._send(server, {"method": "notifications/progress", "params": note})
        if arguments.get("slow"):
            await asyncio.sleep(self.slow)
        told = {}
        for number, question in enumerate(arguments.get("ask", ())):
            told[f"told{number}"] = await self._ask(server, question)
        arguments = {**arguments, **told}
        said = {"secret": SECRET, "process": process, **arguments}
        return {"content": [{"type": "text", "text": json.dumps(said)}], "structuredContent": said}

    async def _ask(self, server: FakeServer, question: str) -> Any:
        """Ask the client with a form and return its result, or the error."""
        own = f"q{len(self.answers)}"
        self.answers[own] = asyncio.get_running_loop().create_future()
        schema = {"type": "object", "properties": {"colour": {"type": "string"}}}
        params = {"message": question, "requestedSchema": schema}
        await self._send(server, {"id": own, "method": "elicitation/create", "params": params})
        answer = await self.answers[own]
        return answer.get("result", answer.get("error"))

    async def _send(self, server: FakeServer, body: Any) -> None:
        await server.write(json.dumps({"jsonrpc": "2.0", **body}).encode() + b"\n")


@dataclass
class Lab:
    """A gateway that listens."""

    url: str
    app: App
    server: Server
    issuer: Issuing
    recorder: MemoryRecorder
    client: httpx2.AsyncClient

    def facts(self, name: str) -> list[Mapping[str, Any]]:
        """Return the attributes of facts of a name."""
        return [fact.attrs for fact in self.recorder.facts if fact.name == name]

    def reasons(self) -> list[str]:
        """Return why requests were refused, as recorded."""
        return [fact["reason"] for fact in self.facts("gateway.refuse")]

    def token(self, path: str = "/mcp/closed", **claims: Any) -> str:
        """Return a token for an endpoint."""
        return self.issuer.token(claims.pop("audience", self.url + path), **claims)

    async def post(self, path: str, body: Any, token: str = "", **headers: str) -> httpx2.Response:
        """Send one message; underscores of header names stand for hyphens."""
        sent = {**EVENTS, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if token:
            sent["authorization"] = f"Bearer {token}"
        content = body if isinstance(body, bytes) else orjson.dumps(body)
        return await self.client.post(self.url + path, content=content, headers=sent)

    async def initialize(self, path: str = "/mcp/open", token: str = "", version: str = V25) -> httpx2.Response:
        """Open a session."""
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        return await self.post(path, request("initialize", params), token)

    async def session(self, path: str = "/mcp/open", token: str = "") -> dict[str, str]:
        """Open a session and return the header fields of its requests."""
        opened = await self.initialize(path, token)
        headers = {"mcp_session_id": opened.headers["mcp-session-id"], "mcp_protocol_version": V25}
        await self.post(path, {"jsonrpc": "2.0", "method": "notifications/initialized"}, token, **headers)
        return headers


def request(method: str, params: Any = None, number: Any = 1) -> dict[str, Any]:
    """Return a request."""
    return {"jsonrpc": "2.0", "id": number, "method": method, **({"params": params} if params is not None else {})}


def call(number: Any = 1, **arguments: Any) -> dict[str, Any]:
    """Return a call of the tool."""
    return request("tools/call", {"name": "tool", "arguments": arguments}, number)


def modern(
    method: str, params: Mapping[str, Any] | None = None, number: Any = 1
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a request of the stateless era with its header fields."""
    prefix = "io.modelcontextprotocol/"
    own = {prefix + "protocolVersion": V26, prefix + "clientCapabilities": {}}
    body = request(method, {**(params or {}), "_meta": own}, number)
    headers = {"mcp_protocol_version": V26, "mcp_method": method}
    if params and "name" in params:
        headers["mcp_name"] = str(params["name"])
    return body, headers


@contextlib.asynccontextmanager
async def lab(
    server: Server | None = None,
    rate: Rate | None = None,
    pool: Mapping[str, Any] | None = None,
    unsafe_tenant: str = "",
    scopes: tuple[str, ...] = (),
    inputs: Mapping[str, Any] | None = None,
    tls: ssl.SSLContext | None = None,
    clients: Mapping[str, PinnedClient] | None = None,
    trust: ssl.SSLContext | bool = True,
    speaks: Callable[[App], contextlib.AbstractAsyncContextManager[Any]] = contextlib.nullcontext,
    sockets: int = 0,
    idempotent: bool = False,
    asking: Callable[[], Asking] | None = None,
    version: str = V25,
    **bounds: Any,
) -> AsyncIterator[Lab]:
    """Open a gateway: ``/mcp/open`` for everybody, ``/mcp/closed`` for who signs in, ``/mcp`` for both.

    Args:
        server: the server behind both.
        rate: of calls.
        pool: bounds of instances.
        unsafe_tenant: everybody who sends no credential.
        scopes: that ``/mcp/closed`` asks for.
        inputs: contract of the tool.
        tls: what the gateway speaks TLS with.
        clients: by the pin of their key.
        trust: what the lab's own client trusts and shows.
        speaks: gives the application that is served in front of the gateway's own.
        sockets: bytes of a message over WebSocket.
        idempotent: whether the contract of the tool says so.
        asking: judges what the server asks; ``None``: it may ask nothing.
        version: of the protocol, that the server speaks.
        **bounds: of the gateway.
    """
    script, issuer, recorder = server or Server(), Issuing(), MemoryRecorder()
    backend, scope = FakeBackend(script), Scope(recorder, Trace.new())
    chosen = HttpBounds(**{"json_wait": 0.15, "drain": 2.0, **bounds})
    listener = listening(("127.0.0.1", 0))
    url = f"http{'s' if tls else ''}://127.0.0.1:{listener.getsockname()[1]}"
    keys = KeySource(issuer.fetch, time.monotonic)
    keeper = Gatekeeper(
        url, JwtVerifier({ISSUER: Issuer(ISSUER, keys)}), (ISSUER,), unsafe_tenant,
        clients=clients or {}, certificates=tls is not None,
    )  # fmt: skip
    limits = rate or Rate(1000, 1000)
    quotas = Quotas(chosen, limits, Rate(10_000, 10_000), time.monotonic)
    gateway = Gateway(keeper, fields.places_of(listener.getsockname(), ""), scope, quotas, chosen)
    async with Instances(opening(backend, scope), scope, PoolBounds(**(pool or {})), lambda: ROOMY) as instances:
        doors = []
        for name, access in (("open", Access(True, (), "public")), ("closed", Access(False, scopes))):
            spec = spec_of(contract_of(inputs=inputs or {"type": "object"}, idempotent=idempotent)).model_copy(
                update={"id": name, "protocol_version": version}
            )
            instances.add(Served(spec, lambda _tenant: baseline_plan()))
            doors.append(door_of(name, access, instances, asking))
        app = App(gateway, [*doors, AggregateDoor("/mcp", doors, scope)])
        app.sessions.begin()
        async with speaks(app) as served, httpx2.AsyncClient(timeout=20, trust_env=False, verify=trust) as client:
            running = server_of(served, tls, sockets=sockets)
            task = asyncio.create_task(running.serve(sockets=[listener]))
            while not running.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.01)
            try:
                yield Lab(url, app, script, issuer, recorder, client)
            finally:
                await app.drain()
                running.should_exit = True
                await task
        listener.close()


def door_of(name: str, access: Access, instances: Instances, asking: Callable[[], Asking] | None = None) -> DriverDoor:
    """Return an endpoint whose requests are forwarded as they are."""

    async def equip(_live: Any) -> Any:
        def handler(_caller: Caller) -> ForwardingHandler:
            return ForwardingHandler()

        return Equipment(handler, asking=asking)

    info = {"name": name, "version": "1"}
    return DriverDoor(
        name, f"/mcp/{name}", access, lender=instances, equip=equip, tools=frozenset(("tool",)), info=info,
        call_timeout=10.0,
        legacy=name == "closed",
    )  # fmt: skip


def ec_key() -> ec.EllipticCurvePrivateKey:
    """Return a key of another kind."""
    return ec.generate_private_key(ec.SECP256R1())


def events(response: httpx2.Response) -> list[tuple[str, Any]]:
    """Return id and message of the events of a response."""
    found = []
    for block in response.text.split("\n\n"):
        parts = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":"))
        if parts.get("data"):
            found.append((parts.get("id", ""), json.loads(parts["data"])))
    return found
