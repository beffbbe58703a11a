"""Builds one image from its recipe, on top of a parent that is in the engine.

Numbered steps: 1 fetch the Debian packages, those of the lock when the mirror has them; 2 fetch the wheels, always the
recorded ones; 3 assemble the tree; 4 let the tree's own Python compile its modules, without network; 5 write the
layer and keep it in the cache; 6 work out the id.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from sandbox.errors import PlatformError
from sandbox.launch.images import assemble, lock, wheels
from sandbox.launch.images.apt import Apt, Deb, Moved, PackageSource
from sandbox.launch.images.apt_box import BoxedApt
from sandbox.launch.images.apt_sources import Distribution
from sandbox.launch.images.archive import Layer, write_layer
from sandbox.launch.images.lock import Resolved
from sandbox.launch.images.made import Made, compose
from sandbox.launch.images.places import Places
from sandbox.launch.images.recipe import Recipe, Wheel
from sandbox.launch.images.runner import Job, Runner
from sandbox.launch.images.store import Store
from sandbox.launch.images.tree import Tree
from sandbox.launch.images.unpack import unpack_tar
from sandbox.resources import shipped


@dataclass(frozen=True, slots=True)
class Maker:
    """Builds images in one scratch folder.

    Attributes:
        moved: whether newer packages are taken when the recorded ones cannot be had.
        box: Debian image that apt runs in, empty for the host's own apt.
    """

    store: Store
    places: Places
    arch: str
    scratch: Path
    moved: bool
    box: str = ""

    def make(self, recipe: Recipe, locked: Resolved | None, parent: Made | None) -> Made:
        """Build an image; the caller holds it against the lock.

        Args:
            recipe: what to build.
            locked: the lock whose packages hold for it; ``None`` when there is none.
            parent: what it is built on.

        Raises:
            PlatformError: ``IMG-010`` … ``IMG-014``, ``IMG-020``.
        """
        if locked is None and (recipe.packages or recipe.wheels) and not self.moved:
            raise moved_on(recipe.name, "no packages are recorded for it")
        self.store.progress.step(f"building image {recipe.name}")
        with tempfile.TemporaryDirectory(prefix="mcp-sandbox-apt-") as folder:
            debs, distribution = self._debs(recipe, locked, parent, Path(folder))  # 1
            fetched = [self._wheel(wheel, locked) for wheel in recipe.wheels]  # 2
            tree = assemble.assemble(recipe, debs, fetched)  # 3
        self._compile(tree, recipe, parent)  # 4
        written = write_layer(tree, self.scratch / "layer.tar")  # 5
        layer = Layer(written.digest, written.size, self.places.keep(self.scratch / "layer.tar", written.digest))
        image = compose(recipe, layer, parent, self.arch)  # 6
        resolved = Resolved(
            recipe=recipe.digest,
            fetches=recipe.fetches,
            distribution=distribution,
            parent=parent.image.id if parent else "",
            debs=tuple(deb.package for deb in debs),
            wheels=tuple(item.package for item in fetched),
            layer=layer.digest,
            size=layer.size,
            id=image.id,
            manifest=image.manifest_digest,
            programs=assemble.programs(tree),
            libraries=assemble.libraries(tree),
        )
        return Made(recipe, resolved, image, parent)

    def _debs(
        self, recipe: Recipe, locked: Resolved | None, parent: Made | None, folder: Path
    ) -> tuple[tuple[Deb, ...], str]:
        """Return the Debian packages of a layer and the distribution that they are from.

        They are fetched into ``folder``, which is not below the cache: apt gives up root before it fetches.
        """
        if not recipe.packages:
            return (), ""
        source = package_source(self.store, self.box, self.arch, folder, self.scratch)
        present = parent.debs() if parent else {}
        self.store.progress.step(f"fetching packages of {source.named} for {recipe.name}")
        if locked is not None and locked.distribution == source.named:
            try:
                return source.fetch_exactly(locked.debs, present, recipe.without), source.named
            except Moved as error:
                if not self.moved:
                    raise moved_on(recipe.name, str(error).splitlines()[-1][:200]) from None
        elif not self.moved:
            raise moved_on(recipe.name, f"nothing is recorded for {source.named}")
        debs = source.fetch(recipe.packages, present, recipe.without)
        for line in lock.moved(locked.debs, tuple(deb.package for deb in debs)) if locked else ():
            self.store.progress.warn(f"{recipe.name}: {line}")
        return debs, source.named

    def _wheel(self, wheel: Wheel, locked: Resolved | None) -> wheels.Fetched:
        self.store.progress.step(f"fetching {wheel.package} {wheel.version}")
        recorded = {(package.name, package.version): package for package in (locked.wheels if locked else ())}
        return wheels.fetch(wheel, self.arch, self.scratch, recorded.get((wheel.package, wheel.version)))

    def _compile(self, tree: Tree, recipe: Recipe, parent: Made | None) -> None:
        folders = [folder for folder in recipe.compile_python if folder in tree.entries]
        if not folders:
            return
        self.store.progress.step(f"compiling the Python modules of {recipe.name}")
        image = compose(recipe, write_layer(tree, self.scratch / "source.tar"), parent, self.arch)
        compiled = self.scratch / "compiled.tar"
        with self.store.borrowed(image, parent.image if parent else None) as engine_id:
            compile_modules(Runner(self.store.engine, self.store.progress), engine_id, "/", folders, compiled)
        unpack_tar(compiled, tree)


def package_source(store: Store, box: str, arch: str, folder: Path, keep: Path) -> PackageSource:
    """Return where Debian packages come from: apt of this host, or in a container of the image ``box``.

    Args:
        store: the engine.
        box: reference of a Debian or Ubuntu image that is in the engine; empty for the host's own apt.
        arch: Go's name of the architecture, which for these two is Debian's as well.
        folder: for apt's state; not below the cache, because apt gives up root before it fetches.
        keep: where the contents of packages are put.

    Raises:
        PlatformError: ``IMG-010``, neither the host nor the image has apt with sources of Debian or Ubuntu.
    """
    if not box:
        return Apt(folder, keep, Distribution.of_host(), arch)
    found = store.engine.inspect(box)
    if found is None:
        raise PlatformError("IMG-010", f"the engine has no image `{box}`", f"fetch it first: `docker pull {box}`")
    return BoxedApt(Runner(store.engine, store.progress), str(found["Id"]), keep, arch)


def compile_modules(runner: Runner, image: str, root: str, folders: list[str], output: Path) -> None:
    """Write the byte code of every module below ``folders`` to a tar file; see ``images/python/compile.py``."""
    source = shipped("images", "python", "compile.py").read_text("utf-8")
    argv = ("/usr/bin/python3", "-B", "-c", source, root, "", *folders)
    runner.run(Job(image, argv, "compile Python modules", env={"PYTHONHASHSEED": "0"}), output)


def moved_on(name: str, why: str) -> PlatformError:
    """Return the refusal of a build that would not give the recorded image."""
    return PlatformError(
        "IMG-020",
        f"image {name} as recorded cannot be built here any more: {why}",
        "take the distribution's current packages with `mcp-sandbox images build`; doctor then marks the image",
    )
