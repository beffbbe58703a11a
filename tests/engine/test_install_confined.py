"""Installs behind the egress broker: the registry that the client is configured with is reached, and nothing else.

Each refusal has its control: the same package installs when the same build is not confined.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import InstallRefused, PlanRefused
from sandbox.events import Scope, Trace
from sandbox.launch import owner
from sandbox.launch.install.confined import Confined
from sandbox.launch.install.exceptions import Exceptions
from sandbox.launch.install.installer import Installer
from sandbox.launch.interface import LABEL_OWNER
from sandbox.testing.memory import MemoryRecorder
from tests.conftest import ENGINE_SOCKET
from tests.egress_lab import image
from tests.engine.test_install_hostile import INDEX, npm_driver, pip_driver
from tests.image_kit import Told
from tests.registry_lab import NAMES, PORT, SUBNET, Lab, docker, driver, registry

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]

POINTS = b"[console_scripts]\nserve = server:main\n"
SERVER = b"def main():\n    print('hi')\n"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Run the registry and the host that is not the registry."""
    with registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def recorder() -> MemoryRecorder:
    """Return what builds record to."""
    return MemoryRecorder()


@pytest.fixture
def work(lab: Lab, tmp_path: Path, recorder: MemoryRecorder) -> tuple[Installer, Told]:
    """Return an installer whose builds are confined, on the lab's network; nothing of them is left afterwards."""
    installer, told = lab.installer(tmp_path)
    networks = Confined(
        str(ENGINE_SOCKET),
        lambda: image("egress"),
        Exceptions(private=(SUBNET,)),
        progress=told,
        scope=Scope(recorder, Trace.new(), driver="installs"),
        options={"network": lab.network, "hosts": {**NAMES, "inner.test": "10.99.0.1"}},
    )
    installer.environ, installer.networks = lab.by_name(), networks
    return installer, told


@pytest.fixture(autouse=True)
def nothing_left(lab: Lab) -> Iterator[None]:
    """Hold every test to leave no container and no volume of an install."""
    before = remains()
    yield
    assert remains() <= before


def remains() -> set[str]:
    """Return containers and volumes of brokers, holders and builds of this process."""
    label = f"label={LABEL_OWNER}={owner.own()}"
    found = set(docker("ps", "--all", "--quiet", "--filter", label).split())
    return found | set(docker("volume", "ls", "--quiet", "--filter", label).split())


def uncontrolled(lab: Lab, installer: Installer) -> Installer:
    """Return the same installer with builds that reach the whole network: the positive control."""
    return dataclasses.replace(installer, networks=lab)


def test_an_install_reaches_its_registry_and_every_attempt_is_recorded(
    lab: Lab, work: tuple[Installer, Told], recorder: MemoryRecorder, tmp_path: Path
) -> None:
    """An npm package installs through the broker; the record names the registry, and nothing else was tried."""
    lab.npm("plain", {"index.js": INDEX}, host="registry.test", bin="index.js")
    installer, told = work

    lock = installer.make_lock(npm_driver(tmp_path, "plain"))

    assert list(lock.pins["npm"]["packages"]) == ["node_modules/plain"]
    outcomes = [fact.attrs for fact in recorder.named("egress.connect") if fact.phase == "outcome"]
    assert {(item["host"], item["port"], item["decision"]) for item in outcomes} == {("registry.test", PORT, "allow")}
    assert not [line for line in told.warnings if "tried" in line]


@pytest.mark.claim("P-INST-08")
def test_an_npm_install_that_tries_another_host_finds_nothing(
    lab: Lab, work: tuple[Installer, Told], recorder: MemoryRecorder, tmp_path: Path
) -> None:
    """A tarball on a host that is not the registry is not fetched; unconfined, the same package comes from there."""
    lab.npm("wanderer", {"index.js": INDEX}, host="files.test", bin="index.js")
    installer, _ = work
    uncontrolled(lab, installer).make_lock(npm_driver(tmp_path / "open", "wanderer"))
    arrived = len(lab.elsewhere())
    assert arrived > 0

    with pytest.raises(InstallRefused, match=r"INST-091.*files\.test"):
        installer.make_lock(npm_driver(tmp_path / "confined", "wanderer"))

    assert len(lab.elsewhere()) == arrived
    denied = [fact.attrs for fact in recorder.facts if fact.attrs.get("decision") == "deny"]
    assert {item["host"] for item in denied} == {"files.test"}


@pytest.mark.claim("P-INST-08")
def test_a_pip_install_finds_the_files_that_its_index_names_and_no_others(
    lab: Lab, work: tuple[Installer, Told], tmp_path: Path
) -> None:
    """The host of a package's files is learnt from the index; a dependency on a third host is not found there."""
    files = {"server.py": SERVER, "far-1.0.dist-info/entry_points.txt": POINTS}
    lab.wheel("far", files, host="files.test")
    installer, _ = work

    lock = installer.make_lock(pip_driver(tmp_path / "far", "far"))

    assert "far" in lock.pins["pip"]["packages"]
    assert any(path.endswith("far-1.0-py3-none-any.whl") for path in lab.elsewhere())

    near = {"server.py": SERVER, "near-1.0.dist-info/entry_points.txt": POINTS}
    lab.wheel("near", near, requires=("hidden",))
    lab.wheel("hidden", {"hidden.py": b""}, host="files.test")
    uncontrolled(lab, installer).make_lock(pip_driver(tmp_path / "open", "near"))
    arrived = len(lab.elsewhere())

    with pytest.raises(InstallRefused, match=r"INST-091.*files\.test"):
        installer.make_lock(pip_driver(tmp_path / "near", "near"))

    assert len(lab.elsewhere()) == arrived


def test_a_registry_on_a_private_address_needs_the_operators_exception(
    lab: Lab, work: tuple[Installer, Told], tmp_path: Path
) -> None:
    """Without the exception nothing is dialled, and the message says how whoever owns the registry adds it."""
    lab.npm("inner", {"index.js": INDEX}, host="registry.test", bin="index.js")
    installer, _ = work
    installer.networks.exceptions = Exceptions()
    before = len(lab.requests())

    with pytest.raises(InstallRefused, match="INST-090") as caught:
        installer.make_lock(npm_driver(tmp_path, "inner"))

    assert "registry.test" in caught.value.message
    assert "registries --allow" in caught.value.mend
    assert len(lab.requests()) == before


def test_a_ceiling_that_does_not_name_the_registry_refuses(
    lab: Lab, work: tuple[Installer, Told], tmp_path: Path
) -> None:
    """The operator decides which registries there are; a client's configuration cannot add one."""
    lab.npm("ceiling", {"index.js": INDEX}, host="registry.test", bin="index.js")
    installer, _ = work
    installer.networks.registries = ("other.test",)

    with pytest.raises(PlanRefused, match="INST-092"):
        installer.make_lock(npm_driver(tmp_path, "ceiling"))

    installer.networks.registries = ("registry.test",)
    assert installer.make_lock(npm_driver(tmp_path / "b", "ceiling"))


@pytest.mark.claim("P-INST-01")
def test_a_lifecycle_script_that_would_call_home_is_reported_and_calls_nobody(
    lab: Lab, work: tuple[Installer, Told], recorder: MemoryRecorder, tmp_path: Path
) -> None:
    """Scripts do not run: the package is named to the person, and not one further destination was tried."""
    call: dict[str, Any] = {"postinstall": f"node -e \"fetch('https://files.test:{PORT}/npm/x')\""}
    lab.npm("caller", {"index.js": INDEX}, host="registry.test", bin="index.js", scripts=call)
    installer, told = work

    installer.make_lock(npm_driver(tmp_path, "caller"))

    assert [line for line in told.warnings if line.startswith("caller 1.0.0 has an install script")]
    assert {fact.attrs["host"] for fact in recorder.facts if "host" in fact.attrs} == {"registry.test"}


def download_driver(folder: Path, path: str, data: bytes) -> Any:
    """Return a driver of a downloaded program."""
    step = {
        "method": "download",
        "url": f"https://registry.test:{PORT}/{path}",
        "extract_bin": "tool",
        "verify_sha256": hashlib.sha256(data).hexdigest(),
    }
    return driver(folder / "driver", {"kind": "binary", "path": "tool"}, [step])


@pytest.mark.claim("P-INST-08")
@pytest.mark.parametrize(
    ("target", "id_"),
    [
        (f"https://files.test:{PORT}/files/real", ""),
        ("https://169.254.169.254/latest/meta-data", "INST-092"),
        ("https://inner.test/files/real", "INST-090"),
        ("https://127.0.0.1:4873/files/real", "INST-092"),
        (f"http://files.test:{PORT}/files/real", "INST-081"),
        (f"https://registry.test:{PORT}/files/tool", "INST-086"),
    ],
)
def test_a_download_is_checked_hop_by_hop(
    target: str, id_: str, lab: Lab, work: tuple[Installer, Told], tmp_path: Path
) -> None:
    """A redirect to another public host is followed by itself; inwards, to http or in circles it ends."""
    program = b"#!/usr/bin/python3\nprint('hi')\n"
    (lab.folder / "files").mkdir(exist_ok=True)
    (lab.folder / "files" / "real").write_bytes(program)
    (lab.folder / "files" / "tool.redirect").write_text(target)
    installer, _ = work
    spec = download_driver(tmp_path, "files/tool", program)
    if not id_:
        assert installer.make_lock(spec).base == "python"
        assert "files/real" in lab.elsewhere()
        return

    with pytest.raises((InstallRefused, PlanRefused), match=id_):
        installer.make_lock(spec)
