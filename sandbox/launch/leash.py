"""Starts the watchdog and takes leave of it: the supervisor's end of the pipe."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from sandbox.errors import PlatformError
from sandbox.launch import watchdog

_PROGRAM: Final = Path(watchdog.__file__)


class Leash:
    """A running watchdog. While this process lives, so does the pipe; when it dies, by any signal, the pipe ends.

    Args:
        socket_path: engine's socket.
        run_id: what the watchdog removes.
        folder: of the run's secret files, removed as well; empty for none.

    Raises:
        PlatformError: ``LAUNCH-007``, it cannot be started; then nothing may be started that it would have to remove.
    """

    def __init__(self, socket_path: str, run_id: str, folder: str = "") -> None:
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", str(_PROGRAM), socket_path, run_id, folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                close_fds=True,
                start_new_session=True,
                env={},
                cwd="/",
            )
        except OSError as error:
            raise PlatformError(
                "LAUNCH-007",
                f"the watchdog that removes what a killed supervisor leaves cannot be started ({error.strerror})",
                "free processes or memory on this host",
            ) from None

    @property
    def pid(self) -> int:
        """Process id of the watchdog."""
        return self._process.pid

    def alive(self) -> bool:
        """Return whether it still watches."""
        return self._process.poll() is None

    def release(self) -> None:
        """Say that nothing is left, and wait for its end."""
        self._end(watchdog.DONE)

    def abandon(self) -> None:
        """Leave the rest to it: it finds the pipe ended, removes what there is, and ends by itself."""
        pipe = self._process.stdin
        if pipe is not None and not pipe.closed:
            pipe.close()
        # The process must outlive this one; nobody waits for it here, so the object must not warn about that.
        self._process.returncode = 0

    def _end(self, word: bytes) -> None:
        pipe = self._process.stdin
        if pipe is None or pipe.closed:
            return
        with contextlib.suppress(OSError):  # it may have ended before us; then there is nothing to tell it
            os.write(pipe.fileno(), word)
        pipe.close()
        self._process.wait()
