"""How build containers reach a registry: the seam where egress is confined to it.

:class:`~sandbox.launch.install.confined.Confined` lets a build reach what it is told here, and nothing else; it is what
commands use. :class:`Bridge` is everything that the host reaches, for tests that need a comparison.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import urlsplit

from sandbox.launch.images.runner import BuildNetwork

DOWNLOAD: Final = "download"
"""Client of a file that DRIVER.md names by address and digest."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What one build has to reach.

    Attributes:
        client: ``npm`` or ``uv``, or :data:`DOWNLOAD`: then the origin is the driver's, and its digest too.
        origins: ``https://host[:port]`` of the registries, without credentials. An index may serve files from a further
            host, which only its answers name; the operator allows that one.
    """

    client: str
    origins: tuple[str, ...] = ()


class BuildNetworks(Protocol):
    """Makes networks for builds."""

    @property
    def confined(self) -> bool:
        """Whether what is not in :class:`Reach` cannot be reached; then ``origins`` is never empty."""

    def open(self, reach: Reach) -> AbstractContextManager[BuildNetwork]:
        """Return a network that is in force before a build starts and is removed when the context ends.

        Raises:
            PlanRefused: the operator's policy does not allow that registry.
            PlatformError: it could not be made; nothing is left behind.
        """


class Bridge:
    """The engine's ordinary bridge: everything that the host reaches."""

    confined = False

    @contextmanager
    def open(self, reach: Reach) -> Iterator[BuildNetwork]:  # noqa: ARG002 - not confined
        """Return the bridge."""
        yield BuildNetwork("bridge")


def origin(address: str) -> str:
    """Return ``scheme://host[:port]`` of an address, without credentials and path."""
    parts = urlsplit(address)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}"
