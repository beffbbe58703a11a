"""What a reviewer asks first, counted from records: tools, hosts, denials, tenants, time. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

MAX_GROUPS: Final = 500
"""Rows of one table; what is rarer is counted in one more row."""

BUCKETS: Final = 60
"""Bars of the timeline."""


@dataclass(slots=True)
class Tool:
    """Figures of one tool; times in microseconds."""

    calls: int = 0
    errors: int = 0
    denied: int = 0
    durations: list[int] = field(default_factory=list)
    overheads: list[int] = field(default_factory=list)
    hosts: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Denial:
    """Refusals of one kind: how many, when last, and the line that would allow it, when one would."""

    what: str
    reason: str
    why: str
    tenant: str
    driver: str
    allow_line: str = ""
    count: int = 0
    last: str = ""


@dataclass(slots=True)
class Summary:
    """Everything the report shows above its records."""

    records: int = 0
    first: str = ""
    last: str = ""
    tools: dict[str, Tool] = field(default_factory=lambda: defaultdict(Tool))
    denials: dict[tuple[str, ...], Denial] = field(default_factory=dict)
    hosts: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    tenants: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    changes: list[dict[str, Any]] = field(default_factory=list)
    times: list[tuple[str, bool]] = field(default_factory=list)


def summarise(records: Iterable[dict[str, Any]]) -> Summary:
    """Return the figures of records in the order of time."""
    found = Summary()
    calls: dict[str, str] = {}
    for record in records:
        attrs = record.get("attrs")
        attrs = attrs if isinstance(attrs, dict) else {}
        found.records += 1
        found.first = found.first or str(record.get("time", ""))
        found.last = str(record.get("time", ""))
        denied = attrs.get("decision") == "deny"
        found.times.append((found.last, denied))
        _tenant(found, record, attrs, denied=denied)
        name = str(record.get("name", ""))
        if name == "call.forward":
            _call(found, calls, record, attrs)
        elif name == "egress.connect" and record.get("phase") != "intent":
            _connection(found, calls, attrs)
        elif name.startswith(("vet.", "pins.")):
            found.changes.append(record)
        if denied:
            _denial(found, record, attrs)
    return found


def _tenant(found: Summary, record: dict[str, Any], attrs: dict[str, Any], *, denied: bool) -> None:
    counts = found.tenants[str(record.get("tenant") or "-")]
    counts["records"] += 1
    counts["denied"] += denied
    counts["calls"] += record.get("name") == "call.forward" and record.get("phase") == "intent"
    counts["errors"] += attrs.get("status") == "error"


def _call(found: Summary, calls: dict[str, str], record: dict[str, Any], attrs: dict[str, Any]) -> None:
    label = str(attrs.get("tool") or attrs.get("method") or "-")
    tool = found.tools[label]
    if record.get("phase") == "intent":
        calls[str(record.get("span"))] = label
        tool.calls += 1
        return
    tool.errors += attrs.get("status") == "error"
    for key, values in (("duration_us", tool.durations), ("overhead_us", tool.overheads)):
        if isinstance(attrs.get(key), int):
            values.append(attrs[key])


def _connection(found: Summary, calls: dict[str, str], attrs: dict[str, Any]) -> None:
    """Count a connection for the tools whose calls were in flight."""
    spans = attrs.get("calls")
    tools = {calls.get(str(span), "-") for span in spans} if isinstance(spans, list) and spans else {"-"}
    host = f"{attrs.get('host', '-')}:{attrs.get('port', '-')}"
    for tool in tools:
        row = found.hosts.setdefault((tool, host), [0, 0, 0, 0])
        row[attrs.get("decision") == "deny"] += (
            int(attrs.get("count") or 1) if isinstance(attrs.get("count"), int) else 1
        )
        for place, key in ((2, "bytes_up"), (3, "bytes_down")):
            row[place] += attrs[key] if isinstance(attrs.get(key), int) else 0


def _denial(found: Summary, record: dict[str, Any], attrs: dict[str, Any]) -> None:
    what = next(
        (str(attrs[key]) for key in ("tool", "host", "uri", "method") if attrs.get(key)), str(record.get("name"))
    )
    if attrs.get("port") and attrs.get("host"):
        what = f"{attrs['host']}:{attrs['port']}"
    tenant, driver = str(record.get("tenant") or "-"), str(record.get("driver") or "-")
    reason, line = str(attrs.get("reason") or ""), str(attrs.get("allow_line") or "")
    if attrs.get("tool"):
        found.tools[str(attrs["tool"])].denied += 1
    key = (what, reason, tenant, driver)
    entry = found.denials.setdefault(key, Denial(what, reason, str(attrs.get("why") or ""), tenant, driver, line))
    entry.count += attrs["count"] if isinstance(attrs.get("count"), int) else 1
    entry.last = str(record.get("time", ""))


def percentile(values: list[int], share: float) -> int:
    """Return the value below which a share of them lie; 0 of none."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else 0
