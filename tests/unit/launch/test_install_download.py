"""Downloads over real TLS from a server on this machine: digest, size, redirects, unknown authorities."""

from __future__ import annotations

import hashlib
import http.server
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import InstallRefused, PlatformError
from sandbox.launch.install import download
from tests.tls_kit import Authority, authority

BODY = b"#!/usr/bin/env node\n" * 100
DIGEST = hashlib.sha256(BODY).hexdigest()


class Files(http.server.BaseHTTPRequestHandler):
    """Serves one file, redirects and an endless body."""

    def do_GET(self) -> None:
        """Answer by path."""
        if self.path == "/file":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(BODY)
        elif self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", {"/to/file": "/file", "/to/plain": "http://127.0.0.1:1/file"}[self.path])
            self.end_headers()
        else:
            self.send_error(404)

    def log_message(self, *args: object) -> None:
        """Stay quiet."""


class Quiet(http.server.ThreadingHTTPServer):
    """Says nothing about clients that do not trust it."""

    def handle_error(self, *args: object) -> None:
        """Ignore it; the connection is closed by the caller."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Authority]]:
    """Serve https on this machine."""
    own = authority(tmp_path_factory.mktemp("tls"), "127.0.0.1")
    server = Quiet(("127.0.0.1", 0), Files)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.cert, own.key)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}", own
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("path", ["/file", "/to/file"])
def test_reviewed_file_arrives(path: str, site: tuple[str, Authority], tmp_path: Path) -> None:
    """The file that was reviewed is kept, also behind a redirect that stays on https."""
    address, own = site

    download.fetch(address + path, DIGEST, tmp_path / "d", own.bundle.read_bytes())

    assert BODY == (tmp_path / "d").read_bytes()


@pytest.mark.claim("P-INST-06")
def test_changed_file_is_refused(site: tuple[str, Authority], tmp_path: Path) -> None:
    """A file with another digest is not kept, whatever it is."""
    address, own = site

    with pytest.raises(InstallRefused) as caught:
        download.fetch(address + "/file", "0" * 64, tmp_path / "d", own.bundle.read_bytes())

    assert "INST-083" == caught.value.id
    assert [] == list(tmp_path.iterdir())


def test_redirect_to_plain_http_is_refused(site: tuple[str, Authority], tmp_path: Path) -> None:
    """A redirect cannot take TLS away."""
    address, own = site

    with pytest.raises(InstallRefused) as caught:
        download.fetch(address + "/to/plain", DIGEST, tmp_path / "d", own.bundle.read_bytes())

    assert "INST-081" == caught.value.id


def test_unknown_authority_is_refused(site: tuple[str, Authority], tmp_path: Path) -> None:
    """Without the authority in the host's bundle the server is nobody."""
    other = authority(tmp_path, "other.example")

    with pytest.raises(PlatformError) as caught:
        download.fetch(site[0] + "/file", DIGEST, tmp_path / "d", other.bundle.read_bytes())

    assert "INST-084" == caught.value.id
    assert "certificate" in caught.value.message


def test_body_beyond_the_bound_is_refused(
    site: tuple[str, Authority], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body is counted while it arrives, at the bound and one above it."""
    address, own = site
    monkeypatch.setattr(download, "MAX_DOWNLOAD_BYTES", len(BODY))
    download.fetch(address + "/file", DIGEST, tmp_path / "d", own.bundle.read_bytes())
    monkeypatch.setattr(download, "MAX_DOWNLOAD_BYTES", len(BODY) - 1)

    with pytest.raises(InstallRefused) as caught:
        download.fetch(address + "/file", DIGEST, tmp_path / "e", own.bundle.read_bytes())

    assert "INST-082" == caught.value.id
    assert not (tmp_path / "e").exists()
