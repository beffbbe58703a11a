"""Opens the audit trail for a command."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager

from sandbox.audit.keys import Store
from sandbox.audit.ledger import Durability
from sandbox.audit.recorder import LedgerRecorder, open_recorder
from sandbox.audit.telemetry.settings import settings
from sandbox.cli.report import line_of, say
from sandbox.launch import owner


@contextmanager
def trail(arguments: argparse.Namespace) -> Iterator[LedgerRecorder]:
    """Yield the recorder of one process; everything is sealed when it ends."""
    chosen_store: Store = getattr(arguments, "key_store", "file")
    durability: Durability = getattr(arguments, "durability", "kernel")
    recorder = open_recorder(arguments.audit_dir, owner.new_run_id(), durability=durability, key_store=chosen_store)
    recorder.keep(getattr(arguments, "keep", ()))
    chosen = settings(os.environ)
    try:
        if chosen is not None:
            for problem in chosen.problems:
                say(line_of(f"mcp-sandbox: telemetry: {problem}"))
            recorder.export(chosen)
        yield recorder
    finally:
        recorder.close()
