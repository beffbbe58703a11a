"""A program of this host, or of the driver's folder: copied by digest into a layer, after checking that it runs there.

Checked before anything is started: 1 it is a regular file within bounds; 2 an ELF program is for this machine, its
loader and every library it needs, down to symbol versions, are in the base image; a static one needs nothing; 3 a
script's interpreter is in the image. What is missing is named.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sandbox.errors import InstallRefused
from sandbox.launch.images import elf
from sandbox.launch.images.tree import Tree
from sandbox.launch.install.ask import Ask
from sandbox.launch.install.shop import Built, Offer, Pins, Shop
from sandbox.limits import MIB

MAX_PROGRAM_BYTES: Final = 512 * MIB
"""Of one program; the largest known single-file servers have 120 MB."""

FOLDER: Final = "app/bin"

LOADERS: Final = frozenset({"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"})
"""Dynamic loaders of Debian's C library."""


class HostFile:
    """The methods ``host`` and ``vendored``."""

    def resolve(self, ask: Ask, shop: Shop, old: Mapping[str, Any] | None) -> Pins:  # noqa: ARG002 - one file
        """Pin the program's present contents, and choose the image that it can run on."""
        data = read(self._path(ask, shop))
        return Pins(base_of(data), {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)})

    def build(self, ask: Ask, section: Mapping[str, Any], shop: Shop) -> Built:
        """Copy the program and check that it can run."""
        path = self._path(ask, shop)
        data = read(path)
        if hashlib.sha256(data).hexdigest() != section["sha256"]:
            raise InstallRefused(
                "INST-070",
                f"{path} is not the program that driver.lock pins",
                "run `mcp-sandbox lock DRIVER.md` when the change is wanted",
            )
        return place(data, path.name, shop.offer(), str(path))

    def _path(self, ask: Ask, shop: Shop) -> Path:
        """Return the program's path on the host: absolute, of the home folder, or below the driver's folder."""
        path = Path(ask.wanted).expanduser()
        return path if path.is_absolute() else shop.folder / path


def read(path: Path) -> bytes:
    """Return the contents of a program (step 1).

    Raises:
        InstallRefused: ``INST-071``.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InstallRefused("INST-071", f"{path} cannot be read: {error.strerror}", "correct `server.path`") from None
    facts = os.fstat(handle)
    if not stat.S_ISREG(facts.st_mode):
        os.close(handle)
        raise InstallRefused("INST-071", f"{path} is no regular file", "correct `server.path`")
    with os.fdopen(handle, "rb") as source:
        if not 0 < facts.st_size <= MAX_PROGRAM_BYTES:
            raise InstallRefused(
                "INST-071", f"{path} is not of 1 to {MAX_PROGRAM_BYTES} bytes", "correct `server.path`"
            )
        return source.read(MAX_PROGRAM_BYTES + 1)


def base_of(data: bytes) -> str:
    """Return the image of images/ that a program runs on: that of its interpreter, else ``base``."""
    interpreter = shebang(data)
    if interpreter.startswith("python"):
        return "python"
    return "node" if interpreter == "node" else "base"


def shebang(data: bytes) -> str:
    """Return the name of a script's interpreter, ``env`` looked through; empty for anything else."""
    if not data.startswith(b"#!"):
        return ""
    words = data[2:256].partition(b"\n")[0].decode("utf-8", "replace").split()
    if words and words[0].rpartition("/")[2] == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return words[0].rpartition("/")[2] if words else ""


def place(data: bytes, name: str, offer: Offer, shown: str) -> Built:
    """Return a layer with one program that can run on an image (steps 2 and 3).

    Raises:
        InstallRefused: ``INST-072`` another machine or a damaged file, ``INST-073`` something it needs is missing,
            ``INST-074`` neither a program nor a script.
    """
    tree = Tree()
    safe = "".join(char if char.isalnum() or char in "._-" else "_" for char in name)
    tree.file(f"{FOLDER}/{safe}", data, 0o755)
    if data.startswith(b"#!"):
        interpreter = shebang(data)
        if interpreter not in offer.programs:
            raise _missing(shown, f"its interpreter `{interpreter}`", offer)
        return Built(tree, (f"/usr/bin/{interpreter}", f"/{FOLDER}/{safe}"))
    if not data.startswith(elf.MAGIC):
        raise InstallRefused("INST-074", f"{shown} is neither an ELF program nor a script", "name the program itself")
    _check_elf(data, offer, shown)
    return Built(tree, (f"/{FOLDER}/{safe}",))


def _check_elf(data: bytes, offer: Offer, shown: str) -> None:
    try:
        facts = elf.read(data)
    except elf.NotElf as error:
        raise InstallRefused("INST-072", f"{shown} cannot be run: {error}", "name a 64-bit Linux program") from None
    if facts.arch != offer.arch:
        raise InstallRefused(
            "INST-072",
            f"{shown} is for {facts.arch}, and this host runs {offer.arch}",
            "name one built for this host",
        )
    if facts.interpreter and facts.interpreter not in LOADERS:
        raise _missing(shown, f"its loader `{facts.interpreter}` (musl programs need to be static)", offer)
    lacking = elf.missing(facts, offer.libraries)
    if lacking:
        raise _missing(shown, ", ".join(f"`{name}`" for name in lacking[:10]), offer)


def _missing(shown: str, what: str, offer: Offer) -> InstallRefused:
    return InstallRefused(
        "INST-073",
        f"{shown} needs {what}, which the image `{offer.name}` does not have",
        "build it static or for Debian bookworm, add an `apt` step to `install`, or use `server.kind: docker`",
    )
