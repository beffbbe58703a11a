"""Approves what a server offers, for ``pins approve`` and for the operator's page alike.

1. It has to be what was shown: a person approves a digest, and nothing else.
2. It has to be something that would be served: whatever does not fit its contracts, or hides text, is not approved.
3. The approval is recorded, with who gave it, before ``driver.lock`` is written.
"""

from __future__ import annotations

from typing import Any

from sandbox.errors import VetRefused
from sandbox.events import Scope
from sandbox.plan.model import SandboxPlan
from sandbox.spec.model import DriverSpec
from sandbox.supervisor.approval import fitting
from sandbox.supervisor.options import Options
from sandbox.vet import pins
from sandbox.vet.bind import bind
from sandbox.vet.contracts import fit
from sandbox.vet.drift import Change, drift
from sandbox.vet.model import ServerSurface


def everything(spec: DriverSpec, offered: ServerSurface) -> tuple[Change, ...]:
    """Return all that a server offers, as changes from a server of the same name that offers and says nothing."""
    nothing = ServerSurface(offered.era, offered.protocol_version, offered.server_info, offered.capabilities)
    return drift(nothing, offered, {binding.tool_name for binding in spec.bindings})


def may_approve(spec: DriverSpec, plan: SandboxPlan, offered: ServerSurface, scope: Scope, expect: str = "") -> None:
    """Refuse what is not the expected surface, and what would not be served (1, 2); takes a moment.

    Args:
        spec: the driver.
        plan: made from it.
        offered: what is to be approved.
        scope: where it is recorded how it fits.
        expect: digest that was shown; empty when nobody was shown anything else.

    Raises:
        VetRefused: ``VET-133``, it is another surface; else as vetting says.
    """
    digest = pins.digest_of(offered)
    if expect and expect != digest:
        message = f"{spec.file}: the server offers {digest}, and {expect[:80]} is to be approved"
        raise VetRefused("VET-133", message, "run `mcp-sandbox pins diff` and read it again")
    fit(bind(spec, offered), scope, fitting(plan, Options()))


def approve(spec: DriverSpec, offered: ServerSurface, scope: Scope, **by: Any) -> None:
    """Write an approval into ``driver.lock`` (3).

    Args:
        spec: the driver.
        offered: what :func:`may_approve` let through.
        scope: where it is recorded.
        **by: what the record says of who approves.

    Raises:
        SpecError: the lock is damaged.
        AuditUnavailable: it cannot be recorded, and was not approved.
        OSError: the file cannot be written.
    """
    digest, known = pins.digest_of(offered), pins.read(spec.folder)
    scope.intent("pins.approve", file=f"{spec.folder}/driver.lock", digest=digest, tools=len(offered.tools), **by)
    try:
        pins.write(spec.folder, (known or pins.Pins()).approving(offered))
    except OSError as error:
        scope.outcome("pins.approve", digest=digest, error=type(error).__name__)
        raise
    scope.outcome("pins.approve", digest=digest)
