"""Which paths may stand in a package (MCPKG §1: POSIX style); pure.

The theory: a path is accepted only when every system and every tool that unpacks it puts it at the same place below one
folder. So what could be read in two ways is refused rather than repaired: backslashes, drive letters, dots that Windows
drops, characters that normalisation or case folding changes into another path's.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from sandbox.errors import InstallRefused
from sandbox.mcpkg.bounds import MAX_NAME_BYTES, MAX_NAME_DEPTH, MAX_SEGMENT_BYTES

_FORBIDDEN: Final = re.compile(r'[\x00-\x1f\x7f\\:*?"<>|]')
_DEVICES: Final = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)


def safe(path: str) -> str:
    """Return the path of a file or folder in a package, unchanged.

    Raises:
        InstallRefused: ``PKG-002``, it may lead out of its folder or means different places on different systems.
    """
    reason = _reason(path)
    if reason:
        raise InstallRefused("PKG-002", f"the path {path[:120]!r} is refused: {reason}", "build the package again")
    return path


def _reason(path: str) -> str:
    """Return why a path is refused; empty when it is fine."""
    if not path:
        return "it is empty"
    if len(path.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        return f"it is longer than {MAX_NAME_BYTES} bytes"
    if path.startswith("/"):
        return "it is absolute"
    if _FORBIDDEN.search(path):
        return "it has a backslash, a colon, a control character or one that other systems forbid"
    if not path.isprintable():
        return "it has characters that do not show"
    if unicodedata.normalize("NFC", path) != path:
        return "it is not in Unicode's normal form C, so two spellings would be two files"
    parts = path.split("/")
    if len(parts) > MAX_NAME_DEPTH:
        return f"it is deeper than {MAX_NAME_DEPTH} folders"
    return next((reason for part in parts if (reason := _part_reason(part))), "")


def _part_reason(part: str) -> str:
    if part in {"", ".", ".."}:
        return "it has an empty part, `.` or `..`"
    if part.endswith((".", " ")) or part.startswith(" "):
        return "a part begins with a space, or ends with a dot or space that other systems drop"
    if len(part.encode("utf-8", "surrogatepass")) > MAX_SEGMENT_BYTES:
        return f"a part is longer than {MAX_SEGMENT_BYTES} bytes"
    if _DEVICES.fullmatch(part):
        return "a part is the name of a device on other systems"
    return ""


def fold(path: str) -> str:
    """Return what two paths have in common that some file system takes for one."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path).casefold())


class Places:
    """Remembers which places are taken, so that no two members of a package meet on any file system."""

    def __init__(self) -> None:
        self._taken: dict[str, tuple[str, bool]] = {}
        self._members: set[str] = set()

    def take(self, path: str, *, folder: bool) -> None:
        """Take the place of a member; the folders above it are taken with it.

        Raises:
            InstallRefused: ``PKG-005``, the member stands twice, or another one has its place.
        """
        if path in self._members:
            raise _meets(path, path)
        self._members.add(path)
        parts = path.split("/")
        for count in range(1, len(parts)):
            self._claim("/".join(parts[:count]), folder=True)
        self._claim(path, folder=folder)

    def _claim(self, path: str, *, folder: bool) -> None:
        found = self._taken.setdefault(fold(path), (path, folder))
        if found != (path, folder):
            raise _meets(path, found[0])


def _meets(path: str, other: str) -> InstallRefused:
    what = "stands twice" if path == other else f"meets {other[:120]!r} where case or spelling does not count"
    return InstallRefused("PKG-005", f"the member {path[:120]!r} {what}", "give every member a name of its own")


def plain(text: str) -> str:
    """Return text of a package without characters that do not show: directions, zero widths, tags, escapes."""
    return "".join(char for char in text if char.isprintable() or char in "\n\t")
