"""Gathers what the plan stage must know about this host: the engine, an image, paths. It decides nothing."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import stat
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from sandbox.launch.engine import Engine
from sandbox.launch.procfacts import parse_limits, parse_mountinfo, parse_status
from sandbox.plan.model import EngineFacts, ImageFacts, PathFacts

CAP_SYS_RESOURCE: Final = 24
"""Bit of the capability that lets a process raise hard limits (capabilities(7))."""

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}

_CONTROLS: Final = {
    "MemoryLimit": "memory",
    "SwapLimit": "swap",
    "PidsLimit": "pids",
    "CpuCfsQuota": "cpu",
}
"""Members of ``/info`` that say whether a control works, and their machine-readable names."""

_DECLARED: Final = ("User", "Volumes", "Healthcheck", "StopSignal", "ExposedPorts", "OnBuild", "Shell")
"""What an image asks for and does not get."""

_VERSION: Final = re.compile(r"\d+\.\d+\S*")

_UCRED: Final = "3i"
"""``struct ucred``: pid, uid, gid (unix(7))."""

_ENGINE_PATHS: Final = (
    "/var/run/docker.sock",
    "/run/docker.sock",
    "/var/lib/docker",
    "/var/run/docker",
    "/run/containerd",
    "/var/lib/containerd",
    "/run/podman",
    "/var/run/podman",
    "/var/lib/containers",
    "/run/crio",
    "/var/run/crio",
    "/run/k3s",
    "/var/lib/kubelet",
)


async def engine_facts(engine: Engine) -> EngineFacts:
    """Return what an engine and its kernel can enforce.

    Raises:
        PlatformError: ``LAUNCH-001``, it does not answer.
    """
    identity = await engine.identify()
    info, version = await asyncio.gather(engine.info(), engine.version())
    return EngineFacts(
        kind=identity.kind,
        version=str(version.get("Version", "")),
        api_version=identity.api_version,
        runtimes=runtimes(info, identity.kind),
        default_runtime=str(info.get("DefaultRuntime", "")),
        runc_version=runc_version(version),
        cgroup_version=2 if str(info.get("CgroupVersion")) == "2" else 1,
        arch=_ARCHITECTURES.get(str(info.get("Architecture")), str(info.get("Architecture", ""))),
        kernel=str(info.get("KernelVersion", "")),
        seccomp=has_seccomp(info),
        cpus=int(info.get("NCPU") or 1),
        memory_bytes=int(info.get("MemTotal") or 0),
        hard_nofile=hard_nofile(engine.socket_path),
        missing=missing_controls(info),
    )


def runtimes(info: Mapping[str, Any], kind: str) -> tuple[str, ...]:
    """Return the names of the runtimes that can be asked for; Podman lists all it has heard of, installed or not."""
    known = info.get("Runtimes") or {}
    if kind == "podman":
        known = {name: value for name, value in known.items() if shutil.which(Path(value.get("path", "x")).name)}
    return tuple(sorted(known))


def has_seccomp(info: Mapping[str, Any]) -> bool:
    """Return whether the engine applies seccomp profiles."""
    return any(str(option).startswith("name=seccomp") for option in info.get("SecurityOptions") or ())


def missing_controls(info: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the controls that this host cannot enforce."""
    missing = [name for member, name in _CONTROLS.items() if not info.get(member)]
    return tuple(missing if has_seccomp(info) else [*missing, "seccomp"])


def runc_version(version: Mapping[str, Any]) -> str:
    """Return runc's version from ``/version``: a distribution's full package version where the engine was built so."""
    for component in version.get("Components") or ():
        if component.get("Name") in {"runc", "OCI Runtime (runc)"}:
            commit = str((component.get("Details") or {}).get("GitCommit", ""))
            text = commit if commit[:1].isdigit() and "." in commit else str(component.get("Version", ""))
            found = _VERSION.search(text)  # Podman gives runc's whole greeting
            return found[0] if found else ""
    return ""


def hard_nofile(socket_path: str) -> int:
    """Return the largest number of descriptors that the engine may grant.

    The engine's own process sets the bound (who listens on a unix socket is recorded with it): with CAP_SYS_RESOURCE
    the kernel's ``fs.nr_open``, else its hard limit. Where it cannot be seen, this process's hard limit, which is never
    more than what was asked for elsewhere.
    """
    own = parse_limits(Path("/proc/self/limits").read_text("ascii"))["Max open files"][1] or 0
    try:
        pid = listener(socket_path)
        status = parse_status(Path(f"/proc/{pid}/status").read_text("utf-8", "replace"))
        hard = parse_limits(Path(f"/proc/{pid}/limits").read_text("ascii"))["Max open files"][1]
        ceiling = int(Path("/proc/sys/fs/nr_open").read_text("ascii"))
    except (OSError, KeyError):
        return own
    privileged = int(status["CapEff"], 16) >> CAP_SYS_RESOURCE & 1
    return ceiling if privileged or hard is None else hard


def listener(socket_path: str) -> int:
    """Return the process that listens on a unix socket (SO_PEERCRED, unix(7)); 0 when it is of another namespace."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(socket_path)
        data = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(_UCRED))
    pid: int = struct.unpack(_UCRED, data)[0]
    return pid


def image_facts(reference: str, described: Mapping[str, Any]) -> ImageFacts:
    """Return an image's facts from the engine's description of it."""
    config = described.get("Config") or {}
    env = (str(entry).partition("=") for entry in config.get("Env") or ())
    return ImageFacts(
        id=str(described["Id"]),
        named=reference,
        argv=(*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ())),
        env={name: value for name, _, value in env},
        workdir=config.get("WorkingDir") or "/",
        declared={name: config[name] for name in _DECLARED if config.get(name)},
    )


# --- paths ------------------------------------------------------------------------------------------------------------
def path_facts(asked: Iterable[str], base: Path) -> dict[str, PathFacts]:
    """Return facts about host paths that a driver wants mounted.

    Args:
        asked: as written; relative ones are relative to ``base``, the driver's folder, and ``~`` is the home directory.
        base: absolute path.

    Returns:
        ``asked`` → facts; ``real`` has every link resolved, so that what is checked is what is mounted. A link that is
        put in its place later shows in the read-back.
    """
    mounted = [entry.target for entry in parse_mountinfo(Path("/proc/self/mountinfo").read_text("utf-8", "replace"))]
    return {text: _facts_of(text, base, mounted) for text in asked}


def _facts_of(text: str, base: Path, mounted: Iterable[str]) -> PathFacts:
    path = base / Path(text).expanduser()
    real = os.path.realpath(path)  # before any tidying: `link/..` is where the kernel goes, not where it looks
    kind, exists = _kind(real)
    prefix = real.rstrip("/") + "/"
    below = tuple(sorted(target for target in mounted if target.startswith(prefix)))
    return PathFacts(os.path.normpath(path), real, exists, kind, below)


def _kind(real: str) -> tuple[Literal["dir", "file", "other"], bool]:
    """Return what lies at a resolved path, without following a link that was put there since."""
    try:
        mode = os.lstat(real).st_mode
    except OSError:
        return "other", False
    if stat.S_ISLNK(mode):  # resolving stopped at a link that leads to itself
        return "other", False
    if stat.S_ISDIR(mode):
        return "dir", True
    return ("file" if stat.S_ISREG(mode) else "other"), True


def engine_paths(socket_path: str, data_root: str = "") -> tuple[str, ...]:
    """Return sockets and data directories of container engines, links resolved, never to be mounted."""
    paths = [*_ENGINE_PATHS, socket_path, data_root]
    return tuple(sorted({form for path in paths if path for form in (path, os.path.realpath(path))}))
