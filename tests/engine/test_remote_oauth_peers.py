"""Logins against software of others: Authlib gives out the tokens, the Python SDK's guard and PyJWT take them."""

from __future__ import annotations

import contextlib
import functools
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engine.test_remote_oauth import desk_of, log_in
from tests.oauth_lab import issuing
from tests.oauth_remote_lab import World
from tests.remote_lab import ADDRESS, PEERS, await_port, free_port, network
from tests.tls_kit import Authority, authority

pytestmark = [pytest.mark.engine, pytest.mark.timeout(280)]


@pytest.fixture(scope="module", autouse=True)
def _network() -> Iterator[None]:
    """An address of the documentation range."""
    with network():
        yield


@contextlib.contextmanager
def tls_in_front(files: Authority, port: int, behind: int) -> Iterator[None]:
    """End TLS on the test's address, and pass everything on to a port of loopback."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    listening = socket.create_server((ADDRESS, port))

    def pump(source: Any, target: Any) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def carry(client: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            context.wrap_socket(client, server_side=True) as outer,
            socket.create_connection(("127.0.0.1", behind)) as inner,
        ):
            back = threading.Thread(target=pump, args=(inner, outer), daemon=True)
            back.start()
            pump(outer, inner)
            back.join(60)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listening.accept()
                threading.Thread(target=carry, args=(client,), daemon=True).start()

    taking = threading.Thread(target=accept, daemon=True)
    taking.start()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        taking.join(10)


@contextlib.contextmanager
def protected(files: Authority, issuer: str, keys: str) -> Iterator[int]:
    """Run the SDK's server; yield its port."""
    port = free_port(ADDRESS)
    script = str(PEERS / "oauth_protected.py")
    argv = [sys.executable, script, ADDRESS, str(port), str(files.cert), str(files.key), issuer, keys]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        await_port(ADDRESS, port, process)
        yield port
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def peers(folder: Path) -> Iterator[tuple[Any, str]]:
    """Run issuer and server; yield what stands for the world, and the secret of the issuer's clients."""
    files = authority(folder, ADDRESS)
    front = free_port(ADDRESS)
    url = f"https://{ADDRESS}:{front}"
    with issuing(url) as issuer:
        behind = int(issuer.url.rpartition(":")[2])
        with tls_in_front(files, front, behind), protected(files, url, f"{issuer.url}/jwks") as port:
            rules = (f"{ADDRESS}:{front}", f"{ADDRESS}:{port}")
            made = SimpleNamespace(
                files=files, issuer=SimpleNamespace(url=url), rules=lambda: rules,
                server=SimpleNamespace(mcp=f"https://{ADDRESS}:{port}/mcp"),
            )  # fmt: skip
            made.visit = functools.partial(World.visit, made)
            yield made, issuer.secret


def test_a_person_and_a_machine_with_peers_of_others(tmp_path: Path) -> None:
    """A registered client logs in and calls; a machine calls with its own id; without scopes neither does."""
    with peers(tmp_path) as (found, secret):
        for name in ("person", "machine", "less"):
            (tmp_path / name).mkdir()
        person = desk_of(tmp_path / "person", found, {"scopes": ["text:use"]})
        before = person.call("hi")
        said = log_in(person)
        called = person.call("hé")
        auth = {
            "grant": "client_credentials", "issuer": found.issuer.url, "client_id": "robot",
            "client_secret": "${secrets.CLIENT_SECRET}", "scopes": ["text:use"],
        }  # fmt: skip
        machine = desk_of(tmp_path / "machine", found, auth)
        machine.secret = secret
        done = machine.call("ho")
        less = desk_of(tmp_path / "less", found, {**auth, "scopes": ["text:read"]})
        less.secret = secret
        refused = less.call("ho")
        out = person.run("logout")

    assert "OAU-001" in before.stderr
    assert f"logged in at {found.issuer.url}\nscopes: text:use\n" in said
    assert (0, "hé\n") == (called.returncode, called.stdout), called.stderr
    assert (0, "ho\n") == (done.returncode, done.stdout), done.stderr
    assert "OAU-034" in refused.stderr, refused.stderr
    assert 0 == out.returncode, out.stderr
    assert [] == person.logins
