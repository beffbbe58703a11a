"""npm's lock and tree as hostile input: only the registry, only SHA-512, only programs for node."""

from __future__ import annotations

import json

import pytest

from sandbox.errors import InstallRefused, PlatformError
from sandbox.launch.images.tree import Tree
from sandbox.launch.install.npm import MAX_PACKAGES, program, reduce_lock, scripted, split

INTEGRITY = "sha512-" + "A" * 86 + "=="
GOOD = {"version": "1.0.0", "integrity": INTEGRITY, "license": "MIT", "funding": {"url": "x"}}
HOME = "app/node_modules/server"


def npm_lock(**packages: object) -> bytes:
    """Return npm's lock with packages by path below node_modules."""
    entries = {"": {"name": "driver"}} | {f"node_modules/{name}": entry for name, entry in packages.items()}
    return json.dumps({"lockfileVersion": 3, "packages": entries}).encode()


def server(manifest: object, **files: bytes) -> Tree:
    """Return an installed tree of one package; double underscores in names are slashes."""
    tree = Tree()
    tree.file(f"{HOME}/package.json", json.dumps(manifest).encode())
    for name, data in files.items():
        tree.file(f"{HOME}/{name.replace('__', '/')}", data)
    return tree


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("server", ("server", "latest")),
        ("server@1.2.3", ("server", "1.2.3")),
        ("@scope/server@^1.2", ("@scope/server", "^1.2")),
        ("@scope/server", ("@scope/server", "latest")),
        ("a@>=1 <2", ("a", ">=1 <2")),
    ],
)
def test_package_of_the_registry(wanted: str, expected: tuple[str, str]) -> None:
    """A name with or without scope and version is understood."""
    assert expected == split(wanted)


@pytest.mark.parametrize(
    "wanted",
    [
        "git+ssh://git@host/x.git", "https://host/x.tgz", "file:../x", "./x", "../x", "/abs", "user/repo",
        "a@npm:b@1", "a@file:x", "a@https://h/x.tgz", "github:u/r", "", "@x", "a@", "-g", "a\nb", "@a/../b",
        ".hidden", "--registry=x",
    ],
)  # fmt: skip
def test_anything_but_the_registry_is_refused(wanted: str) -> None:
    """Addresses, paths, repositories, aliases and options are no packages."""
    with pytest.raises(InstallRefused) as caught:
        split(wanted)

    assert "INST-032" == caught.value.id


def test_lock_is_reduced_to_what_installs_need() -> None:
    """Licences, funding and the like are dropped, decisions are kept."""
    entry = GOOD | {"dependencies": {"b": "^1"}, "hasInstallScript": True, "dev": False}

    reduced = reduce_lock(npm_lock(a=entry))

    expected = {"version": "1.0.0", "integrity": INTEGRITY, "dependencies": {"b": "^1"}, "hasInstallScript": True}
    assert {"node_modules/a": expected} == reduced
    assert ["a 1.0.0"] == scripted(reduced)


@pytest.mark.parametrize(
    "entry",
    [
        GOOD | {"resolved": "git+ssh://git@host/x.git#abc"},
        GOOD | {"resolved": "https://elsewhere.example/x.tgz"},
        {"version": "1", "link": True, "resolved": "../x"},
        {"version": "1"},
        {"version": "1", "integrity": "sha1-AAAA"},
        {"version": "1", "integrity": INTEGRITY + " sha1-AAAA"},
    ],
)
def test_dependency_from_elsewhere_is_refused(entry: dict[str, object]) -> None:
    """A dependency by git, address or folder, or without a SHA-512, is refused and named."""
    with pytest.raises(InstallRefused) as caught:
        reduce_lock(npm_lock(ok=GOOD, evil=entry))

    assert "INST-033" == caught.value.id
    assert "`evil`" in caught.value.message


def test_workspace_entry_is_refused() -> None:
    """An entry outside node_modules would be a folder of the build."""
    with pytest.raises(InstallRefused):
        reduce_lock(json.dumps({"lockfileVersion": 3, "packages": {"../x": GOOD}}).encode())


def test_bundled_dependency_needs_no_digest_of_its_own() -> None:
    """What is bundled lies in a package whose digest covers it."""
    entry = {"version": "1", "inBundle": True}

    assert {"node_modules/a": entry} == reduce_lock(npm_lock(a=entry))


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b'{"lockfileVersion": 1, "packages": {}}', b'{"packages": {"a": 1}}']
)
def test_unreadable_lock_is_refused(data: bytes) -> None:
    """Anything but npm's lock of version 3 is one clear error."""
    with pytest.raises(PlatformError) as caught:
        reduce_lock(data)

    assert "INST-030" == caught.value.id


def test_tree_beyond_its_bound_is_refused() -> None:
    """The number of packages is bounded, at the bound and one above it."""
    full = {f"p{index}": GOOD for index in range(MAX_PACKAGES)}

    assert MAX_PACKAGES == len(reduce_lock(npm_lock(**full)))
    with pytest.raises(InstallRefused) as caught:
        reduce_lock(npm_lock(**full, more=GOOD))

    assert "INST-034" == caught.value.id


@pytest.mark.parametrize(
    ("manifest", "wanted", "first", "expected"),
    [
        ({"name": "server", "bin": "d/i.js"}, "", b"#!/usr/bin/env node\n", ("/usr/bin/node",)),
        ({"name": "server", "bin": {"other": "d/i.js"}}, "", b"#!/usr/bin/node\n", ("/usr/bin/node",)),
        ({"name": "@s/server", "bin": {"x": "n", "server": "d/i.js"}}, "", b"", ("/usr/bin/node",)),
        ({"name": "server", "bin": {"x": "n", "y": "d/i.js"}}, "y", b"'use strict'", ("/usr/bin/node",)),
        ({"name": "server", "bin": "./d/i.js"}, "", b"#!/usr/bin/env -S node -r\r\n", ("/usr/bin/node", "-r")),
    ],
)
def test_program_of_a_package(manifest: object, wanted: str, first: bytes, expected: tuple[str, ...]) -> None:
    """The only bin, the one named like the package, or the one asked for, with the flags of its first line."""
    tree = server(manifest, d__i__js=b"", **{"d__i.js": first})

    assert (*expected, f"/{HOME}/d/i.js") == program(tree, HOME, wanted, "server")


@pytest.mark.parametrize(
    ("manifest", "wanted", "first"),
    [
        ({"name": "server"}, "", b""),
        ({"name": "server", "bin": {"a": "d/i.js", "b": "d/i.js"}}, "", b""),
        ({"name": "server", "bin": "d/i.js"}, "other", b""),
        ({"name": "server", "bin": "../../../../etc/passwd"}, "", b""),
        ({"name": "server", "bin": "/etc/passwd"}, "", b""),
        ({"name": "server", "bin": "none.js"}, "", b""),
        ({"name": "server", "bin": "d/i.js"}, "", b"#!/bin/sh\nrm -rf /\n"),
        ({"name": "server", "bin": "d/i.js"}, "", b"#!/usr/bin/env bash\n"),
        ({"name": "server", "bin": "d/i.js"}, "", b"#!/usr/bin/env node /tmp/x\n"),
        ({"name": "server", "bin": ["d/i.js"]}, "", b""),
        ({"bin": "d/i.js"}, "", b""),
        ("text", "", b""),
    ],
)
def test_package_without_such_a_program_is_refused(manifest: object, wanted: str, first: bytes) -> None:
    """No bin, a wrong one, one outside the package or one for a shell is refused with what there is."""
    with pytest.raises(InstallRefused) as caught:
        program(server(manifest, **{"d__i.js": first}), HOME, wanted, "server")

    assert "INST-035" == caught.value.id
