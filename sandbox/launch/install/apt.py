"""Debian packages beside a server, or as one: of an image of images/ that is made for them, or in a layer of their own.

When an image of images/ declares ``provides_apt`` with exactly what is asked, that image is the base and its own lock
pins the packages: that way a driver keeps working when the mirror moves on, with everything that images do about that
(ADR 0021). Otherwise packages and dependencies are pinned in ``driver.lock`` by version and digest; when the mirror
has other ones, the install is refused until the driver is locked again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sandbox.errors import InstallRefused
from sandbox.launch.images import recipe
from sandbox.launch.images.apt import Deb, Moved, PackageSource, checked_name
from sandbox.launch.images.assemble import MERGED
from sandbox.launch.images.lock import Package
from sandbox.launch.images.maker import package_source
from sandbox.launch.images.recipe import Recipe
from sandbox.launch.images.tree import Tree
from sandbox.launch.images.unpack import unpack_tar
from sandbox.launch.install.ask import Ask
from sandbox.launch.install.shop import Built, Pins, Shop

WITHOUT: Final = ("debconf", "dpkg", "debianutils", "perl-base", "awk", "init-system-helpers")
"""Packages that others depend on for their maintainer scripts only, which are not run."""


class AptPackages:
    """The method ``apt``."""

    def resolve(self, ask: Ask, shop: Shop, old: Mapping[str, Any] | None) -> Pins:  # noqa: ARG002 - the mirror decides
        """Find the image that has the packages, or pin them one by one."""
        for name in ask.packages:
            checked_name(name)
        base = shop.base or "base"
        ready = provided(ask.packages, base)
        if ready:
            return Pins(ready, {"image": ready, "wanted": list(ask.packages)})
        with tempfile.TemporaryDirectory(prefix="mcp-sandbox-apt-") as folder:
            debs, named = _fetch(shop, Path(folder), ask.packages, base)
        packages = {deb.package.name: {"version": deb.package.version, "sha256": deb.package.sha256} for deb in debs}
        return Pins(base, {"distribution": named, "packages": packages, "wanted": list(ask.packages)})

    def build(self, ask: Ask, section: Mapping[str, Any], shop: Shop) -> Built:
        """Unpack the pinned packages into a layer; nothing when an image has them."""
        argv = (f"/usr/bin/{ask.program}",) if ask.method == "apt" else ()
        if "image" in section:
            return Built(Tree(), argv)
        base = shop.base
        locked = tuple(Package(name, item["version"], item["sha256"]) for name, item in section["packages"].items())
        tree = Tree(renames=dict(MERGED))
        with tempfile.TemporaryDirectory(prefix="mcp-sandbox-apt-") as folder:
            for deb in _fetch_exactly(shop, Path(folder), locked, base, section["distribution"]):
                unpack_tar(deb.data, tree, confined=False)
                tree.file(f"var/lib/dpkg/status.d/{deb.package.name}", deb.control.encode())
        rules = recipe.load(base)
        tree.entries = {
            path: entry for path, entry in tree.entries.items() if entry.kind == "dir" or rules_keep(rules, path)
        }
        tree.renames = {}
        if argv and tree.get(argv[0].lstrip("/")) is None:
            raise InstallRefused(
                "INST-050", f"{', '.join(ask.packages)} have no program `{ask.program}`", "correct `server.path`"
            )
        return Built(tree, argv)


def provided(packages: tuple[str, ...], base: str) -> str:
    """Return the image of images/ that is made from ``base`` for exactly these packages, empty when there is none."""
    for name in recipe.names():
        found = recipe.load(name)
        if found.parent == base and found.provides_apt and tuple(sorted(found.provides_apt)) == packages:
            return name
    return ""


def rules_keep(rules: Recipe, path: str) -> bool:
    """Return whether a path of a package goes into a layer: what images leave out everywhere is left out here too."""
    everywhere = Recipe(
        name="", summary="", parent="", phase="run",
        leave_out_everywhere=rules.leave_out_everywhere, keep_everywhere=rules.keep_everywhere,
    )  # fmt: skip
    return everywhere.keeps(path)


def _source(shop: Shop, folder: Path, base: str) -> tuple[PackageSource, dict[str, str]]:
    """Return where packages come from, and those that the base image has."""
    images = shop.images
    return package_source(images.store, images.box, images.arch, folder, shop.scratch), images.obtain(base)[0].debs()


def _fetch(shop: Shop, folder: Path, packages: tuple[str, ...], base: str) -> tuple[tuple[Deb, ...], str]:
    source, present = _source(shop, folder, base)
    shop.progress.step(f"fetching {', '.join(packages)} of {source.named}")
    return source.fetch(packages, present, WITHOUT), source.named


def _fetch_exactly(
    shop: Shop, folder: Path, locked: tuple[Package, ...], base: str, distribution: str
) -> tuple[Deb, ...]:
    source, present = _source(shop, folder, base)
    shop.progress.step(f"fetching {len(locked)} packages of {source.named}")
    if source.named != distribution:
        raise _moved(f"driver.lock has packages of {distribution}, and this host has {source.named}")
    try:
        return source.fetch_exactly(locked, present, WITHOUT)
    except Moved as error:
        raise _moved(str(error).splitlines()[-1][:200]) from None


def _moved(why: str) -> InstallRefused:
    return InstallRefused(
        "INST-051",
        f"the Debian packages that driver.lock pins cannot be had any more: {why}",
        "run `mcp-sandbox lock --upgrade DRIVER.md` and look at what changes",
    )
