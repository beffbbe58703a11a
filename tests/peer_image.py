"""An image of ordinary clients and servers, from Debian packages, for tests that want the real thing."""

from __future__ import annotations

import functools
import hashlib
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import docker

from tests.conftest import ENGINE_SOCKET

PACKAGES: Final = (
    *(
        "base-files",
        "netbase",
        "libc6",
        "libc-bin",
        "libgcc-s1",
        "dash",
        "coreutils",
        "tzdata",
        "openssl",
        "curl",
        "git",
    ),
    *("python3", "python3-psycopg", "python3-redis", "python3-httpx", "python3-h2", "python3-requests"),
    *("python3-websockets", "postgresql-15", "redis-server", "openssh-server", "openssh-client"),
    *("nghttp2-server", "haproxy"),
)

HOOK: Final = """set -e
printf 'root:x:0:0:root:/root:/usr/bin/dash\\nsshd:x:100:100::/run/sshd:/usr/sbin/nologin\\n' >"$1/etc/passwd"
printf 'postgres:x:101:101::/tmp:/usr/bin/dash\\nsandbox:x:65532:65532::/tmp:/usr/bin/dash\\n' >>"$1/etc/passwd"
printf 'root:x:0:\\nsshd:x:100:\\npostgres:x:101:\\nsandbox:x:65532:\\n' >"$1/etc/group"
printf 'root:*:::::::\\nsandbox:*:::::::\\n' >"$1/etc/shadow"
printf 'passwd: files\\ngroup: files\\nhosts: files dns\\nservices: files\\n' >"$1/etc/nsswitch.conf"
ln -sf dash "$1/usr/bin/sh"
mkdir -p "$1/run/sshd" "$1/root" "$1/tmp"
ldconfig -r "$1" -X
"""
"""Maintainer scripts do not run for an extracted tree; this is what the programs here need of them."""


@functools.cache
def peer_image() -> str:
    """Return the id of the image, made when it is not there (half a minute)."""
    digest = hashlib.sha256("\n".join((*PACKAGES, HOOK)).encode()).hexdigest()[:12]
    client = docker.DockerClient(base_url=f"unix://{ENGINE_SOCKET}", timeout=600)
    try:
        try:
            return str(client.images.get(f"mcp-sandbox-test/peers:{digest}").id)
        except docker.errors.ImageNotFound:
            with tempfile.TemporaryDirectory() as folder:
                _make(Path(folder))
                client.api.import_image_from_file(f"{folder}/root.tar", repository="mcp-sandbox-test/peers", tag=digest)
        return str(client.images.get(f"mcp-sandbox-test/peers:{digest}").id)
    finally:
        client.close()


def _make(folder: Path) -> None:
    hook = folder / "hook.sh"
    hook.write_text(HOOK)
    command = ["mmdebstrap", "--variant=extract", f"--include={','.join(PACKAGES)}"]
    command += ["--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr", f'--extract-hook=sh {hook} "$1"']
    subprocess.run([*command, "bookworm", str(folder / "root.tar")], check=True, capture_output=True)
