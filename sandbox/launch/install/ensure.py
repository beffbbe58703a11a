"""The image of a driver's server, as the command line and the supervisor ask for it. Blocking; call from a thread."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from sandbox.errors import InstallRefused
from sandbox.events import Scope, Trace
from sandbox.launch.images.build import Images
from sandbox.launch.images.host import host_images
from sandbox.launch.images.progress import Progress
from sandbox.launch.images.runner import BuildNetwork
from sandbox.launch.install.ask import ask
from sandbox.launch.install.docker import names_content
from sandbox.launch.install.installer import Installer
from sandbox.launch.install.lock import Lock, diff_locks, path_of, read, write
from sandbox.launch.install.network import BuildNetworks, Reach
from sandbox.plan.model import ImageFacts
from sandbox.policy.ceiling_values import Ceiling
from sandbox.spec.model import DriverSpec, RemoteServer


def installer(
    progress: Progress | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    networks: BuildNetworks | None = None,
    pull: bool = False,
    ceiling: Ceiling | None = None,
    scope: Scope | None = None,
) -> Installer:
    """Return an installer on the first engine that answers, whose builds reach their registries and nothing else.

    Raises:
        PlatformError: ``LAUNCH-001``, none does.
    """
    surroundings = os.environ if environ is None else environ
    images = host_images(progress, surroundings)
    return Installer(images, surroundings, networks or ConfinedBuilds(images, surroundings, ceiling, scope), pull)


@dataclass(frozen=True, slots=True)
class ConfinedBuilds:
    """Networks on which a build reaches its registry and nothing else, made when a build needs one.

    Attributes:
        images: of this host.
        environ: where the exceptions of whoever runs installs are looked for.
        ceiling: the operator's; its private networks and registries hold for installs too.
        scope: where attempts are recorded.
    """

    images: Images
    environ: Mapping[str, str]
    ceiling: Ceiling | None = None
    scope: Scope | None = None
    confined: bool = True

    def open(self, reach: Reach) -> AbstractContextManager[BuildNetwork]:
        """Return a network that is in force before a build starts and is removed when the context ends."""
        # Imported here: a start that finds its image must not wait for what only an install needs.
        from sandbox.launch.install.confined import CONFIGURED, Confined, Nobody  # noqa: PLC0415
        from sandbox.launch.install.exceptions import Exceptions, load  # noqa: PLC0415

        own, ceiling = load(self.environ), self.ceiling
        private = tuple(entry.value for entry in ceiling.private) if ceiling else ()
        networks = Confined(
            self.images.store.engine.path,
            lambda: self.images.ensure("egress", moved=True).id,
            Exceptions((*private, *own.private), own.hosts),
            tuple(entry.value for entry in ceiling.registries) if ceiling else (CONFIGURED,),
            self.images.store.progress,
            self.scope or Scope(Nobody(), Trace.new()),
        )
        return networks.open(reach)


def ensure_server_image(
    spec: DriverSpec,
    progress: Progress | None = None,
    *,
    networks: BuildNetworks | None = None,
    pull: bool = False,
    ceiling: Ceiling | None = None,
    scope: Scope | None = None,
) -> ImageFacts | None:
    """Return the image that a driver's server runs on, as ``driver.lock`` pins it; ``None`` for a remote server.

    Raises:
        InstallRefused: ``INST-005``, there is no lock: nobody has reviewed what would be installed.
        SandboxError: as :meth:`Installer.install`.
    """
    if isinstance(spec.server, RemoteServer):
        return None
    lock = read(spec.folder)
    made = functools.partial(installer, progress, networks=networks, pull=pull, ceiling=ceiling, scope=scope)
    if lock is None and not needs_lock(spec):
        return made().install_present(spec)
    if lock is None:
        raise InstallRefused(
            "INST-005",
            f"{path_of(spec.folder)} does not exist, so nothing says which packages this server is",
            f"run `mcp-sandbox lock {spec.file}`, look at what it pins, and keep the file with DRIVER.md",
        )
    return made().install(spec, lock)


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
    ceiling: Ceiling | None = None,
    scope: Scope | None = None,
) -> tuple[Lock, tuple[str, ...]]:
    """Make or renew the lock of a driver and return it with one line for each difference; what `mcp-sandbox lock` does.

    Args:
        spec: the driver.
        progress: who is told.
        upgrade: resolve everything anew instead of keeping what still fits.
        dry_run: write nothing.
        networks: how builds reach registries.
        pull: whether docker images may be fetched.
        ceiling: the operator's.
        scope: where attempts on the network are recorded.
    """
    old = read(spec.folder)
    made = installer(progress, networks=networks, pull=pull, ceiling=ceiling, scope=scope)
    lock = made.make_lock(spec, old, upgrade=upgrade)
    if not dry_run and lock != old:
        write(spec.folder, lock)
    return lock, diff_locks(old, lock)
