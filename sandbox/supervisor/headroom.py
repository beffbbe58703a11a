"""Whether this host has room for one more instance: refused before it swaps, not after. The decision is pure.

Three questions, each with its bound, and the first that says no is the reason:

1. Would the memory that the instance may take leave the reserve free? ``available`` is the kernel's own estimate of
   what can be had without swapping (``MemAvailable``); where this process stands in a memory cgroup with a limit, what
   is left of that limit, if it is less.
2. Are the limits of all instances together within ``overcommit`` times the memory? Idle servers take a fraction of
   their limit; all of them growing at once must not be more than the host survives.
3. Is the host short of memory already? PSI (``/proc/pressure/memory``): the share of the last ten seconds in which
   some task waited for memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandbox.limits import MIB

MEMORY_RESERVE: Final = 512 * MIB
"""Bytes that always stay available to the rest of the host: engine, supervisor, the person's own programs."""

MEMORY_OVERCOMMIT: Final = 4.0
"""Limits of all instances together, as a multiple of the memory. An idle Node server takes a tenth of its limit."""

MEMORY_PRESSURE: Final = 20.0
"""Percent of the last ten seconds in which some task waited for memory; a healthy host shows 0."""

_UNLIMITED: Final = 1 << 60
"""Bytes from which a cgroup limit is none (version 1 writes the largest page-aligned number)."""

_SOME: Final = re.compile(r"some avg10=(\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class HostFigures:
    """Memory of this host now: bytes, and ``pressure`` in percent (0 where the kernel does not say)."""

    total: int
    available: int
    pressure: float = 0.0


@dataclass(frozen=True, slots=True)
class Reserve:
    """What has to stay: bytes, a multiple, percent."""

    memory: int = MEMORY_RESERVE
    overcommit: float = MEMORY_OVERCOMMIT
    pressure: float = MEMORY_PRESSURE


def shortage(figures: HostFigures, need: int, committed: int, reserve: Reserve) -> str:
    """Return why there is no room for an instance, empty when there is.

    Args:
        figures: of the host.
        need: memory limit of the new instance, bytes.
        committed: memory limits of all instances that run, bytes.
        reserve: what has to stay.
    """
    if figures.available - need < reserve.memory:
        return (
            f"{figures.available // MIB} MiB are available, the instance may take {need // MIB} and "
            f"{reserve.memory // MIB} stay reserved"
        )
    if committed + need > reserve.overcommit * figures.total:
        return (
            f"all instances together might take {(committed + need) // MIB} MiB, more than {reserve.overcommit:g} "
            f"times the host's {figures.total // MIB}"
        )
    if figures.pressure > reserve.pressure:
        return f"tasks waited for memory in {figures.pressure:g} % of the last ten seconds"
    return ""


def read_host() -> HostFigures:
    """Return the figures of this host."""
    import psutil  # noqa: PLC0415 - some milliseconds, which a start does not have to wait for

    memory = psutil.virtual_memory()
    total, available = int(memory.total), int(memory.available)
    for limit, used in _cgroup_bounds():
        total, available = min(total, limit), min(available, max(0, limit - used))
    return HostFigures(total, available, _pressure())


def _cgroup_bounds(root: Path = Path("/sys/fs/cgroup")) -> list[tuple[int, int]]:
    """Return limit and use of the memory cgroup that this process sees as its own, version 1 and 2."""
    found = []
    for folder, limit, used in (
        (root, "memory.max", "memory.current"),
        (root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        most, now = _number(folder / limit), _number(folder / used)
        if most is not None and now is not None and most < _UNLIMITED:
            found.append((most, now))
    return found


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _pressure(path: Path = Path("/proc/pressure/memory")) -> float:
    try:
        found = _SOME.search(path.read_text())
    except OSError:
        return 0.0
    return float(found[1]) if found else 0.0
