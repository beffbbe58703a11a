"""Rules of trees, layers and locks that hold for every input."""

from __future__ import annotations

import random
import tarfile
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import InstallRefused
from sandbox.launch.images.archive import write_layer
from sandbox.launch.images.tree import Blob, Entry, Tree, clean_path, resolve_link
from sandbox.launch.install.lock import Lock, decode, diff_locks, encode

PARTS = st.sampled_from(["a", "b", "usr", "..", ".", "", "é", "x\n", "lib"])
PATHS = st.lists(PARTS, min_size=1, max_size=5).map("/".join) | st.text(max_size=20)
ENTRIES = st.builds(
    lambda path, kind, mode, text: Entry(
        path, kind, mode, Blob.of(text.encode()) if kind == "file" else None, text if kind == "link" else ""
    ),
    PATHS,
    st.sampled_from(["dir", "file", "link"]),
    st.integers(0, 0o7777),
    st.sampled_from(["", "x", "../..", "/etc", "a/b"]),
)
VERSIONS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["1", "2"]))


def filled(entries: list[Entry]) -> Tree:
    """Return a tree of those entries that it takes."""
    tree = Tree()
    for entry in entries:
        try:
            tree.add(entry)
        except InstallRefused:
            continue
    return tree


@given(PATHS)
def test_clean_path_never_leaves(path: str) -> None:
    """Any text is a relative path without dots or a refusal."""
    try:
        clean = clean_path(path)
    except InstallRefused:
        return

    assert not clean.startswith("/")
    assert not {"..", "."}.intersection(clean.split("/"))
    assert clean_path(clean) == clean


@given(st.lists(ENTRIES, max_size=12))
def test_tree_keeps_its_invariants(entries: list[Entry]) -> None:
    """Whatever is added, parents are folders, nobody but root may write, and no set-id bit stays."""
    tree = filled(entries)

    for path, entry in tree.entries.items():
        parent = path.rpartition("/")[0]
        assert not parent or tree.entries[parent].kind == "dir"
        assert entry.kind == "link" or path == "tmp" or entry.mode in {0o644, 0o755}
        assert ".." not in resolve_link(entry).split("/") if entry.kind == "link" else True


@given(st.lists(ENTRIES, max_size=12), st.randoms())
def test_layer_depends_on_the_tree_only(entries: list[Entry], order: random.Random) -> None:
    """The same entries in another order give the same bytes, and they read back as the same paths."""
    tree = filled(entries)
    other = Tree(dict(order.sample(sorted(tree.entries.items()), len(tree.entries))))
    with tempfile.TemporaryDirectory() as folder:
        first = write_layer(tree, Path(folder) / "a")
        second = write_layer(other, Path(folder) / "b")
        with tarfile.open(Path(folder) / "a") as archive:
            names = archive.getnames()

    assert first.digest == second.digest
    assert set(names) == set(tree.entries)


def lock(versions: dict[str, str]) -> Lock:
    """Return a lock of packages by version."""
    packages = {name: {"version": version} for name, version in versions.items()}
    return Lock({"method": "npm", "wanted": "a"}, "node", {"npm": {"packages": packages}})


@given(VERSIONS, VERSIONS)
def test_difference_is_empty_exactly_for_equal_locks(old: dict[str, str], new: dict[str, str]) -> None:
    """Every changed package has one line, and no line appears for nothing."""
    changed = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}

    assert len(changed) == len(diff_locks(lock(old), lock(new)))
    assert lock(old) == decode(encode(lock(old)))
