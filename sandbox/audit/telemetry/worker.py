"""The process that exports one stream: ``python -m sandbox.audit.telemetry.worker FOLDER STREAM DESCRIPTOR``.

It lives as long as the other end of its socket, and a little longer for what is left. What it says goes through that
socket: one JSON object for each change (``ready``, ``failing``, ``sending``) and one at the end (``ended``).

Nothing is dropped for want of room: as many records are read as the SDK's queues take, and the rest waits in the
ledger. What a collector does not take in time is given up by the exporter and counted.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sandbox.audit.tail import parse
from sandbox.audit.telemetry.follow import Follower
from sandbox.audit.telemetry.project import Projector
from sandbox.audit.telemetry.settings import Settings, settings
from sandbox.audit.telemetry.values import Item

PAUSE: Final = 0.2
"""Seconds between two looks at a ledger that has not grown."""

LAST_SECONDS: Final = 10.0
"""Seconds in which everything that is left is exported once the run has ended; then the process ends anyway."""

PORTION: Final = 256
"""Values handed to the SDK between two flushes; the default queues take 2048, and smaller ones take less at a time."""

NICE: Final = 10
"""A server's start and its calls go first."""

MAX_WHY: Final = 300
"""Characters of the reason of a failure."""


class Reasons(logging.Handler):
    """Keeps the last message of the SDK, which is the only place where it says why an export failed."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one message."""
        self.last = record.getMessage()[:MAX_WHY]


class Worker:
    """Follows, projects, exports, and reports.

    Args:
        folder: the audit folder.
        stream: what is exported.
        link: to the process whose stream it is.
        chosen: what goes where.
    """

    def __init__(self, folder: Path, stream: str, link: socket.socket, chosen: Settings) -> None:
        self._follower, self._projector = Follower(folder, stream), Projector()
        self._stream, self._link, self._chosen = stream, link, chosen
        self._reasons, self._failing = Reasons(), False
        self._over = threading.Event()
        self._read = self._skipped = 0
        self._tally: Any = None
        self._most = portion(os.environ)

    def run(self) -> None:
        """Export until the other side is gone or says so, then what is left."""
        logging.getLogger("opentelemetry").addHandler(self._reasons)
        threading.Thread(target=self._listen, daemon=True).start()
        from sandbox.audit.telemetry.exporters import Exporters, Tally  # noqa: PLC0415 - half a second

        self._tally = Tally({}, {}, self._went)
        try:
            exporters = Exporters(self._chosen.signals, self._tally, self._stream)
        except Exception as error:  # noqa: BLE001 - a variable that the SDK refuses, or an exporter that is not installed
            self._tell(state="failing", why=f"{type(error).__name__}: {error}"[:MAX_WHY])
            self._report(finished=False)
            return
        self._tell(state="ready", signals=dict(self._chosen.signals))
        while not self._over.is_set():
            if not self._portion(exporters):
                self._over.wait(PAUSE)
        while self._portion(exporters):
            pass
        for item in self._projector.end():
            exporters.emit(item)
        exporters.shutdown()
        self._report(finished=True)

    def _portion(self, exporters: Any) -> bool:
        """Export what is there now; return whether there was something."""
        lines = self._follower.lines()
        handed = 0
        for line in lines:
            record = parse(line)
            self._read += 1
            for item in self._projected(record):
                exporters.emit(item)
                handed += 1
            if handed >= self._most:
                exporters.flush()
                handed = 0
        return bool(lines)

    def _projected(self, record: dict[str, Any] | None) -> list[Item]:
        """Return what a record becomes; one that defeats us is counted and costs the others nothing."""
        try:
            return self._projector.take(record) if record is not None else []
        except Exception as error:  # noqa: BLE001 - a defect of ours must not end the export
            self._skipped += 1
            if self._skipped == 1:
                self._tell(state="failing", why=f"a record cannot be projected: {type(error).__name__}")
            return []

    # --- the other side
    def _listen(self) -> None:
        """Wait for the end of the run; from then on time is short."""
        with contextlib.suppress(OSError):
            self._link.recv(16)
        self._over.set()
        time.sleep(LAST_SECONDS)
        self._report(finished=False)
        os._exit(0)

    def _went(self, good: bool) -> None:
        if good == self._failing:
            self._failing = not good
            if good:
                self._tell(state="sending")
            else:
                self._tell(state="failing", why=self._reasons.last or "an export failed")

    def _report(self, *, finished: bool) -> None:
        sent, failed = (self._tally.sent, self._tally.failed) if self._tally is not None else ({}, {})
        self._tell(
            state="ended",
            finished=finished,
            records=self._read,
            skipped=self._skipped,
            sent=dict(sent),
            failed=dict(failed),
        )

    def _tell(self, **said: Any) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more
            self._link.send(json.dumps(said).encode(), socket.MSG_DONTWAIT)


def portion(environ: Mapping[str, str]) -> int:
    """Return how many values may be handed over at once, so that no queue of the SDK overflows."""
    sizes = (environ.get(name, "") for name in ("OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BLRP_MAX_QUEUE_SIZE"))
    return max(1, min(PORTION, *(int(size) // 3 for size in sizes if size.isdigit()), PORTION))


def main(argv: list[str]) -> int:
    """Run the process."""
    folder, stream, descriptor = argv
    with contextlib.suppress(OSError):
        os.nice(NICE)
    chosen = settings(os.environ)
    if chosen is None:
        return 0
    Worker(Path(folder), stream, socket.socket(fileno=int(descriptor)), chosen).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
