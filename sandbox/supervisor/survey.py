"""Starts a server only to ask what it offers: for `vet`, `init` and whoever compares a server with its driver.

Nothing is exposed to anybody, so nothing is refused for what the server says; the container is gone when this returns.
"""

from __future__ import annotations

from collections.abc import Mapping

import anyio

from sandbox.events import Scope
from sandbox.launch.interface import Backend
from sandbox.plan.model import SandboxPlan
from sandbox.spec.model import DriverSpec
from sandbox.supervisor import tear_down
from sandbox.supervisor.admission import meet
from sandbox.supervisor.options import Options
from sandbox.vet.model import ServerSurface


async def survey(
    backend: Backend,
    spec: DriverSpec,
    plan: SandboxPlan,
    scope: Scope,
    secrets: Mapping[str, str],
    options: Options | None = None,
    *,
    everything: bool = False,
) -> ServerSurface:
    """Return what a server offers under a plan.

    Args:
        backend: where the plan is run.
        spec: the driver.
        plan: made from it.
        scope: where facts are recorded.
        secrets: slug → value of the plan's secret variables.
        options: see :class:`Options`.
        everything: also ask for prompts and resources that the driver does not declare.

    Raises:
        PlatformError: the engine failed.
        ServerFault: the server did not speak MCP; the message has the end of its stderr.
    """
    chosen = options or Options()
    instance = await backend.launch(plan, scope, secrets)
    within = scope.within(instance=instance.id)
    try:
        _, surface, _ = await meet(instance, spec, plan, within, chosen, everything=everything)
        return surface
    finally:
        with anyio.CancelScope(shield=True):
            await tear_down(instance, within, chosen.grace)
