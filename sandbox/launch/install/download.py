"""A file from an address, its digest in DRIVER.md: fetched over TLS, held against the digest, unpacked as hostile.

1 only https, and a SHA-256 in the driver (``verify_sha256``) is required: without it nothing says what was reviewed;
2 the body is bounded in size and time, redirects stay on https, and each hop is fetched in a build container that
reaches that one host, over public addresses; 3 the digest is compared before a byte of it is
interpreted; 4 an archive (tar, tar.gz, tar.xz, tar.bz2, zip) is unpacked under the rules of a tree, and only
``extract_bin`` is taken out of it; 5 the program must be able to run on the image, as any other.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import posixpath
import ssl
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import urlsplit

from sandbox.errors import InstallRefused, PlatformError
from sandbox.launch.images.runner import BuildFailed, Job
from sandbox.launch.images.tree import Tree
from sandbox.launch.images.unpack import Bounds, unpack_tar, unpack_zip
from sandbox.launch.install import fetchfile, hostca
from sandbox.launch.install.ask import Ask
from sandbox.launch.install.hostfile import base_of, place
from sandbox.launch.install.network import DOWNLOAD, Reach, origin
from sandbox.launch.install.shop import Built, Pins, Shop
from sandbox.limits import MIB

MAX_DOWNLOAD_BYTES: Final = 512 * MIB
"""Of one download; the largest known release archives of servers have 150 MB."""

MAX_UNPACKED_BYTES: Final = 1024 * MIB
"""Of what an archive holds, before a compression bomb is refused."""

DOWNLOAD_SECONDS: Final = 120.0
"""Without a byte (seconds)."""

MAX_REDIRECTS: Final = 5
"""As much as browsers' and clients' habits need; each is a container."""

MAX_ADDRESS: Final = 8192
"""Characters of a redirect's address; servers of release files sign long ones."""

_FETCH: Final = 'set -e; tar -xf -; exec /usr/bin/python3 -I -c "$@"'
_OPENERS: Final[dict[bytes, Callable[[Path], Any]]] = {
    b"\x1f\x8b": gzip.GzipFile,
    b"BZ": bz2.BZ2File,
    b"\xfd7": lzma.LZMAFile,
}
_TAR_MAGIC: Final = slice(257, 262)


class Download:
    """The method ``download``."""

    def resolve(self, ask: Ask, shop: Shop, old: Mapping[str, Any] | None) -> Pins:  # noqa: ARG002 - one file
        """Pin the digest that the driver states; fetch once to learn which image the program needs."""
        digest = ask.params.get("verify_sha256", "").lower().removeprefix("sha256:")
        if len(digest) != hashlib.sha256().digest_size * 2:
            raise InstallRefused(
                "INST-080", "`download` has no `verify_sha256`", "add the SHA-256 that you have reviewed"
            )
        data = self._program(ask, digest, shop)
        return Pins(base_of(data), {"sha256": digest})

    def build(self, ask: Ask, section: Mapping[str, Any], shop: Shop) -> Built:
        """Fetch, compare, take the program out."""
        data = self._program(ask, section["sha256"], shop)
        name = posixpath.basename(ask.params.get("extract_bin") or urlsplit(ask.wanted).path) or "server"
        return place(data, name, shop.offer(), ask.wanted)

    def _program(self, ask: Ask, digest: str, shop: Shop) -> bytes:
        file = shop.scratch / f"download-{digest}"
        if not file.exists():
            shop.progress.step(f"downloading {posixpath.basename(urlsplit(ask.wanted).path)}")
            if shop.networks.confined:
                fetch_confined(shop, ask.wanted, digest, file)
            else:
                fetch(ask.wanted, digest, file, hostca.bundle(shop.environ))
        return extract(file, ask.params.get("extract_bin", ""), shop.scratch)


def fetch(address: str, digest: str, file: Path, certificates: bytes) -> None:
    """Download a file and hold it against a digest (steps 1 to 3).

    Raises:
        InstallRefused: ``INST-081`` no https, ``INST-082`` too large, ``INST-083`` another digest.
        PlatformError: ``INST-084``, it could not be downloaded.
    """
    if urlsplit(address).scheme != "https":  # 1
        raise InstallRefused("INST-081", f"`{address[:200]}` is not https", "use an https address")
    context = ssl.create_default_context(cadata=certificates.decode("ascii", "ignore") or None)
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _OnlyHttps())
    try:
        with opener.open(address, timeout=DOWNLOAD_SECONDS) as answer, file.open("wb") as sink:  # 2
            found = _copy(answer, sink)
    except (OSError, urllib.error.URLError, ValueError) as error:
        file.unlink(missing_ok=True)
        raise PlatformError(
            "INST-084", f"`{address[:200]}` could not be downloaded: {error}", "check address and network"
        ) from None
    except InstallRefused:
        file.unlink(missing_ok=True)
        raise
    _compare(found, digest, address, file)  # 3


def fetch_confined(shop: Shop, address: str, digest: str, file: Path) -> None:
    """Download a file in build containers that reach its host only, hop by hop, and hold it against a digest.

    Raises:
        InstallRefused: as :func:`fetch`; ``INST-086`` too many redirects, ``INST-090`` no public address.
        PlatformError: ``INST-084``, it could not be downloaded.
    """
    for _ in range(MAX_REDIRECTS + 1):
        if urlsplit(address).scheme != "https":  # 1
            raise InstallRefused("INST-081", f"`{address[:200]}` is not https", "use an https address")
        output = shop.scratch / "download-answer"
        _hop(shop, address, output)
        with output.open("rb") as answer:
            said = answer.readline(MAX_ADDRESS).decode("utf-8", "replace").strip()
            if said == "body":
                with file.open("wb") as sink:  # 2
                    found = _copy(answer, sink)
                _compare(found, digest, address, file)  # 3
                return
        if not said.startswith("redirect "):
            raise PlatformError("INST-084", f"`{address[:200]}` could not be downloaded", "check address and network")
        address = said.removeprefix("redirect ")
    raise InstallRefused("INST-086", f"more than {MAX_REDIRECTS} redirects", "use the final address")


def _hop(shop: Shop, address: str, output: Path) -> None:
    """Fetch one address in a container; its answer is a redirect or a body."""
    program = Path(fetchfile.__file__).read_text("utf-8")
    job = Job(
        shop.image("build-python"),
        ("/usr/bin/sh", "-c", _FETCH, "fetch", program, address, str(MAX_DOWNLOAD_BYTES)),
        "download a file",
        files={"ca.pem": hostca.bundle(shop.environ)},
        env={"SSL_CERT_FILE": "/work/ca.pem", "HOME": "/work"},
        max_output=MAX_DOWNLOAD_BYTES + MAX_ADDRESS,
    )
    try:
        with shop.networks.open(Reach(DOWNLOAD, (origin(address),))) as network:
            shop.runner.run(replace(job, network=network), output)
    except BuildFailed as error:
        if error.code == fetchfile.TOO_LARGE:
            raise InstallRefused(
                "INST-082", f"the download is larger than {MAX_DOWNLOAD_BYTES} bytes", "use a smaller one"
            ) from None
        raise PlatformError(
            "INST-084", f"`{address[:200]}` could not be downloaded: {error.message}", "check address and network"
        ) from None


def _compare(found: str, digest: str, address: str, file: Path) -> None:
    if found != digest:
        file.unlink()
        raise InstallRefused(
            "INST-083",
            f"`{address[:200]}` has the SHA-256 {found}, and {digest} was reviewed",
            "do not use it; find out why the file has changed",
        )


def extract(file: Path, wanted: str, scratch: Path) -> bytes:
    """Return the program: one member of an archive, or the file itself when it is none (step 4).

    Raises:
        InstallRefused: ``INST-020`` … ``INST-025`` an unsafe archive, ``INST-085`` the member is not there.
    """
    plain = _decompressed(file, scratch)
    with plain.open("rb") as source:
        head = source.read(512)
    tree = Tree()
    bounds = Bounds(size=MAX_UNPACKED_BYTES)
    if head.startswith(b"PK\x03\x04"):
        unpack_zip(plain, tree, bounds=bounds)
    elif head[_TAR_MAGIC] == b"ustar":
        unpack_tar(plain, tree, bounds=bounds)
    else:
        return plain.read_bytes()
    entry = tree.get(wanted)
    if entry is None or entry.blob is None:
        names = [item.path for item in tree.ordered() if item.kind == "file" and item.mode & 0o111][:10]
        raise InstallRefused(
            "INST-085",
            f"the archive has no file `{wanted}`",
            f"correct `extract_bin`; programs in it: {', '.join(names) or 'none'}",
        )
    return entry.blob.read()


class _OnlyHttps(urllib.request.HTTPRedirectHandler):
    """Follows redirects to https only."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme != "https":
            fp.close()
            raise InstallRefused(
                "INST-081", f"the server redirects to `{newurl[:200]}`", "use an address that stays on https"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _copy(answer: Any, sink: IO[bytes]) -> str:
    digest, size = hashlib.sha256(), 0
    while piece := answer.read(MIB):
        size += len(piece)
        if size > MAX_DOWNLOAD_BYTES:
            raise InstallRefused(
                "INST-082", f"the download is larger than {MAX_DOWNLOAD_BYTES} bytes", "use a smaller one"
            )
        digest.update(piece)
        sink.write(piece)
    return digest.hexdigest()


def _decompressed(file: Path, scratch: Path) -> Path:
    """Return the file without gzip, bzip2 or xz, refusing a compression bomb."""
    with file.open("rb") as source:
        opener = next((known for magic, known in _OPENERS.items() if source.peek(2).startswith(magic)), None)
    if opener is None:
        return file
    target = scratch / f"{file.name}.plain"
    try:
        with opener(file) as source, target.open("wb") as sink:
            left = MAX_UNPACKED_BYTES
            while piece := source.read(MIB):
                left -= len(piece)
                if left < 0:
                    raise InstallRefused(
                        "INST-082", f"unpacked it is larger than {MAX_UNPACKED_BYTES} bytes", "use a smaller one"
                    )
                sink.write(piece)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise InstallRefused(
            "INST-025", f"{file.name} is not soundly compressed: {error}", "report it to its author"
        ) from None
    return target
