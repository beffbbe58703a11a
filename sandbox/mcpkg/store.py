"""Installed packages of one place, ``.mcp`` by default (MCPKG §8.1).

::

    .mcp/tools/<toolId>            → the current version; a driver folder that `run` and `serve` take
    .mcp/versions/<toolId>/<version>-<digest>/   driver folder with inside/package/…, package-info.json
    .mcp/history/<toolId>/metadata.json   what tests measured, over all versions
    .mcp/staging/                  what is being installed; swept by whoever installs next
    .mcp/lock                      held by whoever changes anything

``tools/<toolId>`` is a symbolic link, and changing versions is renaming another link over it: whoever opens a tool gets
the old version or the new one, whole, at whatever moment an install is interrupted (ADR 0097).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sandbox import jsontext
from sandbox.errors import InstallRefused, PlatformError, SandboxError, UsageError
from sandbox.mcpkg.bounds import MAX_LOCK_SECONDS
from sandbox.mcpkg.contents import FolderContents, digests
from sandbox.mcpkg.intact import INFO, check_intact
from sandbox.mcpkg.manifest import read_package
from sandbox.mcpkg.model import Case, Manifest
from sandbox.mcpkg.project import PACKAGE

_PAUSE: Final = 0.05
_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class Installed:
    """One installed version of a tool.

    Attributes:
        folder: its driver folder, without links.
        info: ``package-info.json``.
    """

    tool_id: str
    version: str
    folder: Path
    info: dict[str, Any]

    def read(self) -> tuple[Manifest, tuple[Case, ...]]:
        """Return manifest and tests, after holding every file against what was installed.

        Raises:
            InstallRefused: ``PKG-042``, a file was changed since.
        """
        check_intact(self.folder)
        manifest, cases, _ = read_package(self.contents())
        return manifest, cases

    def contents(self) -> FolderContents:
        """Return the package's files."""
        return FolderContents(self.folder / PACKAGE)


class Store:
    """The installed packages below one folder.

    Args:
        root: made when something is installed.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    # --- looking
    def tools(self) -> tuple[str, ...]:
        """Return the ids of installed tools, sorted."""
        try:
            return tuple(sorted(entry.name for entry in os.scandir(self.root / "tools") if entry.is_symlink()))
        except FileNotFoundError:
            return ()

    def current(self, tool_id: str) -> Installed:
        """Return the version of a tool that is in use.

        Raises:
            UsageError: ``PKG-040``, it is not installed.
        """
        link = self.link(tool_id)
        if tool_id not in self.tools() or not link.is_dir():
            have = ", ".join(self.tools()[:10]) or "nothing"
            message = f"{tool_id[:80]!r} is not installed in {self.root}, which has {have}"
            raise UsageError("PKG-040", message, "install it: `mcp-sandbox pkg install FILE`")
        return self.at(tool_id, link.resolve())

    def versions(self, tool_id: str) -> tuple[Installed, ...]:
        """Return every kept version of a tool, in the order of their installation."""
        folder = self.root / "versions" / tool_id
        if tool_id not in self.tools() or not folder.is_dir():
            return ()
        found = [self.at(tool_id, entry.resolve()) for entry in folder.iterdir() if entry.is_dir()]
        return tuple(sorted(found, key=lambda one: (float(one.info["installed"]), one.version)))

    def link(self, tool_id: str) -> Path:
        """Return the path that names the current version of a tool."""
        return self.root / "tools" / tool_id

    def history(self, tool_id: str) -> Path:
        """Return where measurements of a tool are kept."""
        return self.root / "history" / tool_id / "metadata.json"

    def at(self, tool_id: str, folder: Path) -> Installed:
        """Return the version of a tool that lies in a folder, without links.

        Raises:
            PlatformError: ``PKG-041``, there is none.
        """
        try:
            info = jsontext.parse((folder / INFO).read_bytes())
            return Installed(tool_id, str(info["version"]), folder, {**info, "installed": float(info["installed"])})
        except (OSError, jsontext.JsonTextError, KeyError, TypeError, ValueError):
            message = f"{folder} was not installed by this program, or is damaged"
            raise PlatformError("PKG-041", message, "uninstall the tool, and install it again") from None

    # --- changing
    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the store for a change; what an interrupted one left in staging is swept.

        Raises:
            PlatformError: ``PKG-043``, another process holds it for too long.
        """
        for name in ("tools", "versions", "history", "staging"):
            (self.root / name).mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _acquire(descriptor, self.root)
            self._sweep()
            yield
        finally:
            os.close(descriptor)

    def _sweep(self) -> None:
        """Remove what interrupted changes left: staged folders, and versions of tools that are not installed."""
        for left in (self.root / "staging").iterdir():
            shutil.rmtree(left)
        for folder in (self.root / "versions").iterdir():
            if folder.name not in self.tools():
                shutil.rmtree(folder)

    def stage(self) -> Path:
        """Return a fresh private folder below ``staging``."""
        folder = self.root / "staging" / secrets.token_hex(8)
        folder.mkdir(mode=0o700)
        return folder

    def keep(self, staged: Path, tool_id: str, version: str) -> Path:
        """Move a staged folder to its place among the versions and return it; it is not in use yet.

        Raises:
            InstallRefused: ``PKG-044``, that version is there with other contents.
        """
        new = jsontext.parse((staged / INFO).read_bytes())
        for old in self.versions(tool_id):
            if old.version == version and old.info["files"] != new["files"]:
                message = f"{tool_id} {version} is installed with other contents; a version never changes"
                raise InstallRefused("PKG-044", message, "raise the version, or uninstall the tool first")
        digest = jsontext.digest([new["files"], new["made"]]).removeprefix("sha256:")
        place = self.root / "versions" / tool_id / f"{version}-{digest[:_DIGITS]}"
        if place.exists() and not _same(place, staged):  # somebody changed it since
            place = place.with_name(f"{place.name}-{secrets.token_hex(4)}")
        if not place.exists():
            place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            _sync(staged)
            staged.chmod(0o755)
            staged.rename(place)
            _sync_folder(place.parent)
        return place

    def use(self, place: Path, tool_id: str) -> None:
        """Make a kept version the current one."""
        link = self.link(tool_id)
        fresh = self.stage() / "link"
        fresh.symlink_to(os.path.relpath(place, link.parent))
        fresh.rename(link)
        fresh.parent.rmdir()
        _sync_folder(link.parent)
        for other in self.versions(tool_id):  # the same version with other grants of the person who installs
            if other.folder != place and other.version == self.current(tool_id).version:
                shutil.rmtree(other.folder)

    def remove(self, tool_id: str) -> None:
        """Remove a tool with all its versions and measurements.

        Raises:
            UsageError: ``PKG-040``, it is not installed.
        """
        if tool_id not in self.tools():
            self.current(tool_id)
        self.link(tool_id).unlink()
        gone = self.stage() / "removed"
        with contextlib.suppress(FileNotFoundError):
            (self.root / "versions" / tool_id).rename(gone)
        shutil.rmtree(self.history(tool_id).parent, ignore_errors=True)
        shutil.rmtree(gone.parent, ignore_errors=True)


def chain_at(folder: Path) -> tuple[Store, Installed] | None:
    """Return the store and the tool whose folder this is, when the tool is a chain, which has no DRIVER.md.

    Raises:
        PlatformError: ``PKG-041``, it was installed and is damaged.
    """
    place = (folder if folder.is_dir() else folder.parent).resolve()
    if (place / "DRIVER.md").exists() or not (place / INFO).is_file() or place.parent.parent.name != "versions":
        return None
    store = Store(place.parents[2])
    return store, store.at(place.parent.name, place)


def _acquire(descriptor: int, root: Path) -> None:
    until = time.monotonic() + MAX_LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                message = f"another process has been changing {root} for {MAX_LOCK_SECONDS:.0f} s"
                raise PlatformError("PKG-043", message, "wait for it, or end it") from None
            time.sleep(_PAUSE)
        else:
            return


def _same(one: Path, other: Path) -> bool:
    """Return whether two installed folders hold the same files, but for when they were installed."""
    try:
        found = [digests(FolderContents(folder)) for folder in (one, other)]
    except SandboxError:
        return False
    for listed in found:
        listed.pop(INFO, None)
    return found[0] == found[1]


def _sync(folder: Path) -> None:
    """Bring a folder with everything below it to the disk."""
    for path, _, names in os.walk(folder):
        for name in names:
            descriptor = os.open(Path(path) / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            os.fsync(descriptor)
            os.close(descriptor)
        _sync_folder(Path(path))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    os.fsync(descriptor)
    os.close(descriptor)
