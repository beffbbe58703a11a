"""The engine as a store of images by content: is this image there, put it there.

An engine with the classic image store calls an image by the digest of its configuration, one with the containerd
store by that of its manifest. Both are known beforehand, so both are asked for; names are never trusted, because
anybody who may use the engine can move them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sandbox.errors import PlatformError
from sandbox.launch.images.archive import Image
from sandbox.launch.images.engine import ImageEngine
from sandbox.launch.images.progress import Progress


@dataclass(frozen=True, slots=True)
class Store:
    """Images of one engine."""

    engine: ImageEngine
    progress: Progress

    def find(self, image: Image) -> str | None:
        """Return what the engine calls an image, or ``None`` when it does not have it.

        Raises:
            PlatformError: ``IMG-022``, the engine has other layers under that id.
        """
        for candidate in (image.id, image.manifest_digest):
            found = self.engine.inspect(candidate)
            if found is None:
                continue
            layers = tuple((found.get("RootFS") or {}).get("Layers") or ())
            if found.get("Id") != candidate or layers != tuple(layer.digest for layer in image.layers):
                raise PlatformError(
                    "IMG-022",
                    f"the engine has something other than the expected image under {candidate[:19]}…",
                    "remove that image and build it anew; find out who changed the engine's store",
                )
            return candidate
        return None

    def put(self, image: Image, tags: Collection[str], parent: Image | None = None) -> str:
        """Load an image unless it is there, and return what the engine calls it.

        Args:
            image: its layers have files, except perhaps those of ``parent``.
            tags: names for people, and against `docker image prune`.
            parent: an image that may be in the engine; its layers are not sent again then.

        Raises:
            PlatformError: ``IMG-002`` the engine refused it, ``IMG-023`` it took it and does not have it.
        """
        found = self.find(image)
        if found is not None:
            return found
        below = parent is not None and self.find(parent) is not None
        self._load(image, tags, tuple(layer.digest for layer in parent.layers) if below and parent else ())
        found = self.find(image)
        if found is None:
            raise PlatformError(
                "IMG-023",
                f"the engine loaded image {', '.join(tags) or image.id[:19]} and does not know it by its id",
                "use Docker 20.10 or newer, or Podman 4.3 or newer",
            )
        return found

    @contextmanager
    def borrowed(self, image: Image, parent: Image | None = None) -> Iterator[str]:
        """Have an image in the engine for a while, without a name."""
        engine_id = self.put(image, (), parent)
        try:
            yield engine_id
        finally:
            self.engine.remove_image(engine_id)

    def takes_parts(self, parent: Image) -> bool:
        """Return whether layers of a parent that is there may be left out when a child is loaded."""
        return self.find(parent) == parent.id  # the classic image store names images by their configuration

    def loadable(self, image: Image, parent: Image | None) -> bool:
        """Return whether every layer is in the cache, or in the engine as part of a parent."""
        below = {layer.digest for layer in parent.layers} if parent and self.takes_parts(parent) else set()
        return all(layer.file is not None or layer.digest in below for layer in image.layers)

    def _load(self, image: Image, tags: Collection[str], absent: Collection[str]) -> None:
        """Send an image; first without the layers of its parent, which only the classic image store accepts."""
        if absent:
            try:
                self.engine.load(image, tags, absent)
            except PlatformError as error:
                if any(layer.file is None for layer in image.layers):
                    raise
                self.progress.detail(f"sending the whole image: {error.message}")
            else:
                if self.find(image) is not None:
                    return
        self.engine.load(image, tags)
