"""The backend for Docker's API, which Podman's socket speaks too: plans become running, read-back containers.

Steps of a launch, numbered as in :meth:`DockerBackend.launch`; after a failure in any of them everything made so far is
removed and the failure is sorted into platform or server fault (:mod:`sandbox.launch.failure`):

1. the plan can be carried out here: profile as planned, image present, no volume of the image's own;
2. the watchdog lives, then the network attachment is made;
3. the intent is recorded, durably;
4. create;
5. attach, before the start, so that no byte of the server is lost;
6. start;
7. read back: the engine's description against the request, the kernel's against the plan; any difference is fatal. The
   server boots meanwhile, but nobody has its stream yet, so no client's byte reaches it before this has passed;
8. the outcome is recorded, and only then is the instance handed out.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from sandbox.errors import AuditUnavailable, PlanRefused, PlatformError, ReadbackMismatch, SandboxError, ServerFault
from sandbox.events import Scope
from sandbox.launch import facts, failure, handover, kernel, owner, preflight, procfacts, readback, reap, translate
from sandbox.launch.engine import Engine, EngineError
from sandbox.launch.instance import REMOVAL_PAUSE, DockerInstance
from sandbox.launch.interface import (
    LABEL_OWNER,
    LABEL_PLAN,
    LABEL_ROLE,
    LABEL_RUN,
    Difference,
    NetworkAttachment,
    NetworkProvider,
)
from sandbox.launch.leash import Leash
from sandbox.limits import ENGINE_TIMEOUT, KIB, STOP_GRACE
from sandbox.plan.model import EngineFacts, ImageFacts, SandboxPlan

if TYPE_CHECKING:
    from sandbox.launch.egress.substitution import Substitution

T = TypeVar("T")

LATE_SECONDS: Final = 3.0
"""After which an engine that calls a vanished process running is believed to run it elsewhere."""

LATE_PAUSE: Final = 0.05
"""Between two questions about it."""

MAX_LAST_WORDS: Final = 2 * KIB
"""Bytes of a server's stderr that are quoted when it ends before it was handed out."""

SHOWN_DIFFERENCES: Final = 8
"""Of a read-back in the error's sentence; the error object has all."""


@dataclass(frozen=True, slots=True)
class _Made:
    """What a launch has made so far: the request, the container, its stream."""

    plan: SandboxPlan
    joined: translate.Joined
    request: Mapping[str, Any]
    container: str
    stream: socket.socket | None


class DockerBackend:
    """Starts plans on one engine, under one run id.

    Args:
        socket_path: the engine's unix socket.
        run_id: label of everything that this backend makes.
        network_provider: enforces ``network.mode == "broker"``; without one only ``none`` is possible.
        unsafe_unseen_process: accept a container whose process this host's kernel does not show (an engine in another
            machine or PID namespace); the kernel's word is then missing from the read-back.
    """

    name = "docker"

    def __init__(
        self,
        socket_path: str | Path,
        run_id: str,
        network_provider: NetworkProvider | None = None,
        *,
        unsafe_unseen_process: bool = False,
    ) -> None:
        self.engine = Engine(socket_path)
        self.run_id = run_id
        self._network_provider = network_provider
        self._unsafe_unseen_process = unsafe_unseen_process
        self._owner = owner.own()
        self._leash: Leash | None = None
        self._instances: dict[str, DockerInstance] = {}
        self._handed: dict[str, handover.Handover] = {}
        self._numbers = itertools.count(1)

    def use_network(self, provider: NetworkProvider) -> None:
        """Have ``provider`` enforce the networks of plans launched from now on; it is closed with this backend."""
        self._network_provider = provider

    async def facts(self) -> EngineFacts:
        """Return what this engine can enforce.

        Raises:
            PlatformError: ``LAUNCH-001``, no engine answers.
        """
        return await facts.engine_facts(self.engine)

    async def image(self, reference: str) -> ImageFacts | None:
        """Return an image that is present, or ``None``; never pulls."""
        described = await self.engine.image(reference)
        return None if described is None else facts.image_facts(reference, described)

    async def launch(self, plan: SandboxPlan, scope: Scope, secrets: Mapping[str, str]) -> DockerInstance:
        """Create, attach, start and read back one container.

        Args:
            plan: what to run; nothing is added or dropped.
            scope: where intent and outcome are recorded.
            secrets: slug → value, for the plan's environment; never logged, never in argv or labels.

        Raises:
            ReadbackMismatch: ``LAUNCH-030``, something other than the plan runs; it was removed again.
            PlanRefused: the plan cannot be carried out here.
            PlatformError: the engine refused or failed; nothing is left behind.
            ServerFault: the program could not be executed or ended at once.
        """
        # 1. the plan can be carried out here
        profile = preflight.profile_of(plan)
        preflight.check_engine(await self.engine.identify())
        preflight.check_secrets(plan, secrets)
        described = await self.engine.image(plan.image_id)
        # 2. watchdog, then network
        self._watch()
        handed = handover.hand_over(plan, secrets, self.run_id)
        attachment = None
        try:
            attachment = await self._attach_network(plan, scope, handed.substitution)
            joined = preflight.joined_by(attachment, handed.mounts)
            preflight.check_image(plan, joined, described)
            request = translate.create_request(
                plan, joined, self.labels(plan), handed.values, profile.text, preflight.image_env(described)
            )
            instance = await self._start(plan, joined, request, attachment, scope)
            self._handed[instance.id] = handed
        except BaseException:
            handed.remove()
            if attachment is not None:
                with anyio.CancelScope(shield=True):
                    await attachment.close()
            raise
        return instance

    async def close(self) -> None:
        """Stop everything this backend started and release the engine; what cannot be removed is left to the watchdog.

        Raises:
            PlatformError: ``LAUNCH-008``, something of this run remains; or the engine is away.
            AuditUnavailable: everything is gone, and its end could not be recorded.
        """
        unrecorded: list[AuditUnavailable] = []
        with anyio.CancelScope(shield=True):
            try:
                async with anyio.create_task_group() as group:
                    for instance in list(self._instances.values()):
                        group.start_soon(_stop, instance, unrecorded)
                if self._network_provider is not None:
                    await self._network_provider.close()
            finally:
                handover.clear(self.run_id)
                await self._take_leave()
        if unrecorded:
            raise unrecorded[0]

    def labels(self, plan: SandboxPlan, role: str = "server") -> dict[str, str]:
        """Return the labels of a container of this run."""
        return {
            LABEL_RUN: self.run_id,
            LABEL_OWNER: self._owner,
            LABEL_PLAN: plan.digest(),
            LABEL_ROLE: role,
        }

    def _watch(self) -> None:
        """Have a living watchdog before anything exists that it would have to remove."""
        if self._leash is None or not self._leash.alive():
            self._leash = Leash(self.engine.socket_path, self.run_id, handover.place_of(self.run_id))

    async def _take_leave(self) -> None:
        leash, self._leash = self._leash, None
        if leash is None:
            return
        try:
            await reap.remove_run(self.engine, self.run_id)
            left = await reap.remains(self.engine, self.run_id)
        except BaseException:
            leash.abandon()
            raise
        if left:
            leash.abandon()
            raise PlatformError(
                "LAUNCH-008",
                f"of this run remain: {', '.join(left)}",
                "the watchdog goes on removing them; `mcp-sandbox reap` does it at once",
            )
        leash.release()

    async def _attach_network(
        self, plan: SandboxPlan, scope: Scope, substitution: Substitution | None
    ) -> NetworkAttachment | None:
        if plan.network.mode == "none":
            return None
        if self._network_provider is None:
            raise PlanRefused(
                "LAUNCH-014",
                "the plan allows egress, and no egress broker is there to enforce its rules",
                "run it with the broker, or set `sandbox.network.egress: []`",
            )
        if substitution is None:
            return await self._network_provider.attach(plan, scope, self.run_id)
        return await self._network_provider.attach(plan, scope, self.run_id, substitution)

    async def _start(
        self,
        plan: SandboxPlan,
        joined: translate.Joined,
        request: Mapping[str, Any],
        attachment: NetworkAttachment | None,
        scope: Scope,
    ) -> DockerInstance:
        """Steps 3 to 8, with removal on every path."""
        name = f"mcp-sandbox-{self.run_id[:12]}-{next(self._numbers)}"
        # 3. intent
        scope.intent(
            "launch.create", container_name=name, image=plan.image_id, plan=plan.digest(), network=joined.network_mode
        )
        container: str = name
        stream: socket.socket | None = None
        step: failure.Step = "create"
        try:
            # 4. create
            container, warnings = await _to_its_end(self.engine.create(request, name))
            preflight.check_warnings(warnings)
            # 5. attach
            step = "attach"
            stream = await self.engine.attach(container) if plan.transport == "stdio" else None
            # 6. start
            step = "start"
            await self.engine.start(container)
            # 7. read back
            step = "inspect"
            made = _Made(plan, joined, request, container, stream)
            unseen = await self._read_back(made)
            # 8. outcome
            scope.outcome("launch.create", ok=True, container=container, container_name=name, unseen=list(unseen))
        except EngineError as error:
            await self._discard(container, stream)
            sorted_error = failure.classify(step, error.status, error.reason, preflight.foreign_texts(plan))
            _record_failure(scope, name, sorted_error)
            raise sorted_error from None
        except SandboxError as error:
            await self._discard(container, stream)
            _record_failure(scope, name, error)
            raise
        except BaseException:
            await self._discard(container, stream)
            scope.outcome("launch.create", ok=False, container_name=name, error="cancelled")
            raise
        instance = DockerInstance(self.engine, container, plan, stream, scope, attachment, self._forget)
        self._instances[container] = instance
        return instance

    def _forget(self, container: str) -> None:
        self._instances.pop(container, None)
        handed = self._handed.pop(container, None)
        if handed is not None:
            handed.remove()

    async def _discard(self, container: str, stream: socket.socket | None) -> None:
        """Remove what a failed or cancelled launch made; what fails here is left to the watchdog."""
        if stream is not None:
            stream.close()
        with anyio.move_on_after(ENGINE_TIMEOUT, shield=True):
            while True:
                try:
                    await self.engine.remove(container)
                except PlatformError as error:
                    # Otherwise the error that led here says more, and the watchdog removes by label.
                    if not (isinstance(error, EngineError) and error.status == reap.BUSY):
                        return
                    await anyio.sleep(REMOVAL_PAUSE)  # the engine removes it itself at this moment
                else:
                    return

    async def _read_back(self, made: _Made) -> tuple[str, ...]:
        """Raise unless what runs is what was planned; return what could not be seen.

        Raises:
            ReadbackMismatch: ``LAUNCH-030``.
            PlatformError: ``LAUNCH-035``, the process cannot be seen.
            ServerFault: ``LAUNCH-041``, it ended already.
        """
        inspected = await self.engine.inspect(made.container)
        _refuse(readback.differences(made.request, inspected))
        state = inspected.get("State") or {}
        if state.get("Running"):
            try:
                return await self._ask_kernel(made, int(state.get("Pid") or 0))
            except procfacts.NotVisibleError as error:
                state = await self._state_soon(made.container)
                if state.get("Running"):
                    return self._unseen(error)
        raise _ended(state, made.stream)

    async def _state_soon(self, container: str) -> Mapping[str, Any]:
        """Return a container's state once it is not running, or after a while: the engine learns of an end late."""
        deadline = time.monotonic() + LATE_SECONDS
        while True:
            state: Mapping[str, Any] = (await self.engine.inspect(container)).get("State") or {}
            if not state.get("Running") or time.monotonic() > deadline:
                return state
            await asyncio.sleep(LATE_PAUSE)

    async def _ask_kernel(self, made: _Made, pid: int) -> tuple[str, ...]:
        await procfacts.executed(pid, made.container)
        plan, joined = made.plan, made.joined
        sources = [mount.source for mount in plan.mounts] + list(joined.mounts)
        seen = procfacts.gather(pid, sources, kernel.guarded_paths(plan))
        if plan.runtime not in translate.RUNC_LIKE:
            _refuse(tuple(kernel.cgroup_differences(plan, seen.cgroup)))
            return ("process",)
        _refuse(kernel.differences(plan, joined, seen))
        return () if seen.shared_namespaces is not None else ("namespaces",)

    def _unseen(self, error: procfacts.NotVisibleError) -> tuple[str, ...]:
        if self._unsafe_unseen_process:
            return ("process", "cgroup")
        raise PlatformError(
            "LAUNCH-035",
            f"the running process cannot be read back: {error}",
            "run mcp-sandbox on the engine's own machine, outside containers",
        )


async def _stop(instance: DockerInstance, unrecorded: list[AuditUnavailable]) -> None:
    """Stop one of many; a container that could not be removed shows when the backend takes its leave."""
    try:
        await instance.stop(STOP_GRACE)
    except AuditUnavailable as error:
        unrecorded.append(error)
    except PlatformError:
        return


async def _to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Await work that a cancellation must not interrupt; the cancellation is raised when the work has ended.

    An engine goes on creating a container when its client has gone, so the end must be known before the removal.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task])
        raise


def _refuse(differences: tuple[Difference, ...]) -> None:
    if not differences:
        return
    shown = "; ".join(
        f"{item.field}: planned {_short(item.planned)}, running {_short(item.running)}"
        for item in differences[:SHOWN_DIFFERENCES]
    )
    more = f" (and {len(differences) - SHOWN_DIFFERENCES} more)" if len(differences) > SHOWN_DIFFERENCES else ""
    error = ReadbackMismatch(
        "LAUNCH-030",
        f"what runs is not what was planned: {shown}{more}",
        "the container was removed; see `mcp-sandbox doctor` for what this engine ignores",
    )
    error.differences = differences
    raise error


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:119] + "…"  # noqa: PLR2004 - a line for people


def _ended(state: Mapping[str, Any], stream: socket.socket | None) -> ServerFault:
    """Return the fault of a server that ended before it was read back, with its last words."""
    code = int(state.get("ExitCode") or 0)
    words = failure.shorten(_last_words(stream).decode("utf-8", "replace"))
    killed = bool(state.get("OOMKilled"))
    how = "was killed for memory" if killed else f"ended with status {code}"
    mend = "run it outside the sandbox once; 126 and 127 mean that its program could not be executed"
    return ServerFault(
        "LAUNCH-041",
        f"the server {how} before it was ready" + (f"; it wrote: {words}" if words else ""),
        "raise `limits.memory_mb`" if killed else mend,
    )


def _last_words(stream: socket.socket | None) -> bytes:
    """Return what the server left on stderr, from what has arrived; bounded, never waited for."""
    if stream is None:
        return b""
    try:
        data = stream.recv(MAX_LAST_WORDS)
    except OSError:
        return b""
    words = b""
    while len(data) > 8:  # noqa: PLR2004 - header of the engine's framing
        size = int.from_bytes(data[4:8], "big")
        words += data[8 : 8 + size] if data[0] == 2 else b""  # noqa: PLR2004 - stderr
        data = data[8 + size :]
    return words


def _record_failure(scope: Scope, name: str, error: SandboxError) -> None:
    scope.outcome("launch.create", ok=False, container_name=name, error=error.id)
