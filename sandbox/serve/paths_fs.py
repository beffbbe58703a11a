"""The second look at a path: where the host directory behind a mount can be opened, the kernel resolves it.

``paths`` judges text and knows no symbolic links. Here the part below the root is resolved by ``openat2`` beneath the
mount's source, with ``RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS``: a link that leads out, a ``..`` above the top or a
magic link is an error of the kernel, in one call, with no moment between check and use (F07). A path that does not
exist yet is judged by its deepest existing ancestor; a dangling link is refused, for what it names may be created
elsewhere.

An absolute link is refused even when inside the sandbox it leads to the same mount: on the host it means another place.

What this does not do: the server opens the path later, by itself, and may find another link then. There the mount is
the boundary. Where the supervisor itself opens a file below a root, :meth:`HostTree.open` gives a descriptor that *is*
beneath.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from sandbox.errors import PlatformError
from sandbox.serve.paths import Checked, refused

_OPENAT2: Final = 437
"""System call number, the same on every architecture (Linux 5.6)."""

_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_BENEATH: Final = 0x08
_HOW: Final = _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS
_PATH: Final = os.O_PATH | os.O_CLOEXEC
_ABSENT: Final = frozenset((errno.ENOENT, errno.ENOTDIR))

_AGAIN: Final = 64
"""Attempts after EAGAIN: the kernel gives up when something is renamed while it walks (openat2(2))."""


class _OpenHow(ctypes.Structure):
    """``struct open_how`` of openat2(2)."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc: Final = ctypes.CDLL(None, use_errno=True)


def open_beneath(top: int, path: str, flags: int = _PATH) -> int:
    """Return a descriptor of a path that is beneath an open directory, links followed but never out of it.

    Args:
        top: descriptor of a directory.
        path: relative path; ``.`` is the directory.
        flags: for open(2).

    Raises:
        OSError: EXDEV when it leads out, ELOOP for magic links and circles, and what open(2) raises.
    """
    how = _OpenHow(flags | os.O_CLOEXEC, 0, _HOW)
    name = os.fsencode(path)
    for _ in range(_AGAIN):
        found: int = _libc.syscall(_OPENAT2, top, name, ctypes.byref(how), ctypes.sizeof(how))
        if found >= 0:
            return found
        error = ctypes.get_errno()
        if error != errno.EAGAIN:
            break
    raise OSError(error, os.strerror(error), path)


class HostTree:
    """The host directories behind the mounts of one plan, held open.

    Args:
        mounts: path in the sandbox and path on the host of each.

    Raises:
        PlatformError: ``CALL-046``, a source cannot be opened or the kernel has no ``openat2``; without it links cannot
            be judged.
    """

    def __init__(self, mounts: Iterable[tuple[str, str]]) -> None:
        self._tops: dict[str, int] = {}
        try:
            for target, source in mounts:
                self._tops[target] = os.open(source, _PATH)
            for top in self._tops.values():
                _probe(top)
        except OSError as error:
            self.close()
            raise PlatformError(
                "CALL-046",
                f"paths below the mounts cannot be judged: {error}",
                "use Linux 5.6 or later, and readable sources",
            ) from None

    def verify(self, checked: Checked) -> None:
        """Refuse a checked path that leads out of its root through a symbolic link; other roots are not known here.

        Raises:
            CallRefused: ``CALL-045``.
        """
        top = self._tops.get(checked.root)
        if top is None or not checked.below:
            return
        try:
            _reach(top, checked.below.split("/"))
        except OSError as error:
            out = error.errno == errno.EXDEV
            why = "it leads out of its root through a symbolic link" if out else os.strerror(error.errno or 0)
            raise refused("CALL-045", checked.text, why, "name what lies below the root itself") from None

    def open(self, checked: Checked, flags: int = os.O_RDONLY) -> int:
        """Return a descriptor of a checked path; whatever is renamed meanwhile, it is beneath its root.

        Opening never waits for the other end of a FIFO.

        Raises:
            OSError: as :func:`open_beneath`.
            KeyError: no mount is at its root.
        """
        return open_beneath(self._tops[checked.root], checked.below or ".", flags | os.O_NONBLOCK | os.O_NOCTTY)

    def close(self) -> None:
        """Close the directories; idempotent."""
        while self._tops:
            os.close(self._tops.popitem()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _reach(top: int, components: list[str]) -> None:
    """Resolve a path, or the deepest part of it that exists."""
    for length in range(len(components), 0, -1):
        try:
            os.close(open_beneath(top, "/".join(components[:length])))
        except OSError as error:
            if error.errno not in _ABSENT:
                raise
            _refuse_dangling(top, components[:length])
        else:
            return


def _refuse_dangling(top: int, components: list[str]) -> None:
    """Raise when the last component is a link; it was found to lead nowhere."""
    try:
        found = open_beneath(top, "/".join(components), _PATH | os.O_NOFOLLOW)
    except OSError:
        return  # neither a link nor anything else: the parent decides
    os.close(found)
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


def _probe(top: int) -> None:
    try:
        os.close(open_beneath(top, "."))
    except NotADirectoryError:
        return  # the mount of one file
