"""Makes sure that an image is in the engine: it is there, or it is loaded from the cache, or it is built.

Theory. The lock of an image says which bytes it has (:mod:`sandbox.launch.images.lock`), so its id is known before
anything is done, and "is it there" is one question to the engine by content-addressed id. A build takes exactly the
packages of the lock. When the mirror has moved on and no longer has them, a build is refused, unless the caller lets
it take what the mirror has now (``moved=True``: `mcp-sandbox images build`). Those packages are as authentic as any,
signed by the distribution's key; but the id is this host's own then, is kept in a local lock, and `doctor` shows it
(ADR 0021).
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from sandbox.errors import PlatformError
from sandbox.launch.images import lock, made, recipe
from sandbox.launch.images.lock import Resolved
from sandbox.launch.images.made import Made
from sandbox.launch.images.places import Places
from sandbox.launch.images.recipe import Recipe
from sandbox.launch.images.store import Store
from sandbox.plan.model import ImageFacts
from sandbox.resources import shipped

_ARCHES: Final = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True, slots=True)
class ImageStatus:
    """One line of what `doctor` shows.

    Attributes:
        name: of the recipe.
        id: expected image id, empty when nothing is recorded for this host.
        present: the engine has it.
        cached: its layers are in the cache.
        own: it has other packages than are recorded, because the mirror has moved on or nothing is recorded.
    """

    name: str
    id: str
    present: bool
    cached: bool
    own: bool


@dataclass(slots=True)
class Images:
    """The images of one host.

    Attributes:
        store: the engine they are kept in.
        places: cache and state.
        box: Debian image that apt runs in, for hosts without apt; empty for the host's own.
        arch: Go's name of the architecture.
    """

    store: Store
    places: Places
    box: str = ""
    arch: str = field(default_factory=lambda: host_arch(platform.machine()))
    _there: dict[str, tuple[Made, str]] = field(default_factory=dict, repr=False)

    @property
    def platform(self) -> str:
        """``linux/<arch>``, the key of lock entries."""
        return f"linux/{self.arch}"

    def ensure(self, name: str, *, moved: bool = False) -> ImageFacts:
        """Return an image that is in the engine, whatever that takes.

        Args:
            name: of a shipped recipe.
            moved: take the distribution's current packages when the recorded ones cannot be had any more.

        Raises:
            PlatformError: ``IMG-…``; ``IMG-020`` when the mirror has moved on and ``moved`` is false.
        """
        there, engine_id = self.obtain(name, moved=moved)
        return there.facts(engine_id)

    def obtain(self, name: str, *, moved: bool = False) -> tuple[Made, str]:
        """As :meth:`ensure`, and return all that is known about the image and what the engine calls it."""
        if name not in self._there:
            known = self.known(name)
            found = self.store.find(known.image) if known else None
            if known is not None and found is not None:
                self._there[name] = known, found
            else:
                with self.places.building() as scratch:
                    self._there[name] = self._obtain(name, scratch, moved=moved)
        return self._there[name]

    def known(self, name: str) -> Made | None:
        """Return what an image is by its lock, asking nobody; ``None`` when no lock holds for it."""
        wanted = recipe.load(name)
        resolved = lock.effective(wanted, self.platform, self.places)
        parent = self.known(wanted.parent) if wanted.parent else None
        if resolved is None or (parent.image.id if parent else "") != resolved.parent:
            return None
        described = made.describe(wanted, resolved, parent, self.places, self.arch)
        return described if described.image.id == resolved.id else None

    def relock(self, name: str) -> tuple[Resolved, tuple[str, ...]]:
        """Build an image from what the mirror has now; return its entry and one line for each package that changed.

        The entry becomes this host's own. Whoever maintains the recorded locks writes it to the project.
        """
        wanted = recipe.load(name)
        old = lock.effective(wanted, self.platform, self.places)
        parent = self.obtain(wanted.parent)[0] if wanted.parent else None
        with self.places.building() as scratch:
            fresh = self._make(wanted, None, parent, scratch, moved=True)
        self._keep_own(fresh)
        self._there[name] = fresh, self._put(fresh)
        before = old.debs + old.wheels if old else ()
        return fresh.resolved, lock.moved(before, fresh.resolved.debs + fresh.resolved.wheels)

    def record(self, name: str) -> Path:
        """Write the effective lock of an image to the project's ``images/<name>/lock.json`` and return its path.

        For maintainers, in a checkout; other platforms that the file knows stay in it.

        Raises:
            PlatformError: ``IMG-020``, no lock holds for the recipe as it is now.
        """
        wanted = recipe.load(name)
        resolved = lock.effective(wanted, self.platform, self.places)
        if resolved is None:
            raise PlatformError("IMG-020", f"image {name} has not been built from its present recipe", "build it first")
        path = shipped("images", name) / "lock.json"
        platforms = lock.decode(path.read_bytes(), str(path)) if path.exists() else {}
        path.write_bytes(lock.encode({**platforms, self.platform: replace(resolved, instead_of="")}))
        lock.forget_local(name, self.places)
        return path

    def status(self, names: Iterable[str]) -> list[ImageStatus]:
        """Return what is there and what is not, building nothing."""
        return [self._status(name) for name in names]

    def _status(self, name: str) -> ImageStatus:
        known = self.known(name)
        if known is None:
            return ImageStatus(name, "", present=False, cached=False, own=False)
        return ImageStatus(
            name=name,
            id=known.image.id,
            present=self.store.find(known.image) is not None,
            cached=all(layer.file is not None for layer in known.image.layers),
            own=lock.own_packages(name, self.platform, known.resolved),
        )

    def _obtain(self, name: str, scratch: Path, *, moved: bool) -> tuple[Made, str]:
        """Load or build an image while this process alone may; parents first."""
        if name in self._there:
            return self._there[name]
        wanted = recipe.load(name)
        parent = self._obtain(wanted.parent, scratch, moved=moved)[0] if wanted.parent else None
        known = self.known(name)
        if known is None or not self._loadable(known):
            locked = lock.pinned(wanted, self.platform, self.places)
            parent = self._with_files(parent, scratch)
            known = self._make(wanted, locked, parent, scratch, moved=moved)
            self._settle(known, locked)
        self._there[name] = known, self._put(known)
        return self._there[name]

    def _with_files(self, parent: Made | None, scratch: Path) -> Made | None:
        """Return a parent that a child can be loaded on: its layers are in the cache where the engine wants them again.

        The cache may be lost while the engine has the image; then its layers are built again, from the same packages.
        """
        if parent is None or self.store.takes_parts(parent.image):
            return parent
        if all(layer.file is not None for layer in parent.image.layers):
            return parent
        above = self._with_files(parent.parent, scratch)
        return self._make(parent.recipe, parent.resolved, above, scratch, moved=False)

    def _loadable(self, known: Made) -> bool:
        parent = known.parent.image if known.parent else None
        return self.store.find(known.image) is not None or self.store.loadable(known.image, parent)

    def _put(self, known: Made) -> str:
        found = self.store.find(known.image)
        if found is not None:
            return found
        self.store.progress.step(f"loading image {known.recipe.name}")
        return self.store.put(known.image, (known.recipe.named,), known.parent.image if known.parent else None)

    def _make(
        self, wanted: Recipe, locked: Resolved | None, parent: Made | None, scratch: Path, *, moved: bool
    ) -> Made:
        # Imported here: a start that finds its image there must not wait for what only a build needs.
        from sandbox.launch.images.maker import Maker  # noqa: PLC0415

        return Maker(self.store, self.places, self.arch, scratch, moved, self.box).make(wanted, locked, parent)

    def _settle(self, fresh: Made, locked: Resolved | None) -> None:
        """Hold what was built against its lock; other inputs make it this host's own.

        Raises:
            PlatformError: ``IMG-021``, the recorded packages gave other bytes.
        """
        if locked is None or locked.inputs() != fresh.resolved.inputs():
            self._keep_own(fresh)
        elif locked.id != fresh.resolved.id:
            raise PlatformError(
                "IMG-021",
                f"image {fresh.recipe.name}, built from the recorded packages, is {fresh.resolved.id[:19]}…, and"
                f" {locked.id[:19]}… is recorded",
                "do not use it; report it with this host's version of dpkg and tar",
            )

    def _keep_own(self, fresh: Made) -> None:
        lock.write_local(fresh.recipe.name, self.platform, self.places, fresh.resolved)
        if lock.own_packages(fresh.recipe.name, self.platform, fresh.resolved):
            self.store.progress.warn(
                f"image {fresh.recipe.name} has packages of this host's own, {fresh.resolved.id[:19]}…"
            )


def host_arch(machine: str) -> str:
    """Return Go's name of an architecture.

    Raises:
        PlatformError: ``IMG-015``, it is not one that sandboxes run on.
    """
    if machine not in _ARCHES:
        raise PlatformError("IMG-015", f"no images are made for {machine}", "use an x86-64 or 64-bit ARM host")
    return _ARCHES[machine]
