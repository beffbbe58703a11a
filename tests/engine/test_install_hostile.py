"""Hostile packages from a pretended registry: what they try does not happen, and what they pin must be what comes."""

from __future__ import annotations

import dataclasses
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import InstallRefused, SandboxError
from sandbox.launch.install.installer import Installer
from sandbox.launch.install.lock import Lock, encode
from tests.image_kit import Told
from tests.registry_lab import ADDRESS, Lab, docker, driver, registry

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]

INDEX = b"#!/usr/bin/env node\nconsole.log(require('fs').readdirSync(__dirname).join(' '))\n"
PRE = "require('fs').writeFileSync('preinstall-ran', 'x')"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Run the registry."""
    with registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def work(lab: Lab, tmp_path: Path) -> tuple[Installer, Told]:
    """Return an installer that reaches the registry only."""
    return lab.installer(tmp_path)


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    """Return a link as a member of an npm tarball."""
    info = tarfile.TarInfo(f"package/{name}")
    info.type, info.linkname = kind, target
    return info


def npm_driver(folder: Path, name: str) -> Any:
    """Return a driver of an npm package."""
    return driver(folder / "driver", {"kind": "npm", "package": f"{name}@1.0.0"}, [])


def printed(installer: Installer, spec: Any, lock: Lock) -> str:
    """Install, start the server without a network and return what it prints."""
    facts = installer.install(spec, lock)
    options = ["--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only"]
    output = docker("run", "--rm", *options, "--entrypoint", facts.argv[0], facts.id, *facts.argv[1:])
    installer.images.store.engine.remove_image(facts.id)
    return output


@pytest.mark.claim("P-INST-01")
def test_lifecycle_scripts_do_not_run(lab: Lab, work: tuple[Installer, Told], tmp_path: Path) -> None:
    """A preinstall script of the package and one of its dependency never run; both packages are named to the user."""
    scripts = dict.fromkeys(("preinstall", "install", "postinstall", "prepare"), f'node -e "{PRE}"')
    lab.npm("evil-dep", {"index.js": b""}, scripts=scripts)
    lab.npm("evil-server", {"index.js": INDEX}, bin="index.js", scripts=scripts, dependencies={"evil-dep": "^1.0.0"})
    installer, told = work
    spec = npm_driver(tmp_path, "evil-server")

    lock = installer.make_lock(spec)

    assert "index.js package.json" == printed(installer, spec, lock)
    assert {"evil-dep 1.0.0", "evil-server 1.0.0"} == {line.split(" has an")[0] for line in told.warnings}
    assert all(entry["hasInstallScript"] for entry in lock.pins["npm"]["packages"].values())


def test_lock_names_no_host(lab: Lab, work: tuple[Installer, Told], tmp_path: Path) -> None:
    """Neither the lock nor the image tells which registry was used."""
    lab.npm("plain", {"index.js": INDEX}, bin="index.js")
    installer, _ = work
    spec = npm_driver(tmp_path, "plain")

    lock = installer.make_lock(spec)

    assert ADDRESS.encode() not in encode(lock)
    layer = installer.images.places.layer(lock.layers[installer.images.platform][0].digest)
    assert ADDRESS.encode() not in layer.read_bytes()


@pytest.mark.claim("P-INST-02")
@pytest.mark.parametrize("part", ["dependency", "server"])
def test_changed_package_is_refused(part: str, lab: Lab, work: tuple[Installer, Told], tmp_path: Path) -> None:
    """A registry that gives other bytes for a pinned version is noticed, and no image is made."""
    name, dependency = f"swapped-{part}", f"swapped-{part}-dep"
    lab.npm(dependency, {"index.js": b""})
    lab.npm(name, {"index.js": INDEX}, bin="index.js", dependencies={dependency: "1.0.0"})
    installer, _ = work
    spec = npm_driver(tmp_path, name)
    lock = installer.make_lock(spec)
    installer.images.places.layer(lock.layers[installer.images.platform][0].digest).unlink()
    changed = dependency if part == "dependency" else name
    bin_of_server = {} if part == "dependency" else {"bin": "index.js", "dependencies": {dependency: "1.0.0"}}

    lab.npm(changed, {"index.js": INDEX + b"// backdoor"}, **bin_of_server)

    with pytest.raises(InstallRefused) as caught:
        installer.install(spec, lock)
    assert "INST-031" == caught.value.id
    assert not docker("images", "--quiet", "--filter", f"label=io.mcp-sandbox.lock={lock.digest()}")
    assert not docker("ps", "--all", "--quiet", "--filter", "name=mcp-sandbox-build")


def test_edited_integrity_in_the_lock_is_refused(lab: Lab, work: tuple[Installer, Told], tmp_path: Path) -> None:
    """A lock whose digest was edited does not install what the registry has."""
    lab.npm("edited", {"index.js": INDEX}, bin="index.js")
    installer, _ = work
    spec = npm_driver(tmp_path, "edited")
    lock = installer.make_lock(spec)
    text = json.dumps(lock.pins)
    integrity = lock.pins["npm"]["packages"]["node_modules/edited"]["integrity"]
    other = "sha512-" + "A" * 86 + "=="
    edited = dataclasses.replace(lock, pins=json.loads(text.replace(integrity, other)), layers={})

    with pytest.raises(InstallRefused) as caught:
        installer.install(spec, edited)

    assert "INST-031" == caught.value.id


def test_edited_layer_in_the_lock_is_refused(lab: Lab, work: tuple[Installer, Told], tmp_path: Path) -> None:
    """A layer digest that the pinned packages do not give is refused, as is another program."""
    lab.npm("layered", {"index.js": INDEX, "other.js": INDEX}, bin="index.js")
    installer, _ = work
    spec = npm_driver(tmp_path, "layered")
    lock = installer.make_lock(spec)
    (layer,) = lock.layers[installer.images.platform]
    forged = dataclasses.replace(layer, digest="sha256:" + "0" * 64)

    for edited in (
        dataclasses.replace(lock, layers={installer.images.platform: (forged,)}),
        dataclasses.replace(lock, layers={}, argv=("/usr/bin/node", "/app/node_modules/layered/other.js")),
    ):
        with pytest.raises(InstallRefused) as caught:
            installer.install(spec, edited)

        assert "INST-004" == caught.value.id


def test_links_and_set_id_files_of_a_package_do_not_arrive(
    lab: Lab, work: tuple[Installer, Told], tmp_path: Path
) -> None:
    """A symbolic link to /etc/passwd, a hard link and a set-uid program: nothing of them is in the layer."""
    files = {
        "index.js": INDEX,
        "suid": b"\x7fELF",
        "passwd": link("passwd", "/etc/passwd"),
        "up": link("up", "../../../../etc"),
        "hard": link("hard", "/etc/passwd", tarfile.LNKTYPE),
    }
    lab.npm("linked", files, bin="index.js")
    installer, told = work
    spec = npm_driver(tmp_path, "linked")

    lock = installer.make_lock(spec)

    with tarfile.open(installer.images.places.layer(lock.layers[installer.images.platform][0].digest)) as layer:
        members = {member.name.rpartition("/")[2]: member for member in layer}
    assert {"suid", "index.js"} <= set(members)
    assert set() == {"passwd", "up", "hard"} & set(members)
    assert [0o755] == [members["suid"].mode]
    assert not [line for line in told.warnings if "passwd" in line]


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("by-git", "git+https://198.51.100.209/x.git"),
        ("by-address", "https://198.51.100.209/x.tgz"),
        ("by-folder", "file:../../etc"),
    ],
)
def test_dependency_from_elsewhere_is_refused(
    name: str, where: str, lab: Lab, work: tuple[Installer, Told], tmp_path: Path
) -> None:
    """A dependency by repository, address or folder stops the locking."""
    lab.npm(name, {"index.js": INDEX}, bin="index.js", dependencies={"x": where})
    installer, _ = work
    spec = npm_driver(tmp_path, name)

    with pytest.raises(SandboxError) as caught:
        installer.make_lock(spec)

    assert caught.value.id in {"INST-033", "IMG-003"}
    assert not docker("ps", "--all", "--quiet", "--filter", "name=mcp-sandbox-build")


def test_registry_is_told_to_whoever_confines_the_build(lab: Lab, work: tuple[Installer, Told], tmp_path: Path) -> None:
    """What a build may reach is the configured registry, without credentials."""
    lab.npm("told", {"index.js": INDEX}, bin="index.js")
    installer, _ = work
    before = len(lab.opened)

    installer.make_lock(npm_driver(tmp_path, "told"))

    assert {("npm", (f"https://{ADDRESS}:4873",))} == {(reach.client, reach.origins) for reach in lab.opened[before:]}


# --- Python
def pip_driver(folder: Path, name: str, program: str = "serve") -> Any:
    """Return a driver of a Python package."""
    step = {"method": "pip", "package": f"{name}==1.0"}
    return driver(folder / "driver", {"kind": "binary", "path": program}, [step])


SERVER = b"import sys\ndef main():\n    import helper\n    print(helper.NAME, sys.flags.isolated, sys.argv[0])\n"
POINTS = b"[console_scripts]\nserve = server:main\n"


def publish(lab: Lab, name: str) -> None:
    """Publish a server and its dependency."""
    lab.wheel(f"{name}_dep", {"helper.py": b"NAME = 'helper'\n"})
    files = {"server.py": SERVER, f"{name}-1.0.dist-info/entry_points.txt": POINTS}
    lab.wheel(name, files, requires=(f"{name}_dep",))


def test_python_server_is_locked_and_runs_isolated(lab: Lab, work: tuple[Installer, Told], tmp_path: Path) -> None:
    """The console script runs without a network, without looking at the environment, with compiled modules."""
    publish(lab, "good")
    installer, _ = work
    spec = pip_driver(tmp_path, "good")

    lock = installer.make_lock(spec)

    assert {"good", "good-dep"} == set(lock.pins["pip"]["packages"])
    assert "helper 1 serve" == printed(installer, spec, lock)
    with tarfile.open(installer.images.places.layer(lock.layers[installer.images.platform][0].digest)) as layer:
        assert "app/site-packages/__pycache__/server.cpython-311.pyc" in layer.getnames()


@pytest.mark.claim("P-INST-02")
def test_changed_wheel_is_refused(lab: Lab, work: tuple[Installer, Told], tmp_path: Path) -> None:
    """An index that gives other bytes for a pinned wheel is noticed."""
    publish(lab, "swapped")
    installer, _ = work
    spec = pip_driver(tmp_path, "swapped")
    lock = installer.make_lock(spec)
    installer.images.places.layer(lock.layers[installer.images.platform][0].digest).unlink()

    lab.wheel("swapped_dep", {"helper.py": b"NAME = 'backdoor'\n"})

    with pytest.raises(InstallRefused) as caught:
        installer.install(spec, lock)
    assert "INST-041" == caught.value.id


def test_source_distribution_is_not_built(lab: Lab, work: tuple[Installer, Told], tmp_path: Path) -> None:
    """A package without a wheel would run its own build code; it is refused, and nothing of it runs."""
    lab.file_of_index("sourceonly", "sourceonly-1.0.tar.gz", b"\x1f\x8b")
    installer, _ = work
    spec = pip_driver(tmp_path, "sourceonly")

    with pytest.raises(SandboxError) as caught:
        installer.make_lock(spec)

    assert "IMG-003" == caught.value.id


def test_wheel_that_writes_outside_is_refused(lab: Lab, work: tuple[Installer, Told], tmp_path: Path) -> None:
    """A wheel with a path that leaves its folder does not get into an image."""
    escaping = {"../../../../work/escaped.py": b"x", "slip-1.0.dist-info/entry_points.txt": POINTS, "server.py": SERVER}
    lab.wheel("slip", escaping)
    installer, _ = work
    spec = pip_driver(tmp_path, "slip")

    assert not any("escaped" in name for name in names_installed(installer, spec))


def names_installed(installer: Installer, spec: Any) -> list[str]:
    """Return the paths of a driver's layer; none when it is refused."""
    try:
        lock = installer.make_lock(spec)
    except SandboxError:
        return []
    with tarfile.open(installer.images.places.layer(lock.layers[installer.images.platform][0].digest)) as archive:
        return archive.getnames()
