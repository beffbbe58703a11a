"""The supervisor's end of telemetry: starts the process that exports, records what it says, and takes leave of it.

Nothing of it is on the way of a call: the process reads the ledger. It runs in a session of its own, so that a signal
to ours leaves it the time to send what is left, and it ends when its socket does (ADR 0058).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from sandbox.audit.telemetry.settings import Settings

LEAVE_SECONDS: Final = 2.0
"""Seconds for which the end of a run waits for what is left to be sent; later the process goes on alone."""

MAX_SAID: Final = 4096
"""Bytes of one message of the process."""

WORKER: Final = "sandbox.audit.telemetry.worker"

_ROOT: Final = Path(__file__).resolve().parent.parent.parent.parent


class TelemetrySink:
    """A running exporter of one stream.

    Args:
        folder: the audit folder.
        stream: name of the stream.
        chosen: what goes where.
        told: is given each thing that the process says, on a thread of its own.
        environ: of the process; the standard variables are in it.

    Raises:
        OSError: the process cannot be started.
    """

    def __init__(
        self,
        folder: Path,
        stream: str,
        chosen: Settings,
        told: Callable[[Mapping[str, Any]], None],
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.chosen = chosen
        self._told = told
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-B", "-m", WORKER, str(folder.absolute()), stream, str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={**(os.environ if environ is None else environ), "PYTHONPATH": str(_ROOT), "PYTHONSAFEPATH": "1"},
                cwd="/",
            )
        self._listener = threading.Thread(target=self._listen, name="telemetry", daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        """Process id of the exporter."""
        return self._process.pid

    def close(self, patience: float = LEAVE_SECONDS) -> bool:
        """Let it send what is left, for so many seconds; return whether it has ended."""
        with contextlib.suppress(OSError):
            self._link.send(b"end", socket.MSG_DONTWAIT)
        self._listener.join(patience)
        if self._listener.is_alive():
            # It outlives us for a bounded time; the object must not warn that nobody waits for it.
            self._process.returncode = 0
            self._link.detach()  # the thread still reads it; it ends with us
            return False
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        self._process.returncode = self._process.returncode or 0
        self._link.close()
        return True

    def _listen(self) -> None:
        while True:
            try:
                data = self._link.recv(MAX_SAID)
            except OSError:
                return
            if not data:
                return
            said = json.loads(data)
            self._told(said)
            if said.get("state") == "ended":
                return
