"""Projected values as OTLP JSON lines, which a collector's file receiver (``otlpjsonfile``) reads.

The JSON encoding of OTLP (opentelemetry-proto, docs/specification.md): names in lowerCamelCase, trace and span ids in
hexadecimal, 64-bit integers as strings, enums as numbers. One line holds spans or log records of one resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson

from sandbox import __version__
from sandbox.audit.telemetry.conventions import SCOPE, SERVICE
from sandbox.audit.telemetry.project import Projector
from sandbox.audit.telemetry.values import Attributes, Item, Log, Span

BATCH: Final = 512
"""Spans or records of one line."""

KINDS: Final = {"internal": 1, "server": 2, "client": 3}
"""``Span.SpanKind``."""

SEVERITIES: Final = {"INFO": 9, "WARN": 13, "ERROR": 17}
"""``SeverityNumber``."""

_ERROR: Final = 2


def lines(records: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """Yield OTLP JSON lines of records with their streams, in the order of time; each line ends with a newline."""
    projectors: dict[str, Projector] = {}
    spans: list[Any] = []
    logs: list[Any] = []

    def add(items: Iterable[Item]) -> None:
        for item in items:
            if isinstance(item, Span):
                spans.append(span_json(item))
            elif isinstance(item, Log):
                logs.append(log_json(item))

    for record in records:
        add(projectors.setdefault(str(record.get("stream", "")), Projector()).take(record))
        if len(spans) >= BATCH or len(logs) >= BATCH:
            yield from _flushed(spans, logs)
    for projector in projectors.values():
        add(projector.end())
    yield from _flushed(spans, logs)


def _flushed(spans: list[Any], logs: list[Any]) -> Iterator[bytes]:
    resource = {"attributes": attributes_json({"service.name": SERVICE, "service.version": __version__})}
    scope = {"name": SCOPE, "version": __version__}
    for found, outer, inner, key in (
        (spans, "resourceSpans", "scopeSpans", "spans"),
        (logs, "resourceLogs", "scopeLogs", "logRecords"),
    ):
        if found:
            whole = {outer: [{"resource": resource, inner: [{"scope": scope, key: list(found)}]}]}
            yield orjson.dumps(whole, option=orjson.OPT_APPEND_NEWLINE)
            found.clear()


def span_json(span: Span) -> dict[str, Any]:
    """Return a span as OTLP JSON."""
    found: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": span.name,
        "kind": KINDS[span.kind],
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": attributes_json(span.attributes),
    }
    if span.parent_id:
        found["parentSpanId"] = span.parent_id
    if span.state:
        found["traceState"] = span.state
    if span.links:
        found["links"] = [{"traceId": trace, "spanId": other} for trace, other in span.links]
    if span.error is not None:
        found["status"] = {"code": _ERROR, "message": span.error}
    return found


def log_json(log: Log) -> dict[str, Any]:
    """Return a log record as OTLP JSON."""
    found: dict[str, Any] = {
        "timeUnixNano": str(log.time),
        "observedTimeUnixNano": str(log.time),
        "severityNumber": SEVERITIES[log.severity],
        "severityText": log.severity,
        "eventName": log.name,
        "body": {"stringValue": log.body},
        "attributes": attributes_json(log.attributes),
    }
    if log.trace_id:
        found |= {"traceId": log.trace_id, "spanId": log.span_id}
    return found


def attributes_json(attributes: Attributes) -> list[dict[str, Any]]:
    """Return attributes as ``KeyValue`` messages."""
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {"stringValue": str(value)}
