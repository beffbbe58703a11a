"""What a server tried while everything was denied becomes the smallest change of its driver; looks at no network.

- *hosts* are known exactly: every lookup and every connection attempt is recorded;
- *folders* are known as far as the server talks about them: errors with a path in its stderr and in results of calls;
- *limits* by how it ended, by its peak of memory, by the same texts, and by calls that ran into their deadline.

Nothing here widens anything: the result is proposed to a person. What only the operator's ceiling stops is told, not
proposed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sandbox.limits import MIB
from sandbox.plan.model import SandboxPlan
from sandbox.policy.ceiling_values import Bound
from sandbox.spec.edit import Changes
from sandbox.spec.model import DriverSpec

NEARLY: Final = 0.98
"""Share of the memory limit from which a peak counts as having hit it."""

MAX_PATHS: Final = 20
"""Folders proposed; a server that walks a whole disk is not given it."""

_QUOTED: Final = re.compile(
    r"(ENOENT|EACCES|EPERM|EROFS|\[Errno (?:1|2|13|30)\])[^'\"\n]{0,160}['\"](/[^'\"\n\0]{1,400})['\"]"
)
_PLAIN: Final = re.compile(
    r"(?:^|[\s:\"'])(/[^\s:'\"\0]{1,400}):? (No such file or directory|Permission denied|Read-only file system)",
    re.IGNORECASE | re.MULTILINE,
)
_WRITE: Final = frozenset({"EROFS", "[Errno 30]", "read-only file system"})
_OWN: Final = ("/proc", "/sys", "/dev", "/tmp", "/run", "/app", "/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc")  # noqa: S108 - inside
"""Folders of the image: never granted from the host because a program misses something there."""

_TEXTS: Final[tuple[tuple[str, str], ...]] = (
    ("pids", r"EAGAIN|Resource temporarily unavailable|can't start new thread|uv_thread_create|pthread_create"),
    ("nofile", r"EMFILE|Too many open files"),
    ("fsize_mb", r"EFBIG|File too large"),
    ("tmp_mb", r"ENOSPC|No space left on device"),
)
_DEADLINE: Final = "WIRE-043"
"""Error of a call that ran into its deadline."""

_FIELDS: Final = {
    "memory_mb": "memory", "pids": "pids", "nofile": "nofile", "fsize_mb": "fsize", "tmp_mb": "tmp",
    "timeout_ms": "call_timeout",
}  # fmt: skip
"""Field of ``limits`` → bound of the ceiling."""

_UNITS: Final = {"memory_mb": MIB, "fsize_mb": MIB, "tmp_mb": MIB, "timeout_ms": 1e-3}
"""One of a field's unit in bytes or seconds."""


@dataclass(slots=True)
class Tried:
    """What was seen of one server.

    Attributes:
        events: attributes of its ``egress.dns`` and ``egress.connect`` facts.
        texts: its stderr, and results of calls.
        errors: ids of what calls ended with.
        oom_killed: the kernel ended it for memory.
        memory_peak: bytes, 0 when unknown.
    """

    events: list[Mapping[str, Any]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    oom_killed: bool = False
    memory_peak: int = 0


@dataclass(frozen=True, slots=True)
class Proposal:
    """What follows.

    Attributes:
        changes: of DRIVER.md.
        notes: what was seen and is not proposed, with the reason.
    """

    changes: Changes
    notes: tuple[str, ...]


def propose(spec: DriverSpec, plan: SandboxPlan, bounds: Mapping[str, Bound], tried: Tried) -> Proposal:
    """Return the smallest change that would let a server do what it tried."""
    from sandbox.launch.egress.learn import propose as hosts  # light, but of another stage

    grants, notes = folders(tried.texts, plan)
    values, more = limits(plan, bounds, tried)
    added: dict[str, list[Any]] = {"network.egress": list(hosts(tried.events, spec.egress))}
    for path, mode in grants:
        added.setdefault(f"sandbox.fs.{mode}", []).append({"path": path, "at": path})
    return Proposal(Changes(added, {f"limits.{name}": value for name, value in values.items()}), (*notes, *more))


def folders(texts: Iterable[str], plan: SandboxPlan) -> tuple[list[tuple[str, str]], list[str]]:
    """Return host paths to grant with ``read`` or ``write``, and notes about others.

    A path is proposed when it exists on this host (for writing: its folder), is absolute, and is not part of the image.
    """
    wanted: dict[str, str] = {}
    notes: list[str] = []
    for text, error in failures(texts):
        path, mode = Path(os.path.normpath(text)), "write" if error in _WRITE else "read"
        mount = next((item for item in plan.mounts if path.is_relative_to(item.target)), None)
        if mount is not None and mode == "write" and not mount.writable:
            notes.append(f"{path} was to be written, and {mount.target} is granted for reading only")
        if mount is not None or any(path.is_relative_to(own) for own in _OWN):
            continue
        place = path if mode == "read" or path.is_dir() else path.parent
        if place == Path("/"):
            continue
        if not os.path.lexists(place):
            notes.append(f"{path} was looked for, and does not exist on this host either")
        elif wanted.get(str(place)) != "write":
            wanted[str(place)] = mode
    least = [
        (path, mode)
        for path, mode in sorted(wanted.items())
        if not any(path.startswith(f"{other}/") and wanted[other] == mode for other in wanted)
    ]
    if len(least) > MAX_PATHS:
        notes.append(f"{len(least) - MAX_PATHS} further paths were looked for")
    return least[:MAX_PATHS], list(dict.fromkeys(notes))


def failures(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Return (path, error) of what programs commonly print when a file cannot be opened."""
    found = []
    for text in texts:
        found += [(match[2], match[1]) for match in _QUOTED.finditer(text)]
        found += [(match[1], match[2].lower()) for match in _PLAIN.finditer(text)]
    return list(dict.fromkeys(found))


def limits(plan: SandboxPlan, bounds: Mapping[str, Bound], tried: Tried) -> tuple[dict[str, int | float], list[str]]:
    """Return field of ``limits`` → twice what was hit, within the ceiling, and notes about what is at its ceiling."""
    hit = {name for name, pattern in _TEXTS if any(re.search(pattern, text) for text in tried.texts)}
    if tried.oom_killed or tried.memory_peak >= NEARLY * plan.limits.memory_bytes:
        hit.add("memory_mb")
    if _DEADLINE in tried.errors:
        hit.add("timeout_ms")
    now = {
        "memory_mb": plan.limits.memory_bytes, "pids": plan.limits.pids, "nofile": plan.limits.nofile,
        "fsize_mb": plan.limits.fsize_bytes, "tmp_mb": plan.tmpfs[0].size_bytes if plan.tmpfs else 0,
        "timeout_ms": plan.limits.call_timeout,
    }  # fmt: skip
    values: dict[str, int | float] = {}
    notes = []
    for name in sorted(hit):
        unit, most = _UNITS.get(name, 1), bounds[_FIELDS[name]].max
        wanted = min(2 * now[name], most)
        if wanted > now[name]:
            values[name] = int(wanted / unit)
        else:
            notes.append(f"limits.{name} was hit and is at the operator's ceiling ({bounds[_FIELDS[name]].source})")
    return values, notes
