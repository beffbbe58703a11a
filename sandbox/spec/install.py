"""``install`` and ``version_check``: how the server's program gets into its image, and which version it must be.

``install`` lists alternatives in order of preference (AIP-29 §Install methods). Methods that this supervisor carries
out, confined and pinned, are kept. The others are refused with the reason and the alternative, unless the list itself
names an alternative; then they are left out with a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.spec.fields.universal import REFUSED_STEPS, STEPS, VersionCheckBlock
from sandbox.spec.model import InstallStep, Origin, VersionCheck
from sandbox.spec.report import Source
from sandbox.spec.shape import check
from sandbox.spec.versions import command, pattern


def install(source: Source, entries: list[dict[str, Any]], server: Mapping[str, Any]) -> tuple[InstallStep, ...]:
    """Return the install methods that are carried out; what is wrong is reported.

    Args:
        source: the driver.
        entries: ``install``.
        server: the ``server`` block as written.
    """
    usable = any(str(entry.get("method")) in STEPS and not _is_image(entry, server) for entry in entries)
    found = [_step(source, f"install[{index}]", entry, server, usable) for index, entry in enumerate(entries)]
    return tuple(step for step in found if step is not None)


def _step(
    source: Source, place: str, entry: dict[str, Any], server: Mapping[str, Any], usable: bool
) -> InstallStep | None:
    method = entry.get("method")
    if _is_image(entry, server):
        source.warn(
            "SPEC-100",
            place,
            "this downloads the image that `server.image` names anyway, and is left out",
            mend="remove it",
        )
        return None
    model = STEPS.get(method) if isinstance(method, str) else None
    if model is None:
        _refuse(source, place, entry, usable)
        return None
    block = check(model, entry, source, place)
    if block is None:
        return None
    params = block.model_dump(by_alias=True, exclude={"method", "experimental"})
    if method == "vendored":
        path = _inside(source, f"{place}.path", params["path"])
        params["path"] = path or ""
    if method == "download":
        params["extract_bin"] = _inside(source, f"{place}.extract_bin", params["extract_bin"]) or ""
    return InstallStep(method=str(method), params=params, origin=Origin(file=source.file, line=source.line(place)))


def _is_image(entry: dict[str, Any], server: Mapping[str, Any]) -> bool:
    """Return whether a step is the ``download docker://…`` of the upstream examples, for the server's image (T0-6)."""
    image = server.get("image")
    return entry.get("method") == "download" and isinstance(image, str) and entry.get("url") == f"docker://{image}"


def _refuse(source: Source, place: str, entry: dict[str, Any], usable: bool) -> None:
    method = entry.get("method")
    allowed = ", ".join(STEPS)
    if isinstance(method, str) and method in REFUSED_STEPS:
        say = source.warn if usable else source.error
        reason = REFUSED_STEPS[method].partition("; ")
        say(
            "SPEC-101",
            f"{place}.method",
            f"`{method}` is not carried out: {reason[0]}",
            allowed=allowed,
            mend=reason[2],
        )
    elif method is None:
        source.error("SPEC-041", f"{place}.method", "the field is missing", allowed=allowed, mend="name the method")
    elif entry.get("experimental") is True:
        message = "this experimental method is not known and is left out (AIP-29)"
        source.warn("SPEC-102", f"{place}.method", message, found=method, allowed=allowed, mend="name another as well")
    else:
        message = "there is no such install method"
        source.error("SPEC-044", f"{place}.method", message, found=method, allowed=allowed, mend="write one of them")


def _inside(source: Source, place: str, path: str) -> str | None:
    """Return a path below the driver folder or archive in its plain form; report one that leads out."""
    parts = path.removeprefix("./").split("/")
    if path.startswith(("/", "~")) or any(part in ("", ".", "..") for part in parts) or "\\" in path:
        source.error(
            "SPEC-103",
            place,
            "the path leads out, or is not plain",
            found=path,
            allowed="a relative path without `..`",
            mend="name a file below",
        )
        return None
    return "/".join(parts)


# --- version_check ----------------------------------------------------------------------------------------------------
def version_check(source: Source, block: VersionCheckBlock | None, server: Mapping[str, Any]) -> VersionCheck | None:
    """Return the version check with its command in words; what is wrong is reported."""
    if block is None:
        return None
    words: tuple[str, ...] = ()
    good = True
    try:
        words = command(block.cmd)
    except ValueError as error:
        good = False
        source.error(
            "SPEC-104",
            "version_check.cmd",
            f"the command cannot be run: {error}",
            found=block.cmd,
            allowed="one program and its arguments; there is no shell",
            mend="write `program --version`",
        )
    try:
        pattern(block.parse)
    except ValueError as error:
        good = False
        source.error(
            "SPEC-105",
            "version_check.parse",
            f"the pattern cannot be run in linear time: {error}",
            found=block.parse,
            allowed="RE2 syntax with one group",
            mend=r"write `(\d+\.\d+\.\d+)` or the like",
        )
    if not good:
        return None
    argv, of_server = _own_words(words, server)
    return VersionCheck(
        cmd=block.cmd,
        parse=block.parse,
        range=block.range,
        timeout_ms=block.timeout_ms,
        argv=argv,
        of_server=of_server,
    )


def _own_words(words: tuple[str, ...], server: Mapping[str, Any]) -> tuple[tuple[str, ...], bool]:
    """Return the words after the server itself: neither npx nor docker exists inside a sandbox.

    ``npx <package> …`` and ``docker run [options] <image> …`` name the server; what follows are its arguments.
    """
    named = {"npx": server.get("package"), "docker": server.get("image"), "podman": server.get("image")}.get(words[0])
    if isinstance(named, str) and named in words:
        return words[words.index(named) + 1 :], True
    if words[0] == server.get("path"):
        return words[1:], True
    return words, False
