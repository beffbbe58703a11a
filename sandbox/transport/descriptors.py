"""Takes over this process's stdin and stdout, so that nothing else can write into the protocol.

Whatever prints to stdout while a client is served (a library, a forgotten debug line) would be read as a message. So
the descriptors 0 and 1 are moved away: 0 becomes ``/dev/null`` and 1 becomes stderr.

Non-blocking mode belongs to the open file description, which the parent and stderr may share: a shell whose terminal
was left non-blocking breaks, and a ``2>&1`` would make our own stderr fail. Pipes and terminals are therefore opened
again through ``/proc/self/fd``, which gives a description of our own; where that is impossible (sockets, foreign
owner) the old mode is restored at the end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from dataclasses import dataclass
from typing import Final

from sandbox.limits import KIB

PIPE_BYTES: Final = 256 * KIB
"""Capacity asked for a pipe; with the usual 64 KiB a large result takes four times as many switches of process."""

STDIN: Final = 0
STDOUT: Final = 1
STDERR: Final = 2


@dataclass(slots=True)
class Descriptor:
    """One end of our stdio, ours alone to close.

    Attributes:
        fd: descriptor number.
        pollable: whether it is a pipe, socket or terminal; regular files and ``/dev/null`` never would block.
        restore: descriptor whose mode must be set back to blocking, -1 for none.
    """

    fd: int
    pollable: bool
    restore: int = -1

    def release(self) -> None:
        """Set the shared mode back, if it was changed; idempotent."""
        if self.restore >= 0:
            with contextlib.suppress(OSError):
                os.set_blocking(self.restore, True)
            os.close(self.restore)
            self.restore = -1


def take(fd: int, flags: int) -> Descriptor:
    """Return a descriptor for the file behind ``fd``, which stays open.

    Args:
        fd: 0 or 1, or any descriptor in tests.
        flags: ``os.O_RDONLY`` or ``os.O_WRONLY``.
    """
    mode = os.fstat(fd).st_mode
    pollable = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)
    if not pollable:
        return Descriptor(os.dup(fd), pollable=False)
    if stat.S_ISFIFO(mode):
        with contextlib.suppress(OSError):  # beyond what an unprivileged user may have in all
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    if not stat.S_ISSOCK(mode):
        with contextlib.suppress(OSError):
            own = os.open(f"/proc/self/fd/{fd}", flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            return Descriptor(own, pollable=True)
    was_blocking = os.get_blocking(fd)
    return Descriptor(os.dup(fd), pollable=True, restore=os.dup(fd) if was_blocking else -1)


def take_stdio() -> tuple[Descriptor, Descriptor]:
    """Return this process's stdin and stdout, and put ``/dev/null`` and stderr in their places."""
    reading, writing = take(STDIN, os.O_RDONLY), take(STDOUT, os.O_WRONLY)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, STDIN)
    os.close(null)
    os.dup2(STDERR, STDOUT)
    return reading, writing
