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

from sandbox.cli import options, prepared
from sandbox.cli.report import line_of, say
from sandbox.errors import AuditUnavailable, PlatformError, SandboxError
from sandbox.events import Recorder, Scope, Trace
from sandbox.launch import discover, owner
from sandbox.launch.docker import DockerBackend
from sandbox.launch.interface import Backend, NetworkProvider
from sandbox.launch.remote import RemoteBackend
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
    """

    spec: DriverSpec
    plan: SandboxPlan
    backend: Backend
    scope: Scope
    secrets: dict[str, str]


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
    arguments: argparse.Namespace,
    backend: DockerBackend,
    progress: Any = None,
    *,
    learning: bool = False,
    scope: Scope | None = None,
) -> Any:
    """Load the driver, see to its image and derive its plan; the blocking part in a thread."""
    loop = asyncio.get_running_loop()
    asking = asyncio.create_task(backend.facts())
    try:
        wiring = await loop.run_in_executor(None, importlib.import_module, "sandbox.cli.wiring")
        work = functools.partial(wiring.review, learning=learning, scope=scope)
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
    """Open everything that running one driver needs; the review of an earlier start is used while it stands.

    Args:
        arguments: of the command.
        recorder: where facts go.
        progress: who is told of long steps.
        learning: refuse every destination and record it.
    """
    async with engine(optional=True) as backend:
        scope = Scope(recorder, Trace.new(), tenant=getattr(arguments, "tenant", "local") or "local")
        review: Any = None if learning else await kept_review(arguments, backend)
        if review is None:
            review = await reviewed(arguments, backend, progress, learning=learning, scope=scope)
            if not learning:
                prepared.keep(arguments, review)
        spec, plan = review.spec, review.plan
        scope = replace(scope, driver=spec.id)
        review.record(scope)
        if plan.network.mode == "broker":
            backend.use_network(_egress(backend, review.egress_image, recorder, learning=learning))
        secrets = secrets_of(spec, plan)
        if secrets:
            getattr(recorder, "add_secrets", keep_out)(*secrets.values())
        chosen = remote_backend(recorder) if plan.server_kind == "remote" else backend
        try:
            yield Bench(spec, plan, chosen, scope, secrets)
        except SandboxError as error:
            clean_error(error, getattr(recorder, "redacted", str))
            raise


async def kept_review(arguments: argparse.Namespace, backend: DockerBackend) -> prepared.Kept | None:
    """Return the review of an earlier start, when neither a file nor this host has changed since, else ``None``."""
    kept = prepared.load(arguments)
    if kept is None:
        return None
    engine_facts, image = await asyncio.gather(backend.facts(), backend.image(kept.plan.image_named))
    return kept if kept.stands(arguments, backend.engine.socket_path, engine_facts, image) else None


def secrets_of(spec: DriverSpec, plan: SandboxPlan) -> dict[str, str]:
    """Return slug → value of the plan's secret variables."""
    slugs = plan.secrets()
    if not slugs:
        return {}
    from sandbox.launch.secrets import load_sources, resolve  # only drivers with secrets pay for it

    return resolve(slugs, spec.secrets, load_sources(options.CONFIG / "secrets.toml"), os.environ)


def clean_error(error: SandboxError, clean: Callable[[str], str]) -> None:
    """Take out of an error what the server was given: it may quote what the server said."""
    error.message = clean(error.message)
    problems = getattr(error, "problems", ())
    if problems:
        error.problems = tuple(  # type: ignore[attr-defined] # those that have some may be given others
            replace(one, message=clean(one.message), found=clean(one.found)) for one in problems
        )


def remote_backend(recorder: Recorder) -> RemoteBackend:
    """Return what uses remote servers with this person's logins, whose tokens are kept out of a recorder's records."""
    return RemoteBackend(options.STATE / "logins", getattr(recorder, "add_secrets", keep_out))


def keep_out(*_values: str) -> None:
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
