"""The flow itself: a plan becomes a vetted server, and whatever happens, nothing of it remains.

 1. launch: the backend creates, starts and reads back the container (intent and outcome are recorded there)
 2. connect: bytes of its stdio become messages
 3. negotiate: the peer finds out which protocol era the server speaks
 4. collect: every page of what it offers
 5. vet: bind the driver's contracts to it; a refusal ends here, before any caller is served
 6. serve: the caller of :func:`open_server` has the live server
 7. tear down: on every path, also when a step failed or the caller was cancelled

Steps 3 to 5 happen before a client's first byte is read, so that a server that does not fit is refused at
registration and not at the first call (S0-69).

What steps 2 to 6 need is imported in a thread while the engine starts the container: those imports cost as much as the
start itself, and nobody waits for them this way (design §4).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import anyio

from sandbox.errors import SandboxError
from sandbox.events import Scope
from sandbox.launch.interface import Backend, Instance
from sandbox.plan.model import SandboxPlan
from sandbox.supervisor.options import Options

if TYPE_CHECKING:
    from sandbox.spec.model import DriverSpec
    from sandbox.supervisor.admission import LiveServer

__all__ = ["Options", "open_server", "tear_down"]


@contextlib.asynccontextmanager
async def open_server(
    backend: Backend,
    spec: DriverSpec,
    plan: SandboxPlan,
    scope: Scope,
    secrets: Mapping[str, str],
    options: Options | None = None,
    instance: Instance | None = None,
) -> AsyncIterator[LiveServer]:
    """Carry steps 1 to 7 around the caller's block.

    Args:
        backend: where the plan is run.
        spec: the driver.
        plan: made from it.
        scope: where facts are recorded.
        secrets: slug → value of the plan's secret variables.
        options: see :class:`Options`.
        instance: already launched from this plan; it is torn down here all the same.

    Raises:
        PlatformError: the engine failed; ReadbackMismatch when it runs something else.
        ServerFault: the server did not speak MCP; the message has the end of its stderr.
        VetRefused: it does not fit its contracts.
    """
    loading = asyncio.get_running_loop().run_in_executor(None, importlib.import_module, "sandbox.supervisor.admission")
    if spec.version_check is not None:
        from sandbox.supervisor.version import check_version  # noqa: PLC0415 - few drivers have one

        await check_version(backend, spec, plan, scope, secrets)
    if instance is None:
        instance = await backend.launch(plan, scope, secrets)  # 1
    scope = scope.within(instance=instance.id)
    chosen = options or Options()
    try:
        try:
            admission = await loading
        except BaseException:
            if instance.stream is not None:  # nobody has taken it over yet
                instance.stream.close()
            raise
        live = await admission.admit(instance, spec, plan, scope, chosen)  # 2-5
        try:
            yield live  # 6
        finally:
            await live.revetter.close()
    finally:
        with anyio.CancelScope(shield=True):  # 7
            await tear_down(instance, scope, chosen.grace)


async def tear_down(instance: Instance, scope: Scope, grace: float) -> None:
    """Step 7: figures first, then the container, then the record of both."""
    usage: dict[str, Any] = {}
    try:
        with contextlib.suppress(SandboxError), anyio.move_on_after(1):
            figures = await instance.usage()
            usage = {name: getattr(figures, name) for name in figures.__slots__}
    finally:  # whatever figures cost, no container is left for them
        status = await instance.stop(grace)
    scope.fact("teardown", code=status.code, oom_killed=status.oom_killed, usage=usage)
