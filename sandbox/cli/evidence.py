"""Opens the audit trail for a command."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager

from sandbox.audit.recorder import LedgerRecorder, open_recorder
from sandbox.audit.telemetry.settings import settings
from sandbox.cli.report import line_of, say
from sandbox.launch import owner


@contextmanager
def trail(arguments: argparse.Namespace) -> Iterator[LedgerRecorder]:
    """Yield the recorder of one process; everything is sealed when it ends."""
    recorder = open_recorder(arguments.audit_dir, owner.new_run_id())
    chosen = settings(os.environ)
    try:
        if chosen is not None:
            for problem in chosen.problems:
                say(line_of(f"mcp-sandbox: telemetry: {problem}"))
            recorder.export(chosen)
        yield recorder
    finally:
        recorder.close()
