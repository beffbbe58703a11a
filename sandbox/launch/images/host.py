"""The images of this host, as the command line and the supervisor ask for them. Blocking; call from a thread."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from sandbox.launch.images.build import Images, ImageStatus
from sandbox.launch.images.engine import connect
from sandbox.launch.images.places import Places
from sandbox.launch.images.progress import Progress, Silent
from sandbox.launch.images.recipe import DEFAULT_IMAGES
from sandbox.launch.images.store import Store
from sandbox.plan.model import ImageFacts


def host_images(progress: Progress | None = None, environ: Mapping[str, str] | None = None, box: str = "") -> Images:
    """Return the images of the first engine that answers.

    Args:
        progress: who is told.
        environ: the user's environment.
        box: Debian image that apt runs in, for hosts without apt.

    Raises:
        PlatformError: ``LAUNCH-001`` no engine, ``IMG-015`` an unknown architecture.
    """
    surroundings = os.environ if environ is None else environ
    return Images(Store(connect(surroundings), progress or Silent()), Places.of(surroundings), box)


def ensure_image(name: str, progress: Progress | None = None) -> ImageFacts:
    """Return an image that is in the engine as recorded; see :meth:`Images.ensure`.

    Raises:
        PlatformError: ``IMG-020`` when the recorded packages cannot be had any more; `mcp-sandbox images build` may.
    """
    return host_images(progress).ensure(name)


def build_all(
    names: Iterable[str] = DEFAULT_IMAGES, progress: Progress | None = None, box: str = ""
) -> list[ImageFacts]:
    """Make sure that images are there, with the distribution's current packages where the recorded ones are gone.

    What `mcp-sandbox images build` does: asked for by a person, who is told of every package that differs.
    """
    images = host_images(progress, box=box)
    return [images.ensure(name, moved=True) for name in names]


def image_status(names: Iterable[str] = DEFAULT_IMAGES) -> list[ImageStatus]:
    """Return name, expected id, presence in engine and cache of each image, for `doctor`; builds nothing."""
    return host_images().status(names)
