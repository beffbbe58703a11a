"""Installs a package: everything that can go wrong goes wrong in a staging folder.

Steps: 1 the package is read and judged (``archive``, ``manifest``); 2 its signature is held against the operator's
demand; 3 an implementation is chosen; 4 the driver folder is made in staging, with the package's files below it, and
loaded as any driver is; 5 the caller tries it (tests); 6 it is moved to its place among the versions; 7 the current
version is switched. Until step 7 nothing that was installed before has changed; after it the tool is the new one.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox import jsontext
from sandbox.errors import InstallRefused, PlanRefused
from sandbox.mcpkg.contents import Contents, digests
from sandbox.mcpkg.intact import INFO
from sandbox.mcpkg.model import Implementation, LocalEndpoint, Manifest
from sandbox.mcpkg.project import INSIDE, PACKAGE, Wishes, project
from sandbox.mcpkg.select import Considered, Surroundings, explain, runtime_of
from sandbox.mcpkg.signatures import Signed
from sandbox.mcpkg.store import Installed, Store
from sandbox.spec.load import load_driver

_FILE, _PROGRAM, _FOLDER = 0o644, 0o755, 0o755


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be installed.

    Attributes:
        contents: of the package.
        manifest: read from it.
        signed: its publisher.
        implementation: chosen for this host, ``None`` for a chain.
        here: what was probed.
        wishes: of the person who installs.
    """

    contents: Contents
    manifest: Manifest
    signed: Signed
    implementation: Implementation | None
    here: Surroundings
    wishes: Wishes = field(default_factory=Wishes)


def choose(manifest: Manifest, considered: tuple[Considered, ...], wanted: str = "") -> tuple[Implementation, ...]:
    """Return the implementations that can be used here, the best first (step 3).

    Args:
        manifest: of the package.
        considered: what speaks for and against each.
        wanted: id of the one that a person asked for; empty leaves the choice to the manifest's order.

    Raises:
        PlanRefused: ``PKG-031``, none can be used, or the wanted one cannot.
    """
    usable = tuple(entry.implementation for entry in considered if entry.usable)
    chosen = tuple(one for one in usable if not wanted or one.id == wanted)
    if not chosen:
        what = f"its implementation `{wanted}`" if wanted else "none of its implementations"
        reasons = "; ".join(explain(considered)) or "it has none"
        message = f"{manifest.tool_id} cannot run here, {what} can be used: {reasons}"
        raise PlanRefused("PKG-031", message, "get a package with an implementation for this host")
    return chosen


def install(store: Store, order: Order, attempt: Callable[[Path], None] | None = None) -> Installed:
    """Carry out steps 4 to 7 on a store that the caller holds (:meth:`Store.changing`).

    Args:
        store: where to.
        order: what.
        attempt: step 5: tries the staged driver folder and raises to refuse it.

    Raises:
        SandboxError: the package is refused; what was installed before is untouched.
    """
    staged = store.stage()
    files = _driver_files(order)  # 4
    _write(staged, files)
    for name in order.contents.names():
        mode = _PROGRAM if order.contents.executable(name) else _FILE
        _put(staged / PACKAGE / name, order.contents.read(name), mode)
    _readable(staged / INSIDE)
    _put(staged / INFO, _info(order, files), _FILE)
    if order.implementation is not None:
        load_driver(staged)
    if attempt is not None:  # 5
        attempt(staged)
    manifest = order.manifest
    place = store.keep(staged, manifest.tool_id, manifest.version)  # 6
    store.use(place, manifest.tool_id)  # 7
    return store.current(manifest.tool_id)


def guard_publisher(store: Store, manifest: Manifest, signed: Signed) -> None:
    """Refuse to replace a tool of a trusted publisher by one that is not theirs (trust only grows).

    Raises:
        InstallRefused: ``PKG-026``.
    """
    if manifest.tool_id not in store.tools():
        return
    before = store.current(manifest.tool_id).info.get("publisher", "")
    if before and (signed.state != "trusted" or signed.publisher != before):
        message = f"{manifest.tool_id} is installed as published by `{before}`, and this package is not theirs"
        raise InstallRefused("PKG-026", message, "get the publisher's package, or uninstall the tool first")


def _driver_files(order: Order) -> Mapping[str, bytes]:
    if order.implementation is None:
        return {}
    endpoint = order.implementation.endpoint
    local = isinstance(endpoint, LocalEndpoint)
    runtime = order.here.runtimes.get(runtime_of(order.implementation)) if local else None
    return project(order.manifest, order.implementation, runtime, order.wishes)


def _info(order: Order, files: Mapping[str, bytes]) -> bytes:
    manifest = order.manifest
    info: dict[str, Any] = {
        "toolId": manifest.tool_id,
        "version": manifest.version,
        "installed": time.time(),
        "implementation": order.implementation.id if order.implementation else "",
        "signature": order.signed.state,
        "publisher": order.signed.publisher if order.signed.state == "trusted" else "",
        "files": digests(order.contents),
        "made": {name: "sha256:" + hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }
    return jsontext.canonical(info) + b"\n"


def _write(staged: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        _put(staged / name, data, _PROGRAM if data.startswith(b"#!") else _FILE)
    (staged / PACKAGE).mkdir(parents=True, exist_ok=True)


def _readable(folder: Path) -> None:
    """Let the server's user read what is mounted for it, whatever this process's umask is."""
    for path, _, _ in os.walk(folder):
        Path(path).chmod(_FOLDER)


def _put(path: Path, data: bytes, mode: int) -> None:
    """Write one new file, below folders that only this process can write."""
    path.parent.mkdir(mode=_FOLDER, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(data)
