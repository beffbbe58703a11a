"""Runs one program of a build in a hardened container: a tar file in on stdin, a tar file out on stdout.

Nothing of the host is mounted, so it works with an engine whose file system is not ours, and nothing that the program
writes reaches the host except the bytes of that one stream, which :mod:`sandbox.launch.images.unpack` reads as hostile.

The container has no capabilities, no new privileges, uid 65532, a read-only root, tmpfs ``/work`` and ``/tmp``,
bounds on memory, processes, time and output, the ``net`` or ``nonet`` seccomp profile, no log, and the labels that
reaping looks for. Whatever happens it is removed before :meth:`Runner.run` returns.
"""

from __future__ import annotations

import re
import secrets
import socket
import struct
import tarfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from sandbox.errors import PlatformError
from sandbox.launch import owner, seccomp
from sandbox.launch.images.archive import write_member
from sandbox.launch.images.engine import ImageEngine
from sandbox.launch.images.progress import Progress
from sandbox.launch.interface import LABEL_OWNER, LABEL_ROLE, LABEL_RUN
from sandbox.limits import GIB, MIB

BUILD_MEMORY: Final = 3 * GIB
"""Of one build container, its tmpfs included: npm needs about 1 GB for trees of a thousand packages."""

BUILD_WORK: Final = 2 * GIB
"""Of its ``/work``; the largest known server trees have 300 MB."""

BUILD_PIDS: Final = 512
"""Processes and threads; npm and uv use below 100."""

BUILD_SECONDS: Final = 900.0
"""One build; npm resolving a large tree over a slow line takes minutes."""

KEPT_LOG_BYTES: Final = 16 * 1024
"""Of what the program says on stderr, the end, for the message when it fails."""

_ADDRESS: Final = re.compile(r"[a-z+]+://\S+")
_FRAME: Final = struct.Struct(">BxxxL")
_STDERR: Final = 2
_USER: Final = "65532:65532"


@dataclass(frozen=True, slots=True)
class BuildNetwork:
    """How a build container reaches the package registry; the egress broker confines it to that.

    Attributes:
        network_mode: what the engine is told (``none``, ``bridge``, ``container:<id>``).
        mounts: further read-only files, host path → path inside.
        env: variables set as a convenience; nothing depends on them.
    """

    network_mode: str = "bridge"
    mounts: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


NO_NETWORK: Final = BuildNetwork("none")


@dataclass(frozen=True, slots=True)
class Job:
    """What to run.

    Attributes:
        image: id of a build image.
        argv: program and arguments; it runs in ``/work``.
        files: path below ``/work`` → contents, sent before it starts; empty: stdin is empty.
        env: environment.
        what: purpose in the infinitive, for messages (``install the npm packages``).
    """

    image: str
    argv: tuple[str, ...]
    what: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    network: BuildNetwork = NO_NETWORK
    max_output: int = BUILD_WORK
    seconds: float = BUILD_SECONDS


class BuildFailed(PlatformError):
    """The program of a build ended with an error.

    Attributes:
        code: its exit status.
        log: the end of what it said on stderr; untrusted text.
    """

    def __init__(self, job: Job, code: int, log: str) -> None:
        self.code = code
        self.log = log
        last = next((line for line in reversed(log.splitlines()) if line.strip()), "it said nothing")
        last = _ADDRESS.sub("(address)", last)  # messages are copied around; addresses may hold credentials
        super().__init__(
            "IMG-003", f"the build could not {job.what} (status {code}): {last[:300]}", "see the lines above it"
        )


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs jobs on one engine and tells what they say."""

    engine: ImageEngine
    progress: Progress

    def run(self, job: Job, output: Path) -> None:
        """Run a job to its end and write what it put on stdout to ``output``.

        Raises:
            BuildFailed: ``IMG-003``, it ended with an error.
            PlatformError: ``IMG-004`` it took too long or wrote too much, ``IMG-002`` the engine failed.
        """
        container = self.engine.create(_body(job), f"mcp-sandbox-build-{secrets.token_hex(6)}")
        try:
            log = self._attached(container, job, output)
            code = self.engine.wait(container)
        finally:
            self.engine.remove(container)
        if code:
            raise BuildFailed(job, code, log)

    def _attached(self, container: str, job: Job, output: Path) -> str:
        with self.engine.attach(container) as sock, output.open("wb") as sink:
            sock.settimeout(job.seconds)
            expired = threading.Event()
            timer = threading.Timer(job.seconds, _expire, (expired, self.engine, container))
            timer.start()
            try:
                self.engine.start(container)
                _send(sock, job)
                return self._receive(sock, sink, job)
            finally:
                timer.cancel()
                if expired.is_set():
                    raise _beyond(job, f"took longer than {job.seconds:.0f} s")

    def _receive(self, sock: socket.socket, sink: IO[bytes], job: Job) -> str:
        """Copy stdout to ``sink``, tell stderr line by line, return the end of stderr."""
        written, log = 0, _Log(self.progress)
        with sock.makefile("rb") as stream:
            while header := stream.read(_FRAME.size):
                kind, size = _FRAME.unpack(header)
                data = stream.read(size)
                if kind == _STDERR:
                    log.feed(data)
                    continue
                written += len(data)
                if written > job.max_output:
                    raise _beyond(job, f"wrote more than {job.max_output} bytes")
                sink.write(data)
        return log.end()


class _Log:
    """Splits what a program says into lines without control characters, and keeps the end of it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._rest = b""
        self._kept = ""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data)[-KEPT_LOG_BYTES:].split(b"\n")
        for line in lines:
            text = "".join(char if char.isprintable() else " " for char in line.decode("utf-8", "replace")).rstrip()
            self._kept = f"{self._kept}{text}\n"[-KEPT_LOG_BYTES:]
            if text:
                self._progress.detail(text)

    def end(self) -> str:
        self.feed(b"\n")
        return self._kept


def _send(sock: socket.socket, job: Job) -> None:
    """Send the job's files as a tar file and end its stdin."""
    try:
        if job.files:
            with (
                sock.makefile("wb") as sink,
                tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT) as archive,
            ):
                for path, data in sorted(job.files.items()):
                    write_member(archive, path, data)
        sock.shutdown(socket.SHUT_WR)
    except (BrokenPipeError, ConnectionResetError):
        return  # it ended early; its status and its stderr say why


def _body(job: Job) -> dict[str, Any]:
    """Return the engine's create request."""
    profile = seccomp.load("nonet" if job.network.network_mode == "none" else "net")
    tmpfs = "rw,noexec,nosuid,nodev,mode=1777"
    return {
        "Image": job.image,
        "Entrypoint": list(job.argv),
        "Cmd": [],
        "User": _USER,
        "WorkingDir": "/work",
        "Env": [f"{name}={value}" for name, value in sorted({**job.env, **job.network.env}.items())],
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "OpenStdin": True,
        "StdinOnce": True,
        "Labels": {LABEL_RUN: owner.new_run_id(), LABEL_OWNER: owner.own(), LABEL_ROLE: "build"},
        "HostConfig": {
            "NetworkMode": job.network.network_mode,
            "Mounts": [_mount(source, target) for source, target in sorted(job.network.mounts.items())],
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges:true", f"seccomp={profile.text}"],
            "ReadonlyRootfs": True,
            "Tmpfs": {"/work": f"{tmpfs},uid=65532,gid=65532,size={BUILD_WORK}", "/tmp": f"{tmpfs},size={256 * MIB}"},  # noqa: S108
            "Memory": BUILD_MEMORY,
            "MemorySwap": BUILD_MEMORY,
            "PidsLimit": BUILD_PIDS,
            "IpcMode": "none",
            "CgroupnsMode": "private",
            "LogConfig": {"Type": "none"},
            "Init": True,
            "AutoRemove": False,
        },
    }


def _mount(source: str, target: str) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": source,
        "Target": target,
        "ReadOnly": True,
        "BindOptions": {"NonRecursive": True, "Propagation": "rprivate"},
    }


def _expire(expired: threading.Event, engine: ImageEngine, container: str) -> None:
    expired.set()
    engine.remove(container)


def _beyond(job: Job, what: str) -> PlatformError:
    return PlatformError(
        "IMG-004",
        f"the build to {job.what} {what} and was stopped",
        "try again; if the package needs more, install it into an image of your own (`server.kind: docker`)",
    )
