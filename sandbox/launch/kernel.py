"""Compares what the kernel says about the running process with the plan; pure.

An engine repeats in ``inspect`` what it was asked, also where it ignored it. The kernel does not: its word is in
``/proc/<pid>`` and in the cgroup's own files (gathered by :mod:`sandbox.launch.procfacts`). Steps, numbered as in
:func:`differences`:

1. identity: user, groups;
2. privileges: five capability sets empty, no-new-privileges, a seccomp filter in force;
3. namespaces: none shared with this process;
4. mounts: exactly the planned ones, each with its flags and its source;
5. limits: of the process and of the cgroup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sandbox.launch.interface import Difference
from sandbox.launch.translate import SHM_BYTES, Joined, clean, pids_limit, waived
from sandbox.limits import KIB
from sandbox.plan.model import SandboxPlan, Tmpfs

CAPABILITY_SETS: Final = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
NAMESPACES: Final = ("cgroup", "ipc", "mnt", "net", "pid", "uts")
SECCOMP_FILTER: Final = "2"
"""``Seccomp:`` in /proc/<pid>/status: SECCOMP_MODE_FILTER (proc_pid_status(5))."""

PAGE: Final = 4 * KIB
"""The kernel rounds memory limits down to pages."""

PERIOD_TOLERANCE: Final = 0.001
"""Share of a core by which quota / period may differ from the plan: quotas are whole microseconds."""

NULL_ROOT: Final = "/null"
"""Root of the bind that masks a file: the ``null`` node of the sandbox's own /dev. An image that brings a link in its
place redirects the mask (CVE-2025-31133)."""


@dataclass(frozen=True, slots=True)
class MountEntry:
    """One line of mountinfo (proc_pid_mountinfo(5)).

    Attributes:
        device: ``major:minor``.
        root: what of the file system is mounted.
        target: where.
        options: of the mount; ``superblock`` of the file system.
        optional: propagation fields (``shared:2``, ``master:2``).
    """

    device: str
    root: str
    target: str
    options: frozenset[str]
    optional: tuple[str, ...]
    kind: str
    superblock: frozenset[str]


@dataclass(frozen=True, slots=True)
class CgroupLimits:
    """What the cgroup's files say; ``None`` is "no limit", ``-1`` "no such file"."""

    memory: int | None = -1
    swap_total: int | None = -1
    pids: int | None = -1
    cpus: float | None = -1


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """What the kernel says about a container's first process.

    Attributes:
        status: fields of /proc/<pid>/status.
        limits: name in /proc/<pid>/limits → (soft, hard), ``None`` for unlimited.
        mounts: its mount table.
        shared_namespaces: names of namespaces that it shares with this process; ``None`` where the kernel does not let
            this user see.
        sources: host path of each bind → (device, root) that a bind of it must show.
        present: masked and read-only paths of the plan that exist on this kernel.
        cgroup: its limits.
    """

    status: Mapping[str, str]
    limits: Mapping[str, tuple[int | None, int | None]]
    mounts: tuple[MountEntry, ...]
    shared_namespaces: tuple[str, ...] | None
    sources: Mapping[str, tuple[str, str]]
    present: frozenset[str]
    cgroup: CgroupLimits


def differences(plan: SandboxPlan, joined: Joined, facts: ProcessFacts) -> tuple[Difference, ...]:
    """Return every difference between the plan and the running process."""
    found: list[Difference] = []
    # 1. identity
    _identity(found, plan.user, facts.status)
    # 2. privileges
    _privileges(found, facts.status)
    # 3. namespaces
    if facts.shared_namespaces:
        found.append(Difference("namespaces", "its own", f"shared with the host: {', '.join(facts.shared_namespaces)}"))
    # 4. mounts
    _mounts(found, plan, joined, facts)
    # 5. limits
    _limits(found, plan, facts.limits)
    found += cgroup_differences(plan, facts.cgroup)
    return tuple(found)


def cgroup_differences(plan: SandboxPlan, cgroup: CgroupLimits) -> list[Difference]:
    """Return the differences in what the cgroup enforces; also for runtimes whose process is not the server."""
    found: list[Difference] = []
    memory = plan.limits.memory_bytes // PAGE * PAGE
    if not waived(plan, "memory"):
        _same(found, "kernel.memory", memory, cgroup.memory)
        _same(found, "kernel.memory and swap", memory, cgroup.swap_total)
    if not waived(plan, "pids"):
        _same(found, "kernel.pids", pids_limit(plan), cgroup.pids)
    off = cgroup.cpus is None or abs(cgroup.cpus - plan.limits.cpus) > PERIOD_TOLERANCE
    if off and not waived(plan, "cpu"):
        found.append(Difference("kernel.cpus", plan.limits.cpus, cgroup.cpus))
    return found


def _same(found: list[Difference], name: str, planned: Any, running: Any) -> None:
    if planned != running:
        found.append(Difference(name, planned, running))


def _identity(found: list[Difference], user: str, status: Mapping[str, str]) -> None:
    uid, _, gid = user.partition(":")
    _same(found, "kernel.uid", [uid] * 4, status.get("Uid", "").split())
    _same(found, "kernel.gid", [gid] * 4, status.get("Gid", "").split())
    extra = sorted(set(status.get("Groups", "").split()) - {gid})
    _same(found, "kernel.groups", [], extra)


def _privileges(found: list[Difference], status: Mapping[str, str]) -> None:
    for name in CAPABILITY_SETS:
        _same(found, f"kernel.{name}", "0" * 16, status.get(name))
    _same(found, "kernel.no_new_privs", "1", status.get("NoNewPrivs"))
    _same(found, "kernel.seccomp", SECCOMP_FILTER, status.get("Seccomp"))
    if status.get("Seccomp_filters", "1") == "0":
        found.append(Difference("kernel.seccomp_filters", "1 or more", "0"))
    if len(status.get("NSpid", "").split()) < 2:  # noqa: PLR2004 - one pid in each namespace, the host's included
        found.append(Difference("kernel.pid namespace", "its own", "the host's"))


def _limits(found: list[Difference], plan: SandboxPlan, limits: Mapping[str, tuple[int | None, int | None]]) -> None:
    wanted = {
        "Max open files": plan.limits.nofile,
        "Max file size": plan.limits.fsize_bytes,
        "Max core file size": plan.limits.core_bytes,
    }
    for name, value in wanted.items():
        _same(found, f"kernel.{name.lower()}", (value, value), limits.get(name))


def guarded_paths(plan: SandboxPlan) -> dict[str, str]:
    """Return path inside → host path whose existence shows whether it must be guarded.

    Kernel interfaces are the same on both sides; a path below a bind is looked for in the bind's source. Others lie in
    the image, whose author gains nothing by them.
    """
    found = {}
    for path in (*plan.masked_paths, *plan.readonly_paths):
        if path.startswith(("/proc/", "/sys/")):
            found[path] = path
        for mount in plan.mounts:
            if path == mount.target or path.startswith(mount.target.rstrip("/") + "/"):
                found[path] = mount.source.rstrip("/") + path[len(mount.target.rstrip("/")) :]
    return found


# --- mounts -----------------------------------------------------------------------------------------------------------
_KERNEL_MOUNTS: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    "/proc": ("proc", frozenset({"nosuid", "nodev", "noexec"})),
    "/dev": ("tmpfs", frozenset({"nosuid"})),
    "/dev/pts": ("devpts", frozenset({"nosuid", "noexec"})),
    "/dev/mqueue": ("mqueue", frozenset({"nosuid", "nodev", "noexec"})),
    "/dev/shm": ("tmpfs", frozenset({"nosuid", "nodev", "noexec"})),  # noqa: S108 - a path inside
    "/sys": ("sysfs", frozenset({"ro", "nosuid", "nodev", "noexec"})),
}
"""Mounts that every container has, with their type and the flags that each must carry."""

_ENGINE_FILES: Final = frozenset({"/etc/resolv.conf", "/etc/hostname", "/etc/hosts"})
_INIT_PATHS: Final = frozenset({"/sbin/docker-init", "/usr/sbin/docker-init", "/dev/init", "/run/podman-init"})
_CGROUP_ROOT: Final = "/sys/fs/cgroup"
_SIZE: Final = re.compile(r"size=([0-9]+)([kmg]?)\Z")
_UNITS: Final = {"": 1, "k": KIB, "m": KIB**2, "g": KIB**3}


def _mounts(found: list[Difference], plan: SandboxPlan, joined: Joined, facts: ProcessFacts) -> None:
    binds = {clean(mount.target): (mount.source, mount.writable) for mount in plan.mounts}
    binds |= {clean(target): (source, False) for source, target in joined.mounts.items()}
    tmpfs = {clean(entry.target): entry for entry in plan.tmpfs}
    null_device = next((entry.device for entry in facts.mounts if entry.target == "/dev"), "")
    for entry in facts.mounts:
        if entry.target in binds:
            source, writable = binds[entry.target]
            _bind(found, entry, facts.sources.get(source), writable=writable)
        elif entry.target in tmpfs:
            _tmpfs(found, entry, tmpfs[entry.target])
        else:
            _standard(found, entry, plan, null_device)
        if any(field.startswith("shared:") for field in entry.optional):
            found.append(Difference(f"kernel.mounts[{entry.target}].propagation", "private", entry.optional))
    there = {entry.target for entry in facts.mounts}
    missing = sorted((set(binds) | set(tmpfs) | {"/"}) - there)
    found += [Difference(f"kernel.mounts[{target}]", "mounted", None) for target in missing]
    bare = sorted(facts.present - there)
    found += [Difference(f"kernel.mounts[{path}]", "masked or read-only", None) for path in bare]


def _bind(found: list[Difference], entry: MountEntry, source: tuple[str, str] | None, *, writable: bool) -> None:
    name = f"kernel.mounts[{entry.target}]"
    if source is not None:
        _same(found, f"{name}.source", source, (entry.device, entry.root))
    _same(found, f"{name}.writable", writable, "ro" not in entry.options)


def _tmpfs(found: list[Difference], entry: MountEntry, planned: Tmpfs) -> None:
    name = f"kernel.mounts[{entry.target}]"
    _same(found, f"{name}.type", "tmpfs", entry.kind)
    _flags(found, name, {"nosuid", "nodev"} | (set() if planned.executable else {"noexec"}), entry.options)
    _same(found, f"{name}.size", -(-planned.size_bytes // PAGE) * PAGE, size_of(entry.superblock))
    inodes = next((item for item in entry.superblock if item.startswith("nr_inodes=")), None)
    _same(found, f"{name}.inodes", f"nr_inodes={planned.inodes}", inodes)


def size_of(superblock: Iterable[str]) -> int | None:
    """Return the ``size=`` option of a tmpfs in bytes, ``None`` without one."""
    for option in superblock:
        if match := _SIZE.match(option):
            return int(match[1]) * _UNITS[match[2]]
    return None


def _flags(found: list[Difference], name: str, wanted: Iterable[str], options: frozenset[str]) -> None:
    missing = sorted(set(wanted) - options)
    if missing:
        found.append(Difference(f"{name}.options", missing, sorted(options)))


def _standard(found: list[Difference], entry: MountEntry, plan: SandboxPlan, null_device: str) -> None:
    """Hold a mount that the plan does not name to what every container may have; anything else is one too many."""
    name = f"kernel.mounts[{entry.target}]"
    if entry.target == "/" or entry.target in _ENGINE_FILES:
        _flags(found, name, {"ro"}, entry.options)
    elif entry.target in _KERNEL_MOUNTS:
        kind, flags = _KERNEL_MOUNTS[entry.target]
        _same(found, f"{name}.type", kind, entry.kind)
        _flags(found, name, flags, entry.options)
        if entry.target == "/dev/shm":  # noqa: S108 - a path inside
            _same(found, f"{name}.size", SHM_BYTES, size_of(entry.superblock))
    elif entry.target in plan.masked_paths:
        _masked(found, name, entry, null_device)
    elif entry.target in plan.readonly_paths or (plan.init and entry.target in _INIT_PATHS):
        _flags(found, name, {"ro"}, entry.options)
    elif entry.target == _CGROUP_ROOT or entry.target.startswith(_CGROUP_ROOT + "/"):
        _cgroup_mount(found, name, entry)
    else:
        found.append(Difference(name, None, f"{entry.kind} {entry.root}"))


def _cgroup_mount(found: list[Difference], name: str, entry: MountEntry) -> None:
    if entry.kind in {"cgroup", "cgroup2"}:
        _flags(found, name, {"ro"}, entry.options)
    else:
        _same(found, f"{name}.type", "tmpfs", entry.kind)


def _masked(found: list[Difference], name: str, entry: MountEntry, null_device: str) -> None:
    """A directory is masked by an empty read-only tmpfs, a file by the sandbox's own null device."""
    if entry.kind == "tmpfs" and "ro" in entry.options and entry.root == "/" and entry.device != null_device:
        return
    _same(found, f"{name}.mask", (null_device, NULL_ROOT), (entry.device, entry.root))
