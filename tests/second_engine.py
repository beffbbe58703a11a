"""A Docker engine of a test's own, which may be stopped, killed and reconfigured without disturbing anybody."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ENGINE_SOCKET

READY_SECONDS = 60


class SecondEngine:
    """A dockerd with its own data, sockets and configuration; no bridge, no firewall rules.

    Args:
        folder: short path; socket paths are bounded.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "d.sock"
        self.config = folder / "daemon.json"
        self.containerd: subprocess.Popen[bytes] | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.configure({})

    def configure(self, values: Mapping[str, Any]) -> None:
        """Write the configuration; a running engine reads it again on SIGHUP."""
        self.config.write_text(json.dumps(values))
        if self.process is not None:
            self.process.send_signal(signal.SIGHUP)

    def start(self) -> None:
        """Start it, with a containerd beside it as distributions have, and wait until it answers."""
        if self.containerd is None:
            self._start_containerd()
        # In a network namespace of its own: an engine with --bridge=none removes the other engine's docker0.
        command = [
            "unshare", "--net", "dockerd", f"--data-root={self.folder}/data", f"--exec-root={self.folder}/exec", f"--host=unix://{self.socket}",
            f"--pidfile={self.folder}/pid", f"--config-file={self.config}", "--bridge=none", "--iptables=false",
            "--ip-masq=false", f"--containerd={self.folder}/c.sock",
            "--exec-opt=native.cgroupdriver=cgroupfs", f"--cgroup-parent=/{self.folder.name}",
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + READY_SECONDS
        while not self.answers():
            if time.monotonic() > deadline or self.process.poll() is not None:
                pytest.fail(f"the second engine did not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)

    def _start_containerd(self) -> None:
        """Start the process that keeps containers while the engine restarts."""
        settings = self.folder / "containerd.toml"
        settings.write_text('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
        command = [
            "containerd", f"--config={settings}", f"--root={self.folder}/croot", f"--state={self.folder}/cstate",
            f"--address={self.folder}/c.sock",
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self.containerd = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def answers(self) -> bool:
        """Return whether it answers a request."""
        command = ["docker", "-H", f"unix://{self.socket}", "version", "--format", "{{.Server.Version}}"]
        return subprocess.run(command, capture_output=True, check=False, timeout=READY_SECONDS).returncode == 0

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it: in good order, or as a crash would."""
        if self.process is None:
            return
        self.process.send_signal(how)
        self.process.wait(READY_SECONDS)
        self.process = None

    def remove(self) -> None:
        """Stop it, its containerd and shims, and delete its data."""
        with contextlib.suppress(subprocess.SubprocessError):
            self.stop()
        if self.containerd is not None:
            self.containerd.kill()
            self.containerd.wait()
        for pid in (*self._helpers(), *self._contained()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            target = line.split()[1]
            if target.startswith(f"{self.folder}/"):
                subprocess.run(["umount", "-l", target], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        for folder in sorted(Path("/sys/fs/cgroup").glob(f"**/{self.folder.name}/**/"), reverse=True):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _contained(self) -> list[int]:
        """Return the processes of containers that an engine which did not come back has left."""
        files = Path("/sys/fs/cgroup").glob(f"**/{self.folder.name}/**/cgroup.procs")
        return [int(line) for path in files for line in path.read_text().split()]

    def _helpers(self) -> list[int]:
        """Return the processes whose command line names this engine's own folder."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if f"{self.folder}/" in path.read_text() and int(path.parent.name) != os.getpid():
                    found.append(int(path.parent.name))
        return found


@contextlib.contextmanager
def second_engine() -> Iterator[SecondEngine]:
    """Yield a running engine of one's own; only root can have one."""
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("only root with dockerd installed can start an engine of its own")
    assert ENGINE_SOCKET.exists()
    engine = SecondEngine(Path(tempfile.mkdtemp(prefix="mse-")))
    try:
        engine.start()
        yield engine
    finally:
        engine.remove()
