"""Reads what the kernel says about a container's first process: /proc/<pid>, its cgroup, and where binds come from."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from sandbox.launch.kernel import NAMESPACES, CgroupLimits, MountEntry, ProcessFacts

EXEC_SECONDS: Final = 5.0
"""A runtime's own process becomes the server's within milliseconds of the start; a loaded host may need longer."""

EXEC_POLL: Final = 0.002
"""Between two looks at whether it has."""

_RUNTIME_INITS: Final = ("runc", "crun", "youki", "exe")
"""Prefixes of the process name before the server's program is executed: facts are not final until then."""

_ESCAPE: Final = re.compile(r"\\([0-7]{3})")
_CGROUP_ROOT: Final = Path("/sys/fs/cgroup")
_V1_UNLIMITED: Final = 1 << 60
"""cgroup v1 writes "no limit" as the largest multiple of a page that fits."""


class NotVisibleError(Exception):
    """The process is not to be seen from here: it ended, or the engine runs on another machine."""


async def executed(pid: int, container: str) -> None:
    """Wait until the runtime's own process has become the server's.

    Raises:
        NotVisibleError: there is no such process, or it does not belong to ``container``.
    """
    deadline = time.monotonic() + EXEC_SECONDS
    while _read(pid, "comm").startswith(_RUNTIME_INITS) and time.monotonic() < deadline:  # noqa: ASYNC110 - a poll
        await asyncio.sleep(EXEC_POLL)
    if container not in _read(pid, "cgroup"):
        raise NotVisibleError(f"process {pid} is not in the cgroup of container {container[:12]}")


def gather(pid: int, sources: Iterable[str], guarded: Mapping[str, str]) -> ProcessFacts:
    """Return what the kernel says about a process.

    Args:
        pid: on this host.
        sources: host paths that are bound into the container.
        guarded: path inside → host path that tells whether it exists, for every path that must be masked or read-only
            where it does.

    Raises:
        NotVisibleError: the process ended meanwhile.
    """
    own = parse_mountinfo(_read("self", "mountinfo"))
    return ProcessFacts(
        status=parse_status(_read(pid, "status")),
        limits=parse_limits(_read(pid, "limits")),
        mounts=parse_mountinfo(_read(pid, "mountinfo")),
        shared_namespaces=_shared_namespaces(pid),
        sources={source: bound_from(source, own) for source in sources},
        present=frozenset(path for path, seen in guarded.items() if Path(seen).exists()),
        cgroup=cgroup_limits(parse_cgroup(_read(pid, "cgroup"))),
    )


def _read(pid: int | str, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text("utf-8", "surrogateescape")
    except OSError as error:
        raise NotVisibleError(f"/proc/{pid}/{name}: {error.strerror}") from None


def parse_status(text: str) -> dict[str, str]:
    """Return the fields of /proc/<pid>/status."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in pairs}


def parse_limits(text: str) -> dict[str, tuple[int | None, int | None]]:
    """Return (soft, hard) by name from /proc/<pid>/limits, ``None`` for unlimited."""
    found = {}
    for line in text.splitlines()[1:]:
        match = re.match(r"(.+?)\s{2,}(\S+)\s+(\S+)", line)
        if match:
            found[match[1]] = (_limit(match[2]), _limit(match[3]))
    return found


def _limit(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def parse_mountinfo(text: str) -> tuple[MountEntry, ...]:
    """Return the lines of a mountinfo file, in order (proc_pid_mountinfo(5))."""
    entries = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        _, _, device, root, target, options, *optional = left.split(" ")
        kind, _, superblock = right.split(" ", 2)
        entries.append(
            MountEntry(
                device,
                _unescape(root),
                _unescape(target),
                frozenset(options.split(",")),
                tuple(optional),
                kind,
                frozenset(superblock.split(",")),
            )
        )
    return tuple(entries)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


def bound_from(path: str, mounts: Iterable[MountEntry]) -> tuple[str, str]:
    """Return (device, root) that a bind of ``path`` shows in mountinfo: its file system and its place within it.

    A path that was swapped for a link between plan and start shows another place.
    """
    best = MountEntry("", "/", "", frozenset(), (), "", frozenset())
    for entry in mounts:
        below = entry.target in {"/", path} or path.startswith(entry.target + "/")
        if below and len(entry.target) >= len(best.target):
            best = entry
    rest = path[len(best.target.rstrip("/")) :]
    return best.device, (best.root.rstrip("/") + rest) or "/"


def _shared_namespaces(pid: int) -> tuple[str, ...] | None:
    shared = []
    for name in NAMESPACES:
        try:
            theirs = Path(f"/proc/{pid}/ns/{name}").readlink()
            ours = Path(f"/proc/self/ns/{name}").readlink()
        except OSError:
            return None
        if theirs == ours:
            shared.append(name)
    return tuple(shared)


# --- cgroups ----------------------------------------------------------------------------------------------------------
def parse_cgroup(text: str) -> dict[str, str]:
    """Return controller → path from /proc/<pid>/cgroup; the unified hierarchy is the empty name (cgroups(7))."""
    found = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = path
    return found


def cgroup_limits(paths: Mapping[str, str], root: Path = _CGROUP_ROOT) -> CgroupLimits:
    """Return what the files of a process's cgroup enforce, version 1 or 2."""
    if "memory" in paths:
        return _limits_v1(paths, root)
    base = root / paths.get("", "/").lstrip("/")
    memory, swap = _number(base / "memory.max"), _number(base / "memory.swap.max")
    total = -1 if -1 in {memory, swap} else None if memory is None or swap is None else memory + swap
    return CgroupLimits(memory, total, _number(base / "pids.max"), _cpus_v2(base / "cpu.max"))


def _limits_v1(paths: Mapping[str, str], root: Path) -> CgroupLimits:
    memory = root / "memory" / paths["memory"].lstrip("/")
    pids = root / "pids" / paths.get("pids", "/").lstrip("/")
    cpu = _controller(root, "cpu") / paths.get("cpu", "/").lstrip("/")
    quota, period = _number(cpu / "cpu.cfs_quota_us"), _number(cpu / "cpu.cfs_period_us")
    cpus: float | None = -1 if quota == -1 and period == -1 else None
    if quota is not None and period and quota > 0 and period > 0:
        cpus = quota / period
    return CgroupLimits(
        _number(memory / "memory.limit_in_bytes"),
        _number(memory / "memory.memsw.limit_in_bytes"),
        _number(pids / "pids.max"),
        cpus,
    )


def _controller(root: Path, name: str) -> Path:
    """Return a version 1 hierarchy; ``cpu`` is often mounted together with ``cpuacct``."""
    return next((root / alias for alias in (name, "cpu,cpuacct") if (root / alias).is_dir()), root / name)


def _cpus_v2(path: Path) -> float | None:
    try:
        quota, period = path.read_text("ascii").split()
    except (OSError, ValueError):
        return -1
    return None if quota == "max" else int(quota) / int(period)


def _number(path: Path) -> int | None:
    """Return a cgroup file's number, ``None`` for "no limit", ``-1`` where there is no such file."""
    try:
        text = path.read_text("ascii").strip()
    except OSError:
        return -1
    if text == "max":
        return None
    value = int(text)
    return None if value >= _V1_UNLIMITED else value
