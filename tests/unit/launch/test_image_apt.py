"""Reading the host's apt configuration, and what an apt of our own is told; no network."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.errors import PlatformError
from sandbox.launch.images.apt import Moved, cannot, checked_name, configuration, described, status
from sandbox.launch.images.apt_sources import Distribution, Source, host_sources, named_by

MIRROR = "https://mirror.example/debian"


def etc(folder: Path, release: str, **files: str) -> Path:
    """Return an /etc with an os-release and apt files; a double underscore in a name is a dot."""
    (folder / "apt" / "sources.list.d").mkdir(parents=True)
    (folder / "os-release").write_text(release)
    for name, text in files.items():
        place = "apt/sources.list" if name == "list" else f"apt/sources.list.d/{name.replace('__', '.')}"
        (folder / place).write_text(text)
    return folder


DEBIAN = "ID=debian\nVERSION_CODENAME=trixie\n"


def test_both_styles_are_read(tmp_path: Path) -> None:
    """One-line and deb822 sources, with options, several suites, comments and disabled entries."""
    root = etc(
        tmp_path,
        DEBIAN,
        list=(
            f"# deb {MIRROR} no main\n"
            f"deb [arch=amd64 signed-by=/k.gpg trusted=yes] {MIRROR} trixie main contrib # why\n"
            f"deb-src {MIRROR} trixie main\n"
        ),
        a__sources=(
            f"Types: deb deb-src\nURIs: {MIRROR}\nSuites: trixie-updates trixie-security\nComponents: main\n"
            f"Signed-By: /k.gpg\n\nTypes: deb\nEnabled: no\nURIs: {MIRROR}\nSuites: off\nComponents: main\n"
        ),
        b__bak=f"deb {MIRROR} bak main\n",
    )

    found = list(host_sources(root / "apt"))

    assert ["trixie", "trixie-updates", "trixie-security"] == [source.suite for source in found]
    assert [{"signed-by": "/k.gpg"}] * 3 == [dict(source.options) for source in found]


def test_unsigned_source_stays_unsigned_for_apt(tmp_path: Path) -> None:
    """`trusted=yes` of the host is not passed on: an unsigned mirror then fails instead of being believed."""
    root = etc(tmp_path, DEBIAN, list=f"deb [trusted=yes] {MIRROR} trixie main\n")

    (source,) = Distribution.of_host(root).sources

    assert f"deb {MIRROR} bookworm main\n" == source.line()


def test_debian_of_any_release_gives_the_same_release(tmp_path: Path) -> None:
    """A newer Debian host makes the same images, from its own mirror."""
    root = etc(tmp_path, DEBIAN, list=f"deb {MIRROR} trixie main\ndeb {MIRROR}-security trixie-security main\n")

    found = Distribution.of_host(root)

    assert "debian/bookworm" == found.named
    assert ["bookworm", "bookworm-security"] == [source.suite for source in found.sources]


def test_ubuntu_gives_its_own_release(tmp_path: Path) -> None:
    """An Ubuntu host makes images from its own release, with universe, where git and others are."""
    root = etc(tmp_path, "ID=ubuntu\nVERSION_CODENAME=noble\n", list=f"deb {MIRROR} noble main universe multiverse\n")

    found = Distribution.of_host(root)

    assert ("ubuntu/noble", ("main", "universe")) == (found.named, found.sources[0].components)


@pytest.mark.parametrize(
    ("release", "line"),
    [
        ("ID=fedora\nVERSION_CODENAME=\n", ""),
        ("", ""),
        (DEBIAN, ""),
        (DEBIAN, f"deb {MIRROR} nodistro main\n"),
        (DEBIAN, f"deb {MIRROR} trixie contrib\n"),
        ("ID=linuxmint\nID_LIKE=debian\nVERSION_CODENAME=faye\n", f"deb {MIRROR} faye main\n"),
    ],
)
def test_host_without_usable_sources_is_told_what_to_do(release: str, line: str, tmp_path: Path) -> None:
    """Another distribution, or foreign sources only, is one clear error with the way out."""
    root = etc(tmp_path, release, list=line)

    with pytest.raises(PlatformError) as caught:
        Distribution.of_host(root)

    assert "IMG-010" == caught.value.id
    assert "--base" in caught.value.mend


def test_release_of_a_text() -> None:
    """Quotes and comments of os-release are understood."""
    assert "debian/bookworm" == named_by('# x\nID="debian"\nVERSION_CODENAME=bookworm\n')


@pytest.mark.parametrize("name", ["-oDir=/", "a b", "a;b", "../x", "A", "", "git=1", "git/unstable", "git+"])
def test_package_name_cannot_be_an_option(name: str) -> None:
    """What a driver writes reaches apt's arguments only as a plain name."""
    if name == "git+":
        assert name == checked_name(name)
        return
    with pytest.raises(PlatformError):
        checked_name(name)


def test_configuration_leaves_the_machine_alone() -> None:
    """State, caches, hooks and preferences of the machine are out of reach, whatever it is configured to."""
    text = configuration(
        {"Acquire::http::Proxy": "http://proxy.example", "Dir::State::lists": "/var"}, "/work", "amd64"
    )

    assert 'Acquire::http::Proxy "http://proxy.example";' in text
    assert 'Dir::Etc::parts "/dev/null";' in text
    assert "/var" not in text


def test_status_says_what_is_there_and_what_is_left_out() -> None:
    """Packages of the parent and packages that are not wanted both count as installed."""
    text = status({"libc6": "2.36"}, ["perl"], "amd64")

    assert ["libc6 2.36", "perl 9999:1"] == [
        " ".join(line.split(": ")[1] for line in part.splitlines() if line.startswith(("Package", "Version")))
        for part in text.split("\n\n")
    ]


@pytest.mark.parametrize(
    ("log", "moved"),
    [
        ("E: Version '1' for 'x' was not found", True),
        ("E: Failed to fetch https://m.example/x.deb  404  Not Found", True),
        ("E: Unable to locate package x", False),
    ],
)
def test_gone_and_wrong_are_told_apart(log: str, moved: bool) -> None:
    """A mirror that moved on is a finding; a package that never was is an error, without the mirror's address."""
    error = cannot(("x",), log)

    assert moved == isinstance(error, Moved)
    assert "m.example" not in str(error)


def test_package_without_a_proper_name_is_refused() -> None:
    """A control paragraph names the package that its digest stands for."""
    with pytest.raises(PlatformError):
        described(b"Package: ../x\nVersion: 1\n", "0" * 64, Path("/x"))


def test_one_line_form_is_stable() -> None:
    """A source is written back as sources.list(5) has it."""
    assert "deb [signed-by=/k] u s a b\n" == Source("u", "s", ("a", "b"), {"signed-by": "/k"}).line()
