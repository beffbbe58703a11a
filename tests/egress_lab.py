"""A small internet of containers for the egress tests, with observers; nothing of it leaves this machine.

Addresses lie in 198.51.100.0/24 (documentation), and one decoy has 169.254.169.254 on a network of its own, so that
even a sandbox that fails sends nothing out. Every decoy tells what reached it: what it did not tell of did not arrive.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime as dt
import functools
import json
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sandbox.events import Fact, Scope, Trace
from sandbox.launch import owner, seccomp
from sandbox.launch.docker import DockerBackend
from sandbox.launch.egress.provider import EgressAttachment, EgressProvider
from sandbox.launch.engine import Engine, EngineError
from sandbox.launch.images.host import host_images
from sandbox.launch.instance import DockerInstance
from sandbox.plan.model import NetworkPlan
from sandbox.policy.hosts import parse_rules
from sandbox.testing.memory import MemoryRecorder
from sandbox.testing.plans import baseline_plan
from sandbox.wire.attach import STDOUT, AttachDecoder
from tests.conftest import ENGINE_SOCKET

PEERS: Final = Path(__file__).parent / "peers"
PREFIX: Final = "mcp-sandbox-test-egress"
PYTHON: Final = "/usr/bin/python3"
METADATA: Final = "169.254.169.254"
SETTLE: Final = 0.1
"""Seconds after which what was going to arrive has arrived: all of it crosses one kernel."""

PATIENCE: Final = 200.0
"""Seconds for other tests on the same engine to give their networks back."""

ALLOWED_CIDRS: Final = ("198.51.100.0/24",)
READ: Final = 1 << 16


@functools.cache
def image(name: str) -> str:
    """Return the id of one of the project's own images, made when it is not there."""
    return host_images().ensure(name, moved=True).id


@functools.cache
def certificate() -> tuple[str, str]:
    """Return a self-signed certificate for every name of the lab: PEM of the certificate, PEM of it with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "egress lab")])
    now = dt.datetime.now(dt.UTC)
    names = [
        x509.DNSName(text) for text in ("allowed.test", "*.wild.test", "evil.test", "services.test", "intended.test")
    ]
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public = built.public_bytes(serialization.Encoding.PEM).decode()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    return public, public + private


class Stream:
    """Lines of a container's standard output, and its standard input."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.errors = b""
        self._frames = AttachDecoder()
        self._partial = b""
        self._lines: list[dict[str, Any]] = []

    async def line(self) -> dict[str, Any]:
        """Return the next line of JSON."""
        loop = asyncio.get_running_loop()
        while not self._lines:
            data = await loop.sock_recv(self.sock, READ)
            if not data:
                raise ConnectionError(self.errors[-2000:].decode("utf-8", "replace"))
            for kind, piece in self._frames.feed(data):
                if kind != STDOUT:
                    self.errors += piece
                    continue
                *lines, self._partial = (self._partial + piece).split(b"\n")
                self._lines += [json.loads(line) for line in lines]
        return self._lines.pop(0)

    async def send(self, line: str) -> None:
        """Send one line."""
        await asyncio.get_running_loop().sock_sendall(self.sock, line.encode() + b"\n")


@dataclass
class Prober:
    """A prober somewhere: in a sandbox, or outside of one as the positive control."""

    stream: Stream

    async def ask(self, expression: str) -> dict[str, Any]:
        """Return ``value`` or ``error``, and ``ms``."""
        await self.stream.send(expression)
        async with asyncio.timeout(30):
            return await self.stream.line()

    async def value(self, expression: str) -> Any:
        """Return what an expression gives; a failure fails the test."""
        answer = await self.ask(expression)
        assert "error" not in answer, f"{expression}: {answer['error']}"
        return answer["value"]

    async def error(self, expression: str) -> str:
        """Return the error of an expression, empty when it has a value."""
        return str((await self.ask(expression)).get("error", ""))


@dataclass
class Box(Prober):
    """A prober that a backend launched under egress rules."""

    instance: DockerInstance
    attachment: EgressAttachment
    recorder: MemoryRecorder

    async def facts(self, name: str, enough: Callable[[list[Fact]], bool] = bool) -> list[Fact]:
        """Return facts of one name, when they are as expected or after two seconds."""
        for _ in range(40):
            if enough(self.recorder.named(name)):
                break
            await asyncio.sleep(0.05)
        return self.recorder.named(name)

    async def told(self, host: str, port: int) -> list[Mapping[str, Any]]:
        """Return the attributes of the connection facts about a destination."""
        await self.facts("egress.connect", lambda facts: any(f.attrs["port"] == port for f in facts))
        return [
            fact.attrs
            for fact in self.recorder.named("egress.connect")
            if (fact.attrs["host"], fact.attrs["port"]) == (host, port)
        ]

    async def reasons(self) -> list[str]:
        """Return the reasons of all denials so far."""
        await asyncio.sleep(SETTLE)
        denied = [fact for fact in self.recorder.facts if fact.attrs.get("decision") == "deny"]
        return [str(fact.attrs["reason"]) for fact in denied]

    async def denied(self, reason: str) -> dict[str, Any]:
        """Return the attributes of the first denial with a reason."""
        for _ in range(40):
            for fact in self.recorder.facts:
                if fact.attrs.get("reason") == reason:
                    return dict(fact.attrs)
            await asyncio.sleep(0.05)
        raise AssertionError(f"no denial {reason}: {[dict(fact.attrs) for fact in self.recorder.facts]}")


@dataclass
class Lab:
    """The small internet; made by :func:`laboratory`."""

    engine: Engine
    slot: int
    run: str = field(default_factory=lambda: os.urandom(4).hex())
    arrivals: list[dict[str, Any]] = field(default_factory=list)
    stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    readers: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def net(self) -> str:
        """Name of the network that the broker dials from."""
        return f"{PREFIX}-{self.run}"

    @property
    def metadata_net(self) -> str:
        """Name of the network of the metadata decoy."""
        return f"{PREFIX}-{self.run}-metadata"

    def at(self, number: int) -> str:
        """Return an address of the lab's network."""
        return f"198.51.100.{self.slot + number}"

    @property
    def good(self) -> str:
        """Address of the host that rules allow."""
        return self.at(3)

    @property
    def evil(self) -> str:
        """Address of the host that no rule names."""
        return self.at(4)

    @property
    def services(self) -> str:
        """Address of the host with real servers, where a test starts them."""
        return self.at(6)

    @property
    def resolver(self) -> str:
        """Address of the name server."""
        return self.at(5)

    def zone(self) -> dict[str, list[list[str]]]:
        """Return the names of this internet."""
        names = {
            name: [[self.good]] for name in ("allowed.test", "db.test", "a.wild.test", "b.c.wild.test", "intended.test")
        }
        return {
            **names,
            "evil.test": [[self.evil]],
            f"{self.slot + 4}.100.51.198.in-addr.arpa": [["allowed.test"]],  # whoever owns an address owns its PTR
            "allowed.test.evil.test": [[self.evil]],
            "evilallowed.test": [[self.evil]],
            "meta.test": [[METADATA]],
            "loop.test": [["127.0.0.1"]],
            "loop6.test": [["::1"]],
            "mapped.test": [[f"::ffff:{METADATA}"]],
            "private.test": [["10.99.0.1"]],
            "mixed.test": [["10.99.0.1", METADATA, self.good]],
            "rebind.test": [[self.good], [METADATA]],
            "rebind-back.test": [[METADATA], [self.good]],
            "gateway.test": [["172.17.0.1"]],
            "services.test": [[self.services]],
        }

    async def start(self) -> None:
        """Make networks and hosts."""
        await self._network(self.net, f"198.51.100.{self.slot}/28")
        await self._network(self.metadata_net, "169.254.169.240/28")
        pem = base64.b64encode(certificate()[1].encode()).decode()
        decoy = (PEERS / "decoy.py").read_text()
        await self.host("good", image("python"), ["-c", decoy, "good", pem], self.good)
        await self.host("evil", image("python"), ["-c", decoy, "evil", pem], self.evil)
        await self.host("metadata", image("python"), ["-c", decoy, "metadata", pem], METADATA, self.metadata_net)
        zone = (PEERS / "zone.py").read_text()
        await self.host("zone", image("egress"), ["-c", zone, json.dumps(self.zone())], self.resolver)
        async with asyncio.timeout(60):
            while sum(arrival["protocol"] == "ready" for arrival in self.arrivals) < len(self.readers):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        self.arrivals.clear()

    async def host(self, name: str, image_id: str, arguments: Sequence[str], address: str, network: str = "") -> str:
        """Start a host of this internet and listen to what it tells."""
        body = self.body(image_id, [PYTHON, *arguments], {"NetworkMode": network or self.net})
        body["NetworkingConfig"] = {"EndpointsConfig": {network or self.net: {"IPAMConfig": {"IPv4Address": address}}}}
        container, stream = await self.container(f"{name}", body)

        async def listen() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    self.arrivals.append(await stream.line())

        self.readers.append(asyncio.create_task(listen()))
        return container

    async def container(self, name: str, body: Mapping[str, Any]) -> tuple[str, Stream]:
        """Create, attach and start a container that goes with the lab."""
        container, _ = await self.engine.create(body, f"{PREFIX}-{self.run}-{name}-{os.urandom(3).hex()}")
        self.stack.push_async_callback(self.engine.remove, container)
        sock = await self.engine.attach(container)
        self.stack.callback(sock.close)
        await self.engine.start(container)
        return container, Stream(sock)

    async def outsider(self) -> Prober:
        """Return a prober on the internet itself, with nothing between: the positive control."""
        host = {"NetworkMode": self.net, "Dns": [self.resolver], "CapDrop": ["ALL"]}
        body = self.body(image("python"), [PYTHON, "-c", (PEERS / "prober.py").read_text()], host)
        body |= {"OpenStdin": True, "StdinOnce": True, "AttachStdin": True, "User": "65532:65532"}
        container, stream = await self.container("outsider", body)
        await self._join(container, self.metadata_net)
        return Prober(stream)

    async def provider(self, run_id: str, **options: Any) -> EgressProvider:
        """Return a provider whose broker stands on this internet, the metadata decoy within its reach."""
        options = {"network": self.net, "resolvers": (self.resolver,), "image": image("egress"), "spare": 0, **options}
        provider = EgressProvider(self.engine, run_id, **options)
        provider.prepare(1)
        await self._join(await provider.start(), self.metadata_net)
        return provider

    @contextlib.asynccontextmanager
    async def backend(self, **options: Any) -> AsyncIterator[tuple[DockerBackend, EgressProvider]]:
        """Yield a backend with egress, closed afterwards; closing fails when anything remains."""
        run_id = owner.new_run_id()
        provider = await self.provider(run_id, **options)
        backend = DockerBackend(ENGINE_SOCKET, run_id, provider)
        try:
            yield backend, provider
        finally:
            await backend.close()

    async def launch(
        self, backend: DockerBackend, rules: Sequence[str], *, allowed: Sequence[str] = ALLOWED_CIDRS, **plan: Any
    ) -> Box:
        """Launch a prober under rules."""
        recorder = MemoryRecorder()
        made = baseline_plan(
            image_id=image("python"),
            argv=(PYTHON, "-c", (PEERS / "prober.py").read_text()),
            network=NetworkPlan("broker", parse_rules(rules), tuple(allowed)),
            seccomp="net",
            **plan,
        )
        instance = await backend.launch(made, Scope(recorder, Trace.new(), driver="probe", tenant="t1"), {})
        assert instance.stream is not None
        attachment = instance._attachment
        assert isinstance(attachment, EgressAttachment)
        return Box(Stream(instance.stream), instance, attachment, recorder)

    @contextlib.asynccontextmanager
    async def sandbox(self, *rules: str, allowed: Sequence[str] = ALLOWED_CIDRS, **options: Any) -> AsyncIterator[Box]:
        """Yield a prober under rules, alone with its broker."""
        async with self.backend(**options) as (backend, _):
            box = await self.launch(backend, rules, allowed=allowed)
            try:
                yield box
            finally:
                await box.instance.stop(0)
                if box.instance.stream is not None:
                    box.instance.stream.close()

    async def forget(self) -> None:
        """Forget everything that has arrived, when all of it must have."""
        await asyncio.sleep(SETTLE)
        self.arrivals.clear()

    async def command(
        self, attachment: EgressAttachment, image_id: str, *argv: str, seconds: float = 60
    ) -> tuple[int, str]:
        """Run a program as a server would run: in an attachment's namespace, hardened; return status and output."""
        host = {
            "NetworkMode": attachment.network_mode,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges", f"seccomp={net_profile()}"],
            "ReadonlyRootfs": True,
            "Tmpfs": {"/tmp": "rw,exec,size=64m,mode=1777"},
        }
        body = self.body(image_id, argv, host) | {"User": "65532:65532", "Env": ["HOME=/tmp", "PATH=/usr/bin:/bin"]}
        del body["HostConfig"]["Sysctls"]
        container, _ = await self.engine.create(body, f"{PREFIX}-{self.run}-command-{os.urandom(3).hex()}")
        sock = await self.engine.attach(container)
        try:
            await self.engine.start(container)
            async with asyncio.timeout(seconds):
                output = await _everything(sock)
                status = (await self.engine.wait(container))["StatusCode"]
        finally:
            sock.close()
            await self.engine.remove(container)
        return status, output

    async def arrived(self, host: str = "", protocol: str = "") -> list[dict[str, Any]]:
        """Return what hosts told of so far, when all of it must have arrived."""
        await asyncio.sleep(SETTLE)
        return [a for a in self.arrivals if host in {"", a["host"]} and protocol in {"", a["protocol"]}]

    async def _network(self, name: str, subnet: str) -> None:
        body = {"Name": name, "CheckDuplicate": True, "IPAM": {"Config": [{"Subnet": subnet}]}}
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    made = await self.engine.call("POST", "/networks/create", what="create a network", body=body)
                    break
                except EngineError as error:
                    if "overlaps" not in error.reason:  # somebody else's tests have the same addresses at the moment
                        raise
                    await asyncio.sleep(1)
        self.stack.push_async_callback(self.engine.remove_network, made["Id"])

    async def _join(self, container: str, network: str) -> None:
        body = {"Container": container}
        await self.engine.call("POST", f"/networks/{network}/connect", what="connect a network", body=body)

    def body(self, image_id: str, argv: Sequence[str], host: Mapping[str, Any]) -> dict[str, Any]:
        """Return the create request of a container of the lab."""
        return {
            "Image": image_id,
            "Entrypoint": list(argv),
            "Cmd": [],
            "Labels": {PREFIX: self.run},
            "AttachStdout": True,
            "AttachStderr": True,
            "User": "0:0",
            "HostConfig": {
                "LogConfig": {"Type": "none"},
                "Sysctls": {"net.ipv4.ip_unprivileged_port_start": "0"},
                **host,
            },
        }


async def _everything(sock: socket.socket) -> str:
    """Return standard output and error of a container that ends."""
    frames, output = AttachDecoder(), b""
    while data := await asyncio.get_running_loop().sock_recv(sock, READ):
        output += b"".join(piece for _, piece in frames.feed(data))
    return output.decode("utf-8", "replace")


@contextlib.asynccontextmanager
async def laboratory(slot: int) -> AsyncIterator[Lab]:
    """Yield a small internet on ``198.51.100.<slot>/28``; each test module has a slot of its own."""
    lab = Lab(Engine(ENGINE_SOCKET), slot)
    async with lab.stack:
        try:
            await lab.start()
            yield lab
        finally:
            for reader in lab.readers:
                reader.cancel()
            # A socket must not be closed under a task that waits for it: its number may be another socket's by then.
            await asyncio.gather(*lab.readers, return_exceptions=True)


def net_profile() -> str:
    """Return the seccomp profile of servers with egress."""
    return seccomp.load("net").text
