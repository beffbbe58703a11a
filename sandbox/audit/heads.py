"""Heads that leave this machine: what ``export-head`` writes, and how they come back for verification.

A head says size and root of a stream's tree, signed. Kept where the audit folder cannot be reached from - another
machine, a ticket, a transparency log, paper - it bears witness that these records existed, and in this order:
shorter, other or missing streams are then found (``verify``, step 7).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from pathlib import Path

from sandbox import jsontext
from sandbox.audit.findings import Head
from sandbox.audit.keys import Signer, head_text, note
from sandbox.audit.merkle import HASH_BYTES
from sandbox.audit.verify import verify
from sandbox.errors import AuditUnavailable, UsageError
from sandbox.limits import MIB

MAX_HEADS_BYTES = 64 * MIB
"""Of one file of heads: some 200 000 streams."""


def export_heads(folder: Path, signer: Signer, streams: tuple[str, ...] = ()) -> Iterator[Head]:
    """Yield a freshly signed head of each stream, or of those named, over everything in it now.

    Raises:
        AuditUnavailable: ``AUD-030``, the folder is altered: signing it would bear false witness.
    """
    report = verify(folder, keys=())
    if report.faults:
        raise AuditUnavailable(
            "AUD-030", f"heads of an altered trail are not signed: {report.faults[0]}", "see `audit verify`"
        )
    for found in report.streams:
        if found.records and (not streams or found.stream in streams):
            text = head_text(found.stream, found.records, found.root)
            yield Head(found.stream, found.records, found.root, signer.public, signer.sign(text))


def dump(heads: Iterator[Head] | tuple[Head, ...]) -> bytes:
    """Return heads as JSON lines."""
    return b"".join(jsontext.canonical(head.to_json()) + b"\n" for head in heads)


def as_note(head: Head) -> str:
    """Return a head as a C2SP signed note (checkpoint), which transparency log tools read."""
    return note(head_text(head.stream, head.size, head.root), head.key, head.sig)


def load(data: bytes) -> tuple[Head, ...]:
    """Return the heads of a file that :func:`dump` wrote.

    Raises:
        UsageError: ``AUD-031``, a line is no head.
    """
    if len(data) > MAX_HEADS_BYTES:
        raise UsageError("AUD-031", "the file of heads is too large", "give a file that export-head wrote")
    return tuple(_head(number, line) for number, line in enumerate(data.splitlines(), 1) if line.strip())


def _head(number: int, line: bytes) -> Head:
    try:
        value = jsontext.parse(line)
        head = Head(value["stream"], value["size"], value["root"], value["key"], value["sig"])
        texts = (head.stream, head.root, head.key, head.sig)
        good = type(head.size) is int and head.size > 0 and all(type(text) is str for text in texts)
        good = good and len(base64.b64decode(head.root, validate=True)) == HASH_BYTES
    except (jsontext.JsonTextError, KeyError, TypeError, binascii.Error, ValueError):
        good = False
    if not good:
        raise UsageError("AUD-031", f"line {number} of the heads is none", "give a file that export-head wrote")
    return head
