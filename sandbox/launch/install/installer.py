"""Locks and installs: the flow of this package.

Locking: 1 read the wish from the driver; 2 let its methods pin it; 3 install it once, so that the lock also holds the
    program and
the digest of each layer; 4 hand the lock back. Whoever called shows the difference to a person and writes it.

Installing: 1 hold the wish against the lock; 2 work out the image: the base image's layers and the lock's layers give
    its id;
3 when the engine has it, done; 4 when the cache has the layers, load it; 5 else build each layer from its pins and
hold its digest against the lock; 6 load it.

Nothing is fetched in steps 1 to 4, so a second start asks the engine one question and no network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from sandbox import jsontext
from sandbox.errors import InstallRefused
from sandbox.launch.images.archive import Image, Layer, write_layer
from sandbox.launch.images.build import Images
from sandbox.launch.images.made import LABEL_IMAGE, Made, config
from sandbox.launch.images.places import write_private
from sandbox.launch.install.ask import Ask, ask
from sandbox.launch.install.docker import docker_facts, own_image, resolve_image
from sandbox.launch.install.lock import Lock, LockedLayer, path_of, stale
from sandbox.launch.install.network import Bridge, BuildNetworks
from sandbox.launch.install.shop import Shop
from sandbox.plan.model import ImageFacts
from sandbox.spec.model import DriverSpec

LABEL_LOCK: Final = "io.mcp-sandbox.lock"
"""Label with the digest of the lock that an image was installed from."""


@dataclass(slots=True)
class Installer:
    """Installs drivers into the images of one host.

    Attributes:
        images: the images of this host.
        environ: the user's environment, for the configuration of clients.
        networks: how builds reach registries.
        pull: whether docker images may be fetched from their registry.
    """

    images: Images
    environ: Mapping[str, str]
    networks: BuildNetworks = field(default_factory=Bridge)
    pull: bool = False

    def make_lock(self, spec: DriverSpec, old: Lock | None = None, *, upgrade: bool = False) -> Lock:
        """Resolve what a driver asks for and return its lock, which is not written.

        Args:
            spec: the driver.
            old: its present lock; what still fits stays as it is.
            upgrade: resolve everything anew.

        Raises:
            SpecError: ``INST-001``, the wish makes no sense.
            InstallRefused: ``INST-…``, it cannot be pinned or installed safely.
            PlatformError: a registry or the engine failed.
        """
        wish = ask(spec)
        others = old.others if old else {}
        if wish.method == "docker":
            section = self._docker_section(wish)
            return Lock(wish.canonical(), "", {"docker": section}, others=others)
        with self.images.places.building() as scratch:
            shop = self._shop(spec, scratch)
            sections = self._resolve(wish, shop, old.pins if old and not upgrade else {})
            layers, argv = self._build(wish, sections, shop)
        lock = Lock(wish.canonical(), shop.base, sections, argv, others=others)
        if old is not None and old.digest() == lock.digest():
            lock = replace(lock, layers=old.layers)
        return lock.with_layers(self.images.platform, layers)

    def install(self, spec: DriverSpec, lock: Lock) -> ImageFacts:
        """Return the image that a driver's server runs on, installing it when it is not there.

        Raises:
            InstallRefused: ``INST-003`` the lock is for another wish, ``INST-004`` what came is not what is pinned.
            PlatformError: a registry or the engine failed.
        """
        wish = ask(spec)
        if dict(lock.asked) != wish.canonical():  # 1
            raise stale(path_of(spec.folder))
        if wish.method == "docker":
            return self._docker(wish, lock.pins["docker"])
        made = self.images.obtain(lock.base)[0]
        known = lock if self.images.platform in lock.layers else self._remembered(lock)
        layers = known.layers[self.images.platform] if known else None
        if layers is not None:
            image = self._image(spec, lock, made, layers)  # 2
            found = self.images.store.find(image)  # 3
            if found is None and self.images.store.loadable(image, made.image):  # 4
                found = self._load(spec, lock, image, made)
            if found is not None:
                return self._facts(spec, lock, made, found)
        with self.images.places.building() as scratch:  # 5
            fresh, argv = self._build(wish, lock.pins, replace(self._shop(spec, scratch), base=lock.base))
        self._compare(spec, lock, layers, fresh, argv)
        if layers is None:
            self._remember(lock, fresh)
        return self._facts(spec, lock, made, self._load(spec, lock, self._image(spec, lock, made, fresh), made))  # 6

    def install_present(self, spec: DriverSpec) -> ImageFacts:
        """Return the image of a driver that needs no lock: a program of this host as it is now, or a fixed image.

        Raises:
            SandboxError: as :meth:`install`.
        """
        wish = ask(spec)
        if wish.method == "docker":
            return self._docker(wish, self._docker_section(wish))
        with self.images.places.building() as scratch:
            shop = self._shop(spec, scratch)
            sections = self._resolve(wish, shop, {})
            lock = Lock(wish.canonical(), shop.base, sections)
            known = self._remembered(lock)
            if known is None:
                layers, argv = self._build(wish, sections, shop)
                known = self._remember(replace(lock, argv=argv), layers)
        return self.install(spec, known)

    def _docker_section(self, wish: Ask) -> dict[str, Any]:
        name = own_image(wish.wanted)
        return {"image": name} if name else resolve_image(wish.wanted, self.images.store.engine, pull=self.pull)

    def _docker(self, wish: Ask, section: Mapping[str, Any]) -> ImageFacts:
        """Return a docker image by its lock section; one of ours is made when it is not there."""
        if "image" in section:
            return replace(self.images.ensure(str(section["image"])), pinned=True)
        return docker_facts(wish.wanted, section, self.images.store.engine, pull=self.pull)

    def _resolve(self, wish: Ask, shop: Shop, old: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """Pin a wish: the provider first, because its packages decide which image it lies on."""
        from sandbox.launch.install.methods import packages_of, provider_of  # noqa: PLC0415 - as in _build

        sections: dict[str, Mapping[str, Any]] = {}
        for name, method in {**provider_of(wish), **packages_of(wish)}.items():
            pins = method.resolve(wish, shop, old.get(name))
            shop.base, sections[name] = pins.base, pins.section
        return sections

    def _build(
        self, wish: Ask, sections: Mapping[str, Mapping[str, Any]], shop: Shop
    ) -> tuple[tuple[LockedLayer, ...], tuple[str, ...]]:
        """Build a layer for each method, Debian packages first, and keep it in the cache."""
        # Imported here: a start that finds its image must not wait for what only an install needs.
        from sandbox.launch.install.methods import packages_of, provider_of  # noqa: PLC0415

        layers: list[LockedLayer] = []
        argv: tuple[str, ...] = ()
        for name, method in {**packages_of(wish), **provider_of(wish)}.items():
            built = method.build(wish, sections[name], shop)
            shop.added.append(built.tree)
            argv = built.argv or argv
            if built.tree.entries:
                written = write_layer(built.tree, shop.scratch / "layer.tar")
                self.images.places.keep(shop.scratch / "layer.tar", written.digest)
                layers.append(LockedLayer(written.digest, written.size, name))
        return tuple(layers), argv

    def _compare(
        self,
        spec: DriverSpec,
        lock: Lock,
        layers: tuple[LockedLayer, ...] | None,
        fresh: tuple[LockedLayer, ...],
        argv: tuple[str, ...],
    ) -> None:
        """Hold what was installed against the lock (step 5)."""
        if (layers is not None and layers != fresh) or argv != lock.argv:
            raise InstallRefused(
                "INST-004",
                f"what {spec.id} installs to is not what {path_of(spec.folder)} pins",
                "compare with `mcp-sandbox lock --dry-run DRIVER.md`; run `mcp-sandbox lock` when the change is wanted",
            )

    def _image(self, spec: DriverSpec, lock: Lock, made: Made, layers: tuple[LockedLayer, ...]) -> Image:
        """Return the image of a lock's layers on a base image."""
        own = []
        for layer in layers:
            file = self.images.places.layer(layer.digest)
            own.append(Layer(layer.digest, layer.size, file if file.exists() else None))
        base_config = config(made.recipe.name, made.recipe.env, ())
        labels = {LABEL_IMAGE: f"driver/{spec.id}", LABEL_LOCK: lock.digest()}
        return Image(
            arch=made.image.arch,
            layers=(*made.image.layers, *own),
            config={**base_config, "Labels": labels},
            history=(*made.image.history, *(layer.what for layer in layers)),
        )

    def _load(self, spec: DriverSpec, lock: Lock, image: Image, made: Made) -> str:
        self.images.store.progress.step(f"loading the image of {spec.id}")
        return self.images.store.put(image, (_name(spec, lock),), made.image)

    def _facts(self, spec: DriverSpec, lock: Lock, made: Made, engine_id: str) -> ImageFacts:
        return replace(made.facts(engine_id), named=_name(spec, lock), argv=lock.argv, pinned=True)

    def _shop(self, spec: DriverSpec, scratch: Path) -> Shop:
        return Shop(self.images, self.networks, self.environ, scratch, Path(spec.folder))

    def _remembered(self, lock: Lock) -> Lock | None:
        """Return a lock with program and layers as they were on this host, for what the lock itself does not know."""
        path = self.images.places.installed(self._key(lock))
        if not path.exists():
            return None
        value = jsontext.parse(path.read_bytes())
        layers = tuple(LockedLayer(**item) for item in value["layers"])
        return replace(lock, argv=tuple(value["argv"])).with_layers(self.images.platform, layers)

    def _remember(self, lock: Lock, layers: tuple[LockedLayer, ...]) -> Lock:
        """Note program and layers of a lock, and return it with them."""
        plain = [{"digest": layer.digest, "size": layer.size, "what": layer.what} for layer in layers]
        path = self.images.places.installed(self._key(lock))
        write_private(path, jsontext.dump({"argv": list(lock.argv), "layers": plain}))
        return lock.with_layers(self.images.platform, layers)

    def _key(self, lock: Lock) -> str:
        return jsontext.digest([lock.digest(), self.images.platform])


def _name(spec: DriverSpec, lock: Lock) -> str:
    """Return the name of an installed image in the engine: for people, and against `docker image prune`."""
    safe = "".join(char if char.isalnum() else "-" for char in spec.id.lower()).strip("-")
    return f"mcp-sandbox/driver-{safe}:{lock.digest().removeprefix('sha256:')[:12]}"
