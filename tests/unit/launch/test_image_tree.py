"""Rules of a layer's tree, and hostile archives that try to break them."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from sandbox.errors import InstallRefused
from sandbox.launch.images.tree import Blob, Entry, Tree, clean_path, link_stays_in, resolve_link
from sandbox.launch.images.unpack import Bounds, unpack_tar, unpack_zip
from tests.image_kit import member, tar

BAD_PATHS = [
    "/etc/passwd", "../x", "a/../../x", "a/..", "..", "a//b", "a/./b", "a\0b", "a\nb", "a\x7fb", "a\\b", "\udcff",
    "x" * 1025, "./../x", "//etc",
]  # fmt: skip


@pytest.mark.parametrize("path", BAD_PATHS)
def test_path_that_leaves_the_tree_is_refused(path: str) -> None:
    """A path that is not plain and relative never becomes an entry."""
    tree = Tree()

    with pytest.raises(InstallRefused) as caught:
        tree.file(path, b"")

    assert "INST-020" == caught.value.id
    assert {} == tree.entries


@pytest.mark.parametrize(
    ("path", "expected"), [(".", ""), ("./", ""), ("./a/b/", "a/b"), ("a", "a"), ("..a/b..", "..a/b..")]
)
def test_plain_path_is_kept(path: str, expected: str) -> None:
    """Names that only look dangerous stay as they are."""
    assert expected == clean_path(path)


def test_write_through_link_is_refused() -> None:
    """A file below a link would land where the link points."""
    tree = Tree()
    tree.link("a", "b")

    with pytest.raises(InstallRefused) as caught:
        tree.file("a/x", b"")

    assert "INST-021" == caught.value.id


def test_folder_over_link_is_refused() -> None:
    """A directory entry cannot turn a link into a folder that later entries go through."""
    tree = Tree()
    tree.link("a", "b")

    with pytest.raises(InstallRefused):
        tree.folder("a")

    assert "link" == tree.entries["a"].kind


def test_modes_lose_set_id_and_write_bits() -> None:
    """What runs is decided by us: no set-id, no sticky, nothing writable by others."""
    tree = Tree()
    tree.add(Entry("su", "file", 0o6777, Blob.of(b"")))
    tree.add(Entry("text", "file", 0o666, Blob.of(b"")))
    tree.add(Entry("dir", "dir", 0o7777))

    assert [0o755, 0o755, 0o644] == [tree.entries[name].mode for name in ("su", "dir", "text")]


def test_links_are_followed_within_the_tree() -> None:
    """A lookup follows links, relative, absolute and in the middle of a path, and ends for a loop."""
    tree = Tree()
    tree.file("usr/bin/real", b"x")
    tree.link("bin", "usr/bin")
    tree.link("usr/bin/name", "/bin/real")
    tree.link("loop", "loop")

    assert tree.entries["usr/bin/real"] == tree.get("bin/name")
    assert tree.get("loop") is None
    assert tree.get("bin/none") is None


@pytest.mark.parametrize("target", ["/etc/passwd", "../../x", "", "a/../../../x"])
def test_link_out_of_its_tree_is_seen(target: str) -> None:
    """A link is judged by where it leads from its own place."""
    assert not link_stays_in(Entry("d/link", "link", 0o777, target=target))


@pytest.mark.parametrize("target", ["x", "../x", "./x", "a/../x"])
def test_link_within_its_tree_is_seen(target: str) -> None:
    """A relative link that stays below the root of its tree is allowed."""
    assert link_stays_in(Entry("d/link", "link", 0o777, target=target))


def test_dots_at_the_root_stay_there() -> None:
    """A link above the root means the root, as in the kernel."""
    assert "x" == resolve_link(Entry("a/l", "link", 0o777, target="../../../x"))


@pytest.mark.claim("P-INST-03")
@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([member("../../etc/cron.d/x", b"x")], "INST-020"),
        ([member("/etc/passwd", b"x")], "INST-020"),
        ([member("l", kind=tarfile.SYMTYPE, target="/etc/passwd")], "INST-023"),
        ([member("l", kind=tarfile.SYMTYPE, target="../../etc/passwd")], "INST-023"),
        ([member("d", kind=tarfile.SYMTYPE, target="x"), member("d/f", b"x")], "INST-021"),
        ([member("h", kind=tarfile.LNKTYPE, target="/etc/passwd")], "INST-020"),
        ([member("h", kind=tarfile.LNKTYPE, target="later"), member("later", b"x")], "INST-023"),
        ([member("null", kind=tarfile.CHRTYPE)], "INST-022"),
        ([member("disk", kind=tarfile.BLKTYPE)], "INST-022"),
        ([member("pipe", kind=tarfile.FIFOTYPE)], "INST-022"),
    ],
)
def test_hostile_tar_is_refused(members: list[tuple[tarfile.TarInfo, bytes]], expected: str, tmp_path: Path) -> None:
    """Path traversal, links out, devices: nothing of the archive reaches the tree or the host."""
    file = tar(tmp_path / "t.tar", members)
    before = sorted(tmp_path.iterdir())
    tree = Tree()

    with pytest.raises(InstallRefused) as caught:
        unpack_tar(file, tree)

    assert expected == caught.value.id
    assert {} == tree.entries
    assert before == sorted(tmp_path.iterdir())


def test_set_id_file_is_stripped_and_named(tmp_path: Path) -> None:
    """A set-uid program loses its bit and the caller learns of it."""
    file = tar(tmp_path / "t.tar", [member("su", b"\x7fELF", mode=0o4755), member("ok", b"", mode=0o755)])
    tree = Tree()

    stripped = unpack_tar(file, tree, prefix="app")

    assert ["su"] == stripped
    assert 0o755 == tree.entries["app/su"].mode


def test_hard_link_becomes_a_copy(tmp_path: Path) -> None:
    """A hard link within the archive has the contents of what it names."""
    file = tar(tmp_path / "t.tar", [member("a", b"text"), member("b", kind=tarfile.LNKTYPE, target="a")])
    tree = Tree()

    unpack_tar(file, tree)

    assert b"text" == tree.entries["b"].blob.read()


@pytest.mark.parametrize("bounds", [Bounds(files=2), Bounds(size=5)])
def test_archive_beyond_its_bounds_is_refused(bounds: Bounds, tmp_path: Path) -> None:
    """Count and size are bounded before contents are looked at."""
    file = tar(tmp_path / "t.tar", [member(f"f{index}", b"xx") for index in range(3)])

    with pytest.raises(InstallRefused) as caught:
        unpack_tar(file, Tree(), bounds=bounds)

    assert "INST-024" == caught.value.id


@pytest.mark.parametrize("data", [b"", b"no tar", b"\0" * 511, b"x" * 5000])
def test_damaged_tar_is_refused(data: bytes, tmp_path: Path) -> None:
    """Bytes that are no tar file give one clear refusal, or an empty tree for an empty archive."""
    file = tmp_path / "t.tar"
    file.write_bytes(data)

    with pytest.raises(InstallRefused) as caught:
        unpack_tar(file, Tree())

    assert "INST-025" == caught.value.id


@pytest.mark.parametrize("name", ["../x", "/abs", "a/../../x"])
def test_zip_slip_is_refused(name: str, tmp_path: Path) -> None:
    """A zip member that leaves the tree is refused."""
    file = tmp_path / "z.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, "x")

    with pytest.raises(InstallRefused) as caught:
        unpack_zip(file, Tree())

    assert "INST-020" == caught.value.id
    assert [file] == list(tmp_path.iterdir())


def test_zip_link_is_refused(tmp_path: Path) -> None:
    """Links in zip files are not followed, kept or guessed at."""
    info = zipfile.ZipInfo("link")
    info.create_system, info.external_attr = 3, 0o120777 << 16
    file = tmp_path / "z.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(info, "/etc/passwd")

    with pytest.raises(InstallRefused) as caught:
        unpack_zip(file, Tree())

    assert "INST-022" == caught.value.id


def test_zip_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    """A member that inflates to more than it says is refused, and not inflated to its end."""
    file = tmp_path / "z.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(1_000_000))
    data = file.read_bytes()
    file.write_bytes(data.replace((1_000_000).to_bytes(4, "little"), (10).to_bytes(4, "little")))

    with pytest.raises(InstallRefused) as caught:
        unpack_zip(file, Tree(), bounds=Bounds(size=1000))

    assert "INST-025" == caught.value.id


def test_zip_bomb_is_refused(tmp_path: Path) -> None:
    """What a zip says it holds is bounded before it is inflated."""
    file = tmp_path / "z.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(100_000))

    with pytest.raises(InstallRefused) as caught:
        unpack_zip(file, Tree(), bounds=Bounds(size=99_999))

    assert "INST-024" == caught.value.id
