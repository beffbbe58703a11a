"""Reads resource figures: the engine's (cgroup version 1 or 2; pure), and those of this host's kernel and psutil."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
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


def peak_of(pid: int, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the largest memory of a process's cgroup so far, where the kernel says it (cgroup version 2).

    Args:
        pid: of a process in it, 0 when none is known.
        proc: where processes are.
        cgroups: where cgroups are.
    """
    if pid <= 0:
        return None
    try:
        lines = (proc / str(pid) / "cgroup").read_text("utf-8").splitlines()
        path = next(line[3:] for line in lines if line.startswith("0::"))
        return int((cgroups / path.lstrip("/") / "memory.peak").read_text("ascii"))
    except (OSError, ValueError, StopIteration):
        return None


def processes(pid: int) -> dict[str, Any]:
    """Return what psutil says of a process and those below it; empty when it is gone or not this user's to look at.

    Members: ``processes`` and ``threads`` (numbers), ``rss_bytes``, ``cpu_seconds`` (user and system).
    """
    import psutil  # noqa: PLC0415 - only those who look at this host's processes need it

    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
        found = {"processes": 0, "threads": 0, "rss_bytes": 0, "cpu_seconds": 0.0}
        for process in family:
            with process.oneshot():
                times = process.cpu_times()
                found["processes"] += 1
                found["threads"] += process.num_threads()
                found["rss_bytes"] += process.memory_info().rss
                found["cpu_seconds"] += times.user + times.system
    except (psutil.Error, OSError):
        return {}
    return found
