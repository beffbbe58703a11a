"""A container engine in memory, and small archives, for tests of images and installs."""

from __future__ import annotations

import hashlib
import io
import json
import socket
import tarfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from sandbox.errors import PlatformError
from sandbox.launch.images.archive import Image, write_archive
from sandbox.launch.images.build import Images
from sandbox.launch.images.places import Places
from sandbox.launch.images.store import Store


class Told:
    """Progress that is kept."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.details: list[str] = []
        self.warnings: list[str] = []

    def step(self, text: str) -> None:
        """Keep a step."""
        self.steps.append(text)

    def detail(self, text: str) -> None:
        """Keep a detail."""
        self.details.append(text)

    def warn(self, text: str) -> None:
        """Keep a warning."""
        self.warnings.append(text)


class FakeEngine:
    """Keeps images as the classic image store does: it reads the archive and checks every digest itself.

    Args:
        by_manifest: name images by their manifest and want every layer, as the containerd image store does.
    """

    def __init__(self, *, by_manifest: bool = False) -> None:
        self.by_manifest = by_manifest
        self.images: dict[str, dict[str, Any]] = {}
        self.layers: set[str] = set()
        self.names: dict[str, str] = {}
        self.loads: list[int] = []
        self.pulled: list[str] = []

    def inspect(self, reference: str) -> dict[str, Any] | None:
        """Return an image by id or name."""
        return self.images.get(self.names.get(reference, reference))

    def load(self, image: Image, tags: Collection[str], absent: Collection[str] = ()) -> None:
        """Read an archive as an engine does."""
        buffer = io.BytesIO()
        write_archive(image, tags, buffer, absent)
        self.loads.append(buffer.tell())
        self.read_archive(buffer.getvalue())

    def read_archive(self, data: bytes) -> None:
        """Take the images of a docker-archive."""
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            members = {member.name: member for member in archive}

            def content(name: str) -> bytes:
                member = archive.extractfile(members[name])
                assert member is not None
                return member.read()

            for entry in json.loads(content("manifest.json")):
                config = content(entry["Config"])
                described = json.loads(config)
                for path, diff_id in zip(entry["Layers"], described["rootfs"]["diff_ids"], strict=True):
                    if path in members:
                        assert diff_id == "sha256:" + hashlib.sha256(content(path)).hexdigest()
                    elif self.by_manifest or diff_id not in self.layers:
                        raise PlatformError("IMG-002", f"layer {diff_id} is missing")
                    self.layers.add(diff_id)
                manifest = json.loads(content("index.json"))["manifests"][0]["digest"]
                own = manifest if self.by_manifest else "sha256:" + hashlib.sha256(config).hexdigest()
                self.images[own] = {
                    "Id": own,
                    "Config": described["config"],
                    "RootFS": {"Layers": described["rootfs"]["diff_ids"]},
                }
                self.names |= dict.fromkeys(entry["RepoTags"], own)

    def tag(self, reference: str, name: str) -> None:
        """Name an image."""
        self.names[name] = reference

    def remove_image(self, reference: str) -> bool:
        """Forget an image."""
        return self.images.pop(reference, None) is not None

    def pull(self, repository: str, digest: str) -> None:
        """Note what was asked for."""
        self.pulled.append(f"{repository}@{digest}")

    def create(self, body: Mapping[str, Any], name: str) -> str:
        """Refuse: this engine runs nothing."""
        raise PlatformError("IMG-002", "this engine runs nothing")

    def attach(self, container: str) -> socket.socket:
        """Refuse."""
        raise PlatformError("IMG-002", "this engine runs nothing")

    def start(self, container: str) -> None:
        """Refuse."""
        raise PlatformError("IMG-002", "this engine runs nothing")

    def wait(self, container: str) -> int:
        """Refuse."""
        raise PlatformError("IMG-002", "this engine runs nothing")

    def remove(self, container: str) -> None:
        """Nothing is there."""


def images_in(folder: Path, engine: Any = None) -> tuple[Images, Told]:
    """Return images with their own cache and state, and what is told."""
    told = Told()
    places = Places(folder / "cache", folder / "state")
    return Images(Store(engine or FakeEngine(), told), places, arch="amd64"), told


def member(
    name: str, data: bytes | None = b"", *, kind: bytes = tarfile.REGTYPE, target: str = "", mode: int = 0o644
) -> tuple[tarfile.TarInfo, bytes | None]:
    """Return one member of a tar file."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, target, mode
    info.size = len(data or b"") if kind == tarfile.REGTYPE else 0
    return info, data


def tar(path: Path, members: Iterable[tuple[tarfile.TarInfo, bytes | None]]) -> Path:
    """Write a tar file and return its path."""
    with tarfile.open(path, "w") as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data or b"") if info.isreg() else None)
    return path
