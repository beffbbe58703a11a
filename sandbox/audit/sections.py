"""The part of the report that needs no script: verdict, figures, denials, hosts, timeline; all as escaped text."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from sandbox.audit.findings import Report
from sandbox.audit.lines import visible
from sandbox.audit.record import plain
from sandbox.audit.summary import BUCKETS, MAX_GROUPS, Summary, percentile

MAX_CHARS: Final = 2000
"""Of one record's attributes in the page."""


def text(value: object) -> str:
    """Return a value as escaped markup."""
    return html.escape(visible(value), quote=True)


# -----------------------------------------------------------------------------------------------------
def verdict_line(verdict: Report) -> str:
    """Return what verification said, in a paragraph."""
    kind = {"intact": "intact", "torn tail": "torn", "altered": "altered"}[verdict.state]
    signed = sum(stream.signed for stream in verdict.streams)
    faults = "".join(f"<li>{text(fault)}</li>" for fault in verdict.faults[:20])
    keys = ", ".join(
        f"<code>{text(key)}</code>" for key in sorted({key for item in verdict.streams for key in item.keys})
    )
    pinned = "" if verdict.pinned else ", which nobody pinned for this report"
    plural = "" if len(verdict.streams) == 1 else "s"
    return (
        f'<p>The trail is <strong class="{kind}">{verdict.state}</strong>: {verdict.records} records, {signed} of them '
        f"signed, in {len(verdict.streams)} stream{plural}. Signed with {keys or 'no key'}{pinned}.</p>"
        + (f"<ul>{faults}</ul>" if faults else "")
    )


def sections(found: Summary) -> Iterator[str]:
    """Yield navigation and every section but the records."""
    names = ("summary", "timeline", "denied", "tools", "hosts", "tenants", "changes", "records")
    links = "".join(f'<li><a href="#{name}">{name.capitalize()}</a></li>' for name in names)
    yield f'<nav aria-label="Sections"><ul>{links}</ul></nav><main>'
    yield _section("summary", "Summary", _overview(found))
    yield _section("timeline", "Timeline", _timeline(found))
    yield _section("denied", "Denied", _denials(found))
    yield _section("tools", "Tools", _tools(found))
    yield _section("hosts", "Hosts by tool", _hosts(found))
    yield _section("tenants", "Tenants", _tenants(found))
    yield _section("changes", "Tool changes", _changes(found))


def _overview(found: Summary) -> str:
    rows = [
        ("records", found.records),
        ("calls", sum(tool.calls for tool in found.tools.values())),
        ("calls that failed", sum(tool.errors for tool in found.tools.values())),
        ("denials", sum(entry.count for entry in found.denials.values())),
        ("first", found.first),
        ("last", found.last),
    ]
    return _table("What this page covers", ("figure", "value"), rows, "pn")


def _denials(found: Summary) -> str:
    rows = [
        (
            entry.count,
            entry.what,
            f"{entry.reason} {entry.why}",
            entry.tenant,
            entry.driver,
            entry.last[:19],
            entry.allow_line,
        )
        for entry in sorted(found.denials.values(), key=lambda entry: -entry.count)
    ]
    heads = ("count", "what", "reason", "tenant", "driver", "last", "line that would allow it")
    return _table("What was refused, how often, and the line of DRIVER.md that would allow it", heads, rows, "npppptm")


def _tools(found: Summary) -> str:
    rows = [
        (
            name,
            tool.calls,
            tool.errors,
            tool.denied,
            f"{percentile(tool.durations, 0.5) / 1000:.1f}",
            f"{percentile(tool.durations, 0.99) / 1000:.1f}",
            f"{percentile(tool.overheads, 0.5) / 1000:.2f}",
        )
        for name, tool in sorted(found.tools.items(), key=lambda item: -item[1].calls)
    ]
    heads = ("tool", "calls", "failed", "denied", "p50", "p99", "overhead p50")
    return _table("Times in milliseconds; overhead is what mcp-sandbox itself took", heads, rows, "mnnnnnn")


def _hosts(found: Summary) -> str:
    ordered = sorted(found.hosts.items(), key=lambda item: -sum(item[1][:2]))
    rows = [(tool, host, *counts) for (tool, host), counts in ordered]
    heads = ("tool", "host", "allowed", "denied", "bytes sent", "bytes received")
    return _table("Connections while a call of the tool was in flight; - is outside of any call", heads, rows, "mmnnnn")


def _tenants(found: Summary) -> str:
    keys = ("records", "calls", "errors", "denied")
    rows = [(name, *(counts[key] for key in keys)) for name, counts in sorted(found.tenants.items())]
    return _table("Per tenant", ("tenant", "records", "calls", "failed", "denied"), rows, "mnnnn")


def _changes(found: Summary) -> str:
    rows = [
        (
            str(record.get("time"))[:19],
            record.get("name"),
            record.get("driver", ""),
            attributes(record.get("attrs", {})),
        )
        for record in found.changes[-MAX_GROUPS:]
    ]
    return _table(
        "What vetting admitted, refused or found changed", ("time", "name", "driver", "attributes"), rows, "tttm"
    )


def attributes(value: Any) -> str:
    """Return attributes as shortened JSON."""
    return orjson.dumps(plain(value), option=orjson.OPT_SORT_KEYS).decode()[:MAX_CHARS]


def members(attrs: dict[str, Any]) -> list[str]:
    """Return attributes as lines, one for each, together no longer than :data:`MAX_CHARS`.

    Most of them repeat from record to record, so a page that keeps each line once is half as large.
    """
    found, left = [], MAX_CHARS
    for key in sorted(map(str, attrs)):
        line = f"{key}: {orjson.dumps(plain(attrs.get(key))).decode()}"[:left]
        found.append(line)
        left -= len(line)
        if left <= 0:
            break
    return found


def _section(name: str, title: str, body: str) -> str:
    return f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{title}</h2>{body}</section>'


def _table(caption: str, heads: tuple[str, ...], rows: Iterable[tuple[Any, ...]], kinds: str) -> str:
    """Return a table; ``kinds`` has a letter for each column: number, monospaced, the same in one line (t), plain."""
    rows = list(rows)
    if not rows:
        return "<p>None.</p>"
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="{kinds[place] if place < len(kinds) else ""}">{text(value if value is not None else "")}</td>'
            for place, value in enumerate(row)
        )
        + "</tr>"
        for row in rows[:MAX_GROUPS]
    )
    more = f"; {len(rows) - MAX_GROUPS} more are not shown" if len(rows) > MAX_GROUPS else ""
    rest = f"<caption>{caption}{more}</caption>"
    head = "".join(
        f'<th scope="col" class="{kinds[place] if place < len(kinds) else ""}">{name}</th>'
        for place, name in enumerate(heads)
    )
    narrow = ' class="narrow"' if len(heads) == 2 else ""  # noqa: PLR2004 - name and value
    return f"<table{narrow}>{rest}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _timeline(found: Summary) -> str:
    """Return bars over time, drawn as SVG: all records of each span of time, and the denied among them."""
    bars, step = _buckets(found.times)
    if not bars:
        return "<p>None.</p>"
    width, most = 1000 / len(bars), max(total for _, total, _ in bars)
    drawn = "".join(
        f"<g><title>from {text(start)}: {total} records, {denied} denied</title>"
        f'<rect class="all" x="{place * width:.1f}" y="{110 - 100 * total / most:.1f}" width="{width * 0.9:.1f}" '
        f'height="{100 * total / most:.1f}"/>'
        f'<rect class="no" x="{place * width:.1f}" y="{110 - 100 * denied / most:.1f}" width="{width * 0.9:.1f}" '
        f'height="{100 * denied / most:.1f}"/></g>'
        for place, (start, total, denied) in enumerate(bars)
    )
    label = f"{sum(total for _, total, _ in bars)} records from {text(found.first)} to {text(found.last)}"
    return (
        f'<figure><svg viewBox="0 0 1000 112" role="img" aria-label="{label}" preserveAspectRatio="none">{drawn}</svg>'
        f"<figcaption>{label}; each bar is {step:g} s and at most {most} records, those denied in the colour of "
        '<span class="deny">denials</span></figcaption></figure>'
    )


def _buckets(times: list[tuple[str, bool]]) -> tuple[list[tuple[str, int, int]], float]:
    """Return beginning, number and denials of equal spans of time, and their length in seconds."""
    points = []
    for text, denied in times:
        try:
            points.append((datetime.fromisoformat(text).timestamp(), denied))
        except ValueError:
            continue
    if not points:
        return [], 0
    first, last = min(points)[0], max(points)[0]
    step = max((last - first) / BUCKETS, 1.0)
    counts = [[0, 0] for _ in range(min(BUCKETS, int((last - first) / step) + 1))]
    for moment, denied in points:
        place = min(len(counts) - 1, int((moment - first) / step))
        counts[place][0] += 1
        counts[place][1] += denied
    starts = (
        datetime.fromtimestamp(first + place * step, UTC).strftime("%Y-%m-%d %H:%M:%S") for place in range(len(counts))
    )
    return [(start, total, denied) for start, (total, denied) in zip(starts, counts, strict=True)], round(step, 1)
