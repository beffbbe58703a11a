"""What every command that runs a driver stands on: an engine, a scope, and the review of the driver beside both.

Light to import: what is heavy (:mod:`sandbox.cli.wiring`) is imported in a thread while the engine works.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import importlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from sandbox.cli import prepared
from sandbox.cli.report import line_of, say
from sandbox.errors import AuditUnavailable, PlatformError
from sandbox.events import Recorder, Scope, Trace
from sandbox.launch import discover, owner
from sandbox.launch.docker import DockerBackend
from sandbox.launch.interface import Backend, Instance, NetworkProvider
from sandbox.launch.remote import RemoteBackend
from sandbox.limits import STOP_GRACE
from sandbox.plan.model import EngineFacts, SandboxPlan

if TYPE_CHECKING:
    from sandbox.spec.model import DriverSpec

T = TypeVar("T")


@dataclass(slots=True)
class Bench:
    """Everything one command works with.

    Attributes:
        spec: the driver.
        plan: made from it for this host.
        backend: an engine, identified.
        scope: where facts are recorded.
        secrets: slug → value of the plan's secret variables.
        instance: already started from this very plan, or ``None``.
    """

    spec: DriverSpec
    plan: SandboxPlan
    backend: Backend
    scope: Scope
    secrets: dict[str, str]
    instance: Instance | None = None


def run_async(work: Callable[[], Awaitable[T]]) -> T:
    """Run asynchronous work on asyncio, on uvloop where it is installed."""

    async def told() -> T:
        asyncio.get_running_loop().set_exception_handler(_in_callback)
        return await work()

    try:
        import uvloop  # noqa: F401 - probed only
    except ImportError:
        return anyio.run(told)
    return anyio.run(told, backend_options={"use_uvloop": True})


def _in_callback(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Leave out the traceback of a trail that cannot be written: the next record fails alike, and is told in a line."""
    if not isinstance(context.get("exception"), AuditUnavailable):
        loop.default_exception_handler(context)


class _NoEngine(DockerBackend):
    """Says that there is no engine when it is asked what one can do; a remote server needs none."""

    def __init__(self, error: PlatformError) -> None:
        super().__init__("", "")
        self._error = error

    async def facts(self) -> EngineFacts:
        """Raise why there is no engine."""
        raise self._error


@asynccontextmanager
async def engine(*, optional: bool = False) -> AsyncIterator[DockerBackend]:
    """Open the container engine of this host for one run, and close it with everything that was started.

    Args:
        optional: without an engine say so only when its facts are needed.
    """
    try:
        found = await discover.connect(os.environ)
    except PlatformError as error:
        if not optional:
            raise
        yield _NoEngine(error)
        return
    backend = DockerBackend(found.socket_path, owner.new_run_id())
    backend.engine = found
    try:
        yield backend
    finally:
        with anyio.CancelScope(shield=True):
            await backend.close()


async def reviewed(
    arguments: argparse.Namespace, backend: DockerBackend, progress: Any = None, *, learning: bool = False
) -> Any:
    """Load the driver, see to its image and derive its plan; the blocking part in a thread."""
    loop = asyncio.get_running_loop()
    asking = asyncio.create_task(backend.facts())
    try:
        wiring = await loop.run_in_executor(None, importlib.import_module, "sandbox.cli.wiring")
        work = functools.partial(wiring.review, learning=learning)
        review = await loop.run_in_executor(None, work, arguments, backend.engine.socket_path, progress)
        if review.spec.server.kind == "remote":
            return review.planned(EngineFacts("none", "", "", (), ""))
        return review.planned(await asking)
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


@asynccontextmanager
async def bench(
    arguments: argparse.Namespace, recorder: Recorder, progress: Any = None, *, learning: bool = False
) -> AsyncIterator[Bench]:
    """Open everything that running one driver needs, beginning with a kept plan where there is one (ADR 0016).

    Args:
        arguments: of the command.
        recorder: where facts go.
        progress: who is told of long steps.
        learning: refuse every destination and record it.
    """
    async with engine(optional=True) as backend:
        scope = Scope(recorder, Trace.new(), tenant=getattr(arguments, "tenant", "local") or "local")
        kept = None if learning else prepared.load(arguments)
        starting: asyncio.Task[Instance] | None = None
        if kept is not None:
            early = replace(scope, driver=kept.driver_id)
            early.fact("plan.reuse", digest=kept.digest(), image=kept.image_id)
            starting = asyncio.create_task(backend.launch(kept, early, {}))
        try:
            review = await reviewed(arguments, backend, progress, learning=learning)
            scope = replace(scope, driver=review.spec.id)
            review.record(scope)
            if starting is not None and kept is not None and kept.digest() != review.plan.digest():
                await _undo(starting, scope)
                starting = None
            if (kept is None or starting is None) and not learning:
                prepared.keep(arguments, review.plan, review.manifests)
            if review.plan.network.mode == "broker":
                backend.use_network(_egress(backend, review.egress_image, recorder, learning=learning))
            instance = await starting if starting is not None else None
        except BaseException:
            if starting is not None:
                with anyio.CancelScope(shield=True):
                    await _undo(starting, scope)
            raise
        secrets = review.secrets()
        if secrets:
            getattr(recorder, "add_secrets", _keep_out)(*secrets.values())
        chosen = RemoteBackend() if review.plan.server_kind == "remote" else backend
        yield Bench(review.spec, review.plan, chosen, scope, secrets, instance)


def _keep_out(*_values: str) -> None:
    """Refuse secrets in front of a recorder that cannot keep them out of its records."""
    raise AuditUnavailable("CLI-016", "this recorder cannot redact secrets", "use the audit ledger")


def _egress(backend: DockerBackend, image: str, recorder: Recorder, *, learning: bool) -> NetworkProvider:
    """Return the provider that enforces egress rules, its containers on their way; denials are told on stderr."""
    from sandbox.launch.egress.notices import Notices  # only drivers with a network pay for it
    from sandbox.launch.egress.provider import EgressProvider

    clean = getattr(recorder, "redacted", str)  # what a server looks up may hold what it was given
    notices = Notices(lambda line: say(f"mcp-sandbox: {line_of(clean(line))}"))
    provider = EgressProvider(
        backend.engine,
        backend.run_id,
        image=image,
        told=_unheard if learning else notices.fact,  # a proposal says it all at the end
        learning=learning,
        spare=0,
    )
    provider.prepare()
    return provider


def _unheard(_name: str, _attributes: Mapping[str, Any]) -> None:
    """Tell nobody."""


async def _undo(starting: asyncio.Task[Instance], scope: Scope) -> None:
    """Remove what was begun with a plan that is not the reviewed one, or that nobody needs any more."""
    starting.cancel()
    (outcome,) = await asyncio.gather(starting, return_exceptions=True)
    if not isinstance(outcome, BaseException):
        await outcome.stop(STOP_GRACE)
    scope.fact("plan.discard", reason="the review made another plan, or none")
