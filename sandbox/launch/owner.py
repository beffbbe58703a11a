"""Names of a run and of the process that owns it, so that reaping spares what is alive.

A process id alone says nothing after a reboot or once the id is used again; with the kernel's boot id, the process's
start time and its PID namespace it names one process for good.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final, Literal

_START_TIME: Final = 19
"""Index of ``starttime`` among the fields after the command name (proc_pid_stat(5), field 22)."""

_FIELDS: Final = 4


def new_run_id() -> str:
    """Return a run id nobody else has: 128 random bits as hex."""
    return secrets.token_hex(16)


def own() -> str:
    """Return ``<boot id>:<pid>:<start time>:<pid namespace>`` of this process."""
    pid = os.getpid()
    return f"{_boot_id()}:{pid}:{_start_time(pid)}:{_pid_namespace()}"


def judge(owner: str) -> Literal["alive", "dead", "unknown"]:
    """Return whether the process that a label names still lives.

    ``unknown`` when it cannot be told from here: a malformed label, or a process of another PID namespace on the same
    boot. What is unknown is spared unless everything is to go.
    """
    fields = owner.split(":")
    if len(fields) != _FIELDS or not fields[1].isdigit():
        return "unknown"
    boot, pid, start, namespace = fields
    if boot != _boot_id():
        return "dead"
    if namespace != _pid_namespace():
        return "unknown"
    return "alive" if _start_time(int(pid)) == start else "dead"


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def _start_time(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    # A zombie has ended; it only waits for its parent.
    return "" if fields[0] == "Z" else fields[_START_TIME]


def _pid_namespace() -> str:
    return Path("/proc/self/ns/pid").readlink().name.partition("[")[2].rstrip("]")
