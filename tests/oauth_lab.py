"""A real authorization server in a container: Authlib on the project's own Python image, with the tests' packages.

It stands on a network of its own that translates no addresses, so nothing of it leaves this machine; the engine
publishes its one port on loopback, where the gateway, its clients and the test reach it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import authlib
import docker
import httpx2
from docker.models.containers import Container

from tests.conftest import ENGINE_SOCKET
from tests.egress_lab import PEERS, PYTHON, image

PREFIX: Final = "mcp-sandbox-test-oauth"
PORT: Final = 8080
SITE: Final = Path(authlib.__file__).parents[1]
PATIENCE: Final = 120.0
"""Seconds for a start on a busy machine."""


@dataclass
class Issuer:
    """The authorization server in a container of its own."""

    url: str
    secret: str
    container: Container

    def token(self, client: str, resource: str, scope: str = "text:use") -> str:
        """Return a token of the client-credentials grant."""
        form = {"grant_type": "client_credentials", "scope": scope, "resource": resource}
        answer = httpx2.post(self.url + "/token", data=form, auth=(client, self.secret), trust_env=False)
        return str(answer.json()["access_token"])

    def mint(self, head: Mapping[str, Any] | None = None, *, foreign: bool = False, **claims: Any) -> str:
        """Return a token that no honest issuer would give out, well signed unless by a foreign key."""
        asked = {"claims": claims, "head": head or {}, "foreign": foreign}
        return str(httpx2.post(self.url + "/test/mint", json=asked, trust_env=False).json()["token"])

    def revoke(self, token: str) -> None:
        """Take a token back (RFC 7009)."""
        gateway = ("gateway", self.secret)
        assert httpx2.post(self.url + "/revoke", data={"token": token}, auth=gateway, trust_env=False).is_success

    def rotate(self) -> None:
        """Sign with a new key, and withdraw the old one."""
        httpx2.post(self.url + "/test/rotate", trust_env=False)

    def key(self) -> dict[str, Any]:
        """Return the public key that tokens are signed with."""
        return dict(httpx2.get(self.url + "/jwks", trust_env=False).json()["keys"][0])

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Freeze it: connections are taken, and nothing is answered."""
        self.container.pause()
        try:
            yield
        finally:
            self.container.unpause()


@contextlib.contextmanager
def issuing(front: str = "") -> Iterator[Issuer]:
    """Run the authorization server; its container and its network go afterwards.

    Args:
        front: address by which it calls itself, when something stands in front of it.
    """
    name, secret = f"{PREFIX}-{os.urandom(4).hex()}", secrets.token_hex(16)
    with contextlib.ExitStack() as stack:
        client = docker.DockerClient(base_url=f"unix://{ENGINE_SOCKET}", timeout=120)
        stack.callback(client.close)
        own = {"com.docker.network.bridge.enable_ip_masquerade": "false"}
        network = client.networks.create(name, driver="bridge", options=own)
        stack.callback(network.remove)
        container = client.containers.create(
            image("python"), name=name, entrypoint=[PYTHON, "-B", "/peer/oauth_server.py"], network=name,
            user="65532:65532", cap_drop=["ALL"], security_opt=["no-new-privileges"], read_only=True, stdin_open=True,
            mem_limit="256m", pids_limit=64, environment={"PYTHONPATH": "/site"}, ports={PORT: ("127.0.0.1", None)},
            volumes={
                str(SITE): {"bind": "/site", "mode": "ro"},
                str(PEERS / "oauth_server.py"): {"bind": "/peer/oauth_server.py", "mode": "ro"},
            },
        )  # fmt: skip
        stack.callback(container.remove, force=True)
        sock = container.attach_socket(params={"stdin": 1, "stream": 1})
        stack.callback(lambda: (sock._response.close(), sock.close()))
        container.start()
        url = f"http://127.0.0.1:{_published(container)}"
        sock._sock.sendall(json.dumps({"secret": secret, "url": front or url, "port": PORT}).encode() + b"\n")
        _await(url, container)
        yield Issuer(url, secret, container)


def _published(container: Container) -> int:
    """Return the port of this machine at which the container's is reached."""
    container.reload()
    return int(container.ports[f"{PORT}/tcp"][0]["HostPort"])


def _await(url: str, container: Container) -> None:
    """Return when the server answers with its metadata; say what it said when it does not."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with contextlib.suppress(httpx2.HTTPError):
            if httpx2.get(url + "/.well-known/oauth-authorization-server", trust_env=False).is_success:
                return
        container.reload()
        if container.status == "exited":
            break
        time.sleep(0.1)
    raise AssertionError(container.logs().decode("utf-8", "replace")[-2000:])
