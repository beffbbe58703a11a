"""``images/<name>/lock.json``: what a recipe was resolved to, and the image id that gives.

A lock is evidence, not a place to fetch from: it has names, versions and digests, and no host. One lock has an entry
for each platform (``linux/amd64``). The *effective* lock of an image on a host is the shipped one, or, when the
operator has let the host resolve anew because Debian's mirror has moved on, the host's own one; that is valid only
for the shipped lock that it was made instead of (ADR 0021).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sandbox import jsontext
from sandbox.errors import PlatformError
from sandbox.launch.images.locktext import pretty
from sandbox.launch.images.places import Places, write_private
from sandbox.launch.images.recipe import Recipe
from sandbox.resources import shipped

VERSION: Final = 1
"""Of the format."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package as it was used.

    Attributes:
        name: of the package.
        version: exact.
        sha256: lower-case hex digest of the ``.deb`` or ``.whl`` file.
    """

    name: str
    version: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """One recipe resolved on one platform.

    Attributes:
        recipe: digest of the recipe; when it is another one, ``id`` and ``layer`` no longer hold.
        fetches: digest of what the recipe fetches; while it is the same one, ``debs`` and ``wheels`` hold.
        distribution: where the packages are from, ``debian/bookworm``.
        parent: image id of the parent, empty for none.
        debs: Debian packages of this layer.
        wheels: files of the Python package index of this layer.
        layer: DiffID of this layer; ``size`` its bytes.
        id: image id, the SHA-256 of the configuration; ``manifest`` the digest of the OCI manifest.
        programs: names in ``/usr/bin`` of this layer.
        libraries: soname → symbol versions that it defines, of this layer.
        instead_of: digest of the shipped entry that a host's own lock replaces; empty in a shipped one.
    """

    recipe: str
    fetches: str
    distribution: str
    parent: str
    debs: tuple[Package, ...]
    wheels: tuple[Package, ...]
    layer: str
    size: int
    id: str
    manifest: str
    programs: tuple[str, ...] = ()
    libraries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    instead_of: str = ""

    def inputs(self) -> tuple[str, str, tuple[Package, ...], tuple[Package, ...]]:
        """Return what decides the bytes of the image."""
        return self.recipe, self.parent, self.debs, self.wheels


def shipped_lock(name: str, platform: str) -> Resolved | None:
    """Return what the project has recorded for an image, ``None`` when it has nothing for this platform.

    Raises:
        PlatformError: ``IMG-006``, the file is damaged.
    """
    try:
        path = shipped("images", name, "lock.json")
    except PlatformError:
        return None
    return _read(path, platform)


def local_lock(name: str, platform: str, places: Places) -> Resolved | None:
    """Return this host's own lock when it was made instead of what is shipped now, else ``None``."""
    path = places.local_lock(name)
    if not path.exists():
        return None
    try:
        own = _read(path, platform)
    except PlatformError:  # of an older mcp-sandbox, or damaged: this host can make another one
        return None
    return own if own is not None and own.instead_of == digest(shipped_lock(name, platform)) else None


def effective(recipe: Recipe, platform: str, places: Places) -> Resolved | None:
    """Return the lock that holds on this host; ``None`` when the recipe has changed since or nothing is recorded."""
    found = local_lock(recipe.name, platform, places) or shipped_lock(recipe.name, platform)
    return found if found is not None and found.recipe == recipe.digest else None


def pinned(recipe: Recipe, platform: str, places: Places) -> Resolved | None:
    """Return the lock whose packages hold for a recipe, although other parts of it may have changed since."""
    found = local_lock(recipe.name, platform, places) or shipped_lock(recipe.name, platform)
    return found if found is not None and found.fetches == recipe.fetches else None


def own_packages(name: str, platform: str, resolved: Resolved) -> bool:
    """Return whether an entry has other packages than the project has recorded."""
    recorded = shipped_lock(name, platform)
    return recorded is None or (recorded.debs, recorded.wheels) != (resolved.debs, resolved.wheels)


def write_local(name: str, platform: str, places: Places, resolved: Resolved) -> None:
    """Keep a host's own lock."""
    own = dataclasses.replace(resolved, instead_of=digest(shipped_lock(name, platform)))
    write_private(places.local_lock(name), encode({platform: own}))


def forget_local(name: str, places: Places) -> None:
    """Drop a host's own lock."""
    places.local_lock(name).unlink(missing_ok=True)


def digest(resolved: Resolved | None) -> str:
    """Return ``sha256:…`` of an entry; that of ``None`` is defined too."""
    return jsontext.digest(None if resolved is None else _plain(resolved))


def encode(platforms: Mapping[str, Resolved]) -> bytes:
    """Return the text of a lock file: sorted, one package to a line, a newline at the end."""
    value = {"version": VERSION, "platforms": {name: _plain(item) for name, item in sorted(platforms.items())}}
    return pretty(value)


def decode(data: bytes, place: str) -> dict[str, Resolved]:
    """Return the entries of a lock file.

    Raises:
        PlatformError: ``IMG-006``.
    """
    try:
        value = jsontext.parse(data)
        if value["version"] != VERSION:
            raise _damaged(place, f"version {value['version']!r}")
        return {name: _entry(item) for name, item in value["platforms"].items()}
    except (jsontext.JsonTextError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise _damaged(place, f"{type(error).__name__}: {error}") from None


def moved(old: tuple[Package, ...], new: tuple[Package, ...]) -> tuple[str, ...]:
    """Return one line for each package that differs: ``openssl 3.0.1 → 3.0.2``."""
    before, after = ({package.name: package for package in packages} for packages in (old, new))
    lines = []
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        if was == now:
            continue
        if was is not None and now is not None and was.version == now.version:
            lines.append(f"{name} {now.version} has other contents")
        else:
            lines.append(f"{name} {was.version if was else '(none)'} → {now.version if now else '(none)'}")
    return tuple(lines)


def _read(path: Path, platform: str) -> Resolved | None:
    return decode(path.read_bytes(), str(path)).get(platform)


def _plain(resolved: Resolved) -> dict[str, Any]:
    value = dataclasses.asdict(resolved)
    value |= {name: list(value[name]) for name in ("debs", "wheels", "programs")}
    value["libraries"] = {name: list(versions) for name, versions in sorted(resolved.libraries.items())}
    if not resolved.instead_of:
        del value["instead_of"]
    return value


def _entry(item: Mapping[str, Any]) -> Resolved:
    packages = {kind: tuple(Package(**package) for package in item[kind]) for kind in ("debs", "wheels")}
    return Resolved(
        **{
            **item,
            **packages,
            "programs": tuple(item["programs"]),
            "libraries": {name: tuple(versions) for name, versions in item["libraries"].items()},
        }
    )


def _damaged(place: str, why: str) -> PlatformError:
    return PlatformError(
        "IMG-006", f"{place} is not a lock of an image: {why}", "restore it, or delete it if it is yours"
    )
