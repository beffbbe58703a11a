"""Recipes and their locks: strict, a reason for each omission, no hosts, and what follows when a mirror moves on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sandbox.errors import PlatformError
from sandbox.launch.images import lock, recipe
from sandbox.launch.images.lock import Package, Resolved
from sandbox.launch.images.locktext import pretty
from sandbox.launch.images.places import Places
from sandbox.resources import shipped
from tests.image_kit import images_in

PLATFORM = "linux/amd64"
UNWANTED = {
    "sh", "bash", "dash", "busybox", "apt", "apt-get", "dpkg", "npm", "npx", "pip", "uv", "curl", "wget", "su", "sudo",
    "mount", "passwd", "chsh", "gpasswd",
}  # fmt: skip
MINIMAL = b'summary = "x"\nfrom = ""\nphase = "run"\n'


def resolved(**parts: object) -> Resolved:
    """Return a lock entry."""
    values = {
        "recipe": "sha256:r", "fetches": "sha256:f", "distribution": "debian/bookworm", "parent": "",
        "debs": (Package("a", "1", "0" * 64),),
        "wheels": (), "layer": "sha256:" + "1" * 64, "size": 10, "id": "sha256:" + "2" * 64,
        "manifest": "sha256:" + "3" * 64, "programs": ("sh",), "libraries": {"libc.so.6": ("GLIBC_2.36",)},
    }  # fmt: skip
    return Resolved(**{**values, **parts})


@pytest.mark.parametrize("name", recipe.names())
def test_shipped_recipe_is_valid_and_locked(name: str) -> None:
    """Every shipped recipe loads, and its packages are recorded; its id too unless it holds code of ours."""
    made = recipe.load(name)
    recorded = lock.shipped_lock(name, PLATFORM)

    assert made.phase in {"run", "build"}
    if made.packages or made.wheels:
        assert recorded is not None
        assert made.fetches == recorded.fetches
    if recorded is not None and not any(path.endswith(".py") for path in made.files):
        assert made.digest == recorded.recipe


@pytest.mark.parametrize("name", recipe.names())
def test_recipe_and_lock_name_no_host(name: str) -> None:
    """Where packages come from is the host's configuration and stands in no file of the project."""
    folder = shipped("images", name)
    text = "".join(path.read_text() for path in folder.iterdir() if path.suffix in {".toml", ".json"})

    assert [] == re.findall(r"[a-z+]+://\S+", text)


@pytest.mark.claim("P-IMAGE-03")
@pytest.mark.parametrize("name", [name for name in recipe.names() if recipe.load(name).phase == "run"])
def test_run_images_have_no_shell_and_no_installer(name: str) -> None:
    """What a server runs on has no shell, no package manager and nothing to fetch with."""
    programs = set()
    current = recipe.load(name)
    while True:
        recorded = lock.shipped_lock(current.name, PLATFORM)
        programs |= set(recorded.programs if recorded else ())
        if not current.parent:
            break
        current = recipe.load(current.parent)

    assert set() == programs & UNWANTED


@pytest.mark.parametrize(
    "extra",
    [
        b"leave_ot = 1\n",
        b"[debian]\npackage = []\n",
        b'[[file]]\npath = "x"\ntxt = "y"\n',
        b'[leave_out]\n"x" = ""\n',
        b"]",
    ],
)
def test_misspelt_recipe_is_refused(extra: bytes) -> None:
    """A key that nobody reads, or an omission without a reason, is an error."""
    with pytest.raises(PlatformError) as caught:
        recipe.parse("x", MINIMAL + extra, Path("/nonexistent"))

    assert "IMG-005" == caught.value.id


@pytest.mark.parametrize("name", ["../base", "", "a/b", "base\n"])
def test_name_that_is_a_path_is_refused(name: str) -> None:
    """The name of an image is never a path."""
    with pytest.raises(PlatformError):
        recipe.load(name)


def test_omissions_are_inherited_where_they_say_so() -> None:
    """A rule for every image holds below, one of a single layer does not, and what is kept is kept."""
    rules = (
        b'[leave_out]\n"bin/*" = "own"\n[leave_out_everywhere]\n"doc/*" = "all"\n'
        b'[keep_everywhere]\n"doc/*/copyright" = "licence"\n'
    )
    base = recipe.parse("b", MINIMAL + rules, Path("/x"))
    child = recipe.inherit(recipe.parse("c", MINIMAL.replace(b'""', b'"b"'), Path("/x")), base)

    assert [True, False, True] == [child.keeps(path) for path in ("bin/x", "doc/p/readme", "doc/p/copyright")]
    assert not base.keeps("bin/x")


def test_recipe_digest_follows_its_parent_and_its_files() -> None:
    """A change of a parent's recipe or of a file's contents makes the recorded image stale."""
    first = recipe.parse("b", MINIMAL, Path("/x"))
    other = recipe.parse("b", MINIMAL.replace(b'"x"', b'"y"'), Path("/x"))
    child = recipe.parse("c", MINIMAL, Path("/x"))

    assert recipe.inherit(child, first).digest != recipe.inherit(child, other).digest


def test_lock_survives_its_text() -> None:
    """What is written is what is read, and its text is stable."""
    text = lock.encode({PLATFORM: resolved()})

    assert {PLATFORM: resolved()} == lock.decode(text, "lock.json")
    assert text == lock.encode(lock.decode(text, "lock.json"))


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]", b'{"version":2,"platforms":{}}', b'{"version":1,"platforms":{"x":{}}}']
)
def test_damaged_lock_is_refused(text: bytes) -> None:
    """A lock that cannot be read is one clear error, not an empty lock."""
    with pytest.raises(PlatformError) as caught:
        lock.decode(text, "images/x/lock.json")

    assert "IMG-006" == caught.value.id
    assert "images/x/lock.json" in caught.value.message


def test_moved_packages_are_told_one_by_one() -> None:
    """A reader sees what changed: a version, an arrival, a loss, other contents."""
    old = (Package("a", "1", "0"), Package("b", "1", "0"), Package("c", "1", "0"))
    new = (Package("a", "2", "9"), Package("c", "1", "9"), Package("d", "1", "0"))

    assert ("a 1 → 2", "b 1 → (none)", "c 1 has other contents", "d (none) → 1") == lock.moved(old, new)


def test_own_lock_holds_only_for_the_lock_it_replaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new release of the project, with newer recorded packages, ends a host's own lock."""
    places = Places(tmp_path / "c", tmp_path / "s")
    made = recipe.load("base")
    own = resolved(recipe=made.digest, id="sha256:" + "4" * 64)
    lock.write_local("base", PLATFORM, places, own)

    assert own.id == lock.effective(made, PLATFORM, places).id

    monkeypatch.setattr(lock, "shipped_lock", lambda *_: resolved(recipe=made.digest))

    assert resolved().id == lock.effective(made, PLATFORM, places).id


def test_lock_of_another_recipe_does_not_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe that was changed has no recorded image until it is built again."""
    monkeypatch.setattr(lock, "shipped_lock", lambda *_: resolved(recipe="sha256:other"))

    assert lock.effective(recipe.load("base"), PLATFORM, Places(tmp_path / "c", tmp_path / "s")) is None


def test_status_without_engine_images(tmp_path: Path) -> None:
    """Doctor is told the expected id, and that nothing is there, without anything being built."""
    images, told = images_in(tmp_path)

    (status,) = images.status(["base"])

    assert lock.shipped_lock("base", PLATFORM).id == status.id
    assert (False, False, False) == (status.present, status.cached, status.own)
    assert [] == told.steps


def test_pretty_text_changes_one_line_for_one_package() -> None:
    """A difference of one package is a difference of one line in a lock."""
    first = pretty({"p": [{"n": "a", "v": "1"}, {"n": "b", "v": "1"}]}).splitlines()
    second = pretty({"p": [{"n": "a", "v": "2"}, {"n": "b", "v": "1"}]}).splitlines()

    assert 1 == sum(one != other for one, other in zip(first, second, strict=True))
