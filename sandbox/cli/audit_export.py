"""What leaves the audit folder: records of one tenant or all, as they are or as OTLP JSON lines, and signed heads."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final

from sandbox.audit import heads, payloads
from sandbox.audit.findings import Head
from sandbox.audit.keys import open_signer
from sandbox.audit.query import MAX_RESULTS, Question, query
from sandbox.errors import AuditUnavailable, UsageError

COMMAND_SECONDS: Final = 60.0
"""For the command that takes heads."""

_PRIVATE: Final = 0o600


def export(arguments: argparse.Namespace, question: Question) -> int:
    """Write the records that a question finds, each with its stream, then the kept values of the tenant it names."""
    whole = replace(question, limit=arguments.limit or MAX_RESULTS)
    records = query(arguments.audit_dir, whole)
    if arguments.format == "otlp-json":
        from sandbox.audit.telemetry.otlp_json import lines  # few ask for it

        found = lines(records)
    else:
        found = _jsonl(records, arguments.audit_dir, question.tenant)
    with _output(arguments.out) as file:
        for line in found:
            file.write(line)
    return 0


def _jsonl(records: Iterable[dict[str, object]], folder: Path, tenant: str) -> Iterator[bytes]:
    for record in records:
        yield json.dumps(record).encode() + b"\n"
    for kept in payloads.export(folder, tenant) if tenant else ():
        yield json.dumps({"kept": kept}).encode() + b"\n"


def export_head(arguments: argparse.Namespace) -> int:
    """Sign heads and hand them to a file, a command, a collector or stdout."""
    signer = open_signer(arguments.audit_dir / "keys", arguments.key_store)
    found = tuple(heads.export_heads(arguments.audit_dir, signer))
    text = "\n".join(heads.as_note(head) for head in found) + "\n" if arguments.note else heads.dump(found).decode()
    if arguments.otlp:
        _to_collector(found)
    if arguments.to:
        _to_command(arguments.to, text.encode())
    if arguments.out is not None:
        descriptor = os.open(arguments.out, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _PRIVATE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
    elif not (arguments.otlp or arguments.to):
        sys.stdout.write(text)
    return 0


def _to_command(command: str, text: bytes) -> None:
    """Give heads to a command's standard input; no shell is involved.

    Raises:
        AuditUnavailable: ``AUD-040``, it cannot be started, or does not end well.
    """
    try:
        done = subprocess.run(
            shlex.split(command), input=text, timeout=COMMAND_SECONDS, check=False, stdout=subprocess.DEVNULL
        )
        why = f"ended with status {done.returncode}" if done.returncode else ""
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        why = str(error)
    if why:
        mend = "heads were not anchored: mend the command and export again"
        raise AuditUnavailable("AUD-040", f"{command!r} did not take the heads: {why}", mend)


def _to_collector(found: tuple[Head, ...]) -> None:
    """Send heads as log records over OTLP.

    Raises:
        UsageError: ``AUD-041``, no collector is named.
        AuditUnavailable: ``AUD-042``, it does not take them.
    """
    from sandbox.audit.telemetry.settings import settings  # few ask for it

    chosen = settings(os.environ)
    if chosen is None or "logs" not in chosen.signals:
        raise UsageError("AUD-041", "no collector is named for log records", "set OTEL_EXPORTER_OTLP_ENDPOINT")
    from sandbox.audit.telemetry.heads import send  # half a second of imports

    if not send(found, chosen.signals["logs"]):
        raise AuditUnavailable("AUD-042", "the collector did not take the heads", "see that it answers, and repeat")


@contextlib.contextmanager
def _output(place: Path | None) -> Iterator[BinaryIO]:
    """Yield where an export goes: a private file, or stdout."""
    if place is None:
        yield sys.stdout.buffer
        return
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _PRIVATE)
    with os.fdopen(descriptor, "wb") as file:
        yield file
