"""Read the audit trail: verify it, ask it, follow it, make a page of it for a reviewer, export it and its heads.

`verify` says intact, torn tail (a process was killed while it wrote; what it acknowledged is there) or altered, with
the first bad record; exit status 0 when nothing was altered, else 6. With `--key` only signatures of the named keys
count, with `--heads` the trail must still hold every head that was exported before; without either, whoever holds the
key can have rewritten it. `query`, `tail`, `report` and `export` take the same filters. `erase` takes the kept values
of a tenant away, `expire` old streams, `change-key` introduces another key; each is on record before it happens.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Final

from sandbox.audit import heads, verify
from sandbox.audit.findings import Head, Report
from sandbox.audit.lines import call_lines, record_cells, table
from sandbox.audit.query import MAX_RESULTS, Question, conversation, query, with_callers
from sandbox.audit.report import MAX_ROWS, report
from sandbox.cli import options
from sandbox.cli.audit_export import export, export_head
from sandbox.cli.audit_keep import change_key, erase, expire_streams
from sandbox.errors import AuditUnavailable, UsageError

FOLLOW_SECONDS: Final = 1.0
"""Pause between two looks of ``tail --follow``."""

FORMS: Final = {"tail": ("line", "json"), "export": ("json", "otlp-json")}
"""Action → values of ``--format``."""

FILTERS: Final = tuple(field.name for field in fields(Question) if field.name != "limit")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("action", choices=tuple(ACTIONS))
    options.add_audit_options(parser)
    parser.add_argument("--key", action="append", default=[], help="verify: public key (base64) that may have signed")
    parser.add_argument(
        "--heads", type=options.path, metavar="FILE", help="verify: heads that `export-head` wrote before"
    )
    parser.add_argument("--before", metavar="TIME", default="", help="expire: remove streams that ended before it")
    parser.add_argument("--note", action="store_true", help="export-head: as C2SP signed notes instead of JSON lines")
    parser.add_argument("--to", metavar="COMMAND", default="", help="export-head: a command that reads the heads")
    parser.add_argument("--otlp", action="store_true", help="export-head: to the collector that OTEL_* variables name")
    parser.add_argument("--call", metavar="SPAN", default="", help="query: everything that belongs to one call")
    parser.add_argument("--json", action="store_true", help="verify, query: print JSON")
    parser.add_argument(
        "--format", choices=("line", "json", "otlp-json"), default="", help="tail: line, json; export: json, otlp-json"
    )
    parser.add_argument("--follow", action="store_true", help="tail: go on as records come")
    parser.add_argument(
        "--out",
        type=options.path,
        metavar="FILE",
        help="report, export: where it is written; export-head: appended to",
    )
    parser.add_argument(
        "--limit", type=int, default=0, help="at most this many, the newest (query, tail: 1000; report: 50 000)"
    )
    for name in FILTERS:
        parser.add_argument(f"--{name}", default="", help=f"query, tail, report, export: only this {name}")


def execute(arguments: argparse.Namespace) -> int:
    """Do what is asked."""
    if not arguments.audit_dir.is_dir():
        raise UsageError("CLI-015", f"{arguments.audit_dir} is no audit folder", "name one with --audit-dir")
    form = arguments.format
    if form and form not in FORMS.get(arguments.action, ()):
        mend = f"tail has {', '.join(FORMS['tail'])}; export has {', '.join(FORMS['export'])}"
        raise UsageError("CLI-160", f"audit {arguments.action} has no format {form!r}", mend)
    return ACTIONS[arguments.action](arguments)


def _question(arguments: argparse.Namespace, limit: int = 1000) -> Question:
    return Question(**{name: getattr(arguments, name) for name in FILTERS}, limit=arguments.limit or limit)


def _query(arguments: argparse.Namespace) -> int:
    if arguments.call:
        records = conversation(arguments.audit_dir, arguments.call)
    else:
        records = query(arguments.audit_dir, _question(arguments))
    found = with_callers(arguments.audit_dir, records)
    if arguments.json:
        for record in found:
            print(json.dumps(record))
        return 0
    for line in table(record_cells(record) for record in found):
        print(line)
    return 0


def _tail(arguments: argparse.Namespace) -> int:
    question = _question(arguments)
    seen: set[tuple[Any, Any]] = set()
    intents: dict[str, dict[str, Any]] = {}
    while True:
        records = [
            one for one in query(arguments.audit_dir, question) if (one.get("stream"), one.get("seq")) not in seen
        ]
        seen.update((one.get("stream"), one.get("seq")) for one in records)
        for line in _lines(records, arguments.format, intents):
            print(line, flush=True)
        if not arguments.follow:
            return 0
        if records:
            question = replace(question, since=str(records[-1].get("time", question.since)), limit=MAX_RESULTS)
        time.sleep(FOLLOW_SECONDS)


def _lines(records: list[dict[str, Any]], form: str, intents: dict[str, dict[str, Any]]) -> Iterable[str]:
    return (json.dumps(record) for record in records) if form == "json" else call_lines(records, intents)


def _report(arguments: argparse.Namespace) -> int:
    place = arguments.out or Path("audit-report.html")
    place.write_bytes(report(arguments.audit_dir, _question(arguments, MAX_ROWS)))
    print(f"wrote {place}: open it in a browser; it needs no network")
    return 0


def _export(arguments: argparse.Namespace) -> int:
    return export(arguments, _question(arguments))


def _verify(arguments: argparse.Namespace) -> int:
    known: tuple[Head, ...] = heads.load(arguments.heads.read_bytes()) if arguments.heads else ()
    found = verify.verify(arguments.audit_dir, keys=arguments.key, heads=known)
    if arguments.json:
        print(json.dumps(asdict(found), indent=1))
    else:
        _show(found)
    return AuditUnavailable.exit_code if found.state == "altered" else 0


def _show(found: Report) -> None:
    for fault in found.faults:
        print(f"altered: {fault}")
    for stream in found.streams:
        if stream.state == "torn tail":
            print(f"torn tail: {stream.stream}: {stream.torn} bytes after record {stream.records} are no record")
    live = sum(stream.live for stream in found.streams)
    still = f", {live} still being written" if live else ""
    print(f"{found.state}: {found.records} records in {len(found.streams)} streams{still}")
    if not found.pinned:
        keys = sorted({key for stream in found.streams for key in stream.keys})
        print(f"signed by {', '.join(keys) or 'nobody'}; pass --key to accept no other")


ACTIONS: Final[Mapping[str, Callable[[argparse.Namespace], int]]] = {
    "verify": _verify,
    "query": _query,
    "tail": _tail,
    "report": _report,
    "export": _export,
    "export-head": export_head,
    "erase": erase,
    "expire": expire_streams,
    "change-key": change_key,
}
"""What the command can be asked for."""
