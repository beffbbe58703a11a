"""What an image is by its lock, as values: everything about it that is known without building or asking anybody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sandbox.launch.images.archive import Image, Layer
from sandbox.launch.images.lock import Resolved
from sandbox.launch.images.places import Places
from sandbox.launch.images.recipe import Recipe
from sandbox.plan.model import ImageFacts

USER: Final = "65532:65532"
"""Who every image runs as; 65534 may own reserved blocks of a file system."""

LABEL_IMAGE: Final = "io.mcp-sandbox.image"
"""Label with the name of the recipe, or of the driver that an image was installed for."""


@dataclass(frozen=True, slots=True)
class Made:
    """An image of a recipe.

    Attributes:
        recipe: what it is made from.
        resolved: its lock entry.
        image: layers and configuration.
        parent: the image below it.
    """

    recipe: Recipe
    resolved: Resolved
    image: Image
    parent: Made | None

    def debs(self) -> dict[str, str]:
        """Return name → version of its Debian packages, parents included."""
        below = self.parent.debs() if self.parent else {}
        return below | {package.name: package.version for package in self.resolved.debs}

    def programs(self) -> frozenset[str]:
        """Return the names in ``/usr/bin``, parents included."""
        below = self.parent.programs() if self.parent else frozenset()
        return below.union(self.resolved.programs)

    def libraries(self) -> dict[str, tuple[str, ...]]:
        """Return soname → symbol versions, parents included."""
        below = self.parent.libraries() if self.parent else {}
        return {**below, **self.resolved.libraries}

    def facts(self, engine_id: str) -> ImageFacts:
        """Return what a plan needs to know; ``engine_id`` is what the engine calls the image."""
        return ImageFacts(
            id=engine_id,
            named=self.recipe.named,
            argv=self.recipe.entrypoint,
            env=dict(self.recipe.env),
            workdir="/",
            declared={"User": USER},
        )


def describe(recipe: Recipe, resolved: Resolved, parent: Made | None, places: Places, arch: str) -> Made:
    """Return the image that a lock entry says, with those of its layers that are in the cache."""
    file = places.layer(resolved.layer)
    own = Layer(resolved.layer, resolved.size, file if file.exists() else None)
    return Made(recipe, resolved, compose(recipe, own, parent, arch), parent)


def compose(recipe: Recipe, layer: Layer, parent: Made | None, arch: str) -> Image:
    """Return the image of a layer on top of a parent."""
    below = parent.image if parent else None
    return Image(
        arch=arch,
        layers=(*(below.layers if below else ()), layer),
        config=config(recipe.name, recipe.env, recipe.entrypoint),
        history=(*(below.history if below else ()), recipe.name),
    )


def config(name: str, env: Mapping[str, str], entrypoint: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the ``config`` object of an image configuration."""
    value: dict[str, Any] = {
        "Env": [f"{key}={text}" for key, text in sorted(env.items())],
        "Labels": {LABEL_IMAGE: name},
        "User": USER,
        "WorkingDir": "/",
    }
    if entrypoint:
        value["Entrypoint"] = list(entrypoint)
    return value
