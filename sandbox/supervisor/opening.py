"""How a pool starts an instance: :func:`sandbox.supervisor.open_server` with the scope of its owner."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from sandbox.events import Scope
from sandbox.launch.interface import Backend, Instance
from sandbox.plan.model import SandboxPlan
from sandbox.supervisor import Options, open_server
from sandbox.supervisor.held import Opener, Served
from sandbox.tenant import TenantId

if TYPE_CHECKING:
    from sandbox.supervisor.admission import LiveServer

Neighbours: TypeAlias = Callable[[str], Mapping[str, Collection[str]]]
"""Driver id → exposed tool names of every other driver, by its id."""


def opening(
    backend: Backend,
    scope: Scope,
    options: Options | None = None,
    first: Instance | None = None,
    neighbours: Neighbours | None = None,
) -> Opener:
    """Return what starts the instances of a pool.

    Args:
        backend: where plans are run.
        scope: parent of each instance's own.
        options: how servers are opened.
        first: launched already from the plan of the first instance that is asked for.
        neighbours: tells what the other drivers of the same pool expose, so that no name is taken for another's.
    """
    launched = [first] if first is not None else []

    def open_one(served: Served, plan: SandboxPlan, tenant: TenantId | None) -> AbstractAsyncContextManager[LiveServer]:
        own = scope.child().within(driver=served.spec.id, tenant=tenant or "")
        instance = launched.pop() if launched else None
        chosen = options or Options()
        if neighbours is not None:
            beside = replace(chosen.fitting, neighbours=neighbours(served.spec.id))
            chosen = replace(chosen, fitting=beside)
        return open_server(backend, served.spec, plan, own, served.secrets(tenant), chosen, instance)

    return open_one
