"""The image of a driver's server, as the command line and the supervisor ask for it. Blocking; call from a thread."""

from __future__ import annotations

import os
from collections.abc import Mapping

from sandbox.errors import InstallRefused
from sandbox.launch.images.host import host_images
from sandbox.launch.images.progress import Progress
from sandbox.launch.install.ask import ask
from sandbox.launch.install.docker import names_content
from sandbox.launch.install.installer import Installer
from sandbox.launch.install.lock import Lock, diff_locks, path_of, read, write
from sandbox.launch.install.network import Bridge, BuildNetworks
from sandbox.plan.model import ImageFacts
from sandbox.spec.model import DriverSpec, RemoteServer


def installer(
    progress: Progress | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    networks: BuildNetworks | None = None,
    pull: bool = False,
) -> Installer:
    """Return an installer on the first engine that answers.

    Raises:
        PlatformError: ``LAUNCH-001``, none does.
    """
    surroundings = os.environ if environ is None else environ
    return Installer(host_images(progress, surroundings), surroundings, networks or Bridge(), pull)


def ensure_server_image(
    spec: DriverSpec, progress: Progress | None = None, *, networks: BuildNetworks | None = None, pull: bool = False
) -> ImageFacts | None:
    """Return the image that a driver's server runs on, as ``driver.lock`` pins it; ``None`` for a remote server.

    Raises:
        InstallRefused: ``INST-005``, there is no lock: nobody has reviewed what would be installed.
        SandboxError: as :meth:`Installer.install`.
    """
    if isinstance(spec.server, RemoteServer):
        return None
    lock = read(spec.folder)
    if lock is None and not needs_lock(spec):
        return installer(progress, networks=networks, pull=pull).install_present(spec)
    if lock is None:
        raise InstallRefused(
            "INST-005",
            f"{path_of(spec.folder)} does not exist, so nothing says which packages this server is",
            f"run `mcp-sandbox lock {spec.file}`, look at what it pins, and keep the file with DRIVER.md",
        )
    return installer(progress, networks=networks, pull=pull).install(spec, lock)


def needs_lock(spec: DriverSpec) -> bool:
    """Return whether something else than DRIVER.md has to say which bytes a server is.

    Not needed for a program of this host, which is the person's own and goes into the image as it is now, and for an
    image that is named by its content.
    """
    wish = ask(spec)
    if wish.method == "docker":
        return not names_content(wish.wanted)
    return wish.method != "host" or bool(wish.packages)


def lock_driver(
    spec: DriverSpec,
    progress: Progress | None = None,
    *,
    upgrade: bool = False,
    dry_run: bool = False,
    networks: BuildNetworks | None = None,
    pull: bool = False,
) -> tuple[Lock, tuple[str, ...]]:
    """Make or renew the lock of a driver and return it with one line for each difference; what `mcp-sandbox lock` does.

    Args:
        spec: the driver.
        progress: who is told.
        upgrade: resolve everything anew instead of keeping what still fits.
        dry_run: write nothing.
        networks: how builds reach registries.
        pull: whether docker images may be fetched.
    """
    old = read(spec.folder)
    lock = installer(progress, networks=networks, pull=pull).make_lock(spec, old, upgrade=upgrade)
    if not dry_run and lock != old:
        write(spec.folder, lock)
    return lock, diff_locks(old, lock)
