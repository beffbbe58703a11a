"""Calls as lines of text, in the form of the November 2025 draft (requirement S1-28).

One line for each call that ended::

    [2025-11-10T08:15Z] client=claude-flow tool=run_analysis tokens=312 status=success latency=534ms

Who called is in a call's intent, how it ended in its outcome; both are joined by their span. Tokens are printed
where a record has them, and as ``-`` where nobody counted any. Names are data: whatever could end a field or a line
is percent-encoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote

MAX_OPEN: Final = 100_000
"""Calls without outcome that are remembered; the oldest are forgotten, and their outcome has no client."""

MAX_CELL: Final = 60
"""Characters to which a column is padded; longer cells stand out."""

HEADS: Final = ("time", "driver", "tenant", "record", "about", "said")

_SAFE: Final = "/:@._-~"
_STATUS: Final = {"ok": "success", "error": "error"}


def call_lines(records: Iterable[dict[str, Any]], intents: dict[str, dict[str, Any]] | None = None) -> Iterator[str]:
    """Yield a line for each call that ended or was refused, in the order of the records.

    Args:
        records: oldest first.
        intents: of calls whose outcome may come later; kept by whoever asks again with what follows.
    """
    intents = {} if intents is None else intents
    for record in records:
        name, phase, attrs = record.get("name"), record.get("phase"), record.get("attrs", {})
        if name == "call.forward" and phase == "intent":
            intents[str(record.get("span"))] = attrs
            if len(intents) > MAX_OPEN:
                intents.pop(next(iter(intents)))
        elif name == "call.forward" and phase == "outcome":
            status = _STATUS.get(str(attrs.get("status")), "unknown")
            yield _line(record, {**intents.pop(str(record.get("span")), {}), **attrs}, status)
        elif name == "call.decide" and attrs.get("decision") == "deny":
            yield _line(record, attrs, "denied")


def record_line(record: dict[str, Any]) -> str:
    """Return any record as one line for a terminal: time, place, name, what it is about and what was said of it.

    Unlike the members of a parsed record the line cannot move the cursor: what is not printable is written out.
    """
    return " ".join(record_cells(record)).rstrip()


def record_cells(record: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of :func:`record_line`: time, driver, tenant, name, what it is about, what was said of it."""
    attrs = record.get("attrs")
    attrs = attrs if isinstance(attrs, dict) else {}
    about = next((attrs[key] for key in ("tool", "host", "uri", "method", "image", "stream") if attrs.get(key)), "")
    said = next((attrs[key] for key in ("decision", "status", "reason", "state") if attrs.get(key)), "")
    name = f"{record.get('name')}/{record.get('phase')}"
    tools = [str(one.get("tool") or one.get("span")) for one in record.get("by", ())]
    said = f"{said} by {', '.join(tools)}" if tools else said
    parts = (record.get("time", ""), record.get("driver", "-"), record.get("tenant", "-"), name, about, said)
    return tuple(visible(part) for part in parts)


def table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Return rows of :func:`record_cells` as an aligned table with its head; its widest cell decides on a column."""
    whole = [HEADS, *rows]
    widths = [min(max(map(len, column)), MAX_CELL) for column in zip(*whole, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in whole]


def visible(value: object) -> str:
    """Return a text in which nothing is hidden and nothing moves: what is not printable is written out."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _line(record: dict[str, Any], attrs: dict[str, Any], status: str) -> str:
    latency = attrs.get("duration_us")
    shown = f"{round(latency / 1000)}ms" if isinstance(latency, int | float) else "-"
    tool = attrs.get("tool") or attrs.get("uri") or attrs.get("method")
    return (
        f"[{str(record.get('time', ''))[:16]}Z] client={_word(attrs.get('client'))} tool={_word(tool)} "
        f"tokens={_word(attrs.get('tokens'))} status={status} latency={shown}"
    )


def _word(value: Any) -> str:
    """Return a value as one word of printable ASCII."""
    return quote(str(value)[:200], safe=_SAFE, errors="replace") if value not in (None, "") else "-"
