"""Step 2 of the flow: the bytes of a started server become messages, over its stdio or its HTTP endpoint."""

from __future__ import annotations

import anyio

from sandbox.errors import PlatformError
from sandbox.events import Scope
from sandbox.launch.interface import Instance
from sandbox.launch.remote import RemoteInstance
from sandbox.plan.model import SandboxPlan
from sandbox.transport.attached import attach
from sandbox.transport.interface import Channel
from sandbox.transport.stderr import StderrTail


async def reach(instance: Instance, plan: SandboxPlan, scope: Scope, stderr: StderrTail) -> Channel:
    """Return the channel to a server.

    Raises:
        SandboxError: its address or a secret of its header fields is not usable.
    """
    if instance.stream is not None:
        return await attach(instance.stream, stderr)
    if not isinstance(instance, RemoteInstance):
        raise PlatformError("LAUNCH-015", "a server without stdio was started here", "report it with the audit trail")
    from sandbox.transport.remote.opening import Keeping, open_remote  # noqa: PLC0415 - only remote servers pay for it

    keeping = Keeping(instance.logins, instance.know) if instance.logins is not None else None
    channel = open_remote(plan, instance.secrets, scope, calls=instance.calls, keeping=keeping)

    async def hang_up(grace: float) -> None:
        channel.finish()
        with anyio.move_on_after(grace):
            await channel.wait_closed()
        channel.abort()

    instance.hang_up = hang_up
    return channel
