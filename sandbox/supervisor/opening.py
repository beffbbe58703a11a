"""How a pool starts an instance: :func:`sandbox.supervisor.open_server` with the scope of its owner."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from sandbox.events import Scope
from sandbox.launch.interface import Backend, Instance
from sandbox.plan.model import SandboxPlan
from sandbox.supervisor import Options, open_server
from sandbox.supervisor.held import Opener, Served
from sandbox.tenant import TenantId

if TYPE_CHECKING:
    from sandbox.supervisor.admission import LiveServer


def opening(backend: Backend, scope: Scope, options: Options | None = None, first: Instance | None = None) -> Opener:
    """Return what starts the instances of a pool.

    Args:
        backend: where plans are run.
        scope: parent of each instance's own.
        options: how servers are opened.
        first: launched already from the plan of the first instance that is asked for.
    """
    launched = [first] if first is not None else []

    def open_one(served: Served, plan: SandboxPlan, tenant: TenantId | None) -> AbstractAsyncContextManager[LiveServer]:
        own = scope.child().within(driver=served.spec.id, tenant=tenant or "")
        instance = launched.pop() if launched else None
        return open_server(backend, served.spec, plan, own, served.secrets(tenant), options, instance)

    return open_one
