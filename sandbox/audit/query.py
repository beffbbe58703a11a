"""Questions to the trail: which records match, in the order of time, as they stand in the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from sandbox.audit.index import WORDS, open_index, span_number, time_number, where
from sandbox.audit.tail import parse
from sandbox.errors import UsageError

MAX_RESULTS: Final = 1_000_000
"""Records of one answer."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked for; everything that is given must hold.

    Attributes:
        since: earliest time, RFC 3339 in UTC or a beginning of it (``2026-11-21``).
        until: time before which it was, of the same form.
        limit: at most this many, the newest.
    """

    tenant: str = ""
    driver: str = ""
    tool: str = ""
    decision: str = ""
    host: str = ""
    trace: str = ""
    span: str = ""
    name: str = ""
    phase: str = ""
    status: str = ""
    instance: str = ""
    client: str = ""
    since: str = ""
    until: str = ""
    limit: int = 1000


def query(folder: Path, question: Question, index: Path | None = None) -> Iterator[dict[str, Any]]:
    """Yield matching records with their stream, oldest first.

    Raises:
        UsageError: ``AUD-033``, the limit or a time is not usable.
    """
    condition, values = _condition(question)
    sql = (
        "SELECT file, offset, length FROM (SELECT * FROM event"  # noqa: S608 - columns of our own, values are bound
        f"{condition} ORDER BY time DESC, id DESC LIMIT ?) AS found "
        "JOIN segment ON segment.id = found.segment ORDER BY found.time, found.id"
    )
    with closing(open_index(folder, index)) as connection:
        places = connection.execute(sql, (*values, question.limit)).fetchall()
    yield from _read(folder / "segments", places)


def conversation(folder: Path, span: str, index: Path | None = None) -> Iterator[dict[str, Any]]:
    """Yield everything that belongs to one call: its own records, and the connections that name it."""
    first = next(iter(query(folder, Question(span=span, limit=1), index)), None)
    if first is None:
        return
    for record in query(folder, Question(trace=first.get("trace", ""), limit=MAX_RESULTS), index):
        calls = record.get("attrs", {}).get("calls")
        if span in {record.get("span"), record.get("parent")} or (isinstance(calls, list) and span in calls):
            yield record


def with_callers(
    folder: Path, records: Iterable[dict[str, Any]], index: Path | None = None
) -> Iterator[dict[str, Any]]:
    """Yield records; those that name the calls in flight get ``by``: span and tool of each.

    So "which tool call opened this connection" is one question, whatever it selects by.
    """
    known: dict[str, dict[str, str]] = {}
    for record in records:
        calls = record.get("attrs", {}).get("calls")
        if not isinstance(calls, list) or not calls:
            yield record
            continue
        trace = str(record.get("trace"))
        if trace not in known:
            asked = Question(trace=trace, name="call.forward", phase="intent", limit=MAX_RESULTS)
            known[trace] = {str(one.get("span")): _tool(one) for one in query(folder, asked, index)}
        yield {**record, "by": [{"span": call, "tool": known[trace].get(str(call), "")} for call in calls]}


def _tool(record: dict[str, Any]) -> str:
    attrs = record.get("attrs", {})
    return str(attrs.get("tool") or attrs.get("method") or "")


def _condition(question: Question) -> tuple[str, list[str | int | None]]:
    if not 0 < question.limit <= MAX_RESULTS:
        raise UsageError("AUD-033", f"a limit of {question.limit} is not usable", f"give 1 to {MAX_RESULTS}")
    named = {field.name: getattr(question, field.name) for field in fields(question)}
    condition, texts = where((word, named[word]) for word in WORDS if named[word])
    terms, values = ([condition] if condition else []), list[str | int | None](texts)
    if question.span:
        terms.append("span = ?")
        values.append(span_number(question.span))
    for text, term in ((question.since, "time >= ?"), (question.until, "time < ?")):
        if text:
            terms.append(term)
            values.append(_time(text))
    return (f" WHERE {' AND '.join(terms)}" if terms else ""), values


def _time(text: str) -> int:
    number = time_number(text)
    if number is None or len(text) < len("2026"):
        mend = "write it as 2026-11-21T08:15:00Z, or a beginning of that"
        raise UsageError("AUD-033", f"{text[:40]!a} is no time", mend)
    return number


def _read(place: Path, found: list[tuple[str, int, int]]) -> Iterator[dict[str, Any]]:
    """Yield the records at these places; files are opened once each while they follow one another."""
    name, file = "", None
    try:
        for segment, offset, length in found:
            if segment != name:
                if file is not None:
                    file.close()
                name, file = segment, (place / segment).open("rb")
            if file is not None:
                file.seek(offset)
                record = parse(file.read(length).removesuffix(b"\n"))
                if record is not None:
                    yield {**record, "stream": segment.rpartition("-")[0]}
    finally:
        if file is not None:
            file.close()
