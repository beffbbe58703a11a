"""What a container backend promises: protocols, values and the guarantees that every implementation gives.

Docker is the first backend; ``sandbox.testing`` has an in-memory one and the conformance suite that any backend must
pass.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from sandbox.errors import PlatformError
from sandbox.events import Scope
from sandbox.plan.model import EngineFacts, ImageFacts, SandboxPlan

LABEL_RUN = "io.mcp-sandbox.run"
"""Label on every container, network and volume of one supervisor process: its run id. What reaping looks for."""

LABEL_OWNER = "io.mcp-sandbox.owner"
"""Label with ``<boot id>:<pid>:<start time>:<pid namespace>`` of the supervisor: reaping spares what is alive."""

LABEL_PLAN = "io.mcp-sandbox.plan"
"""Label with the plan's digest."""

LABEL_ROLE = "io.mcp-sandbox.role"
"""``server``, ``holder``, ``broker`` or ``build``."""


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How an instance ended.

    Attributes:
        code: exit status; 128 + n for signal n; -1 when unknown.
        oom_killed: the kernel killed it for memory, by the engine's word.
        error: the engine's message, when it could not start the process.
    """

    code: int
    oom_killed: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Resource figures of one instance; sizes in bytes, time in seconds; ``None`` where nobody says.

    Attributes:
        memory_peak_bytes: largest so far; with cgroup version 2 by the kernel's own file, where it can be read.
        bytes_up: sent through the egress broker over connections that have ended; ``None`` without a network.
        bytes_down: received likewise.
    """

    memory_bytes: int | None = None
    memory_peak_bytes: int | None = None
    cpu_seconds: float | None = None
    pids: int | None = None
    bytes_up: int | None = None
    bytes_down: int | None = None


class Instance(Protocol):
    """A started, read-back server.

    Attributes:
        id: engine's container id.
        plan: what it was started from.
        stream: connected socket with the server's stdio, in the engine's multiplexed framing (8-byte header: stream
        number,
            three zero bytes, big-endian length). ``None`` when the transport is not stdio. The caller owns it.
    """

    id: str
    plan: SandboxPlan
    stream: socket.socket | None

    def during(self, call: str) -> AbstractContextManager[None]:
        """Return a context in which what the server does on the network is recorded with a call, named by its span."""

    async def wait(self) -> ExitStatus:
        """Return when the process has ended.

        Raises:
            PlatformError: the engine vanished, or its network did; never raised for the server's own exit.
        """

    async def usage(self) -> Usage:
        """Return current resource figures."""

    async def pause(self) -> None:
        """Freeze every process of the instance."""

    async def unpause(self) -> None:
        """Thaw it."""

    async def stop(self, grace: float) -> ExitStatus:
        """End the process within ``grace`` seconds and remove every trace.

        Idempotent; a container that is gone already is no error.
        """


class Backend(Protocol):
    """Starts plans. Only this package and the CLI name an implementation."""

    name: str

    async def facts(self) -> EngineFacts:
        """Return what this engine can enforce.

        Raises:
            PlatformError: ``LAUNCH-001``, no engine answers.
        """

    async def image(self, reference: str) -> ImageFacts | None:
        """Return an image that is present, or ``None``; never pulls."""

    async def launch(self, plan: SandboxPlan, scope: Scope, secrets: Mapping[str, str]) -> Instance:
        """Create, attach, start and read back one container.

        Args:
            plan: what to run; nothing is added or dropped.
            scope: where intent and outcome are recorded.
            secrets: slug → value, for the plan's environment; never logged, never in argv or labels.

        Raises:
            ReadbackMismatch: something other than the plan runs; it was removed again.
            PlatformError: the engine refused or failed; nothing is left behind.
            ServerFault: the program could not be executed or ended at once.
        """

    async def close(self) -> None:
        """Stop everything this backend started and release the engine."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One field in which the running container differs from its plan."""

    field: str
    planned: Any
    running: Any


@dataclass(frozen=True, slots=True)
class Reaped:
    """What a reaping pass removed, by kind."""

    containers: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    spared: tuple[str, ...] = field(default_factory=tuple)


class NetworkAttachment(Protocol):
    """A network that one server joins, made before its container and removed after it.

    Attributes:
        network_mode: what the engine is told (``none``, ``container:<id>``).
        mounts: further read-only files the sandbox needs (``/etc/resolv.conf``), host path → path inside.
        env: variables set as a convenience only; nothing depends on them.
        carried: bytes up and down of connections that have ended.
    """

    network_mode: str
    mounts: Mapping[str, str]
    env: Mapping[str, str]
    carried: tuple[int, int]

    def serves(self, instance: str) -> None:
        """Name the instance that has joined, for the record."""

    def during(self, call: str) -> AbstractContextManager[None]:
        """Return a context in which facts about the network carry a call, named by its span."""

    async def until_lost(self) -> PlatformError:
        """Return why the network is gone for good, once it is; the instance is ended then."""

    async def close(self) -> None:
        """Detach the policy and remove the attachment; idempotent."""


class NetworkProvider(Protocol):
    """Makes attachments that enforce ``plan.network``; the egress broker is one.

    A backend without a provider can do ``none`` only.
    """

    async def attach(self, plan: SandboxPlan, scope: Scope, run_id: str, substitution: Any = None) -> NetworkAttachment:
        """Return an attachment whose policy is in force before this returns.

        Args:
            plan: whose network it is.
            scope: where facts are recorded.
            run_id: of the supervisor.
            substitution: a :class:`~sandbox.launch.egress.substitution.Substitution`, for plans with ``substitutes``.

        Raises:
            PlanRefused: the rules cannot be enforced here.
            PlatformError: the broker or the holder failed; nothing is left behind.
        """

    async def close(self) -> None:
        """Remove the broker and everything it holds."""
