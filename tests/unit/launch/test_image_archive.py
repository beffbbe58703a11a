"""Layers and archives are the same bytes for the same content, and engines know them by the id worked out here."""

from __future__ import annotations

import hashlib
import io
import json
import random
import tarfile
from pathlib import Path

import pytest

from sandbox.errors import PlatformError
from sandbox.launch.images.archive import Image, Layer, write_archive, write_layer
from sandbox.launch.images.store import Store
from sandbox.launch.images.tree import EPOCH, Blob, Entry, Tree
from tests.image_kit import FakeEngine, Told

CONFIG = {"Env": ["PATH=/usr/bin"], "User": "65532:65532"}


def sample(order: random.Random | None = None) -> Tree:
    """Return a tree, filled in some order."""
    entries = [
        Entry("usr/bin/prog", "file", 0o755, Blob.of(b"#!" + bytes(3000))),
        Entry("usr/share/ünïcode", "file", 0o644, Blob.of(b"text")),
        Entry("deep/" + "d/" * 60 + "file", "file", 0o644, Blob.of(b"x")),
        Entry("lib", "link", 0o777, target="usr/lib"),
        Entry("empty", "dir", 0o700),
    ]
    if order is not None:
        order.shuffle(entries)
    tree = Tree()
    for entry in entries:
        tree.add(entry)
    return tree


def image(tmp_path: Path, name: str = "l", tree: Tree | None = None) -> Image:
    """Return an image of one layer."""
    layer = write_layer(tree or sample(), tmp_path / f"{name}.tar")
    return Image("amd64", (layer,), CONFIG, ("test",))


@pytest.mark.claim("P-IMAGE-01")
def test_same_content_gives_same_bytes(tmp_path: Path) -> None:
    """Neither the order of filling nor the host's files decide a single byte."""
    first = write_layer(sample(), tmp_path / "a.tar")
    second = write_layer(sample(random.Random(1)), tmp_path / "b.tar")

    assert first.digest == second.digest
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_layer_is_a_plain_tar(tmp_path: Path) -> None:
    """A layer reads back as what the tree was: owner root, one time, contents intact."""
    layer = write_layer(sample(), tmp_path / "l.tar")

    with tarfile.open(tmp_path / "l.tar") as archive:
        members = {member.name: member for member in archive}
        text = archive.extractfile("usr/share/ünïcode").read()

    assert {(0, 0, EPOCH)} == {(member.uid, member.gid, member.mtime) for member in members.values()}
    assert b"text" == text
    assert "sha256:" + hashlib.sha256((tmp_path / "l.tar").read_bytes()).hexdigest() == layer.digest
    assert (tmp_path / "l.tar").stat().st_size == layer.size


def test_layer_of_a_file_slice_has_its_bytes(tmp_path: Path) -> None:
    """Contents that lie in the middle of another file are written whole, also beyond one read."""
    data = random.Random(2).randbytes(3 * 1024 * 1024 + 17)
    (tmp_path / "source").write_bytes(b"before" + data + b"after")
    tree = Tree()
    tree.add(Entry("big", "file", 0o644, Blob(len(data), file=tmp_path / "source", offset=6)))

    write_layer(tree, tmp_path / "l.tar")

    with tarfile.open(tmp_path / "l.tar") as archive:
        assert data == archive.extractfile("big").read()


def test_truncated_source_is_an_error(tmp_path: Path) -> None:
    """A file that became shorter never ends up padded in a layer."""
    (tmp_path / "source").write_bytes(b"short")
    tree = Tree()
    tree.add(Entry("big", "file", 0o644, Blob(10, file=tmp_path / "source")))

    with pytest.raises(OSError, match="early"):
        write_layer(tree, tmp_path / "l.tar")


def test_archive_names_config_and_layers_by_digest(tmp_path: Path) -> None:
    """Every blob lies under its own SHA-256, and the manifest of the OCI layout is the one that was promised."""
    made = image(tmp_path)
    buffer = io.BytesIO()

    write_archive(made, ("mcp-sandbox/x:latest",), buffer)

    buffer.seek(0)
    with tarfile.open(fileobj=buffer) as archive:
        blobs = {m.name: archive.extractfile(m).read() for m in archive}
    for name, data in blobs.items():
        if name.startswith("blobs/"):
            assert name == "blobs/sha256/" + hashlib.sha256(data).hexdigest()
    index = json.loads(blobs["index.json"])["manifests"][0]
    assert made.manifest_digest == index["digest"]
    assert made.id == json.loads(blobs[f"blobs/{index['digest'].replace(':', '/')}"])["config"]["digest"]


@pytest.mark.parametrize("by_manifest", [False, True])
def test_engine_finds_the_image_by_the_promised_id(by_manifest: bool, tmp_path: Path) -> None:
    """Both image stores know the image by a digest that was worked out before loading."""
    store = Store(FakeEngine(by_manifest=by_manifest), Told())
    made = image(tmp_path)

    assert store.find(made) is None
    assert (made.manifest_digest if by_manifest else made.id) == store.put(made, ("mcp-sandbox/x:latest",))
    assert store.find(made) is not None


@pytest.mark.parametrize("by_manifest", [False, True])
def test_layers_of_the_parent_are_sent_once_where_that_works(by_manifest: bool, tmp_path: Path) -> None:
    """The classic store takes an archive without the parent's layers; the other one is sent the whole image."""
    engine = FakeEngine(by_manifest=by_manifest)
    store = Store(engine, Told())
    parent = image(tmp_path)
    tree = Tree()
    tree.file("extra", b"x")
    child = Image("amd64", (*parent.layers, write_layer(tree, tmp_path / "c.tar")), CONFIG)
    store.put(parent, ())

    store.put(child, (), parent)

    assert by_manifest == (engine.loads[-1] > engine.loads[0])
    assert store.find(child) is not None


@pytest.mark.claim("P-IMAGE-02")
def test_engine_with_other_layers_under_the_id_is_refused(tmp_path: Path) -> None:
    """An engine whose store was changed is not believed because the id is right."""
    engine = FakeEngine()
    store = Store(engine, Told())
    made = image(tmp_path)
    store.put(made, ())
    engine.images[made.id]["RootFS"]["Layers"] = ["sha256:" + "0" * 64]

    with pytest.raises(PlatformError) as caught:
        store.find(made)

    assert "IMG-022" == caught.value.id


def test_engine_that_forgets_an_image_is_an_error(tmp_path: Path) -> None:
    """Loading is believed only when the engine then has the image."""
    engine = FakeEngine()
    engine.load = lambda *_: None  # type: ignore[method-assign]

    with pytest.raises(PlatformError) as caught:
        Store(engine, Told()).put(image(tmp_path), ())

    assert "IMG-023" == caught.value.id


def test_borrowed_image_is_given_back(tmp_path: Path) -> None:
    """An image that only a build needs does not stay, even when the build fails."""
    engine = FakeEngine()
    store = Store(engine, Told())

    with pytest.raises(ValueError, match="build"), store.borrowed(image(tmp_path)):
        raise ValueError("build")

    assert {} == engine.images


def test_layer_without_file_cannot_be_written() -> None:
    """An archive is never written with a hole in it."""
    hollow = Image("amd64", (Layer("sha256:" + "1" * 64, 10),), CONFIG)

    with pytest.raises(FileNotFoundError):
        write_archive(hollow, (), io.BytesIO())
