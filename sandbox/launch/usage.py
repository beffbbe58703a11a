"""Reads an engine's resource figures, cgroup version 1 or 2; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sandbox.launch.interface import Usage

NANOSECONDS: Final = 1e9


def from_stats(stats: Mapping[str, Any]) -> Usage:
    """Return the figures of one answer of ``GET /containers/{id}/stats``.

    Memory is what the limit is held against, without page cache that the kernel would give back; the peak is known with
    cgroup version 1 only.
    """
    memory = stats.get("memory_stats") or {}
    used = memory.get("usage")
    inner = memory.get("stats") or {}
    cache = inner.get("total_inactive_file", inner.get("inactive_file", 0))
    cpu = ((stats.get("cpu_stats") or {}).get("cpu_usage") or {}).get("total_usage")
    return Usage(
        memory_bytes=None if used is None else max(int(used) - int(cache or 0), 0),
        memory_peak_bytes=memory.get("max_usage") or None,
        cpu_seconds=None if cpu is None else int(cpu) / NANOSECONDS,
        pids=(stats.get("pids_stats") or {}).get("current"),
    )
