"""SandboxPlan -> the container engine's create request; pure, golden-tested, and everything explicit.

The theory: an option that is left out is decided by the engine's configuration, its version or the image, so nothing
is left out. What an image may bring along (ENTRYPOINT, CMD, USER, WORKDIR, HEALTHCHECK, STOPSIGNAL, ENV) is overridden
here; what cannot be overridden (VOLUME) is refused before (:func:`uncovered_volumes`).
:mod:`sandbox.launch.readback` holds the running container to the same values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from sandbox.limits import MIB
from sandbox.plan.model import EnvEntry, SandboxPlan, Tmpfs

NANO: Final = 1_000_000_000
"""``NanoCpus`` of one core."""

SHM_BYTES: Final = 16 * MIB
"""Shared memory file system: enough for semaphores and small arrays (Python's multiprocessing); counted as memory."""

RUNC_LIKE: Final = frozenset({"runc", "crun", "io.containerd.runc.v2"})
"""Runtimes whose container process is the server's own process on this kernel, so that /proc tells about it. Under
gVisor or Kata it is the runtime's."""

RUNTIME_PIDS: Final = 128
"""Threads of a runtime that is not runc-like, beside the server's: gVisor's own kernel and the processes that carry its
server count in the container's cgroup. With 64 for both, gVisor panicked in one start of ten on a loaded machine."""

STOP_SIGNAL: Final = "SIGTERM"
"""What ``docker stop`` and an engine that shuts down send; an image's own choice is not asked."""

TMP_MODE: Final = "1777"
"""Mode of a tmpfs, the usual one of /tmp."""

ADDED_BY_ENGINE: Final = ("HOSTNAME", "PATH")
"""Variables that Docker adds when nobody sets them; unset, so that the environment is the plan's and nothing else. The
runtime alone still adds HOME where there is none."""

NO_DNS: Final = "127.0.0.1"
"""Resolver written into a sandbox without network, so that the host's own resolvers are not told to it."""


@dataclass(frozen=True, slots=True)
class Joined:
    """What the network attachment adds: the mode, read-only files (host path → path inside), convenience variables."""

    network_mode: str = "none"
    mounts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def create_request(
    plan: SandboxPlan,
    joined: Joined,
    labels: Mapping[str, str],
    secrets: Mapping[str, str],
    seccomp: str,
    image_env: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the body of ``POST /containers/create``.

    Args:
        plan: what to run.
        joined: what the network attachment adds.
        labels: what reaping and people find the container by.
        secrets: slug → value for every secret that ``plan.env`` names.
        seccomp: JSON text of the profile.
        image_env: names of the image's own variables; those that the plan does not set are unset.

    Raises:
        KeyError: ``secrets`` lacks a slug; the caller checks before.
    """
    stdio = plan.transport == "stdio"
    request: dict[str, Any] = {
        "Image": plan.image_id,
        "Entrypoint": list(plan.argv),
        "Cmd": [],
        "User": plan.user,
        "WorkingDir": plan.workdir,
        "Env": environment(plan, joined, secrets, image_env),
        "Labels": dict(labels),
        "Healthcheck": {"Test": ["NONE"]},
        "StopSignal": STOP_SIGNAL,
        "Tty": False,
        "OpenStdin": stdio,
        "StdinOnce": stdio,
        "AttachStdin": stdio,
        "AttachStdout": stdio,
        "AttachStderr": stdio,
        "HostConfig": host_config(plan, joined, seccomp),
    }
    if not shares_network(joined):
        request |= {"Hostname": plan.hostname, "Domainname": "", "NetworkDisabled": False}
    return request


def host_config(plan: SandboxPlan, joined: Joined, seccomp: str) -> dict[str, Any]:
    """Return the ``HostConfig`` part: what the engine and kernel enforce."""
    config = _privileges(plan, seccomp) | _namespaces(joined) | _resources(plan) | _file_system(plan, joined)
    config |= {
        "Init": plan.init,
        "Runtime": plan.runtime,
        "LogConfig": {"Type": "none", "Config": {}},
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
        "AutoRemove": False,
        "PublishAllPorts": False,
        "PortBindings": {},
        "Links": [],
        "ExtraHosts": [],
        "VolumesFrom": None,
    }
    if not shares_network(joined):
        config |= {"Dns": [NO_DNS], "DnsSearch": ["."], "DnsOptions": []}
    return config


def environment(
    plan: SandboxPlan, joined: Joined, secrets: Mapping[str, str], image_env: Iterable[str] = ()
) -> list[str]:
    """Return the variables in the engine's form; a name without ``=`` takes the image's variable away."""
    entries = variables(plan, joined, secrets)
    unset = sorted({*image_env, *ADDED_BY_ENGINE} - set(entries))
    return [f"{name}={value}" for name, value in entries.items()] + unset


def variables(plan: SandboxPlan, joined: Joined, secrets: Mapping[str, str]) -> dict[str, str]:
    """Return every variable that the server gets, by name; the plan's win over the attachment's."""
    own = {entry.name: _value(entry, secrets) for entry in plan.env}
    return own | {name: value for name, value in joined.env.items() if name not in own}


def _value(entry: EnvEntry, secrets: Mapping[str, str]) -> str:
    return secrets[entry.secret] if entry.secret else entry.value


def mounts(plan: SandboxPlan, joined: Joined) -> list[dict[str, Any]]:
    """Return the binds: never recursive (a mount below a read-only root stayed writable), propagation private."""
    wanted = [(mount.source, mount.target, mount.writable) for mount in plan.mounts]
    wanted += [(source, target, False) for source, target in joined.mounts.items()]
    return [
        {
            "Type": "bind",
            "Source": source,
            "Target": target,
            "ReadOnly": not writable,
            "BindOptions": {"Propagation": "private", "NonRecursive": True},
        }
        for source, target, writable in wanted
    ]


def tmpfs_options(tmpfs: Tmpfs, user: str) -> str:
    """Return the mount options of a memory file system.

    It belongs to the server's user: runc 1.1 replaces ``mode`` by the mode of the image's directory at that place.
    """
    execute = "exec" if tmpfs.executable else "noexec"
    uid, _, gid = user.partition(":")
    owner = f",uid={uid},gid={gid}" if uid.isdecimal() and gid.isdecimal() else ""
    return f"rw,{execute},nosuid,nodev,size={tmpfs.size_bytes},nr_inodes={tmpfs.inodes},mode={TMP_MODE}{owner}"


def shares_network(joined: Joined) -> bool:
    """Return whether another container's network namespace is joined; host name and resolver are then its own."""
    return joined.network_mode.startswith("container:")


def pids_limit(plan: SandboxPlan) -> int:
    """Return how many threads the container may have, its runtime's among them."""
    return plan.limits.pids + (0 if plan.runtime in RUNC_LIKE else RUNTIME_PIDS)


def waived(plan: SandboxPlan, control: str) -> bool:
    """Return whether the operator accepted that this host cannot enforce a control (``unsafe_missing_…``)."""
    return f"unsafe_missing_{control}" in plan.unsafe


def uncovered_volumes(declared: Iterable[str], plan: SandboxPlan, joined: Joined) -> tuple[str, ...]:
    """Return the image's VOLUME paths that no mount of the plan covers; each would become a writable volume on disk."""
    covered = {clean(mount.target) for mount in plan.mounts} | {clean(tmpfs.target) for tmpfs in plan.tmpfs}
    covered |= {clean(target) for target in joined.mounts.values()}
    return tuple(sorted(path for path in declared if clean(path) not in covered))


def clean(path: str) -> str:
    """Return an absolute path without empty and ``.`` parts."""
    return "/" + "/".join(part for part in path.split("/") if part not in {"", "."})


def _privileges(plan: SandboxPlan, seccomp: str) -> dict[str, Any]:
    return {
        "Privileged": False,
        "CapDrop": ["ALL"],
        "CapAdd": [],
        "SecurityOpt": ["no-new-privileges", f"seccomp={seccomp}"],
        "GroupAdd": [],
        "Devices": [],
        "DeviceCgroupRules": [],
        "DeviceRequests": [],
        "Sysctls": {},
        "MaskedPaths": list(plan.masked_paths),
        "ReadonlyPaths": list(plan.readonly_paths),
    }


def _namespaces(joined: Joined) -> dict[str, Any]:
    return {
        "NetworkMode": joined.network_mode,
        "PidMode": "",
        "IpcMode": "private",
        "UTSMode": "",
        "UsernsMode": "",
        "CgroupnsMode": "private",
        "Cgroup": "",
        "CgroupParent": "",
    }


def _resources(plan: SandboxPlan) -> dict[str, Any]:
    limits = plan.limits
    memory = 0 if waived(plan, "memory") else limits.memory_bytes
    return {
        "Memory": memory,
        "MemorySwap": memory,
        "MemoryReservation": 0,
        "NanoCpus": 0 if waived(plan, "cpu") else round(limits.cpus * NANO),
        "PidsLimit": 0 if waived(plan, "pids") else pids_limit(plan),
        "Ulimits": ulimits(plan),
        "OomKillDisable": False,
        "OomScoreAdj": 0,
        "ShmSize": SHM_BYTES,
    }


def ulimits(plan: SandboxPlan) -> Sequence[Mapping[str, Any]]:
    """Return the resource limits of each process, soft and hard the same."""
    pairs = {"core": plan.limits.core_bytes, "fsize": plan.limits.fsize_bytes, "nofile": plan.limits.nofile}
    return [{"Name": name, "Soft": value, "Hard": value} for name, value in pairs.items()]


def _file_system(plan: SandboxPlan, joined: Joined) -> dict[str, Any]:
    return {
        "ReadonlyRootfs": True,
        "Binds": [],
        "Mounts": mounts(plan, joined),
        "Tmpfs": {tmpfs.target: tmpfs_options(tmpfs, plan.user) for tmpfs in plan.tmpfs},
    }
