"""Removal of old streams: recorded first, whole streams only, and verification does not miss them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sandbox.audit.ledger import Ledger
from sandbox.audit.payloads import FOLDER
from sandbox.audit.seal import is_live
from sandbox.audit.tail import read_tail, segments


def expired(folder: Path, before: str) -> list[dict[str, Any]]:
    """Return the streams whose last record is older than a time (RFC 3339, UTC), with their last state."""
    found = []
    for stream, paths in segments(folder).items():
        tail = read_tail(stream, paths)
        if tail is None or tail.last is None or is_live(folder, stream) or (folder / "live" / stream).exists():
            continue
        if str(tail.last.get("time", "")) < before:
            found.append({"stream": stream, "records": tail.seq, "hash": tail.after})
    return found


def expire(ledger: Ledger, before: str) -> list[str]:
    """Remove streams whose last record is older than a time, and return their names.

    Each removal is on record, and on the disk, before it happens. The stream that records it is never removed with
    them.

    Raises:
        AuditUnavailable: it cannot be recorded; nothing more is removed.
        OSError: a file cannot be removed.
    """
    removed = []
    for entry in expired(ledger.folder, before):
        if entry["stream"] == ledger.stream:
            continue
        ledger.append({"name": "audit.expire", "phase": "fact", "attrs": entry})
        ledger.checkpoint()
        ledger.sync()
        for path in segments(ledger.folder).get(entry["stream"], []):
            path.unlink()
        (ledger.folder / FOLDER / f"{entry['stream']}.jsonl").unlink(missing_ok=True)
        removed.append(entry["stream"])
    return removed
