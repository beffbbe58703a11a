"""Signed heads as log records: a collector is a place outside in which they bear witness."""

from __future__ import annotations

import time
from collections.abc import Iterable

from sandbox.audit.findings import Head
from sandbox.audit.telemetry.conventions import OWN
from sandbox.audit.telemetry.exporters import Exporters, Tally
from sandbox.audit.telemetry.values import Log

EVENT = OWN + "audit.head"
"""Event name of an exported head; its attributes are the members of a line of ``export-head``."""


def send(heads: Iterable[Head], protocol: str) -> bool:
    """Send each head; return whether the collector took every one."""
    tally = Tally({}, {}, lambda _good: None)
    exporters = Exporters({"logs": protocol}, tally, "export-head")
    whole = tuple(heads)
    for head in whole:
        attributes = {OWN + key: value for key, value in head.to_json().items()}
        exporters.emit(Log(EVENT, time.time_ns(), "INFO", f"{head.stream} {head.size} {head.root}", attributes))
    exporters.shutdown()
    return tally.sent.get("logs", 0) == len(whole)
