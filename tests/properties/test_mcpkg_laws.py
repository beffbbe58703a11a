"""Laws of packages: whatever bytes come, whatever files there are."""

from __future__ import annotations

import struct
from pathlib import PurePosixPath

from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.errors import InstallRefused
from sandbox.mcpkg.archive import Archive
from sandbox.mcpkg.cases import judge, same
from sandbox.mcpkg.create import pack
from sandbox.mcpkg.model import Case
from sandbox.mcpkg.names import fold, safe
from tests.mcpkg_kit import DEFLATED, Item, with_manifest

NAMES = st.text(st.sampled_from("abcAB.~/\\_- ä\u0301\u202e\0:"), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False, width=16) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


class Files:
    """Contents of a package in memory."""

    shown = "memory"

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.files))

    def executable(self, name: str) -> bool:
        return name.endswith("x")

    def size(self, name: str) -> int:
        return len(self.files[name])

    def read(self, name: str) -> bytes:
        return self.files[name]


@settings(deadline=None)
@given(NAMES)
def test_an_accepted_path_stays_below_its_folder_everywhere(name: str) -> None:
    """What passes is relative, has no part that climbs, and reads the same with either separator."""
    try:
        path = safe(name)
    except InstallRefused:
        return
    parts = PurePosixPath(path).parts
    assert "/".join(parts) == path
    assert not {"..", ".", ""} & set(path.replace("\\", "/").split("/"))
    assert not path.startswith("/")
    assert path.isprintable()


@settings(deadline=None)
@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,3}(/[A-Z]{1,2}x?)?\.t", fullmatch=True), st.binary(max_size=300), max_size=6
    )
)
def test_packing_and_reading_is_the_identity(files: dict[str, bytes]) -> None:
    """Whatever plain files there are, they come back, and packing is a function of them."""
    contents = Files(files)
    folded = {fold(part) for name in files for part in (name, name.split("/")[0])}
    if len(folded) < len({part for name in files for part in (name, name.split("/")[0])}):
        return
    data = pack(contents)
    opened = Archive(data, "x")

    assert files == {name: opened.read(name) for name in opened.names()}
    assert data == pack(Files(dict(reversed(files.items()))))


@settings(deadline=None)
@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=4))
def test_a_changed_byte_is_refused_or_changes_no_file(place: int, change: bytes) -> None:
    """Overwriting bytes anywhere gives a refusal, or the same names and contents (times and versions mean nothing)."""
    items = [Item(b"a.txt", b"hello " * 20, DEFLATED), Item(b"b/c.txt", b"plain")]
    whole = with_manifest(*items)
    before = Archive(whole, "x")
    at = place % len(whole)
    damaged = whole[:at] + change + whole[at + len(change) :]
    try:
        after = Archive(damaged, "x")
        read = {name: after.read(name) for name in after.names()}
    except InstallRefused:
        return
    assert {name: before.read(name) for name in before.names()} == read


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_package_or_a_refusal(data: bytes) -> None:
    """Nothing but InstallRefused comes out of bytes, with an end record or without."""
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(data), 0, 0)
    for text in (data, data + end, b"PK\1\2" + data + end):
        try:
            Archive(text, "x")
        except InstallRefused:
            continue


@settings(deadline=None)
@given(JSON)
def test_every_value_is_expected_of_itself(value: object) -> None:
    """A result satisfies the expectation that is the result, and the emptied one."""
    assert [] == judge(Case(file="", name="", input={}, has_expected=True, expected=value), value)
    if isinstance(value, dict):
        assert [] == judge(Case(file="", name="", input={}, has_expected=True, expected={}), value)


@settings(deadline=None)
@given(JSON, JSON)
def test_equality_is_symmetric_and_keeps_truth_apart_from_numbers(one: object, other: object) -> None:
    """`true` is not 1; equality does not depend on the order of the question."""
    assert same(one, other) == same(other, one)
    assert same(one, one)
    assert not same([one, True], [one, 1])
