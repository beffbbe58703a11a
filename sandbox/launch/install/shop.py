"""What every install method works with: images, build containers, a scratch folder, the user's surroundings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from sandbox.launch.images import assemble
from sandbox.launch.images.build import Images
from sandbox.launch.images.progress import Progress
from sandbox.launch.images.runner import Job, Runner
from sandbox.launch.images.tree import Tree
from sandbox.launch.install.ask import Ask
from sandbox.launch.install.network import BuildNetworks

_DEFAULTS: Final = {
    "npm": ("build-node", "npm_config_cache=/work node /usr/lib/node_modules/npm/bin/npm-cli.js config get registry"),
    "uv": ("build-python", "echo >/work/in; UV_NO_CONFIG=1 uv --no-cache pip compile --emit-index-url /work/in"),
}
"""Client → build image and how it tells which registry it asks when nothing is configured."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a program finds below itself.

    Attributes:
        name: of the image, for messages.
        arch: Go's name of the architecture.
        programs: names in ``/usr/bin``.
        libraries: soname → symbol versions.
    """

    name: str
    arch: str
    programs: frozenset[str]
    libraries: Mapping[str, tuple[str, ...]]


@dataclass(slots=True)
class Shop:
    """Where one install is carried out.

    Attributes:
        images: the images of this host.
        networks: how builds reach registries.
        environ: the user's environment, for the configuration of clients.
        scratch: a folder that goes away afterwards.
        folder: the driver's folder, where host files lie.
        base: image of images/ that the result lies on, empty while that is not known.
        added: layers that have been built on it so far.
        defaults: client → what it asks when nothing is configured, as far as it was asked.
        files: package → hosts that its index keeps files on, as far as it was asked.
    """

    images: Images
    networks: BuildNetworks
    environ: Mapping[str, str]
    scratch: Path
    folder: Path
    base: str = ""
    added: list[Tree] = field(default_factory=list)
    defaults: dict[str, tuple[str, ...]] = field(default_factory=dict)
    files: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def progress(self) -> Progress:
        """Who is told."""
        return self.images.store.progress

    @property
    def runner(self) -> Runner:
        """Runs build containers."""
        return Runner(self.images.store.engine, self.progress)

    def offer(self) -> Offer:
        """Return what a program finds in the base image and the layers so far."""
        made, _ = self.images.obtain(self.base)
        programs, libraries = made.programs(), made.libraries()
        for tree in self.added:
            programs, libraries = programs.union(assemble.programs(tree)), libraries | assemble.libraries(tree)
        return Offer(self.base, self.images.arch, programs, libraries)

    def addresses(self, client: str, configured: Iterable[str]) -> tuple[str, ...]:
        """Return what a client asks: the configured addresses, else its own default.

        The default is asked of the client itself, in a container without a network, so that no registry is named here;
        and only when somebody confines the build.
        """
        found = tuple(dict.fromkeys(address for address in configured if address))
        if found or not self.networks.confined:
            return found
        if client in self.defaults:
            return self.defaults[client]
        image, script = _DEFAULTS[client]
        output = self.scratch / f"{client}-default"
        job = Job(
            self.image(image), ("/usr/bin/sh", "-c", script), f"ask {client} for its registry", env={"HOME": "/work"}
        )
        self.runner.run(job, output)
        answer = re.search(r"https://\S+", output.read_text("utf-8", "replace"))
        self.defaults[client] = (answer[0],) if answer else ()
        return self.defaults[client]

    def tell_stripped(self, paths: Iterable[str]) -> None:
        """Name the files that lost their set-id bits."""
        for path in paths:
            self.progress.warn(f"{path} wants set-id bits, which are not given")

    def image(self, name: str) -> str:
        """Return what the engine calls an image of images/, making it when need be."""
        return self.images.obtain(name)[1]


@dataclass(frozen=True, slots=True)
class Pins:
    """What a method resolved a wish to.

    Attributes:
        base: image of images/ that the result lies on.
        section: the method's own section of the lock.
    """

    base: str
    section: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Built:
    """What a method made of its pins: one layer.

    Attributes:
        tree: paths of the layer.
        argv: program and leading arguments; empty when another method provides the program.
    """

    tree: Tree
    argv: tuple[str, ...] = field(default=())


class Method(Protocol):
    """One way of installing. Implementations keep nothing between calls."""

    def resolve(self, ask: Ask, shop: Shop, old: Mapping[str, Any] | None) -> Pins:
        """Ask whoever knows what a wish means today and pin it.

        Args:
            ask: the wish.
            shop: where to work.
            old: the section of a former lock, which stays as it is where it still fits; ``None`` resolves anew.

        Raises:
            InstallRefused: the wish cannot be pinned safely.
            PlatformError: a registry or the engine failed.
        """

    def build(self, ask: Ask, section: Mapping[str, Any], shop: Shop) -> Built:
        """Fetch exactly what is pinned.

        Raises:
            InstallRefused: something else came, or it is not safe to unpack.
            PlatformError: a registry or the engine failed.
        """
