"""Which methods carry out a wish. Imported only when something is installed, not by a start that finds its image."""

from __future__ import annotations

from typing import Final

from sandbox.launch.install.apt import AptPackages
from sandbox.launch.install.ask import Ask
from sandbox.launch.install.download import Download
from sandbox.launch.install.hostfile import HostFile
from sandbox.launch.install.npm import Npm
from sandbox.launch.install.pip import Pip
from sandbox.launch.install.shop import Method

_PROVIDERS: Final[dict[str, tuple[str, Method]]] = {
    "npm": ("npm", Npm()),
    "pip": ("pip", Pip()),
    "download": ("download", Download()),
    "vendored": ("file", HostFile()),
    "host": ("file", HostFile()),
}


def provider_of(wish: Ask) -> dict[str, Method]:
    """Return section name → method that provides the server; empty when a Debian package does."""
    return dict([_PROVIDERS[wish.method]]) if wish.method in _PROVIDERS else {}


def packages_of(wish: Ask) -> dict[str, Method]:
    """Return section name → method for the Debian packages beside the server; empty when there are none."""
    return {"apt": AptPackages()} if wish.packages else {}
