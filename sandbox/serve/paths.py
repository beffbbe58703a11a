"""Path arguments: confined to declared roots, in every reading (S0-70; attacks F04, F05, J17).

Paths are those of the sandbox: POSIX, absolute from the container's root. The steps, the same numbers in the code:

1. Text that cannot be a path is refused: empty, longer than :data:`MAX_PATH_BYTES`, with control characters or without
a
   UTF-8 form.
2. Forms that another system or program would read as something else are refused: a leading ``//`` or backslash (UNC), a
   drive letter, ``~``, a scheme.
3. A relative path is put behind the declared working directory.
4. Empty and ``.`` components are dropped; ``..`` is refused, not resolved: with symbolic links ``a/../b`` is not ``b``.
5. What remains must be a root or lie below one, by component (``/data/a_evil`` is not below ``/data/a``).
6. Every reading of the part below the root (``readings``) must stay below it.

What comes out is what is forwarded: absolute, without ``.`` and ``//``, otherwise the characters that came in. Nothing
is decoded or normalised on the way, so that names with percent signs and Unicode in either form stay what they are.

The mount is the boundary; this is a second, independent layer. It knows no symbolic links: ``paths_fs`` does, where the
host directory behind a mount can be opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from sandbox.errors import CallRefused
from sandbox.limits import KIB
from sandbox.serve.readings import TooManyReadings, climbs, has_control, is_plain, readings

MAX_PATH_BYTES: Final = 4 * KIB
"""PATH_MAX of Linux, the terminating NUL included: the kernel takes no longer path."""

SHOWN: Final = 120
"""Characters of a refused path that a message repeats."""

Style = Literal["absolute", "relative"]
"""``absolute``: what is forwarded starts with a root. ``relative``: a name below something else that the call names,
such as the files of a repository; it is forwarded relative, refused when absolute, and held to no root of its own."""

ABSOLUTE: Final = re.compile("/")
FOREIGN: Final = re.compile(r"/|\\|[A-Za-z]:|~")
"""Beginnings that take a join elsewhere: absolute, a share, a drive, a home."""

_FOREIGN: Final = re.compile(r"//|\\|[A-Za-z]:|~|[A-Za-z][A-Za-z0-9+.-]*:[/\\]")


class Checked(NamedTuple):
    """A path or URI that may be forwarded.

    Attributes:
        text: byte for byte what was checked and is forwarded.
        kind: ``path``, ``file``, ``http`` or ``template``.
        scheme: of a URI, lower case; empty for a path.
        host: of a URI; canonical for http.
        port: of an http URI, 0 otherwise.
        path: decoded absolute path in the sandbox for ``path`` and ``file``, the URI's own path otherwise.
        root: the root that confines it, empty where there is none.
        below: components below ``root``, joined by ``/``.
        template: the declared template that it matches, empty where none was needed.
    """

    text: str
    kind: Literal["path", "file", "http", "template"]
    scheme: str = ""
    host: str = ""
    port: int = 0
    path: str = ""
    root: str = ""
    below: str = ""
    template: str = ""

    def facts(self) -> dict[str, str]:
        """Return what rules see as ``context.uri``."""
        return {"text": self.text, "scheme": self.scheme, "host": self.host, "path": self.path}


class Roots:
    """Declared directories or files, absolute in the sandbox.

    Args:
        paths: such as ``/workspace``; ``/`` confines nothing and is allowed only because a plan may say so.

    Raises:
        ValueError: a root is not absolute or not in its plain form.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = tuple(dict.fromkeys(paths))
        for path in self.paths:
            if not path.startswith("/") or path != "/" + "/".join(_components(path)) or climbs(path):
                raise ValueError(f"the root {path!r} is not an absolute path in its plain form")
        self._split = sorted(((_components(path), path) for path in self.paths), key=lambda item: -len(item[0]))

    def find(self, components: list[str]) -> tuple[str, list[str]] | None:
        """Return the deepest root that holds a path, and what lies below it."""
        for root, path in self._split:
            if components[: len(root)] == root:
                return path, components[len(root) :]
        return None


def check_path(text: str, roots: Roots, cwd: str = "", style: Style = "absolute") -> Checked:
    """Return a path argument in the form that is forwarded.

    Args:
        text: as the client wrote it.
        roots: what the plan grants; none means that every path is refused.
        cwd: absolute directory that relative paths start from; empty: relative paths are refused.
        style: see :data:`Style`.

    Raises:
        CallRefused: ``CALL-040`` not usable as a path, ``CALL-041`` some reading of it leads out, ``CALL-042`` outside
            every root.
    """
    _presentable(text)  # 1
    if _FOREIGN.match(text):  # 2
        why = "another program could read it as a home directory, a drive, a share or a URI"
        raise refused("CALL-041", text, why, "write a plain path; `./` in front makes any name plain")
    if style == "relative":
        return _relative(text)
    absolute = text if text.startswith("/") else f"{_base(text, cwd)}/{text}"  # 3
    checked = confine(absolute, roots, text)
    return Checked(checked.path, "path", "", "", 0, checked.path, checked.root, checked.below)


def confine(absolute: str, roots: Roots, shown: str) -> Checked:
    """Steps 4 to 6 for an absolute path; ``shown`` is what the client wrote."""
    if len(absolute.encode()) >= MAX_PATH_BYTES:
        raise refused("CALL-040", shown, f"as a path it has {MAX_PATH_BYTES} bytes or more", "shorten it")
    components = _components(absolute)  # 4
    if ".." in components:
        raise refused("CALL-041", shown, "it climbs with `..`", "write the path without `..`")
    found = roots.find(components)  # 5
    if found is None:
        granted = ", ".join(f"`{root}`" for root in roots.paths) or "none"
        raise CallRefused(
            "CALL-042",
            f"the path `{shortened(shown)}` is outside the roots of this server",
            f"stay within its roots: {granted}",
        )
    root, below = found
    tail = "/".join(below)
    every_reading_stays(tail, shown)  # 6
    slash = "/" if absolute.endswith("/") and below else ""
    return Checked("", "path", path="/" + "/".join(components) + slash, root=root, below=tail)


def _relative(text: str) -> Checked:
    if text.startswith("/"):
        raise refused("CALL-041", text, "it is absolute where a relative path is meant", "write a relative path")
    if text.startswith("-"):
        raise refused("CALL-041", text, "another program could read it as an option", "write `./` in front")
    components = _components(text)
    if ".." in components:
        raise refused("CALL-041", text, "it climbs with `..`", "write the path without `..`")
    plain = "/".join(components)
    every_reading_stays(plain, text, FOREIGN)
    prefix = "./" if text.startswith("./") and (plain.startswith("-") or _FOREIGN.match(plain)) else ""
    return Checked(f"{prefix}{plain}" or ".", "path", below=plain)


def _presentable(text: str) -> None:
    if not text:
        raise refused("CALL-040", text, "it is empty", "name a file or a directory")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise refused("CALL-040", text, "it is not text", "send valid Unicode") from None
    if size >= MAX_PATH_BYTES:
        raise refused("CALL-040", text, f"it has {size} bytes, {MAX_PATH_BYTES - 1} are possible", "shorten it")
    if has_control(text):
        raise refused("CALL-040", text, "it has control characters", "leave them out")


def _base(text: str, cwd: str) -> str:
    if not cwd:
        raise refused("CALL-040", text, "it is relative, and no working directory is declared", "write it absolute")
    return cwd


def every_reading_stays(tail: str, shown: str, start: re.Pattern[str] | None = ABSOLUTE) -> None:
    """Refuse a path below a root when some reading of it leads out (step 6).

    Args:
        tail: what lies below the root.
        shown: what the client wrote.
        start: how no reading but the tail itself may begin: what would make a join forget the directory before it.

    Raises:
        CallRefused: ``CALL-041``.
    """
    if is_plain(tail):
        escaping = climbs(tail)
    else:
        try:
            escaping = any(
                climbs(reading)
                or has_control(reading)
                or (start is not None and reading is not tail and start.match(reading) is not None)
                for reading in readings(tail)
            )
        except TooManyReadings:
            escaping = True
    if escaping:
        why = "decoded or normalised, it could lead out of its root"
        raise refused("CALL-041", shown, why, "write it plainly, without encoded or look-alike dots and slashes")


def _components(path: str) -> list[str]:
    return [component for component in path.split("/") if component not in ("", ".")]


def shortened(text: str) -> str:
    """Return the beginning of a text as one printable line."""
    start = text[:SHOWN]
    return start if start.isprintable() else start.encode("unicode_escape").decode()


def refused(id_: str, text: str, why: str, mend: str) -> CallRefused:
    """Return the refusal of a path or URI, with its beginning."""
    return CallRefused(id_, f"`{shortened(text)}` is refused: {why}", mend)
