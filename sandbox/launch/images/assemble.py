"""Recipe and fetched packages → the tree of one layer. Reads the packages, writes nothing but scratch files."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from typing import Final

from sandbox.launch.images import elf, wheels
from sandbox.launch.images.apt import Deb
from sandbox.launch.images.recipe import Recipe
from sandbox.launch.images.tree import Tree
from sandbox.launch.images.unpack import unpack_tar

MERGED: Final = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
"""Folders of the root that are links into ``/usr`` (Debian's merged ``/usr``)."""

PROGRAM_FOLDERS: Final = ("usr/bin", "usr/sbin", "usr/local/bin")
LIBRARY_FOLDERS: Final = ("usr/lib", "usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu")
"""Where the dynamic loader of Debian looks without a cache."""

_AUTHORITIES: Final = "usr/share/ca-certificates/mozilla/"
_BUNDLE: Final = "etc/ssl/certs/ca-certificates.crt"


def assemble(recipe: Recipe, debs: Iterable[Deb], fetched: Iterable[wheels.Fetched]) -> Tree:
    """Return the tree of a recipe's own layer, byte code excepted.

    Steps: 1 unpack the Debian packages; 2 make one bundle of the authorities' certificates; 3 leave out what the recipe
    leaves out; 4 note each package for scanners; 5 take parts of wheels; 6 add the recipe's own files, links and
    folders.

    Raises:
        InstallRefused: a package breaks the rules of a tree.
        PlatformError: a part that the recipe names is not there.
    """
    tree = Tree(renames=dict(MERGED) if recipe.merged_usr else {})
    for deb in debs:  # 1
        unpack_tar(deb.data, tree, confined=False)
    if recipe.ca_bundle:  # 2
        tree.file(_BUNDLE, _bundle(tree))
    _leave_out(tree, recipe)  # 3
    for deb in debs:  # 4
        tree.file(f"var/lib/dpkg/status.d/{deb.package.name}", deb.control.encode())
    for wheel, file in zip(recipe.wheels, fetched, strict=True):  # 5
        wheels.take(wheel, file.file, tree)
    tree.renames = {}
    _own(tree, recipe)  # 6
    return tree


def programs(tree: Tree) -> tuple[str, ...]:
    """Return the names that a program can be started by, in alphabetical order."""
    found = set()
    for entry in tree.ordered():
        folder, name = posixpath.split(entry.path)
        if folder in PROGRAM_FOLDERS and entry.kind != "dir" and (entry.kind == "link" or entry.mode & 0o111):
            found.add(name)
    return tuple(sorted(found))


def libraries(tree: Tree) -> dict[str, tuple[str, ...]]:
    """Return the shared libraries that the dynamic loader finds: soname → symbol versions that each defines."""
    found = {}
    for entry in tree.ordered():
        folder, name = posixpath.split(entry.path)
        if folder not in LIBRARY_FOLDERS or entry.kind != "file" or ".so" not in name or entry.blob is None:
            continue
        try:
            facts = elf.read(entry.blob.read())
        except elf.NotElf:
            continue
        found[facts.soname or name] = facts.defines
    return dict(sorted(found.items()))


def _bundle(tree: Tree) -> bytes:
    """Return the certificates of all authorities, in the order of their names."""
    files = [entry for entry in tree.ordered() if entry.path.startswith(_AUTHORITIES) and entry.path.endswith(".crt")]
    return b"".join(entry.blob.read().strip() + b"\n" for entry in files if entry.blob is not None)


def _leave_out(tree: Tree, recipe: Recipe) -> None:
    """Drop what a recipe leaves out; a folder goes with its last file, unless something is kept in it."""
    tree.entries = {path: entry for path, entry in tree.entries.items() if entry.kind == "dir" or recipe.keeps(path)}
    for path in sorted((path for path, entry in tree.entries.items() if entry.kind == "dir"), reverse=True):
        if not recipe.keeps(path) and not any(name.startswith(path + "/") for name in tree.entries):
            del tree.entries[path]


def _own(tree: Tree, recipe: Recipe) -> None:
    if recipe.merged_usr and not recipe.parent:
        for name, target in MERGED.items():
            tree.folder(target)
            tree.link(name, target)
    for path, data in recipe.files.items():
        tree.file(path, data)
    for path, target in recipe.links.items():
        tree.link(path, target)
    for path in recipe.folders:
        tree.folder(path)
