"""Opens the audit trail for a command."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from sandbox.audit.recorder import LedgerRecorder, open_recorder
from sandbox.launch import owner


@contextmanager
def trail(arguments: argparse.Namespace) -> Iterator[LedgerRecorder]:
    """Yield the recorder of one process; everything is sealed when it ends."""
    recorder = open_recorder(arguments.audit_dir, owner.new_run_id())
    try:
        yield recorder
    finally:
        recorder.close()
