"""Real servers of the configured registries: installed as pinned, started without a network, found again at once."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import InstallRefused
from sandbox.launch.images.host import host_images
from sandbox.launch.images.runner import BuildNetwork
from sandbox.launch.install.ensure import ensure_server_image, needs_lock
from sandbox.launch.install.installer import Installer
from sandbox.launch.install.lock import read
from sandbox.launch.install.network import Bridge, Reach
from sandbox.launch.install.shop import Shop
from sandbox.plan.model import ImageFacts
from sandbox.spec.load import load_driver
from tests.image_kit import Told
from tests.registry_lab import docker, driver
from tests.shared import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

HARDENED = [
    "docker", "run", "--rm", "--interactive", "--network", "none", "--cap-drop", "ALL", "--security-opt",
    "no-new-privileges", "--read-only", "--tmpfs", "/tmp", "--memory", "512m", "--pids-limit", "128",
]  # fmt: skip
EXAMPLES = {
    "filesystem-mcp": ("read_text_file", "/workspace"),
    "memory-mcp": ("read_graph", ""),
    "everything-mcp": ("echo", ""),
    "sequential-thinking-mcp": ("sequentialthinking", ""),
    "time-mcp": ("get_current_time", ""),
    "git-mcp": ("git_status", "/repo"),
}


class Offline:
    """Networks that no build may open."""

    confined = True

    def open(self, reach: Reach) -> AbstractContextManager[BuildNetwork]:
        """Refuse."""
        raise AssertionError(f"a build wanted to reach {reach}")


def tools(facts: ImageFacts, arguments: tuple[str, ...], *options: str) -> set[str]:
    """Start a server as an engine does, hardened and without a network, and return the names of its tools."""
    command = [*HARDENED, *options, "--entrypoint", facts.argv[0], facts.id, *facts.argv[1:], *arguments]
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    sent: list[dict[str, Any]] = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for message in sent:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            while "id" in message and json.loads(line := process.stdout.readline()).get("id") != message["id"]:
                pass
        process.stdin.close()
    return {tool["name"] for tool in json.loads(line)["result"]["tools"]}


@pytest.mark.parametrize("name", EXAMPLES)
def test_locked_server_lists_its_tools_without_a_network(name: str, tmp_path: Path) -> None:
    """Each example is installed as its lock says and answers tools/list with no interface but loopback."""
    tool, root = EXAMPLES[name]
    spec = load_driver(ROOT / "drivers" / name / "DRIVER.md")
    facts = ensure_server_image(spec)
    assert facts is not None
    options: list[str] = []
    if root:
        subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
        options = ["--volume", f"{tmp_path}:{root}:ro"]
        for parent in [tmp_path, *tmp_path.parents[:3]]:
            parent.chmod(parent.stat().st_mode | 0o555)

    assert tool in tools(facts, tuple(spec.server.args), *options)


@pytest.mark.claim("P-INST-07")
@pytest.mark.parametrize("name", ["filesystem-mcp", "time-mcp"])
def test_second_start_needs_no_network(name: str) -> None:
    """An installed server is found by the id that its lock gives: no build, no network, well below a second."""
    spec = load_driver(ROOT / "drivers" / name / "DRIVER.md")
    ensure_server_image(spec)
    told = Told()

    begun = time.monotonic()
    facts = ensure_server_image(spec, told, networks=Offline())
    spent = time.monotonic() - begun

    assert facts is not None
    assert facts.id == Installer(host_images(), {}, Offline()).install(spec, read(spec.folder)).id
    assert [] == told.steps
    assert spent < 1


def test_removed_image_comes_back_from_the_cache() -> None:
    """An image that somebody pruned is loaded from the cached layer, without a network."""
    spec = load_driver(ROOT / "drivers" / "time-mcp" / "DRIVER.md")
    first = ensure_server_image(spec)
    installer = Installer(host_images(), {}, Bridge())
    lock = read(spec.folder)
    assert first is not None
    assert lock is not None
    layer = installer.images.places.layer(lock.layers[installer.images.platform][0].digest)
    if not layer.exists():
        pytest.skip("the layer is not in this host's cache: the engine had the image already")
    docker("rmi", "--force", first.id)

    again = ensure_server_image(spec, networks=Offline())

    assert first == again


def test_driver_without_a_lock_is_refused(tmp_path: Path) -> None:
    """Nothing is installed that nobody has reviewed."""
    spec = driver(tmp_path, {"kind": "npm", "package": "server@1.0.0"}, [])

    with pytest.raises(InstallRefused) as caught:
        ensure_server_image(spec, networks=Offline())

    assert "INST-005" == caught.value.id
    assert "mcp-sandbox lock" in caught.value.mend


def test_lock_for_another_version_is_refused(tmp_path: Path) -> None:
    """A DRIVER.md that was edited after locking is not installed from the old lock."""
    shutil.copytree(ROOT / "drivers" / "time-mcp", tmp_path / "d")
    manifest = tmp_path / "d" / "DRIVER.md"
    manifest.write_text(manifest.read_text().replace("mcp-server-time==", "mcp-server-time>="))

    with pytest.raises(InstallRefused) as caught:
        ensure_server_image(load_driver(manifest), networks=Offline())

    assert "INST-003" == caught.value.id


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no compiler on this host")
def test_program_of_the_host_runs_and_follows_its_contents(tmp_path: Path) -> None:
    """A program of the host needs no lock: it is copied as it is now, and another build of it is another image."""
    source = tmp_path / "x.c"
    spec = driver(tmp_path / "d", {"kind": "binary", "path": "./x"}, [])
    found = []
    for word in ("one", "two"):
        source.write_text(f'#include <stdio.h>\nint main(void){{puts("{word}");return 0;}}')
        subprocess.run(["gcc", "-static", "-o", tmp_path / "d" / "x", source], check=True)
        facts = ensure_server_image(spec, networks=Offline())
        assert facts is not None
        again = ensure_server_image(spec, networks=Offline())
        assert facts == again
        found.append((facts.id, docker("run", "--rm", "--network", "none", facts.id, *facts.argv)))

    for image, _ in found:
        docker("rmi", "--force", image)
    assert not needs_lock(spec)
    assert ["one", "two"] == [text for _, text in found]
    assert found[0][0] != found[1][0]


@pytest.mark.slow
def test_debian_package_beside_a_server(tmp_path: Path) -> None:
    """A Debian package without an image of its own is pinned by digest and becomes a layer below the server."""
    steps = [{"method": "apt", "package": "dash"}, {"method": "vendored", "path": "run.sh"}]
    spec = driver(tmp_path / "d", {"kind": "binary", "path": "run.sh"}, steps)
    (tmp_path / "d" / "run.sh").write_text("#!/bin/sh\necho from $0\n")
    installer = Installer(host_images(), {}, Offline())

    lock = installer.make_lock(spec)
    facts = installer.install(spec, lock)

    printed = docker("run", "--rm", "--network", "none", facts.id, *facts.argv)
    docker("rmi", "--force", facts.id)
    assert "from /app/bin/run.sh" == printed
    assert "dash" in lock.pins["apt"]["packages"]
    assert ["apt", "file"] == [layer.what for layer in lock.layers[installer.images.platform]]


@pytest.mark.parametrize("client", ["npm", "uv"])
def test_default_registry_is_asked_of_the_client(client: str, tmp_path: Path) -> None:
    """When nothing is configured and the build is confined, the client says what it would reach, without a network."""
    shop = Shop(host_images(), Offline(), {}, tmp_path, tmp_path)

    (found,) = shop.addresses(client, [])

    assert found.startswith("https://")
    assert () == Shop(host_images(), Bridge(), {}, tmp_path, tmp_path).addresses(client, [])


def test_image_of_ours_needs_no_lock() -> None:
    """An image of images/ is found by its own recorded lock, not by its name."""
    spec = load_driver(ROOT / "drivers" / "signing-mcp" / "DRIVER.md")

    facts = ensure_server_image(spec, networks=Offline())

    assert facts is not None
    assert facts.pinned
    assert host_images().ensure("signing-server").id == facts.id
