"""The few system calls that evidence rests on, as one value, so that tests can fail or kill at each of them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandbox.errors import AuditUnavailable

APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
CREATE: Final = APPEND | os.O_CREAT | os.O_EXCL

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600


@dataclass(frozen=True, slots=True)
class Files:
    """System calls with the signatures of ``os``."""

    open: Callable[[str, int, int], int] = os.open
    write: Callable[[int, bytes], int] = os.write
    fdatasync: Callable[[int], None] = os.fdatasync
    ftruncate: Callable[[int, int], None] = os.ftruncate
    rename: Callable[[str, str], None] = os.rename
    unlink: Callable[[str], None] = os.unlink


def private_folder(path: Path) -> Path:
    """Return a folder that only its owner can use, made when absent.

    Raises:
        AuditUnavailable: ``AUD-001``, it cannot be made, is no folder, or belongs to or is open for others.
    """
    try:
        path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        status = path.lstat()
    except OSError as error:
        raise unavailable("AUD-001", f"the audit folder {path} cannot be used: {error.strerror or error}") from None
    if not path.is_dir() or path.is_symlink():
        raise unavailable("AUD-001", f"the audit folder {path} is not a folder")
    if status.st_uid != os.geteuid():
        raise unavailable("AUD-001", f"the audit folder {path} belongs to uid {status.st_uid}, not to {os.geteuid()}")
    if status.st_mode & 0o022:
        raise unavailable("AUD-001", f"the audit folder {path} can be written by others; set its mode to 0700")
    if status.st_mode & 0o077:
        path.chmod(FOLDER_MODE)
    return path


def write_all(files: Files, descriptor: int, data: bytes) -> None:
    """Write every byte, whatever the kernel takes at once.

    Raises:
        OSError: it does not take them; some may have been written.
    """
    written = files.write(descriptor, data)
    while written < len(data):
        written += files.write(descriptor, data[written:])


def try_lock(descriptor: int) -> bool:
    """Return whether this process now holds the lock on an open file; it ends with the process."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sync_folder(path: Path) -> None:
    """Make names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unavailable(id_: str, message: str) -> AuditUnavailable:
    """Return the error with which an effect is refused because it could not be recorded."""
    return AuditUnavailable(id_, message, "free or repair the disk, or name another folder with --audit-dir")
