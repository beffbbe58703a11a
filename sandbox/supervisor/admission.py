"""Steps 2 to 5 of the flow: bytes become messages, the era is settled, the surface is collected and vetted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import anyio

from sandbox import __version__
from sandbox.errors import SandboxError, ServerFault
from sandbox.events import Scope
from sandbox.launch.interface import ExitStatus, Instance
from sandbox.plan.model import SandboxPlan
from sandbox.spec.model import DriverSpec
from sandbox.supervisor.approval import ADMIT_UNDECIDED as ADMIT_UNDECIDED  # noqa: PLC0414 - a name of this module too
from sandbox.supervisor.approval import Approval
from sandbox.supervisor.options import Options
from sandbox.supervisor.reaching import reach
from sandbox.supervisor.revet import Revetter
from sandbox.transport.lines import LineChannel
from sandbox.transport.outcomes import RemoteError
from sandbox.transport.peer import ServerPeer
from sandbox.transport.stderr import StderrTail
from sandbox.vet.model import Exposure, ServerSurface
from sandbox.vet.surface import collect

CLIENT_INFO: Final = {"name": "mcp-sandbox", "version": __version__}
"""What the server is told about its client: us, never the person behind it."""

CLIENT_CAPABILITIES: Final[Mapping[str, Any]] = {}
"""What the server is told that its client can do; the peer adds roots, answered from the plan. Sampling and
elicitation are offered only where the operator's rules could allow some question (``Options.capabilities``)."""


@dataclass(slots=True)
class LiveServer:
    """A vetted server that can be called.

    Attributes:
        exposure: what callers may see of it now; sessions follow its changes through ``revetter``.
        stderr: the bounded tail of what it wrote there.
        revetter: reads its lists again and tells what goes on.
        trust: ``pinned``, or ``first use`` when nobody has approved what it offers.
    """

    spec: DriverSpec
    plan: SandboxPlan
    instance: Instance
    peer: ServerPeer
    exposure: Exposure
    scope: Scope
    stderr: StderrTail
    revetter: Revetter
    options: Options = field(default_factory=Options)
    trust: str = "pinned"

    def follow(self, exposure: Exposure) -> None:
        """Take what goes on from now on."""
        self.exposure = exposure

    async def ended(self) -> ExitStatus:
        """Return when the server's process has ended, for whatever reason."""
        return await self.instance.wait()


async def admit(instance: Instance, spec: DriverSpec, plan: SandboxPlan, scope: Scope, options: Options) -> LiveServer:
    """Return the vetted server of a started instance (steps 2 to 5).

    Raises:
        ServerFault: it did not speak MCP; the message has how it ended and the end of its stderr.
        VetRefused: it does not fit its contracts.
    """
    peer, surface, stderr = await meet(instance, spec, plan, scope, options)  # 2-4
    approval = Approval(spec, plan, options)
    exposure = _vetted(approval, surface, scope)  # 5
    revetter = Revetter(peer, spec, approval.reread, scope, plan.limits.call_timeout)
    live = LiveServer(spec, plan, instance, peer, exposure, scope, stderr, revetter, options, approval.trust)
    revetter.subscribe(live.follow)
    approval.judge_again = revetter.judge_again
    revetter.begin(surface, exposure)
    return live


async def meet(
    instance: Instance,
    spec: DriverSpec,
    plan: SandboxPlan,
    scope: Scope,
    options: Options,
    *,
    everything: bool = False,
) -> tuple[ServerPeer, ServerSurface, StderrTail]:
    """Return a started server's peer and what it offers, unvetted (steps 2 to 4).

    Args:
        instance: just started.
        spec: the driver.
        plan: made from it.
        scope: where facts are recorded.
        options: of the opening.
        everything: also ask for prompts and resources that the driver does not declare.

    Raises:
        ServerFault: it did not speak MCP; the message has how it ended and the end of its stderr.
    """
    stderr = StderrTail(options.on_stderr, options.max_stderr)
    channel = await reach(instance, plan, scope, stderr)  # 2
    if isinstance(channel, LineChannel):
        channel.bound(options.max_message, options.max_depth)
    try:
        peer = await ServerPeer.connect(  # 3
            channel,
            client_info=CLIENT_INFO,
            capabilities={**CLIENT_CAPABILITIES, **options.capabilities},
            protocol_version=spec.protocol_version,
            timeout=options.handshake_timeout,
            scope=scope,
            roots=_roots(plan),
        )
        return peer, await collect(peer, spec, peer.client_capabilities, everything=everything), stderr  # 4
    except RemoteError as error:
        fault = ServerFault(error.id, error.message, "read its stderr, and see what it needs to start")
        raise await _explained(fault, instance, stderr) from None
    except ServerFault as fault:
        raise await _explained(fault, instance, stderr) from None


def _vetted(approval: Approval, surface: ServerSurface, scope: Scope) -> Exposure:
    try:
        exposure = approval.first(surface, scope)
    except SandboxError as error:
        scope.fact("vet.refuse", reason=error.id, message=error.message[:500], offered=len(surface.tools))
        raise
    scope.fact(
        "vet.admit",
        server=dict(surface.server_info),
        era=surface.era,
        protocol_version=surface.protocol_version,
        offered=len(surface.tools),
        exposed=sorted(exposure.tools),
        held=sorted(exposure.held),
    )
    return exposure


def _roots(plan: SandboxPlan) -> list[dict[str, str]]:
    """Return what ``roots/list`` answers: the granted directories as the server sees them."""
    return [{"uri": f"file://{mount.target}", "name": mount.target.rsplit("/", 1)[-1]} for mount in plan.mounts]


async def _explained(fault: ServerFault, instance: Instance, stderr: StderrTail) -> ServerFault:
    """Return a handshake's failure with what the server's end and its stderr say about it."""
    status: ExitStatus | None = None
    with anyio.move_on_after(0.5):
        status = await instance.wait()
    parts = [fault.message]
    if status is not None:
        parts.append("it was killed for memory" if status.oom_killed else f"it ended with status {status.code}")
    tail = stderr.text()
    if tail:
        parts.append(f"its stderr ends with: {tail[-500:]}")
    return type(fault)(fault.id, "; ".join(parts), fault.mend)
