"""What a gateway is doing at one moment, as the rows of the operator's page."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from sandbox.limits import MIB
from sandbox.serve.ui.model import ChangeRow, InstanceRow, ServerRow, State
from sandbox.serve.ui.seen import Verdict
from sandbox.supervisor.held import Held
from sandbox.supervisor.pool import instance_of

if TYPE_CHECKING:
    from sandbox.cli.gateway.building import Parts
    from sandbox.cli.gateway.mounts import Mounted
    from sandbox.cli.gateway.operating import Watch
    from sandbox.launch.interface import Instance
    from sandbox.serve.http.app import App

MAX_ROWS: Final = 200
"""Servers or instances that the page shows."""

ASK_EVERY: Final = 5.0
"""Seconds for which a figure of memory is shown before the engine is asked again."""

ASK_FOR: Final = 2.0
"""Seconds that the engine may take."""


class Memory:
    """The memory of instances, asked of the engine while somebody looks, in the background."""

    def __init__(self) -> None:
        self._known: dict[str, int | None] = {}
        self._asked = 0.0
        self._task: asyncio.Task[None] | None = None

    def of(self, held: Held) -> int | None:
        """Return the last figure, ``None`` when there is none yet."""
        return self._known.get(instance_of(held))

    def ask(self, running: list[Held]) -> None:
        """Ask for new figures, unless that was done a moment ago or is being done."""
        now = time.monotonic()
        if now - self._asked < ASK_EVERY or (self._task is not None and not self._task.done()):
            return
        self._asked = now
        self._task = asyncio.create_task(self._ask(running[:MAX_ROWS]))

    async def _ask(self, running: list[Held]) -> None:
        found: dict[str, int | None] = {}
        for held in running:
            if held.live is not None and not held.over:
                size, name = await _memory(held.live.instance), instance_of(held)
                found[name] = self._known.get(name) if size is None else size
                self._known |= found
        self._known = found


async def _memory(instance: Instance) -> int | None:
    try:
        return (await asyncio.wait_for(instance.usage(), ASK_FOR)).memory_bytes
    except Exception:  # noqa: BLE001 - it may be ending, and the page goes on without one figure
        return None


_MEMORY: Final = Memory()


def state_of(parts: Parts, watch: Watch, app: App) -> State:
    """Return the rows of the page."""
    from sandbox.cli.gateway.operating import change_row  # it wires this

    everyone = sorted(parts.pool.space.everyone(), key=lambda one: (one.served.spec.id, one.tenant or ""))
    _MEMORY.ask(everyone)
    paths = {door.name: door.path for door in app.doors}
    servers = [server_row(one, watch, everyone, paths) for one in parts.mounted[:MAX_ROWS]]
    served = {one.review.spec.id for one in parts.mounted}
    changes: list[ChangeRow] = [change_row(one) for one in watch.desk.pending() if one.spec.id in served]
    return State(servers, [instance_row(one) for one in everyone[:MAX_ROWS]], changes)


def server_row(mounted: Mounted, watch: Watch, everyone: list[Held], paths: dict[str, str]) -> ServerRow:
    """Return what the page says of one driver."""
    spec, access = mounted.review.spec, mounted.access
    who = "everybody" if access.anonymous else " ".join(access.scopes) or "who signs in"
    held: dict[str, str] = {}
    for one in everyone:
        if one.served.spec.id == spec.id and one.live is not None:
            held |= one.live.exposure.held
    return ServerRow(
        spec.id, spec.version, paths.get(spec.id, mounted.entity.endpoint_path), who, spec.server.kind,
        len(spec.bindings), spec.egress, _roots(mounted), _limits(mounted), _unsafe(mounted),
        watch.seen.verdicts.get(spec.id, Verdict()), held,
    )  # fmt: skip


def _roots(mounted: Mounted) -> list[str]:
    if mounted.separate:
        return [f"{at}: of each tenant" if "{tenant}" in path else at for at, path in mounted.config.root.items()]
    return [f"{one.target} ({'writes' if one.writable else 'reads'})" for one in mounted.review.plan.mounts]


def _limits(mounted: Mounted) -> list[str]:
    if mounted.separate:
        return ["as the driver says"]
    limits = mounted.review.plan.limits
    if mounted.review.spec.server.kind == "remote":
        return [f"{limits.call_timeout:g} s a call"]
    return [f"{limits.memory_bytes // MIB} MiB", f"{limits.cpus:g} cpu", f"{limits.pids} processes"]


def _unsafe(mounted: Mounted) -> tuple[str, ...]:
    return () if mounted.separate else mounted.review.plan.unsafe


def instance_row(held: Held) -> InstanceRow:
    """Return what the page says of one instance."""
    now = asyncio.get_running_loop().time()
    state = "used" if held.leases else "idle"
    if held.paused:
        state = "warm, paused"
    elif held.live is None:
        state = "starting"
    elif not held.wanted:
        state = "ending"
    ready = held.live is not None
    return InstanceRow(
        held.served.spec.id, held.tenant or "", instance_of(held), state, held.leases,
        now - held.started if ready else None, now - held.used if ready and not held.leases else None,
        _MEMORY.of(held),
    )  # fmt: skip
