"""Finds what runs left behind, by label, and removes it; what belongs to a living supervisor is spared.

Used three ways: at the start of a session for what earlier ones left (both they and their watchdogs may have been
killed, or the host restarted), by ``mcp-sandbox reap``, and by a backend's ``close`` for its own run.

It uses the thin engine client rather than the ``docker`` package, because it runs in the background of every start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal

from sandbox.launch import owner
from sandbox.launch.engine import Engine, EngineError
from sandbox.launch.interface import LABEL_OWNER, LABEL_RUN, Reaped

Kind = Literal["containers", "networks", "volumes"]

KINDS: Final[tuple[Kind, ...]] = ("containers", "networks", "volumes")
"""In the order in which one holds the next."""

BUSY: Final = 409
"""Somebody else (a watchdog, another reaper) removes it at this moment, or a container still holds it (RFC 9110
§15.5.10)."""


async def reap(engine: Engine, *, all: bool = False) -> Reaped:  # noqa: A002 - the command's own word
    """Remove what dead supervisors left.

    Steps: 1. everything with the run label is listed; 2. its owner label is judged; 3. what belongs to the living, or
    cannot be judged from here, is spared, unless ``all``; 4. the rest is removed, containers first.

    Args:
        engine: where to look.
        all: remove what living supervisors own as well.

    Raises:
        PlatformError: the engine does not answer.
    """
    removed: dict[Kind, list[str]] = {kind: [] for kind in KINDS}
    spared: list[str] = []
    for kind in KINDS:
        # 1. by label
        for row in await engine.labelled(kind, LABEL_RUN):
            name = _name(row)
            # 2. and 3. whose is it
            verdict = owner.judge((row.get("Labels") or {}).get(LABEL_OWNER, ""))
            if verdict != "dead" and not all:
                spared.append(name)
            # 4. removal
            elif await _remove(engine, kind, name):
                removed[kind].append(name)
    return Reaped(tuple(removed["containers"]), tuple(removed["networks"]), tuple(removed["volumes"]), tuple(spared))


async def reap_of(engine: Engine, label: str) -> int:
    """Remove everything of one owner whose heartbeat has ended, unless that process can be seen to live.

    Args:
        engine: where to look.
        label: of the owner, as :func:`sandbox.launch.owner.own` gave it.

    Returns:
        How much was removed. An owner of another PID namespace cannot be seen; that its heartbeat has ended counts.

    Raises:
        PlatformError: the engine does not answer or refuses.
    """
    if owner.judge(label) == "alive":
        return 0
    removed = 0
    for kind in KINDS:
        for row in await engine.labelled(kind, f"{LABEL_OWNER}={label}"):
            removed += await _remove(engine, kind, _name(row))
    return removed


async def remove_run(engine: Engine, run_id: str) -> None:
    """Remove everything of one run.

    Raises:
        PlatformError: the engine does not answer or refuses.
    """
    for kind in KINDS:
        for row in await engine.labelled(kind, f"{LABEL_RUN}={run_id}"):
            await _remove(engine, kind, _name(row))


async def remains(engine: Engine, run_id: str) -> tuple[str, ...]:
    """Return what of a run exists, as ``<kind> <id>``.

    Raises:
        PlatformError: the engine does not answer.
    """
    found: list[str] = []
    for kind in KINDS:
        found += [f"{kind[:-1]} {_name(row)}" for row in await engine.labelled(kind, f"{LABEL_RUN}={run_id}")]
    return tuple(found)


def _name(row: dict[str, Any]) -> str:
    return str(row.get("Id") or row["Name"])


async def _remove(engine: Engine, kind: Kind, name: str) -> bool:
    ways: dict[Kind, Callable[[str], Awaitable[bool]]] = {
        "containers": engine.remove,
        "networks": engine.remove_network,
        "volumes": engine.remove_volume,
    }
    try:
        return await ways[kind](name)
    except EngineError as error:
        if error.status == BUSY:
            return False
        raise
