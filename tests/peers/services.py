"""Real servers on one pretended host: PostgreSQL, Redis, SSH with git, HTTP/2, HTTPS files, WebSocket.

Runs in the test's peer image as root: ``python3 services.py <certificate and key, PEM, base64> <public key>``.
"""

# ruff: noqa: T201 - standard output is the record
from __future__ import annotations

import asyncio
import base64
import functools
import http.server
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import websockets

PG = "/usr/lib/postgresql/15/bin"
PEM = "/tmp/host.pem"


def run(*command: str, user: int = 0, folder: str = "/tmp") -> None:
    """Run a program to its end; a failure ends this host."""
    subprocess.run(command, check=True, user=user, group=user, cwd=folder, stdout=subprocess.DEVNULL)


def start(*command: str, user: int = 0) -> None:
    """Start a server."""
    subprocess.Popen(command, user=user, group=user, cwd="/tmp", stdout=subprocess.DEVNULL)


def postgres() -> None:
    """PostgreSQL on 5432, user and database ``app``; TLS is offered."""
    Path("/tmp/pg").mkdir()
    os.chown("/tmp/pg", 101, 101)
    run(f"{PG}/initdb", "-D", "/tmp/pg", "-A", "trust", "-E", "UTF8", "--locale=C", user=101)
    Path("/tmp/pg/pg_hba.conf").write_text("host all all 0.0.0.0/0 trust\nlocal all all trust\n")
    Path("/tmp/pg.pem").write_text(Path(PEM).read_text())
    os.chown("/tmp/pg.pem", 101, 101)
    Path("/tmp/pg.pem").chmod(0o600)
    options = ["listen_addresses=*", "unix_socket_directories=/tmp", "fsync=off", "ssl=on"]
    options += ["ssl_cert_file=/tmp/pg.pem", "ssl_key_file=/tmp/pg.pem"]
    start(f"{PG}/postgres", "-D", "/tmp/pg", *(part for option in options for part in ("-c", option)), user=101)


def ssh(public_key: str) -> None:
    """SSH on 22 for user ``sandbox``, with a git repository."""
    Path("/run/sshd").mkdir(exist_ok=True)
    home = Path("/tmp/ssh")
    home.mkdir()
    (home / "authorized_keys").write_text(public_key + "\n")
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/tmp/ssh/host")
    start(
        *(
            "/usr/sbin/sshd",
            "-f",
            "/dev/null",
            "-D",
            "-e",
            "-p",
            "22",
            "-h",
            "/tmp/ssh/host",
            "-o",
            "AuthorizedKeysFile=/tmp/ssh/authorized_keys",
        ),
        *("-o", "StrictModes=no", "-o", "UsePAM=no", "-o", "PidFile=none"),
    )


def repository() -> None:
    """A repository that is cloned over SSH and, as plain files, over HTTPS."""
    run("git", "init", "-q", "--bare", "/tmp/repo.git")
    run("git", "clone", "-q", "/tmp/repo.git", "/tmp/work")
    Path("/tmp/work/README").write_text("hello from the repository\n")
    who = ("-c", "user.name=t", "-c", "user.email=t@example.test")
    run("git", "-C", "/tmp/work", "add", "README")
    run("git", "-C", "/tmp/work", *who, "commit", "-q", "-m", "first")
    run("git", "-C", "/tmp/work", "push", "-q", "origin", "HEAD:refs/heads/master")
    run("git", "-C", "/tmp/repo.git", "update-server-info")
    run("git", "config", "--system", "--add", "safe.directory", "*")


def files() -> None:
    """Serve /tmp over HTTPS on 8443."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory="/tmp")
    server = http.server.ThreadingHTTPServer(("0.0.0.0", 8443), handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


async def echo(socket_: Any, *_: Any) -> None:
    """Send WebSocket messages back."""
    async for message in socket_:
        await socket_.send(message)


def prepare() -> None:
    """Start what is a program of its own."""
    Path(PEM).write_bytes(base64.b64decode(sys.argv[1]))
    postgres()
    start("redis-server", "--port", "6379", "--protected-mode", "no", "--save", "", "--bind", "0.0.0.0")
    repository()
    ssh(sys.argv[2])
    files()
    Path("/tmp/index.html").write_text("hello over two")
    start("nghttpd", "-d", "/tmp", "443", PEM, PEM)


async def main() -> None:
    """Start everything and say so."""
    prepare()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    async with websockets.serve(echo, "0.0.0.0", 80), websockets.serve(echo, "0.0.0.0", 9443, ssl=context):
        for port in (5432, 6379, 22, 8443, 443, 80, 9443):
            await asyncio.to_thread(reach, port)
        run(f"{PG}/psql", "-h", "/tmp", "-U", "postgres", "-c", "create role app superuser login", user=101)
        run(f"{PG}/psql", "-h", "/tmp", "-U", "postgres", "-c", "create database app owner app", user=101)
        print(json.dumps({"host": "services", "protocol": "ready"}), flush=True)
        await asyncio.Event().wait()


def reach(port: int) -> None:
    """Wait for a server."""
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(port)


asyncio.run(main())
