"""Database servers of the tests' own: started from the distribution's packages, in a folder of their own, ended by pid.

PostgreSQL refuses to run as root, so that it runs as ``nobody`` then. Both listen on loopback at a port that was free.
A missing program fails the test: `.ci/setup test`, which `tests/run` begins with, installs both.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

READY = 30.0
"""Seconds in which a server has to answer; it takes about one."""


@dataclass
class Peer:
    """A server that runs.

    Attributes:
        url: of a fresh database.
        process: the server.
    """

    url: str
    process: subprocess.Popen[bytes]

    def pause(self) -> None:
        """Let it answer nothing; its children, which serve connections, neither."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it answer again."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it without a word."""
        self._signal(signal.SIGKILL)
        self.process.wait()

    def _signal(self, number: int) -> None:
        if self.process.poll() is not None:
            return
        own = psutil.Process(self.process.pid)
        for process in (own, *own.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)


def _program(name: str) -> str:
    found = shutil.which(name) or next((str(one) for one in Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), "")
    if not found:
        pytest.fail(f"{name} is not there: `.ci/setup test` installs it")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _user() -> dict[str, object]:
    """Return how a program runs as somebody who is not root."""
    if os.geteuid():
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


@contextlib.contextmanager
def _running(command: Sequence[str], folder: Path, ready: Sequence[str], url: str, **how: object) -> Iterator[Peer]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **how)  # type: ignore[call-overload]
    try:
        until = time.monotonic() + READY
        while subprocess.run(ready, capture_output=True, check=False).returncode:
            if process.poll() is not None or time.monotonic() > until:
                pytest.fail((folder / "log").read_text("utf-8", "replace")[-2000:])
            time.sleep(0.05)
        yield Peer(url, process)
    finally:
        Peer(url, process).kill()


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mcps-") as name:
        folder = Path(name)
        how = _user()
        if how:
            os.chown(folder, int(str(how["user"])), int(str(how["group"])))
        yield folder


@contextlib.contextmanager
def postgres() -> Iterator[Peer]:
    """Yield a PostgreSQL server with one empty database."""
    initdb, server, ready = (_program(name) for name in ("initdb", "postgres", "pg_isready"))
    with _folder() as folder:
        how, data, port = _user(), str(folder / "data"), str(_free_port())
        made = [initdb, "-D", data, "-U", "gateway", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C"]
        subprocess.run(made, check=True, capture_output=True, cwd=folder, **how)  # type: ignore[call-overload]
        command = [server, "-D", data, "-p", port, "-h", "127.0.0.1", "-k", str(folder), "-F"]
        asked = [ready, "-q", "-h", "127.0.0.1", "-p", port]
        with _running(command, folder, asked, f"postgresql://gateway@127.0.0.1:{port}/postgres", **how) as peer:
            yield peer


@contextlib.contextmanager
def redis() -> Iterator[Peer]:
    """Yield a Redis server that is empty."""
    server, client = _program("redis-server"), _program("redis-cli")
    with _folder() as folder:
        port = str(_free_port())
        command = [server, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        asked = [client, "-e", "-p", port, "ping"]
        with _running(command, folder, asked, f"redis://127.0.0.1:{port}/0", **_user()) as peer:
            yield peer
