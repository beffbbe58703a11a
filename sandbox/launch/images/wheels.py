"""Files of the Python package index that something is taken out of (Node.js, uv), through the user's own pip.

pip decides where from (index, proxy, certificates: its configuration); the version and the digest are recorded here,
so it does not matter. Only wheels, no dependencies, nothing is installed or run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandbox.errors import PlatformError
from sandbox.launch.images.lock import Package
from sandbox.launch.images.recipe import Wheel
from sandbox.launch.images.tree import Blob, Entry, Tree
from sandbox.launch.images.unpack import unpack_zip

PIP_SECONDS: Final = 900.0
"""One download (seconds): 60 MB over a slow line."""

_TAGS: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_GLIBC: Final = tuple(range(17, 37))
"""Minor versions of glibc whose manylinux tags are taken; 36 is Debian bookworm's."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A wheel on disk."""

    package: Package
    file: Path


def fetch(wheel: Wheel, arch: str, folder: Path, locked: Package | None) -> Fetched:
    """Download one wheel.

    Args:
        wheel: package and version.
        arch: Go's name of the architecture.
        folder: where it is put.
        locked: what its digest must be; ``None`` takes what comes and records it.

    Raises:
        PlatformError: ``IMG-013`` pip is absent or fails, ``IMG-014`` another digest than recorded.
    """
    with tempfile.TemporaryDirectory(dir=folder) as empty:
        platforms = [f"--platform=manylinux_2_{minor}_{_TAGS[arch]}" for minor in reversed(_GLIBC)]
        command = [
            *(*pip_command(), "download", "--quiet", "--no-deps", "--only-binary=:all:"),
            *("--disable-pip-version-check", "--no-input", "--dest", empty, f"--platform=manylinux2014_{_TAGS[arch]}"),
            *(*platforms, "--", f"{wheel.package}=={wheel.version}"),
        ]
        _run(command, wheel)
        found = next(Path(empty).iterdir())
        file = found.replace(folder / found.name)
    with file.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256").hexdigest()
    package = Package(wheel.package, wheel.version, digest)
    if locked is not None and package != locked:
        raise PlatformError(
            "IMG-014",
            f"{wheel.package} {wheel.version} has the digest {digest[:12]}…, and {locked.sha256[:12]}… is recorded",
            "find out why the package index gives another file; do not use it before you know",
        )
    return Fetched(package, file)


def pip_command() -> list[str]:
    """Return how pip is started: that of this environment, else the one on the path (uv makes environments without).

    Raises:
        PlatformError: ``IMG-013``, there is none.
    """
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip3") or shutil.which("pip")
    if found is None:
        raise PlatformError(
            "IMG-013", "there is no pip", f"run `{sys.executable} -m ensurepip`, or install python3-pip"
        )
    return [found]


def take(wheel: Wheel, file: Path, into: Tree) -> None:
    """Add the parts of a wheel that a recipe names to a tree.

    Raises:
        PlatformError: ``IMG-013``, a part is not in the wheel.
    """
    whole = Tree()
    unpack_zip(file, whole)
    wanted = dict(wheel.take)
    if wheel.licence:
        wanted[wheel.licence] = f"usr/share/doc/{wheel.package}/copyright"
    for source, target in wanted.items():
        found = [entry for entry in whole.ordered() if _within(entry.path, source) and entry.kind == "file"]
        if not found:
            raise PlatformError(
                "IMG-013", f"{wheel.package} {wheel.version} has no {source}", "restore images/ from the release"
            )
        for entry in found:
            into.add(_taken(entry, source, target))


def _taken(entry: Entry, source: str, target: str) -> Entry:
    path = target if path_is_file(source) else target + entry.path.removeprefix(source)
    executable = entry.mode & 0o111 or target.startswith("usr/bin/")
    return Entry(path, "file", 0o755 if executable else 0o644, Blob.of(entry.blob.read()) if entry.blob else None)


def path_is_file(path: str) -> bool:
    """Return whether a part is one file rather than everything below a folder."""
    return not path.endswith("/")


def _within(path: str, source: str) -> bool:
    return path == source if path_is_file(source) else path.startswith(source)


def _run(command: list[str], wheel: Wheel) -> None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=PIP_SECONDS,
            env=os.environ,
        )
    except subprocess.TimeoutExpired:
        raise _failed(wheel, f"no end after {PIP_SECONDS:.0f} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise _failed(wheel, lines[-1][:300] if lines else "no message")


def _failed(wheel: Wheel, why: str) -> PlatformError:
    return PlatformError(
        "IMG-013",
        f"pip could not download {wheel.package} {wheel.version}: {why}",
        "try `python3 -m pip download` yourself; pip's own configuration says where from",
    )
