"""The images of images/ in a real engine: the same bytes again, nothing for an intruder, mirrors that move on."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sandbox.errors import PlatformError
from sandbox.launch.images import lock, recipe
from sandbox.launch.images.build import Images
from sandbox.launch.images.engine import SocketEngine, connect
from sandbox.launch.images.host import host_images
from sandbox.launch.images.lock import Package, Resolved
from sandbox.launch.images.places import Places
from sandbox.launch.images.runner import BuildFailed, Job, Runner
from sandbox.launch.images.store import Store
from tests.image_kit import Told
from tests.registry_lab import docker

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

RUN_IMAGES = [name for name in recipe.names() if recipe.load(name).phase == "run"]
FACTS = """
import ctypes, json, os, socket
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
def attempt(action):
    try:
        action(); return "done"
    except OSError as error:
        return error.strerror
print(json.dumps({
    "uid": os.getuid(), "caps": status["CapBnd"], "nnp": status["NoNewPrivs"], "seccomp": status["Seccomp"],
    "root": attempt(lambda: open("/x", "w")), "work": attempt(lambda: open("/work/x", "w")),
    "interfaces": sorted(name for _, name in socket.if_nameindex()),
    "mounts": sorted({line.split()[1] for line in open("/proc/mounts") if line.split()[2] in ("ext4", "xfs", "btrfs")}),
}))
"""


def elsewhere(folder: Path) -> tuple[Images, Told]:
    """Return the images of this engine with a cache and a state of their own."""
    told = Told()
    return Images(Store(connect(os.environ), told), Places(folder / "cache", folder / "state")), told


def rebuilt(images: Images, name: str) -> Resolved:
    """Build an image from its packages although it is there, and return what came of it."""
    wanted = recipe.load(name)
    parent = images.obtain(wanted.parent, moved=True)[0] if wanted.parent else None
    with images.places.building() as scratch:
        return images._make(
            wanted, lock.pinned(wanted, images.platform, images.places), parent, scratch, moved=True
        ).resolved


@pytest.mark.claim("P-IMAGE-01")
@pytest.mark.parametrize("name", ["base", pytest.param("python", marks=pytest.mark.slow)])
def test_image_built_twice_is_the_same_bytes(name: str, tmp_path: Path) -> None:
    """Two builds in two empty caches give one id: what is recorded, while the mirror has the recorded packages."""
    first = rebuilt(elsewhere(tmp_path / "a")[0], name)
    second = rebuilt(elsewhere(tmp_path / "b")[0], name)

    assert first == second
    recorded = lock.shipped_lock(name, "linux/amd64")
    if recorded is not None and recorded.inputs() == first.inputs():
        assert recorded.id == first.id


@pytest.mark.claim("P-IMAGE-03")
@pytest.mark.parametrize("name", RUN_IMAGES)
def test_run_image_has_nothing_that_helps_an_intruder(name: str) -> None:
    """No set-id file, nothing writable but /tmp, no shell, no installer, no key and no address of a registry."""
    found = host_images().ensure(name, moved=True)
    container = docker("create", found.id, "none")
    try:
        data = subprocess.run(["docker", "export", container], check=True, capture_output=True).stdout
    finally:
        docker("rm", container)
    with tarfile.open(fileobj=io.BytesIO(data)) as exported:
        members = {member.name: member for member in exported}

    outside = [path for path in members if not path.startswith(("dev/", "proc", "sys"))]
    assert [] == [path for path in outside if members[path].mode & 0o6000]
    assert ["tmp"] == [path.rstrip("/") for path in outside if members[path].mode & 0o022 and not members[path].issym()]
    programs = {path.rpartition("/")[2] for path in outside if path.startswith(("usr/bin/", "usr/sbin/"))}
    assert set() == programs & {"sh", "dash", "bash", "apt", "dpkg", "pip", "npm", "npx", "uv", "curl", "wget", "perl"}
    assert [] == [path for path in outside if path.endswith((".npmrc", "pip.conf", "apt/auth.conf", "id_rsa"))]


def test_second_look_asks_the_engine_only() -> None:
    """An image that is there costs no step, no container and no network."""
    host_images().ensure("node", moved=True)
    told = Told()

    host_images(told).ensure("node", moved=True)

    assert ([], []) == (told.steps, told.warnings)


def test_moved_name_does_not_change_what_is_used(tmp_path: Path) -> None:
    """Somebody who gives the name of an image to another one changes nothing: images are found by content."""
    expected = host_images().ensure("base", moved=True).id
    other = host_images().ensure("node", moved=True).id
    docker("tag", other, "mcp-sandbox/base:latest")
    try:
        assert expected == host_images().ensure("base", moved=True).id
    finally:
        docker("tag", expected, "mcp-sandbox/base:latest")


def outdated(recorded: Resolved) -> Resolved:
    """Return a lock whose first package has a version that no mirror has."""
    gone = Package(recorded.debs[0].name, "0.0.1-gone", "0" * 64)
    return dataclasses.replace(recorded, debs=(gone, *recorded.debs[1:]), layer="sha256:" + "0" * 64)


@pytest.mark.claim("P-IMAGE-04")
def test_mirror_that_moved_on_is_refused_or_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other packages than the recorded ones are used only when asked for; then each is named and doctor knows."""
    recorded = lock.shipped_lock("base", "linux/amd64")
    assert recorded is not None
    monkeypatch.setattr(lock, "shipped_lock", lambda *_: outdated(recorded))
    images, told = elsewhere(tmp_path)

    with pytest.raises(PlatformError) as caught:
        images.ensure("base")

    assert "IMG-020" == caught.value.id
    assert not images.places.local_lock("base").exists()

    facts = images.ensure("base", moved=True)

    assert any(line.startswith(f"base: {recorded.debs[0].name} 0.0.1-gone → ") for line in told.warnings)
    (status,) = images.status(["base"])
    assert (facts.id, True, True) == (status.id, status.present, status.own)
    assert facts.id == elsewhere(tmp_path)[0].ensure("base").id


def test_recorded_packages_that_give_other_bytes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An id that the recorded packages do not give means that something else was changed."""
    recorded = lock.shipped_lock("signing-server", "linux/amd64")
    assert recorded is not None
    host_images().ensure("signing-server", moved=True)
    parent = elsewhere(tmp_path)[0].obtain("python", moved=True)[0].image.id
    forged = dataclasses.replace(recorded, id="sha256:" + "0" * 64, layer="sha256:" + "0" * 64, parent=parent)
    real = lock.shipped_lock
    monkeypatch.setattr(lock, "shipped_lock", lambda name, at: forged if name == "signing-server" else real(name, at))
    images, _ = elsewhere(tmp_path)

    with pytest.raises(PlatformError) as caught:
        images.ensure("signing-server", moved=True)

    assert "IMG-021" == caught.value.id


# --- build containers
class Remembering(SocketEngine):
    """The engine, and the containers that were made through it."""

    made: ClassVar[list[str]] = []

    def create(self, body: Mapping[str, Any], name: str) -> str:
        """Create a container and remember it."""
        self.made.append(super().create(body, name))
        return self.made[-1]


def run(argv: tuple[str, ...], tmp_path: Path, **parts: Any) -> tuple[bytes, Told]:
    """Run a job on the Python image; return its output and what was told."""
    told = Told()
    image = host_images().ensure("python", moved=True).id
    engine = Remembering(connect(os.environ).path)
    Runner(engine, told).run(Job(image, argv, "test", **parts), tmp_path / "out")
    return (tmp_path / "out").read_bytes(), told


@pytest.mark.claim("P-INST-04")
def test_build_container_is_confined(tmp_path: Path) -> None:
    """No capability, own uid, filtered calls, read-only root, nothing of the host, no network unless given."""
    output, _ = run(("/usr/bin/python3", "-c", FACTS), tmp_path)

    facts = json.loads(output)
    expected = {
        "uid": 65532, "caps": "0000000000000000", "nnp": "1", "seccomp": "2", "root": "Read-only file system",
        "work": "done", "interfaces": ["lo"],
    }  # fmt: skip
    assert expected == {name: facts[name] for name in expected}
    assert set(facts["mounts"]) <= {"/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/usr/sbin/docker-init"}


def test_files_arrive_and_output_returns(tmp_path: Path) -> None:
    """A job's files come in on stdin, its stdout is the output, its stderr is told without control characters."""
    program = (
        "import sys, tarfile\n"
        "archive = tarfile.open(fileobj=sys.stdin.buffer, mode='r|')\n"
        "sys.stdout.buffer.write(archive.extractfile(archive.next()).read() * 3)\n"
        "print('\\x1b[31mred\\x07', file=sys.stderr)\n"
    )

    output, told = run(("/usr/bin/python3", "-c", program), tmp_path, files={"a": bytes(range(256)) * 1000})

    assert bytes(range(256)) * 3000 == output
    assert [" [31mred"] == told.details


@pytest.mark.parametrize(
    ("program", "parts", "expected"),
    [
        ("import sys; sys.exit('no')", {}, "IMG-003"),
        ("import time; time.sleep(600)", {"seconds": 1.0}, "IMG-004"),
        ("while True: print('x' * 10000)", {"max_output": 1_000_000}, "IMG-004"),
        ("open('/work/x','wb').write(bytes(3 << 30))", {}, "IMG-003"),
        ("import os\nwhile True: os.fork()", {"seconds": 10.0}, "IMG-00"),
    ],
    ids=["fails", "hangs", "floods", "fills", "forks"],
)
def test_build_that_misbehaves_ends_and_leaves_nothing(
    program: str, parts: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    """A build that fails, hangs, floods, fills its disk or forks is one error, and its container is gone."""
    with pytest.raises(PlatformError) as caught:
        run(("/usr/bin/python3", "-c", program), tmp_path, **parts)

    assert caught.value.id.startswith(expected)
    assert "" == docker("ps", "--all", "--quiet", "--filter", f"id={Remembering.made[-1]}")


def test_message_of_a_failed_build_has_no_address(tmp_path: Path) -> None:
    """What a client says about its registry is not repeated in a message: it may hold credentials."""
    with pytest.raises(BuildFailed) as caught:
        run(("/usr/bin/python3", "-c", "raise SystemExit('cannot reach https://user:secret@h.example/x')"), tmp_path)

    assert "cannot reach (address)" in caught.value.message
