"""A pretended registry on a network of its own, with packages that a test makes up; nothing leaves this machine."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import secrets
import subprocess
import tarfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from docker.types import EndpointConfig
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from sandbox.launch.images.host import host_images
from sandbox.launch.images.places import Places
from sandbox.launch.images.runner import BuildNetwork
from sandbox.launch.install.installer import Installer
from sandbox.launch.install.network import Reach
from sandbox.spec.load import load_driver
from sandbox.spec.model import DriverSpec
from tests.image_kit import Told
from tests.shared import ROOT
from tests.tls_kit import authority

SUBNET: Final = "198.51.100.208/28"
ADDRESS: Final = "198.51.100.214"
PORT: Final = 4873
PATIENCE: Final = 120.0
"""Seconds for other tests on the same engine to give the network's addresses back."""

ELSEWHERE: Final = "198.51.100.215"
NAMES: Final = {"registry.test": ADDRESS, "files.test": ELSEWHERE}
"""Both hosts by name; the second one serves the same files, and is not the registry."""


def docker(*arguments: str) -> str:
    """Run the docker command line and return what it printed."""
    return subprocess.run(["docker", *arguments], check=True, capture_output=True, text=True).stdout.strip()


@dataclass
class Lab:
    """A running registry.

    Attributes:
        folder: what it serves.
        network: where it is.
        opened: what builds asked to reach.
        environ: configuration of clients that points at it.
        home: HOME of that configuration.
    """

    folder: Path
    network: str
    container: str
    home: Path
    environ: Mapping[str, str]
    second: str = ""
    opened: list[Reach] = field(default_factory=list)
    confined: bool = True

    @contextmanager
    def _open(self, reach: Reach) -> Iterator[BuildNetwork]:
        self.opened.append(reach)
        yield BuildNetwork(self.network)

    def open(self, reach: Reach) -> AbstractContextManager[BuildNetwork]:
        """Return the registry's network for a build, as a provider of build networks does."""
        return self._open(reach)

    def installer(self, scratch: Path) -> tuple[Installer, Told]:
        """Return an installer with its own cache that reaches this registry only."""
        told = Told()
        images = host_images(told)
        for name in ("build-node", "build-python"):
            images.ensure(name, moved=True)
        images.places = Places(scratch / "cache", images.places.state)
        return Installer(images, self.environ, self), told

    def requests(self) -> list[str]:
        """Return the paths that were asked for."""
        return docker("logs", self.container).splitlines()[1:]

    def elsewhere(self) -> list[str]:
        """Return the paths that the host that is not the registry was asked for."""
        return docker("logs", self.second).splitlines()[1:]

    def by_name(self) -> dict[str, str]:
        """Return the configuration of clients with the registry by its name."""
        home = self.home / "named"
        home.mkdir(exist_ok=True)
        (home / ".npmrc").write_text(f"registry=https://registry.test:{PORT}/npm/\n")
        (home / "pip.conf").write_text(f"[global]\nindex-url = https://registry.test:{PORT}/simple\n")
        files = {"NPM_CONFIG_USERCONFIG": str(home / ".npmrc"), "PIP_CONFIG_FILE": str(home / "pip.conf")}
        return {**self.environ, **files, "HOME": str(home)}

    def npm(
        self, name: str, files: Mapping[str, tarfile.TarInfo | bytes], *, host: str = ADDRESS, **manifest: Any
    ) -> str:
        """Publish an npm package, its tarball on ``host``, and return its integrity."""
        body = {"name": name, "version": "1.0.0", **manifest}
        data = npm_tarball({"package.json": json.dumps(body).encode(), **files})
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
        place = self.folder / "npm" / name
        place.mkdir(parents=True, exist_ok=True)
        (place / "x.tgz").write_bytes(data)
        tarball = f"https://{host}:{PORT}/npm/{name}/x.tgz"
        scripts = {"hasInstallScript": True} if "scripts" in manifest else {}
        version = body | scripts | {"dist": {"tarball": tarball, "integrity": integrity}}
        packument = {"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
        (self.folder / "npm" / f"{name}.json").write_text(json.dumps(packument))
        return integrity

    def wheel(self, name: str, files: Mapping[str, bytes], *, requires: tuple[str, ...] = (), host: str = "") -> str:
        """Publish a wheel and return its SHA-256."""
        info = f"{name}-1.0.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n" + "".join(
            f"Requires-Dist: {other}\n" for other in requires
        )
        whole = {
            **files,
            f"{info}/METADATA": metadata.encode(),
            f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for path, data in whole.items():
                archive.writestr(path, data)
            archive.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in [*whole, f"{info}/RECORD"]))
        return self.file_of_index(name, f"{name}-1.0-py3-none-any.whl", buffer.getvalue(), host)

    def file_of_index(self, name: str, file: str, data: bytes, host: str = "") -> str:
        """Put a file into the Python index, linked on another host when one is given, and return its SHA-256."""
        place = self.folder / "simple" / name.replace("_", "-")
        place.mkdir(parents=True, exist_ok=True)
        (place / file).write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        base = f"https://{host}:{PORT}/simple/{place.name}/" if host else ""
        link = f'<a href="{base}{file}#sha256={digest}">{file}</a>'
        (place / "index.html").write_text(f"<!DOCTYPE html><html><body>{link}</body></html>")
        return digest


def npm_tarball(files: Mapping[str, tarfile.TarInfo | bytes]) -> bytes:
    """Return a package as npm publishes it; a TarInfo stands for itself (links, devices)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            if isinstance(content, bytes):
                info = tarfile.TarInfo(f"package/{name}")
                info.size, info.mode = len(content), 0o4755 if name.startswith("suid") else 0o755
                archive.addfile(info, io.BytesIO(content))
            else:
                archive.addfile(content)
    return buffer.getvalue()


def _network(name: str) -> None:
    """Make the registry's network, when other tests on the same engine have given its addresses back."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            docker("network", "create", "--internal", "--subnet", SUBNET, name)
        except subprocess.CalledProcessError as error:
            if "overlaps" not in error.stderr or time.monotonic() > deadline:
                raise
            time.sleep(1)
        else:
            return


@contextmanager
def registry(scratch: Path) -> Iterator[Lab]:
    """Run a registry for one module of tests."""
    folder, home, tls = scratch / "srv", scratch / "home", scratch / "tls"
    for path in (folder / "npm", folder / "simple", home, tls):
        path.mkdir(parents=True)
    own = authority(tls, ADDRESS, *NAMES, ELSEWHERE)
    own.key.chmod(0o644)
    for parent in [*tls.parents][:4]:
        parent.chmod(parent.stat().st_mode | 0o711)
    (home / ".npmrc").write_text(f"registry=https://{ADDRESS}:{PORT}/npm/\n")
    (home / "pip.conf").write_text(f"[global]\nindex-url = https://{ADDRESS}:{PORT}/simple\n")
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "SSL_CERT_FILE": str(own.bundle),
        "PIP_CONFIG_FILE": str(home / "pip.conf"),
        "NPM_CONFIG_USERCONFIG": str(home / ".npmrc"),
    }
    image = host_images().ensure("python", moved=True).id
    name = f"mcp-sandbox-test-registry-{secrets.token_hex(4)}"
    _network(name)
    served = [str(PORT), str(own.cert), str(own.key), str(folder)]
    try:
        with ExitStack() as stack:
            first, second = (
                stack.enter_context(peer(f"{name}-{host}", image, name, address, host, scratch, served))
                for host, address in NAMES.items()
            )
            yield Lab(
                folder,
                name,
                str(first.get_wrapped_container().id),
                home,
                environ,
                str(second.get_wrapped_container().id),
            )
    finally:
        docker("network", "rm", name)


def peer(
    name: str, image: str, network: str, address: str, alias: str, shared: Path, served: list[str]
) -> DockerContainer:
    """Return the container of one host, started when it is entered and removed when it is left."""
    testcontainers_config.ryuk_disabled = True  # it would be pulled from an image registry, which nobody here has
    place = EndpointConfig("1.41", aliases=[alias], ipv4_address=address)
    return (
        DockerContainer(image)
        .with_name(name)
        .with_command(["/usr/bin/python3", "/peers/registry.py", *served])
        .with_volume_mapping(str(shared), str(shared), "ro")
        .with_volume_mapping(str(ROOT / "tests" / "peers"), "/peers", "ro")
        .with_kwargs(network=network, networking_config={network: place}, cap_drop=["ALL"])
        .waiting_for(LogMessageWaitStrategy("listening"))
    )


def driver(folder: Path, server: Mapping[str, Any], install: list[Mapping[str, Any]]) -> DriverSpec:
    """Write a driver folder for a server and return its spec."""
    (folder / "tools" / "tool").mkdir(parents=True)
    contract = {
        "name": "Tool", "id": "tool", "description": "A tool.", "version": "1.0.0", "inputs": {"type": "object"},
        "outputs": {"type": "object"},
    }  # fmt: skip
    body = {
        "name": "Test", "id": "test-mcp", "description": "A test.", "version": "1.0.0", "kind": "mcp",
        "server": dict(server), "transport": "stdio", "install": [dict(step) for step in install],
        "network": {"egress": []},
        "implements": [
            {"tool": "./tools/tool/TOOL.md", "version": "^1.0.0", "metadata": {"mcp": {"tool_name": "tool"}}}
        ],
    }  # fmt: skip
    (folder / "tools" / "tool" / "TOOL.md").write_text(f"---\n{json.dumps(contract)}\n---\n")
    (folder / "DRIVER.md").write_text(f"---\n{json.dumps(body)}\n---\n")
    return load_driver(folder / "DRIVER.md")
