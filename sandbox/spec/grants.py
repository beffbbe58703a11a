"""``sandbox.fs`` and AIP-36 ``sandbox.mounts``: which host paths a server sees, and where.

AIP-29 writes globs and relative paths; a mount is neither. Rules (ADR 0013):

1. an entry is ``{path, at}``, or one absolute path that keeps its place inside the sandbox;
2. ``path`` is absolute, below ``~/``, or in the driver folder; ``/**`` at its end is dropped, other globs are refused;
3. ``at`` is absolute, plain, and not ``/``, ``/proc``, ``/sys`` or ``/dev``;
4. a place is granted once, and a path is granted for reading or for writing;
5. ``deny`` names absolute or ``~/`` paths, also without globs.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any, Final

from sandbox.spec.fields.permissions import Fs, GrantBlock, MountFile, Sandbox
from sandbox.spec.model import FsGrant, FsRules
from sandbox.spec.report import Source
from sandbox.spec.shape import check, wrong_type

_GLOB: Final = re.compile(r"[*?\[\]{}]")
_SEPARATORS: Final = re.compile(r"[:,\\]")
"""Characters that mount options use between fields (probe D04)."""

_KERNEL: Final = ("/proc", "/sys", "/dev")


def filesystem(source: Source, block: Sandbox) -> FsRules:
    """Return the grants of a driver; what is wrong is reported and left out."""
    read = _grants(source, "sandbox.fs.read", block.fs.read, writable=False)
    write = _grants(source, "sandbox.fs.write", block.fs.write, writable=True)
    for index, mount in enumerate(block.mounts):
        place = f"sandbox.mounts[{index}]"
        grant = _mount(source, place, mount.source, mount.at, writable=mount.mode == "read-write")
        if mount.mode is None:
            source.error(
                "SPEC-150",
                f"{place}.mode",
                "the mode is missing; AIP-36 would take it as read-write, and nothing is writable here by default",
                allowed="read-only, read-write",
                mend="add `mode: read-only`",
            )
        elif grant is not None:
            key, grants = ("write", write) if mount.mode == "read-write" else ("read", read)
            source.alias(f"sandbox.fs.{key}[{len(grants)}]", place)
            grants.append((place, grant))
    _once(source, read + write)
    return FsRules(
        read=tuple(grant for _, grant in read),
        write=tuple(grant for _, grant in write),
        deny=_denied(source, block.fs),
    )


Placed = tuple[str, FsGrant]


def _grants(source: Source, path: str, entries: list[Any], *, writable: bool) -> list[Placed]:
    found: list[Placed] = []
    for index, entry in enumerate(entries):
        place = f"{path}[{index}]"
        grant = _grant(source, place, entry, writable=writable)
        if grant is not None:
            found.append((place, grant))
    return found


def _grant(source: Source, place: str, entry: Any, *, writable: bool) -> FsGrant | None:
    """Return one entry of ``read`` or ``write`` (rule 1)."""
    if isinstance(entry, dict):
        block = check(GrantBlock, entry, source, place)
        return _checked(source, place, block.path, block.at, writable=writable) if block else None
    if not isinstance(entry, str) or not entry:
        wrong_type(source, place, entry, "an absolute path, or `{path, at}`")
        return None
    if not entry.startswith("/"):
        source.error(
            "SPEC-151",
            place,
            "this path is relative to the host, and does not say where it appears inside the sandbox",
            found=entry,
            allowed="an absolute path, or `{path, at}`",
            mend=f"write `{{path: {_without_globs(entry) or './…'}, at: /…}}`",
        )
        return None
    return _checked(source, place, entry, _without_globs(entry), writable=writable)


def _mount(source: Source, place: str, origin: Any, at: str, *, writable: bool) -> FsGrant | None:
    """Return one AIP-36 mount whose source is a path."""
    if isinstance(origin, dict) and set(origin) == {"file"}:
        block = check(MountFile, origin, source, f"{place}.source")
        if block is not None and not block.file.endswith(".md"):
            return _checked(source, place, block.file, at, writable=writable, field="source.file")
    source.error(
        "SPEC-152",
        f"{place}.source",
        "there is no workspace storage here (AIP-35): only a path can be mounted",
        allowed="`{file: <path>}`",
        mend="name a directory, or write the grant under `sandbox.fs`",
    )
    return None


def _checked(source: Source, place: str, path: str, at: str, *, writable: bool, field: str = "path") -> FsGrant | None:
    path_place = f"{place}.{field}" if f"{place}.{field}" in source.lines else place
    clean = host_path(source, path_place, path)
    target = _target(source, f"{place}.at" if f"{place}.at" in source.lines else place, at)
    if clean is None or target is None:
        return None
    if writable and clean == ".":
        source.error(
            "SPEC-153",
            path_place,
            "the server could rewrite its own DRIVER.md",
            found=path,
            mend="grant a directory below the driver folder",
        )
        return None
    return FsGrant(path=clean, at=target)


def host_path(source: Source, place: str, path: str) -> str | None:
    """Return a host path in its plain form (rule 2); report a wrong one and return ``None``."""
    plain = _without_globs(path)
    reason = ""
    if _GLOB.search(plain):
        reason = "a pattern cannot be mounted; only a directory or file can"
    elif ".." in plain.split("/"):
        reason = "`..` hides where the path leads"
    elif _SEPARATORS.search(plain):
        reason = "`:`, `,` and `\\` separate the parts of mount options"
    elif plain.startswith("//") or (plain.startswith("~") and not plain.startswith("~/")) or not plain.isprintable():
        reason = "this is not a plain path"
    elif "${" in plain:
        reason = "nothing is substituted in paths"
    if reason:
        source.error(
            "SPEC-154",
            place,
            reason,
            found=path,
            allowed="`/…`, `~/…` or `./…`, each meant with everything below it",
            mend="name the directory itself",
        )
        return None
    return posixpath.normpath(plain)


def _without_globs(path: str) -> str:
    """Return a path without ``/**`` at its end, which means the same directory and everything below it."""
    for ending in ("/**/*", "/**"):
        if path.endswith(ending) and len(path) > len(ending):
            return path.removesuffix(ending)
    return path


def _target(source: Source, place: str, at: str) -> str | None:
    """Return a place inside the sandbox in its plain form (rule 3)."""
    plain = posixpath.normpath(at)
    bad = not at.startswith("/") or at.startswith("//") or ".." in at.split("/") or not at.isprintable()
    kernel = plain == "/" or any(plain == root or plain.startswith(f"{root}/") for root in _KERNEL)
    if bad or kernel or _GLOB.search(at) or _SEPARATORS.search(at):
        source.error(
            "SPEC-155",
            place,
            "nothing can be mounted there",
            found=at,
            allowed="an absolute path other than `/` and not below `/proc`, `/sys` or `/dev`, without `..` and globs",
            mend="write `at: /data` or the like",
        )
        return None
    return plain


def _once(source: Source, placed: list[Placed]) -> None:
    """Report places and paths that are granted twice (rule 4)."""
    targets: dict[str, str] = {}
    paths: dict[str, str] = {}
    for place, grant in placed:
        for seen, key, what in ((targets, grant.at, "place"), (paths, grant.path, "path")):
            first = seen.setdefault(key, place)
            if first != place:
                source.error(
                    "SPEC-156",
                    place,
                    f"the {what} `{key}` is granted here and in `{first}` (line {source.line(first)})",
                    mend="keep one of them",
                )


def _denied(source: Source, block: Fs) -> tuple[str, ...]:
    """Return the paths of ``deny`` (rule 5)."""
    found: list[str] = []
    for index, entry in enumerate(block.deny):
        place = f"sandbox.fs.deny[{index}]"
        if not entry.startswith(("/", "~/")):
            source.error(
                "SPEC-157",
                place,
                "a pattern cannot be denied: what is mounted is decided before the server starts",
                found=entry,
                allowed="`/…` or `~/…`, with everything below it",
                mend="grant less, or name the path that is to be hidden",
            )
            continue
        plain = host_path(source, place, entry)
        if plain is not None:
            found.append(plain)
    return tuple(dict.fromkeys(found))
