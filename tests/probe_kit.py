"""What launch and probe tests share: the probe program, its image, sandboxes of it, and places without a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import io
import json
import os
import re
import shutil
import socket
import subprocess
import tarfile
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sandbox.events import Scope, Trace
from sandbox.launch import owner
from sandbox.launch.docker import DockerBackend
from sandbox.launch.engine import Engine
from sandbox.launch.instance import DockerInstance
from sandbox.plan.model import SandboxPlan
from sandbox.testing.memory import MemoryRecorder
from sandbox.testing.plans import baseline_plan
from tests.conftest import ENGINE_SOCKET

PREFIX = "mcp-sandbox-test"
SOURCE = Path(__file__).parent / "probes" / "probe.c"
HEADER = 8
ANSWER_SECONDS = 60
NOBODY = 65534


# --- the program and its image ----------------------------------------------------------------------------------------
@functools.cache
def workspace() -> Path:
    """Return a directory for this session, removed when it ends."""
    import atexit

    path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}-"))
    path.chmod(0o755)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@functools.cache
def probe_binary() -> Path:
    """Return the compiled probe program, or skip where there is no C compiler (CI has one)."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        if os.environ.get("MCP_SANDBOX_REQUIRE_ENGINE") == "1":
            pytest.fail("a C compiler is needed for the probes: install gcc and libc6-dev")
        pytest.skip("no C compiler for the probe program")
    target = workspace() / "probe"
    command = [compiler, "-O1", "-static", "-s", "-Wall", "-Wextra", "-o", str(target), str(SOURCE), "-lpthread"]
    subprocess.run(command, check=True, capture_output=True)
    target.chmod(0o755)
    return target


@functools.cache
def syscall_numbers() -> dict[str, int]:
    """Return this machine's system call numbers by name, from its own headers."""
    probe_binary()
    text = subprocess.run(
        ["gcc", "-E", "-dM", "-"], input="#include <sys/syscall.h>\n", capture_output=True, text=True, check=True
    ).stdout
    return {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)$", text, re.MULTILINE)}


def call(name: str, *arguments: object) -> tuple[str, ...]:
    """Return the fields of one system call for the probe's ``sys`` command."""
    numbers = syscall_numbers()
    if name not in numbers:
        pytest.skip(f"this architecture has no {name}")
    return (str(numbers[name]), *map(str, arguments))


FOLDERS = ("proc", "sys", "dev", "etc", "tmp", "data", "usr", "var", "bin")
NET_RAW = "\x01\0\0\x02\0\x20" + "\0" * 14
"""``security.capability`` of cap_net_raw+ep (capabilities(7), VFS_CAP_REVISION_2)."""


def image_archive(config: Mapping[str, Any], files: Mapping[str, bytes] | None = None) -> tuple[bytes, str]:
    """Return a docker archive that holds the probe program, and its image id.

    A file whose name ends in ``.suid`` is set-uid root, one in ``.cap`` has cap_net_raw; content that begins with
    ``-> `` makes a link.
    """
    files = files or {}
    layer_file = io.BytesIO()
    with tarfile.open(fileobj=layer_file, mode="w", format=tarfile.PAX_FORMAT) as layer:
        for name in FOLDERS:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            if name not in files:
                layer.addfile(entry)
        for name, data in {"probe": probe_binary().read_bytes(), **files}.items():
            entry = tarfile.TarInfo(name)
            if data.startswith(b"-> "):
                entry.type, entry.linkname = tarfile.SYMTYPE, data[3:].decode()
                layer.addfile(entry)
                continue
            if name.endswith(".cap"):
                entry.pax_headers = {"SCHILY.xattr.security.capability": NET_RAW}
            entry.mode, entry.size = (0o4755 if name.endswith(".suid") else 0o755), len(data)
            layer.addfile(entry, io.BytesIO(data))
    layer_data = layer_file.getvalue()
    body = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine],
        "os": "linux",
        "config": dict(config),
        "created": "2026-01-01T00:00:00Z",
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer_data).hexdigest()]},
    }
    config_data = json.dumps(body).encode()
    digest = hashlib.sha256(config_data).hexdigest()
    manifest = [{"Config": f"{digest}.json", "RepoTags": [f"{PREFIX}/probe:{digest[:12]}"], "Layers": ["layer.tar"]}]
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as out:
        for name, data in (
            (f"{digest}.json", config_data),
            ("layer.tar", layer_data),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            out.addfile(entry, io.BytesIO(data))
    return archive.getvalue(), f"sha256:{digest}"


@functools.cache
def _load(config: str, files: tuple[tuple[str, bytes], ...], socket_path: str) -> str:
    import docker

    archive, image = image_archive(json.loads(config), dict(files))
    client = docker.DockerClient(base_url=f"unix://{socket_path}", timeout=120)
    try:
        if not any(found.id == image for found in client.images.list(PREFIX + "/probe")):
            client.images.load(archive)
    finally:
        client.close()
    return image


def probe_image(
    config: Mapping[str, Any] | None = None,
    files: Mapping[str, bytes] | None = None,
    socket_path: str = str(ENGINE_SOCKET),
) -> str:
    """Return the id of a loaded image with the probe program as ``/probe``, nothing else in it but ``files``."""
    return _load(json.dumps(config or {}, sort_keys=True), tuple(sorted((files or {}).items())), socket_path)


# --- asking a probe ---------------------------------------------------------------------------------------------------
class Answers:
    """How a probe is asked, sandboxed or free: a command goes out, one line of JSON comes back."""

    async def ask(self, *fields: object) -> dict[str, Any]:
        """Send one command and return its answer."""
        raise NotImplementedError

    async def errno(self, name: str, *arguments: object) -> str:
        """Return the outcome of one system call: ``OK``, an errno name, or ``signal <n>``."""
        return (await self.errnos(call(name, *arguments)))[-1]

    async def errnos(self, *calls: tuple[str, ...]) -> list[str]:
        """Return the outcomes of system calls that are made one after the other in one process."""
        fields: list[str] = []
        for number, one in enumerate(calls):
            fields += ([";"] if number else []) + list(one)
        answer = await self.ask("sys", *fields)
        outcomes = [name for name, _ in answer.get("calls", [])] or [answer.get("errno", "?")]
        return [*outcomes, f"signal {answer['signal']}"] if answer.get("signal") else outcomes

    async def read(self, path: str, most: int = 65536) -> tuple[str, str]:
        """Return errno name and text of a file."""
        answer = await self.ask("cat", path, most)
        return answer["errno"], bytes.fromhex(answer.get("hex", "")).decode("utf-8", "replace")

    async def status(self) -> dict[str, str]:
        """Return the fields of /proc/self/status."""
        _, text = await self.read("/proc/self/status")
        return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


@dataclass
class Inside(Answers):
    """A probe in a container, asked over the engine's attached socket."""

    stream: socket.socket
    container: str
    instance: DockerInstance | None = None
    recorder: MemoryRecorder | None = None
    _raw: bytes = b""
    _out: bytes = b""
    stderr: bytes = field(default=b"")

    async def ask(self, *fields: object) -> dict[str, Any]:
        """Send one command and return its answer."""
        await self.send(*fields)
        return await self.answer()

    async def send(self, *fields: object) -> None:
        """Send one command whose answer is not waited for."""
        line = "\t".join(map(str, fields)) + "\n"
        await asyncio.get_running_loop().sock_sendall(self.stream, line.encode())

    async def answer(self) -> dict[str, Any]:
        """Return the next answer."""
        async with asyncio.timeout(ANSWER_SECONDS):
            while b"\n" not in self._out:
                await self._receive()
        line, _, self._out = self._out.partition(b"\n")
        return dict(json.loads(line))

    async def _receive(self) -> None:
        data = await asyncio.get_running_loop().sock_recv(self.stream, 1 << 16)
        if not data:
            raise ConnectionError(f"the probe ended; stderr: {self.stderr[-500:]!r}")
        self._raw += data
        while len(self._raw) >= HEADER:
            size = int.from_bytes(self._raw[4:HEADER], "big")
            if len(self._raw) < HEADER + size:
                return
            piece, kind = self._raw[HEADER : HEADER + size], self._raw[0]
            self._raw = self._raw[HEADER + size :]
            if kind == 1:
                self._out += piece
            else:
                self.stderr += piece


@dataclass
class Outside(Answers):
    """A probe on this host without a sandbox, as the positive control."""

    process: asyncio.subprocess.Process

    async def ask(self, *fields: object) -> dict[str, Any]:
        """Send one command and return its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(("\t".join(map(str, fields)) + "\n").encode())
        async with asyncio.timeout(ANSWER_SECONDS):
            return dict(json.loads(await self.process.stdout.readline()))


# --- places -----------------------------------------------------------------------------------------------------------
def scope() -> Scope:
    """Return a scope that records to memory."""
    return Scope(MemoryRecorder(), Trace.new(), driver="test-driver")


@contextlib.asynccontextmanager
async def backend_for(socket_path: str = str(ENGINE_SOCKET), **options: Any) -> AsyncIterator[DockerBackend]:
    """Yield a backend of its own run, closed afterwards; closing fails when anything remains."""
    backend = DockerBackend(socket_path, owner.new_run_id(), **options)
    try:
        yield backend
    finally:
        await backend.close()


def probe_plan(**overrides: Any) -> SandboxPlan:
    """Return the baseline plan for the probe's image."""
    return baseline_plan(**{"image_id": probe_image(), **overrides})


@contextlib.asynccontextmanager
async def sandboxed(plan: SandboxPlan | None = None, backend: DockerBackend | None = None) -> AsyncIterator[Inside]:
    """Yield a probe that a backend launched from a plan."""
    async with contextlib.AsyncExitStack() as stack:
        own = backend or await stack.enter_async_context(backend_for())
        recorder = MemoryRecorder()
        instance = await own.launch(plan or probe_plan(), Scope(recorder, Trace.new()), {})
        assert instance.stream is not None
        try:
            yield Inside(instance.stream, instance.id, instance, recorder)
        finally:
            await instance.stop(0)
            instance.stream.close()


@contextlib.asynccontextmanager
async def plain_container(image: str | None = None, **host_config: Any) -> AsyncIterator[Inside]:
    """Yield a probe in a container as ``docker run -i`` makes it, for positive controls; ``host_config`` weakens it."""
    engine = Engine(ENGINE_SOCKET)
    body: dict[str, Any] = {
        "Image": image or probe_image(),
        "Entrypoint": ["/probe"],
        "Cmd": [],
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Labels": {f"{PREFIX}.control": "1"},
        "User": host_config.pop("User", ""),
        "HostConfig": {"NetworkMode": "none", "LogConfig": {"Type": "none"}, **host_config},
    }
    container, _ = await engine.create(body, f"{PREFIX}-control-{os.urandom(4).hex()}")
    stream = await engine.attach(container)
    try:
        await engine.start(container)
        yield Inside(stream, container)
    finally:
        stream.close()
        await engine.remove(container)


@contextlib.asynccontextmanager
async def on_host(user: int | None = NOBODY) -> AsyncIterator[Outside]:
    """Yield a probe that runs on this host without any sandbox, unprivileged where this process may change that."""
    changed = {"user": user, "group": user, "extra_groups": []} if user is not None and os.geteuid() == 0 else {}
    process = await asyncio.create_subprocess_exec(
        str(probe_binary()), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", **changed
    )
    try:
        yield Outside(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        # Let the pipe's transport see its end before the loop closes.
        process._transport.close()


async def with_label(label: str, socket_path: str = str(ENGINE_SOCKET)) -> list[str]:
    """Return what carries a label, as ``<kind> <id>``."""
    engine = Engine(socket_path)
    found: list[str] = []
    for kind in ("containers", "networks", "volumes"):
        found += [f"{kind} {row.get('Id') or row['Name']}" for row in await engine.labelled(kind, label)]
    return found


@functools.cache
def shipped_image(name: str) -> str:
    """Return the id of one of the project's own images, built where it is missing (minutes, once on a machine)."""
    from sandbox.launch.images.host import host_images

    return host_images().ensure(name).id


WEAK_CAPABILITIES = (
    "SYS_ADMIN",
    "SYS_PTRACE",
    "SYS_CHROOT",
    "SYSLOG",
    "SYS_TIME",
    "SYS_BOOT",
    "SYS_MODULE",
    "NET_ADMIN",
)


def weak_container(**host_config: Any) -> contextlib.AbstractAsyncContextManager[Inside]:
    """Yield a probe as root with capabilities and without a filter: what the baseline takes away, for controls."""
    caps = [*WEAK_CAPABILITIES, "DAC_READ_SEARCH", "SYS_RAWIO", "SYS_PACCT", "SYS_NICE"]
    return plain_container(CapAdd=caps, SecurityOpt=["seccomp=unconfined", "apparmor=unconfined"], **host_config)
