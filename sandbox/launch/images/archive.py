"""Tree → layer → image archive: equal input gives equal bytes, so the image id is known before any engine sees it.

An image id is the SHA-256 of its configuration; the configuration lists the SHA-256 of every uncompressed layer (OCI
image specification 1.1, config.md, ``ImageID`` and ``DiffID``). Nothing here depends on the clock, the host's umask,
the order of a directory or the user who runs it.

The archive is an OCI image layout that also carries the ``manifest.json`` of the older docker-archive format, so that
Docker with either image store and Podman load it. Engines with the containerd image store name an image by its manifest
instead; that digest is known beforehand as well (:attr:`Image.manifest_digest`).
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from sandbox import jsontext
from sandbox.launch.images.tree import CHUNK, EPOCH, Blob, Entry, Tree

CREATED: Final = "2026-01-01T00:00:00Z"
""":data:`EPOCH` in the form of RFC 3339."""

_CONFIG_TYPE: Final = "application/vnd.oci.image.config.v1+json"
_LAYER_TYPE: Final = "application/vnd.oci.image.layer.v1.tar"
_MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
_INDEX_TYPE: Final = "application/vnd.oci.image.index.v1+json"

_TAR_KINDS: Final = {"dir": tarfile.DIRTYPE, "file": tarfile.REGTYPE, "link": tarfile.SYMTYPE}


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer.

    Attributes:
        digest: ``sha256:…`` of the uncompressed tar file, its DiffID.
        size: bytes of that file.
        file: where it lies, ``None`` when only the engine has it.
    """

    digest: str
    size: int
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class Image:
    """A complete image, as values.

    Attributes:
        arch: Go architecture name (``amd64``, ``arm64``), as the OCI specification wants it.
        config: the ``config`` object of the image configuration (``Env``, ``User``, ``Entrypoint`` …).
        history: one sentence for each layer, in order.
    """

    arch: str
    layers: tuple[Layer, ...]
    config: Mapping[str, Any]
    history: tuple[str, ...] = field(default=())

    def config_bytes(self) -> bytes:
        """Return the image configuration; its SHA-256 is the image id."""
        texts = (*self.history, *[""] * (len(self.layers) - len(self.history)))
        return jsontext.canonical(
            {
                "architecture": self.arch,
                "config": self.config,
                "created": CREATED,
                "history": [{"created": CREATED, "created_by": f"mcp-sandbox {text}".rstrip()} for text in texts],
                "os": "linux",
                "rootfs": {"diff_ids": [layer.digest for layer in self.layers], "type": "layers"},
            }
        )

    def manifest_bytes(self) -> bytes:
        """Return the OCI manifest."""
        config = self.config_bytes()
        return jsontext.canonical(
            {
                "config": {"digest": _digest(config), "mediaType": _CONFIG_TYPE, "size": len(config)},
                "layers": [
                    {"digest": layer.digest, "mediaType": _LAYER_TYPE, "size": layer.size} for layer in self.layers
                ],
                "mediaType": _MANIFEST_TYPE,
                "schemaVersion": 2,
            }
        )

    @property
    def id(self) -> str:
        """``sha256:…`` of the configuration."""
        return _digest(self.config_bytes())

    @property
    def manifest_digest(self) -> str:
        """``sha256:…`` of the OCI manifest: the id in engines with the containerd image store."""
        return _digest(self.manifest_bytes())


def write_layer(tree: Tree, file: Path) -> Layer:
    """Write a tree as an uncompressed tar file and return its layer.

    Raises:
        OSError: the file cannot be written, or a blob has gone.
    """
    with file.open("wb") as raw:
        sink = _Hashing(raw)
        with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for entry in tree.ordered():
                archive.addfile(_header(entry), _contents(entry.blob))
    return Layer(f"sha256:{sink.digest.hexdigest()}", file.stat().st_size, file)


def write_archive(
    image: Image, tags: Collection[str], sink: IO[bytes] | io.RawIOBase, absent: Collection[str] = ()
) -> None:
    """Write an image archive that ``docker load`` understands.

    Args:
        image: its layers must have files, except those in ``absent``.
        tags: names such as ``mcp-sandbox/base:latest``.
        sink: where the archive goes; only written, never sought.
        absent: digests of layers that the engine has and that are left out (docker-archive allows that).

    Raises:
        OSError: a layer's file has gone.
    """
    config, manifest = image.config_bytes(), image.manifest_bytes()
    with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        write_member(archive, "oci-layout", jsontext.canonical({"imageLayoutVersion": "1.0.0"}))
        write_member(archive, "index.json", _index(manifest, tags))
        write_member(archive, "manifest.json", _docker_manifest(image, tags))
        write_member(archive, _blob_path(_digest(config)), config)
        write_member(archive, _blob_path(_digest(manifest)), manifest)
        for layer in dict.fromkeys(image.layers):
            if layer.digest in absent:
                continue
            if layer.file is None:
                raise FileNotFoundError(f"layer {layer.digest} has no file")
            header = _header(Entry(_blob_path(layer.digest), "file", 0o644, Blob.at(layer.file)))
            with layer.file.open("rb") as source:
                archive.addfile(header, source)


def _contents(blob: Blob | None) -> io.BufferedReader | None:
    return None if blob is None else io.BufferedReader(_Chunks(blob), CHUNK)


def _index(manifest: bytes, tags: Collection[str]) -> bytes:
    described = {"digest": _digest(manifest), "mediaType": _MANIFEST_TYPE, "size": len(manifest)}
    named = [
        {**described, "annotations": {"io.containerd.image.name": f"docker.io/{tag}"}} for tag in sorted(tags)
    ] or [described]
    return jsontext.canonical({"manifests": named, "mediaType": _INDEX_TYPE, "schemaVersion": 2})


def _docker_manifest(image: Image, tags: Collection[str]) -> bytes:
    return jsontext.canonical(
        [
            {
                "Config": _blob_path(image.id),
                "Layers": [_blob_path(layer.digest) for layer in image.layers],
                "RepoTags": sorted(tags),
            }
        ]
    )


def write_member(archive: tarfile.TarFile, path: str, data: bytes) -> None:
    """Add a file with fixed metadata to a tar file being written."""
    archive.addfile(_header(Entry(path, "file", 0o644, Blob.of(data))), io.BytesIO(data))


def _header(entry: Entry) -> tarfile.TarInfo:
    header = tarfile.TarInfo(entry.path)
    header.type = _TAR_KINDS[entry.kind]
    header.mode = entry.mode
    header.mtime = EPOCH
    header.size = entry.blob.size if entry.blob is not None else 0
    header.linkname = entry.target
    return header


def _blob_path(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


class _Hashing(io.RawIOBase):
    """A write-only file that hashes what passes through it."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._position = 0
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any, /) -> int:
        self.digest.update(data)
        self._position += len(data)
        return self._raw.write(data)


class _Chunks(io.RawIOBase):
    """A read-only file over the pieces of a blob, as ``tarfile`` wants it."""

    def __init__(self, blob: Blob) -> None:
        self._pieces = blob.chunks()
        self._piece = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        if not self._piece:
            self._piece = memoryview(next(self._pieces, b""))
        size = min(len(buffer), len(self._piece))
        buffer[:size], self._piece = self._piece[:size], self._piece[size:]
        return size
