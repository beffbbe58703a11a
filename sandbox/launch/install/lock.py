"""``driver.lock``: what a driver's install was resolved to. Reviewed and kept beside DRIVER.md; names no host.

::

    {
      "version": 1,
      "install": {
        "asked": …      what DRIVER.md asked for when this was made; another wish needs another lock
        "base": …       name of the image of images/ that the layers lie on, empty for a docker image
        "npm" | "pip" | "apt" | "download" | "file" | "docker": …   each method's own pins
      },
      "image": {
        "argv": …       program and leading arguments
        "layers": …     platform → layers, in order, by digest
      },
      "pins": …         what was approved of the server's tools; another stage's section, kept as it is
    }

Schema: ``docs/schemas/driver-lock.schema.json``. Equal locks have equal bytes, and one changed package is one changed
    line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from sandbox import jsontext
from sandbox.errors import InstallRefused
from sandbox.launch.lockfile import (
    FILE,
    MAX_LOCK_BYTES,
    VERSION,
    damaged,
    parse,
    path_of,
    read_sections,
    text_of,
    write_sections,
)

METHODS: Final = ("npm", "pip", "apt", "download", "file", "docker")
"""Sections of ``install``, in the order of their application."""


@dataclass(frozen=True, slots=True)
class LockedLayer:
    """A layer by content.

    Attributes:
        digest: its DiffID, ``sha256:…``.
        size: bytes of the uncompressed tar file.
        what: one word for the image's history: ``apt``, ``npm`` …
    """

    digest: str
    size: int
    what: str


@dataclass(frozen=True, slots=True)
class Lock:
    """The pins of one driver's install.

    Attributes:
        asked: canonical form of what DRIVER.md asks for; see :mod:`sandbox.launch.install.ask`.
        base: name of the image below, empty for ``docker``.
        pins: method → its own section.
        argv: program and leading arguments.
        layers: platform → layers on top of ``base``; a platform that is missing was never installed by whoever locked.
        others: further sections of the file, kept as they are.
    """

    asked: Mapping[str, Any]
    base: str
    pins: Mapping[str, Mapping[str, Any]]
    argv: tuple[str, ...] = ()
    layers: Mapping[str, tuple[LockedLayer, ...]] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)

    def digest(self) -> str:
        """Return ``sha256:…`` of what decides the contents of the layers; the layers themselves are not part of it."""
        return jsontext.digest({"asked": self.asked, "base": self.base, "pins": self.pins})

    def with_layers(self, platform: str, layers: tuple[LockedLayer, ...]) -> Lock:
        """Return the lock with the layers of one platform noted."""
        return replace(self, layers={**self.layers, platform: layers})


def read(folder: str) -> Lock | None:
    """Return the lock of a driver folder, ``None`` when there is none or it pins no install.

    Raises:
        SpecError: ``INST-002``, the file is not a lock.
    """
    sections = read_sections(folder)
    if sections is None or ("pins" in sections and not {"install", "image"} & sections.keys()):
        return None
    try:
        return _lock_of(sections)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(path_of(folder), f"{type(error).__name__}: {error}") from None


def write(folder: str, lock: Lock) -> Path:
    """Write the lock of a driver folder, keep sections of others, and return its path."""
    return write_sections(folder, _sections(lock))


def encode(lock: Lock) -> bytes:
    """Return the canonical text."""
    return text_of(_sections(lock))


def _sections(lock: Lock) -> dict[str, Any]:
    image = {
        "argv": list(lock.argv),
        "layers": {
            platform: [{"digest": layer.digest, "size": layer.size, "what": layer.what} for layer in layers]
            for platform, layers in lock.layers.items()
        },
    }
    install = {"asked": lock.asked, "base": lock.base, **lock.pins}
    return {**lock.others, "image": image, "install": install}


def decode(data: bytes) -> Lock:
    """Return the lock of a text.

    Raises:
        JsonTextError: no strict JSON.
        ValueError: of another version or with unknown members.
        KeyError: a member is missing.
        TypeError: a member is of another type.
    """
    return _lock_of(parse(data))


def _lock_of(value: Mapping[str, Any]) -> Lock:
    install, image = value["install"], value["image"]
    unknown = sorted(set(install) - {"asked", "base", *METHODS})
    if unknown or not all(isinstance(install[name], dict) for name in install if name != "base"):
        raise ValueError(f"unexpected `install.{unknown[0] if unknown else ''}`")
    return Lock(
        asked=install["asked"],
        base=install["base"],
        pins={name: install[name] for name in METHODS if name in install},
        argv=tuple(image["argv"]),
        layers={
            platform: tuple(LockedLayer(item["digest"], item["size"], item["what"]) for item in layers)
            for platform, layers in image["layers"].items()
        },
        others={name: item for name, item in value.items() if name not in {"version", "install", "image"}},
    )


def diff_locks(old: Lock | None, new: Lock) -> tuple[str, ...]:
    """Return one line for each difference that a reviewer wants to know, empty when there is none."""
    lines = [] if old is None or old.base == new.base else [f"base image: {old.base} → {new.base}"]
    if old is not None and dict(old.asked) != dict(new.asked):
        lines.append(f"asked for: {_shown(old.asked)} → {_shown(new.asked)}")
    for method in METHODS:
        before, after = (_packages(lock.pins.get(method, {}) if lock else {}) for lock in (old, new))
        lines += [
            _change(method, name, before.get(name), after.get(name)) for name in sorted(before.keys() | after.keys())
        ]
    if old is not None and old.argv != new.argv:
        lines.append(f"program: {' '.join(old.argv)} → {' '.join(new.argv)}")
    found = tuple(line for line in lines if line)
    if not found and old is not None:  # the same packages gave another layer: a build tool or an image is another one
        places = [place for place, layers in new.layers.items() if place in old.layers and old.layers[place] != layers]
        return tuple(f"layers of {place}: other contents from the same packages" for place in sorted(places))
    return found


def _shown(asked: Mapping[str, Any]) -> str:
    """Return a wish for people."""
    return " ".join(
        str(part) for part in (asked.get("method", ""), asked.get("wanted", ""), *asked.get("packages", ()))
    )


def _packages(section: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return name → (version, digest of the entry) of a section; a section without packages is one entry."""
    packages = section.get("packages")
    if not isinstance(packages, Mapping):
        return {"": (str(section.get("version", "")), jsontext.digest(section))} if section else {}
    return {name: (str(entry.get("version", "")), jsontext.digest(entry)) for name, entry in packages.items()}


def _change(method: str, name: str, before: tuple[str, str] | None, after: tuple[str, str] | None) -> str:
    if before == after:
        return ""
    label = f"{method} {name}".rstrip()
    if before is None or after is None:
        return f"{label}: {before[0] if before else '(none)'} → {after[0] if after else '(none)'}"
    if before[0] == after[0]:
        return f"{label}: {after[0]} has other contents".replace(":  has", ": has")
    return f"{label}: {before[0]} → {after[0]}"


def stale(path: Path) -> InstallRefused:
    """Return the refusal of a lock that was made for another wish."""
    return InstallRefused(
        "INST-003",
        f"{path} was made for something other than what DRIVER.md asks for now",
        "look at what changed, then run `mcp-sandbox lock DRIVER.md`",
    )


__all__ = [
    "FILE",
    "MAX_LOCK_BYTES",
    "METHODS",
    "VERSION",
    "Lock",
    "LockedLayer",
    "decode",
    "diff_locks",
    "encode",
    "path_of",
    "read",
    "stale",
    "write",
]
