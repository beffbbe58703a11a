"""What one sandbox is handed beside its plan: secrets as variables, as files on tmpfs, or as placeholders.

Files lie in memory of this host (``$XDG_RUNTIME_DIR`` or ``/dev/shm``), in a folder that only this user can enter, and
are bound into the sandbox read-only: their values are in no image layer, label, argument or ``docker inspect``, and are
gone when the sandbox is. A supervisor that is killed leaves the folder to its watchdog.
"""

from __future__ import annotations

import contextlib
import os
import secrets as randomness
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from sandbox.errors import PlanRefused
from sandbox.plan.baseline import CA_TARGET

if TYPE_CHECKING:
    from sandbox.launch.egress.substitution import Substitution
    from sandbox.plan.model import SandboxPlan

SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - a file system in memory; what we put there is ours alone
MEMORY: Final = ("tmpfs", "ramfs")
MOUNTS: Final = Path("/proc/self/mountinfo")


@dataclass(slots=True)
class Handover:
    """What is handed to one sandbox.

    Attributes:
        values: slug → what stands in its variables: the value, or a placeholder.
        mounts: host path → path inside, read-only.
        substitution: what the egress broker is told.
        folder: of the files; empty when there are none.
    """

    values: Mapping[str, str]
    mounts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    substitution: Substitution | None = None
    folder: str = ""

    def remove(self) -> None:
        """Remove the files; idempotent."""
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def hand_over(plan: SandboxPlan, values: Mapping[str, str], run_id: str) -> Handover:
    """Prepare what a plan hands over.

    Args:
        plan: with ``secret_files`` and ``substitutes``.
        values: slug → value.
        run_id: of the supervisor; names the folder that its watchdog removes.

    Raises:
        PlanRefused: ``SEC-011``, this host has no file system in memory.
    """
    if not plan.secret_files and not plan.substitutes:
        return Handover(values)
    files = {entry.target: values[entry.secret].encode() for entry in plan.secret_files}
    substitution = None
    if plan.substitutes:
        from sandbox.launch.egress import substitution as substituting  # noqa: PLC0415 - few drivers need certificates

        substitution = substituting.prepare(plan, values)
        files[CA_TARGET] = substitution.trusted
        values = {**values, **substitution.placeholders}
    folder = Path(folder_of(run_id)) / randomness.token_hex(8)
    handed = Handover(values, {}, substitution, str(folder))
    try:
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700)
        handed.mounts = dict(
            _write(folder, number, target, data) for number, (target, data) in enumerate(files.items())
        )
    except BaseException:
        handed.remove()
        raise
    return handed


def folder_of(run_id: str) -> str:
    """Return the folder of one supervisor's files.

    Raises:
        PlanRefused: ``SEC-011``.
    """
    for base in (os.environ.get("XDG_RUNTIME_DIR", ""), SHARED_MEMORY):
        if base.startswith("/") and _in_memory(os.path.realpath(base)) and os.access(base, os.W_OK | os.X_OK):
            return str(Path(os.path.realpath(base)) / f"mcp-sandbox-{run_id}")
    raise PlanRefused(
        "SEC-011",
        f"secrets as files need a file system in memory, and neither $XDG_RUNTIME_DIR nor {SHARED_MEMORY} is one",
        "mount a tmpfs there, or hand the secret over as a variable",
    )


def place_of(run_id: str) -> str:
    """Return :func:`folder_of`, empty where there is none."""
    try:
        return folder_of(run_id)
    except PlanRefused:
        return ""


def clear(run_id: str) -> None:
    """Remove every file of one supervisor; what another user's folder of that name holds is not touched."""
    with contextlib.suppress(PlanRefused):
        folder = Path(folder_of(run_id))
        if folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.getuid():
            shutil.rmtree(folder, ignore_errors=True)


def _write(folder: Path, number: int, target: str, data: bytes) -> tuple[str, str]:
    """Write one file that nobody can change and that, in this folder, only the sandbox can read."""
    path = folder / str(number)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o400)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        os.fchmod(file.fileno(), 0o444)  # the server runs as another user; the folder keeps every other one out
    return str(path), target


def _in_memory(path: str) -> bool:
    """Return whether a path lies on a file system in memory (proc(5), mountinfo)."""
    best, kind = "", ""
    for line in MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        place = before.split(" ")[4]
        if (path == place or path.startswith(place.rstrip("/") + "/")) and len(place) >= len(best):
            best, kind = place, after.split(" ")[0]
    return kind in MEMORY
