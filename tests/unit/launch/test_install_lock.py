"""driver.lock: canonical, without hosts, for one wish only, and with the differences that a reviewer wants."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from sandbox.errors import SpecError
from sandbox.launch.install.lock import Lock, LockedLayer, decode, diff_locks, encode, path_of, read, write
from sandbox.launch.lockfile import parse, text_of
from sandbox.resources import shipped
from tests.shared import ROOT

INTEGRITY = "sha512-" + "A" * 86 + "=="
SCHEMA = json.loads(shipped("schemas", "driver-lock.schema.json").read_text())


def lock(version: str = "1.0.0", **parts: object) -> Lock:
    """Return the lock of an npm server with one package."""
    packages = {"node_modules/a": {"version": version, "integrity": INTEGRITY}}
    values = {
        "asked": {"method": "npm", "wanted": "a@1"},
        "base": "node",
        "pins": {"npm": {"name": "a", "version": "1", "packages": packages}},
        "argv": ("/usr/bin/node", "/app/a.js"),
        "layers": {"linux/amd64": (LockedLayer("sha256:" + "1" * 64, 10, "npm"),)},
        "others": {"pins": {"version": 1, "surfaces": {}}},
    }
    return Lock(**{**values, **parts})


def test_lock_survives_its_text(tmp_path: Path) -> None:
    """What is written is what is read, other sections included, and the text is stable."""
    write(str(tmp_path), lock())

    assert lock() == read(str(tmp_path))
    assert encode(lock()) == encode(decode(encode(lock())))
    assert ["driver.lock"] == [path.name for path in tmp_path.iterdir()]


def test_no_lock_is_none(tmp_path: Path) -> None:
    """A driver that was never locked has no lock, which is not an empty one."""
    assert read(str(tmp_path)) is None


def test_lock_fits_its_schema() -> None:
    """The documented format is the written one."""
    jsonschema.validate(json.loads(encode(lock())), SCHEMA)


@pytest.mark.claim("P-INST-05")
@pytest.mark.parametrize("path", sorted((ROOT / "drivers").glob("*/driver.lock")), ids=lambda path: path.parent.name)
def test_shipped_lock_fits_its_schema_and_names_no_host(path: Path) -> None:
    """The examples' locks are canonical, valid and without the address of any registry."""
    data = path.read_bytes()

    jsonschema.validate(json.loads(data), SCHEMA)
    assert data == text_of(parse(data))
    if "install" in parse(data):
        assert data == encode(decode(data))
        assert b"://" not in encode(replace(decode(data), others={}))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"version": 1}',
        b'{"version": 2, "install": {"asked": {}, "base": ""}, "image": {"argv": [], "layers": {}}}',
        b'{"version": 1, "install": {"asked": {}, "base": "", "npn": {}}, "image": {"argv": [], "layers": {}}}',
        b'{"version": 1, "install": {"asked": {}, "base": "", "npm": []}, "image": {"argv": [], "layers": {}}}',
        b'{"version": 1, "version": 1, "install": {"asked": {}, "base": ""}, "image": {"argv": [], "layers": {}}}',
        b'{"version": 1, "install": {"asked": {}, "base": ""}, "image": {"argv": [], "layers": {"linux/amd64": [{}]}}}',
    ],
)
def test_damaged_lock_is_refused(data: bytes, tmp_path: Path) -> None:
    """A lock that is cut, of another version or with an unknown method is one error that names the file."""
    path_of(str(tmp_path)).write_bytes(data)

    with pytest.raises(SpecError) as caught:
        read(str(tmp_path))

    assert ("INST-002", str(tmp_path / "driver.lock")) == (caught.value.problems[0].id, caught.value.problems[0].file)


def test_layers_are_not_part_of_the_digest() -> None:
    """The digest is that of what was pinned; where it has been installed does not change it."""
    assert lock().digest() == lock(layers={}, argv=()).digest()
    assert lock().digest() != lock("1.0.1").digest()


def test_differences_are_told_in_a_line_each() -> None:
    """A changed version, changed contents, an arrival, and another program each have one line."""
    same_version = {"version": "1.0.0", "integrity": INTEGRITY.replace("A", "B")}
    other = {"node_modules/a": same_version, "node_modules/b": {"version": "2"}}
    changed = lock(pins={"npm": {"name": "a", "version": "1", "packages": other}}, argv=("/usr/bin/node", "/app/b.js"))

    assert ("npm node_modules/a: 1.0.0 → 1.0.1",) == diff_locks(lock(), lock("1.0.1"))
    assert () == diff_locks(lock(), lock())
    assert (
        "npm node_modules/a: 1.0.0 has other contents",
        "npm node_modules/b: (none) → 2",
        "program: /usr/bin/node /app/a.js → /usr/bin/node /app/b.js",
    ) == diff_locks(lock(), changed)


def test_no_lock_changes_in_silence() -> None:
    """Another wish for the same packages, and the same packages with other bytes, are told too."""
    wish = lock(asked={"method": "npm", "wanted": "a@2"})
    layers = {"linux/amd64": (LockedLayer("sha256:" + "2" * 64, 10, "npm"),)}

    assert diff_locks(lock(), wish) == ("asked for: npm a@1 → npm a@2",)
    assert diff_locks(lock(), lock(layers=layers)) == ("layers of linux/amd64: other contents from the same packages",)
    assert diff_locks(lock(layers={}), lock()) == ()


def test_first_lock_lists_everything() -> None:
    """A reviewer of a first lock sees every package as new."""
    assert ("npm node_modules/a: (none) → 1.0.0",) == diff_locks(None, lock())


def test_one_package_is_few_lines() -> None:
    """A change of one package touches only its own lines of the file."""
    first, second = encode(lock()).splitlines(), encode(lock("1.0.1")).splitlines()

    assert 1 == sum(one != other for one, other in zip(first, second, strict=True))
