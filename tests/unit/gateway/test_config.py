"""``gateway.toml`` and the command line: strict, and closed by default."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from sandbox.cli import main
from sandbox.cli.gateway.config import GatewayConfig, check_exposure, listen_of, load_config
from sandbox.cli.gateway.listening import listening
from sandbox.cli.gateway.mounts import for_tenant
from sandbox.errors import UsageError
from sandbox.serve.http.fields import places_of
from sandbox.tenant import TenantId


@pytest.mark.parametrize(
    "text",
    [
        "unknown = 1",
        "[limits]\ncalls-per-second = 0",
        "[limits]\ndrain = -1",
        "[limits]\ntask-after = 0",
        "[driver.x]\nauth = 'basic'",
        "[driver.x]\npath = '/mcp'",
        "[driver.x]\npath = '/mcp/../admin'",
        "[[issuer]]\nurl = 'http://issuer.example'",
        "[[issuer]]\nurl = 'https://issuer.example'\njwks-uri = 'file:///etc/passwd'",
        "[[issuer]]\nurl = 'https://issuer.example'\nalgorithms = ['HS256']",
        "[[issuer]]\nurl = 'https://issuer.example'\nalgorithms = ['none']",
        "public-url = 'https://mcp.example.com/'",
        "public-url = 'http://mcp.example.com'",
        "not toml",
    ],
)
def test_what_is_not_meant_is_refused(text: str, tmp_path: Path) -> None:
    """Unknown keys, weak algorithms and addresses in the clear stop the start."""
    file = tmp_path / "gateway.toml"
    file.write_text(text)

    with pytest.raises(UsageError, match="CLI-180"):
        load_config(file)


def test_beyond_loopback_nothing_travels_in_the_clear_and_nobody_is_let_in_unasked() -> None:
    """Another address needs an https URL, and never takes everybody for one tenant."""
    check_exposure(GatewayConfig(), ("127.0.0.1", 80))
    check_exposure(GatewayConfig(public_url="https://mcp.example.com"), ("0.0.0.0", 80))
    with pytest.raises(UsageError, match="CLI-182"):
        check_exposure(GatewayConfig(), ("0.0.0.0", 80))
    with pytest.raises(UsageError, match="CLI-183"):
        check_exposure(GatewayConfig(public_url="https://x.example", unsafe_tenant="me"), ("0.0.0.0", 80))


@pytest.mark.parametrize("text", ["8080", "host", "1.2.3.4:99999", "a b:1", "::1:80"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    """CLI-181."""
    with pytest.raises(UsageError, match="CLI-181"):
        listen_of(text)
    assert ("::1", 80) == listen_of("[::1]:80")


@pytest.mark.parametrize("tenant", ["../beta", "..", "a/b", "A", "", "x" * 70, "ünï", "nobody/../acme", "."])
def test_the_name_of_a_tenant_is_never_a_path(tenant: str) -> None:
    """Anything but a plain word becomes a digest: no tenant names another's folder."""
    made = for_tenant("/srv/{tenant}/data", TenantId(tenant))

    assert "/srv/t-" == made[:7]
    assert "/srv/acme/data" == for_tenant("/srv/{tenant}/data", TenantId("acme"))
    assert 3 == made.count("/")


def test_a_taken_port_and_a_folder_without_drivers_are_told(tmp_path: Path) -> None:
    """Both are found before anything is started."""
    (tmp_path / "empty").mkdir()
    audit = ["--audit-dir", str(tmp_path / "audit")]

    assert 2 == main(["serve", str(tmp_path / "empty"), "--listen", "127.0.0.1:0", *audit])
    assert 2 == main(["serve", str(tmp_path / "empty"), "--listen", "nonsense", *audit])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert 5 == main(["serve", str(tmp_path / "empty"), "--listen", address, *audit])


def test_only_own_names_are_answered_to() -> None:
    """Loopback has three names; a public URL adds its own; nothing else."""
    own = places_of(("127.0.0.1", 8080), "https://mcp.example.com")

    assert {"127.0.0.1:8080", "localhost:8080", "[::1]:8080", "mcp.example.com"} == own.hosts
    assert "https://mcp.example.com" in own.origins
    assert "https://evil.example" not in own.origins


def test_answers_do_not_wait_for_acknowledgements() -> None:
    """Head and body of an answer are two writes; with Nagle's algorithm the second would wait 40 ms."""
    with listening(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        listener.setblocking(True)
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert socket.IPPROTO_TCP == accepted.proto
