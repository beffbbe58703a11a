"""Archives made to get out, to hide or to exhaust: each is refused with one clear error, and nothing is written."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from sandbox.errors import InstallRefused
from sandbox.mcpkg.archive import Archive, open_archive
from sandbox.mcpkg.bounds import MAX_MEMBER_BYTES, MAX_MEMBERS
from sandbox.mcpkg.install import Order, install
from sandbox.mcpkg.manifest import read_package
from sandbox.mcpkg.select import Surroundings
from sandbox.mcpkg.signatures import Signed
from sandbox.mcpkg.store import Store
from tests.mcpkg_kit import DEFLATED, FOLDER, LINK, MANIFEST, Item, archive, changed, deflate, with_manifest

ZEROS = bytes(1 << 20)
WHOLE = with_manifest()


def named(name: bytes | str, **more: object) -> bytes:
    """Return a package with a member of that name."""
    raw, flags = (name.encode(), 0x800) if isinstance(name, str) else (name, 0)
    return with_manifest(Item(raw, b"x", **{"flags": flags, **more}))  # type: ignore[arg-type]


def overlapping() -> bytes:
    """Return the quoted overlap of Fifield's bomb in small: two entries of one body."""
    return archive([MANIFEST, Item(b"a", b"x"), Item(b"a", b"x", offset=len(archive([MANIFEST])) - 81)])


CORPUS: dict[str, tuple[str, bytes]] = {
    # names that lead out, or elsewhere on another system
    "parent": ("PKG-002", named(b"../evil")),
    "parent in the middle": ("PKG-002", named(b"a/../../evil")),
    "parent at the end": ("PKG-002", named(b"a/..")),
    "absolute": ("PKG-002", named(b"/etc/evil")),
    "backslash": ("PKG-002", named(b"..\\evil")),
    "drive": ("PKG-002", named(b"C:/evil")),
    "alternate stream": ("PKG-002", named(b"manifest.json:evil")),
    "share": ("PKG-002", named(b"//host/share/evil")),
    "empty part": ("PKG-002", named(b"a//evil")),
    "dot part": ("PKG-002", named(b"./evil")),
    "empty name": ("PKG-002", named(b"")),
    "nul": ("PKG-002", named(b"evil\0.txt")),
    "newline": ("PKG-002", named(b"a\nb")),
    "escape sequence": ("PKG-002", named(b"\x1b[2Jevil")),
    "direction override": ("PKG-002", named("evil\u202etxt.exe")),
    "trailing dot": ("PKG-002", named(b"manifest.json.")),
    "trailing space": ("PKG-002", named(b"evil ")),
    "device": ("PKG-002", named(b"aux")),
    "device with ending": ("PKG-002", named(b"tests/NUL.json")),
    "decomposed accent": ("PKG-002", named("e\u0301.txt")),
    "long part": ("PKG-002", named(b"a" * 201)),
    "long path": ("PKG-002", named(b"/".join([b"abcdefgh"] * 60))),
    "deep path": ("PKG-002", named(b"/".join([b"a"] * 33))),
    "folder that leads out": ("PKG-002", with_manifest(Item(b"../evil/", mode=FOLDER, dos=0x10))),
    # links and special files
    "symbolic link": ("PKG-003", named(b"link", mode=LINK)),
    "link that is a folder": ("PKG-003", with_manifest(Item(b"link/", mode=LINK))),
    "fifo": ("PKG-003", named(b"pipe", mode=0o010644)),
    "device node": ("PKG-003", named(b"disk", mode=0o060644)),
    "socket": ("PKG-003", named(b"sock", mode=0o140644)),
    "set-user-id": ("PKG-003", named(b"tool", mode=0o104755)),
    # too much
    "ratio": ("PKG-004", with_manifest(*(Item(b"%d" % i, ZEROS, DEFLATED) for i in range(4)))),
    "claimed size": ("PKG-004", named(b"big", method=DEFLATED, size=MAX_MEMBER_BYTES + 1)),
    "sum of sizes": (
        "PKG-004",
        with_manifest(*(Item(b"%d" % i, b"", DEFLATED, size=MAX_MEMBER_BYTES) for i in range(5))),
    ),
    "too many members": ("PKG-004", archive([Item(b"%d" % i) for i in range(MAX_MEMBERS + 1)])),
    # two members at one place
    "same name twice": ("PKG-005", with_manifest(MANIFEST)),
    "case": ("PKG-005", with_manifest(Item(b"Manifest.json", b"{}"))),
    "case of a folder": ("PKG-005", with_manifest(Item(b"tests/a", b"1"), Item(b"Tests/b", b"2"))),
    "long s": ("PKG-005", with_manifest(Item("manife\u017ft.json".encode(), b"{}", flags=0x800))),
    "full width": ("PKG-005", with_manifest(Item("\uff41".encode(), b"1", flags=0x800), Item(b"a", b"2"))),
    "file is a folder": ("PKG-005", with_manifest(Item(b"manifest.json/evil", b"x"))),
    "folder twice": ("PKG-005", with_manifest(Item(b"a/", mode=FOLDER), Item(b"a/", mode=FOLDER))),
    # features that are not read
    "encrypted": ("PKG-006", named(b"secret", flags=0x1)),
    "strongly encrypted": ("PKG-006", named(b"secret", flags=0x41)),
    "masked headers": ("PKG-006", named(b"secret", flags=0x2000)),
    "patched data": ("PKG-006", named(b"patch", flags=0x20)),
    "bzip2": ("PKG-006", named(b"a", method=12)),
    "second disk": ("PKG-006", with_manifest(disk=1)),
    "member on a second disk": ("PKG-006", named(b"a", disk=1)),
    "counts differ": ("PKG-006", with_manifest(here=2)),
    "zip64 by its marks": ("PKG-006", with_manifest(offset=0xFFFFFFFF)),
    "zip64 extra": ("PKG-006", named(b"a", extra=struct.pack("<2HQ", 1, 8, 1))),
    "second name": ("PKG-006", named(b"a", extra=struct.pack("<2HBL", 0x7075, 5, 1, 0))),
    "second name in the local header": ("PKG-006", named(b"a", local_extra=struct.pack("<2HBL", 0x7075, 5, 1, 0))),
    "unsaid encoding": ("PKG-006", named(b"\x8fvil")),
    # contradictions
    "names differ": ("PKG-007", named(b"good", local_name=b"evil")),
    "sizes differ": ("PKG-007", named(b"a", local_size=2)),
    "sums differ": ("PKG-007", named(b"a", local_crc=1)),
    "flags differ": ("PKG-007", named(b"a", local_flags=0x800)),
    "bytes in front": ("PKG-007", with_manifest(before=b"#!/bin/sh\n")),
    "bytes before the directory": ("PKG-007", with_manifest(between=b"hidden")),
    "bytes between members": ("PKG-007", archive([changed(MANIFEST, after=b"hidden"), Item(b"a", b"x")])),
    "overlap": ("PKG-007", overlapping()),
    "stored with two sizes": ("PKG-007", named(b"a", size=2)),
    "folder with contents": ("PKG-007", with_manifest(Item(b"a/", b"x", mode=FOLDER))),
    "folder by one mark only": ("PKG-007", named(b"a", mode=FOLDER)),
    "dos folder that is a file": ("PKG-007", named(b"a", dos=0x10)),
    "no descriptor": ("PKG-007", named(b"a", flags=8)),
    "more than claimed": ("PKG-007", named(b"a", method=DEFLATED, raw=deflate(bytes(500)), size=10)),
    "less than claimed": ("PKG-007", named(b"a", method=DEFLATED, raw=deflate(b"x"), size=10)),
    "bytes behind the stream": ("PKG-007", named(b"a", method=DEFLATED, raw=deflate(b"x") + b"evil")),
    "broken stream": ("PKG-007", named(b"a", method=DEFLATED, raw=b"\xff\xff\xff")),
    "wrong sum": ("PKG-007", named(b"a", crc=1)),
    # no archive
    "empty file": ("PKG-001", b""),
    "text": ("PKG-001", b"manifest.json"),
    "gzip": ("PKG-001", b"\x1f\x8b" + bytes(40)),
    "cut off": ("PKG-001", WHOLE[:-1]),
    "bytes behind": ("PKG-001", WHOLE + b"\n"),
    "directory cut off": ("PKG-001", with_manifest(here=2, count=2)),
    "broken extra": ("PKG-001", named(b"a", extra=b"\x01")),
}
CORPUS["hidden member"] = (
    "PKG-007",
    archive(
        [
            changed(MANIFEST, after=Item(b"hidden").body() + b"PK\3\4"),
        ]
    ),
)
CORPUS["comment"] = ("PKG-001", with_manifest(comment=b"evil"))


def attempt(data: bytes, place: Path) -> None:
    """Read and install bytes as far as they get."""
    file = place / "hostile.mcpkg"
    file.write_bytes(data)
    contents = open_archive(file)
    for name in contents.names():
        contents.read(name)
    manifest, _, _ = read_package(contents)
    store = Store(place / "store")
    here = Surroundings("linux-x64", {})
    with store.changing():
        install(store, Order(contents, manifest, Signed("unsigned"), manifest.implementations[0], here))


@pytest.mark.claim("P-PKG-01")
@pytest.mark.parametrize("name", CORPUS)
def test_a_hostile_archive_is_refused_and_writes_nothing(name: str, tmp_path: Path) -> None:
    """The id says what is wrong; beside the archive itself there is no file afterwards, in or out of the folder."""
    wanted, data = CORPUS[name]
    inner = tmp_path / "inner"
    inner.mkdir()

    with pytest.raises(InstallRefused) as refused:
        attempt(data, inner)

    assert wanted == refused.value.id, refused.value
    assert "\n" not in refused.value.message
    assert [inner, inner / "hostile.mcpkg"] == sorted(tmp_path.rglob("*"))


def test_the_same_writer_makes_archives_that_install(tmp_path: Path) -> None:
    """Without a lie the corpus' own writer makes a package that is installed whole: refusals are not about it."""
    good = with_manifest(Item(b"a/", mode=FOLDER, dos=0x10), Item(b"a/tool", b"#!", DEFLATED, mode=0o100755))

    attempt(good, tmp_path)

    package = Store(tmp_path / "store").current("demo.echo").folder / "inside" / "package"
    assert b"#!" == (package / "a" / "tool").read_bytes()
    assert 0o755 == (package / "a" / "tool").stat().st_mode & 0o777


def test_sizes_behind_a_member_are_read() -> None:
    """Archives written as a stream are sound when the descriptor behind a member says the same."""
    body = b"streamed"
    said = struct.pack("<3L", zlib.crc32(body), len(body), len(body))
    for mark in (b"PK\7\10", b""):
        member = Item(b"a", body, flags=8, after=mark + said)
        assert body == Archive(with_manifest(member), "x").read("a")


def test_the_corpus_is_as_large_as_promised() -> None:
    """At least forty different archives."""
    assert 40 <= len({data for _, data in CORPUS.values()})
