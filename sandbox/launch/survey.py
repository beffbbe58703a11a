"""Looks at this host for ``mcp-sandbox doctor``; it judges nothing and changes nothing.

Here the ``docker`` package is used: nobody waits for its import.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sandbox.errors import SandboxError
from sandbox.launch import discover, facts, owner
from sandbox.launch.interface import LABEL_OWNER, LABEL_RUN

SDK_TIMEOUT: Final = 20
"""Seconds for one question to the engine."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found on this host; empty where there was no answer.

    Attributes:
        tried: sockets that were looked for; ``socket_path`` is the one that answered.
        info: the engine's ``/info``; ``version`` its ``/version``.
        socket_mode: permissions of the socket.
        hard_nofile: descriptors that the engine may grant.
        free_bytes: free space of the engine's data directory, -1 when it cannot be seen from here.
        local: whether the engine's processes are visible from here.
        file_systems: names from /proc/filesystems.
        lsm: active security modules.
        userns: how many user namespaces the kernel allows.
        programs: runtimes and their paths.
        orphans: containers that dead supervisors left.
        kernel: name, release and architecture.
    """

    tried: tuple[str, ...] = ()
    problem: str = ""
    socket_path: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)
    version: Mapping[str, Any] = field(default_factory=dict)
    socket_mode: int = 0
    hard_nofile: int = 0
    free_bytes: int = -1
    local: bool = False
    file_systems: frozenset[str] = frozenset()
    lsm: tuple[str, ...] = ()
    userns: int = -1
    programs: Mapping[str, str] = field(default_factory=dict)
    orphans: int = 0
    kernel: str = ""


def survey(environ: Mapping[str, str]) -> Survey:
    """Look at this host; what does not answer stays empty."""
    common = _kernel_parts()
    try:
        tried = discover.candidates(environ)
    except SandboxError as error:
        return Survey(problem=error.message, **common)
    for path in dict.fromkeys(tried):
        if not discover.is_socket(path):
            continue
        answers = _ask(path)
        if answers is not None:
            info, version, containers = answers
            return Survey(
                tried=tried,
                socket_path=path,
                info=info,
                version=version,
                socket_mode=Path(path).stat().st_mode,
                hard_nofile=facts.hard_nofile(path),
                free_bytes=_free(str(info.get("DockerRootDir", ""))),
                local=_is_local(path, info),
                orphans=sum(owner.judge(label) == "dead" for label in containers),
                **common,
            )
    return Survey(tried=tuple(dict.fromkeys(tried)), **common)


def _kernel_parts() -> dict[str, Any]:
    names = Path("/proc/filesystems").read_text("ascii").split()
    kernel = os.uname()
    return {
        "kernel": f"{kernel.sysname} {kernel.release} {kernel.machine}",
        "file_systems": frozenset(names),
        "lsm": tuple(part for part in _text("/sys/kernel/security/lsm").split(",") if part),
        "userns": int(_text("/proc/sys/user/max_user_namespaces") or -1),
        "programs": {name: found for name, found in _programs() if found},
    }


def _programs() -> Iterable[tuple[str, str | None]]:
    yield "runsc", shutil.which("runsc")
    yield "kata", shutil.which("kata-runtime") or shutil.which("containerd-shim-kata-v2")


def _text(path: str) -> str:
    try:
        return Path(path).read_text("ascii").strip()
    except OSError:
        return ""


def _ask(path: str) -> tuple[dict[str, Any], dict[str, Any], list[str]] | None:
    """Return ``/info``, ``/version`` and the owner labels of our containers; ``None`` without an answer."""
    import docker  # noqa: PLC0415 - 200 ms; only this command pays for it
    from docker.errors import DockerException  # noqa: PLC0415 - as above

    try:
        client = docker.DockerClient(base_url=f"unix://{path}", timeout=SDK_TIMEOUT)
        try:
            rows = client.api.containers(all=True, filters={"label": LABEL_RUN})
            owners = [str((row.get("Labels") or {}).get(LABEL_OWNER, "")) for row in rows]
            return dict(client.info()), dict(client.version()), owners
        finally:
            client.close()
    except (DockerException, OSError):
        return None


def _free(place: str) -> int:
    try:
        return shutil.disk_usage(place).free
    except OSError:
        return -1


def _is_local(path: str, info: Mapping[str, Any]) -> bool:
    """Return whether the engine shares this machine's kernel and its processes are visible from here."""
    try:
        pid = facts.listener(path)
    except OSError:
        return False
    return pid > 0 and info.get("KernelVersion") == os.uname().release and Path(f"/proc/{pid}").exists()
