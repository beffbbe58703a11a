"""Relations between absolute, link-free POSIX paths, by component and never by string prefix.

``/data/a_evil`` does not lie in ``/data/a`` (probe F05). Everything here is lexical: links are resolved before, by
whoever gathers host facts.
"""

from __future__ import annotations

from typing import Final, Literal

from sandbox.policy.ceiling_values import star

MAX_PATH_CHARS: Final = 4096
"""PATH_MAX of Linux; longer paths cannot be mounted."""

Relation = Literal["inside", "above", "apart"]
"""Of a path to a pattern: it is or lies in a match; a match may lie in it; neither."""


def tidy(path: str) -> bool:
    """Return whether a path is absolute, in its shortest form, printable, and not too long."""
    if not path.startswith("/") or not path.isprintable() or len(path) > MAX_PATH_CHARS:
        return False
    return path == "/" or all(part not in {"", ".", ".."} for part in path[1:].split("/"))


def parts(path: str) -> tuple[str, ...]:
    """Return the components of a tidy path; none for ``/``."""
    return tuple(path[1:].split("/")) if path != "/" else ()


def inside(path: str, root: str) -> bool:
    """Return whether a path is ``root`` or lies below it."""
    return path == root or path.startswith(root if root.endswith("/") else root + "/")


def below(root: str, path: str) -> str:
    """Return what must be appended to ``root`` to get ``path``, which lies in it: ``""`` or ``/…``."""
    return path.removeprefix(root.rstrip("/")) if path != root else ""


def relation(path: str, pattern: str) -> Relation:
    """Return how a tidy path stands to a never pattern (``/a/b*`` or ``**/name``)."""
    components = parts(path)
    if pattern.startswith("**/"):
        return "inside" if any(star(pattern[3:], part) for part in components) else "apart"
    wanted = parts(pattern)
    if not all(star(want, part) for want, part in zip(wanted, components, strict=False)):
        return "apart"
    return "inside" if len(components) >= len(wanted) else "above"


def expand(pattern: str, home: str, driver: str) -> tuple[str, ...]:
    """Return the absolute patterns that ``~`` and ``${driver}`` stand for.

    ``~/x`` in a never list holds for every home: the person's own, root's, and all below ``/home``.
    """
    if pattern == "~" or pattern.startswith("~/"):
        rest = pattern[1:]
        return tuple(dict.fromkeys((home.rstrip("/") + rest, "/root" + rest, "/home/*" + rest)))
    return tuple(filter(None, (root(pattern, home, driver),)))


def root(pattern: str, home: str, driver: str) -> str:
    """Return the one absolute path that a mountable root stands for, or nothing when it stands for everything.

    ``~`` is the person's own home only. A home or a driver folder that is ``/`` would make every path mountable.
    """
    for name, place in (("~", home), ("${driver}", driver)):
        if pattern == name or pattern.startswith(name + "/"):
            base = place.rstrip("/")
            return base + pattern[len(name) :] if base and tidy(base) else ""
    return pattern
