"""What is exported, as plain values: spans, log records and measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import orjson

MAX_TEXT: Final = 4096
"""Characters of one attribute."""

Kind = Literal["internal", "server", "client"]
Attributes = Mapping[str, Any]
"""Strings, numbers, booleans and lists of strings."""


@dataclass(frozen=True, slots=True)
class Span:
    """A finished span; times in nanoseconds since 1970.

    Attributes:
        parent_id: empty at the root.
        state: ``tracestate`` of the caller.
        links: (trace id, span id) of spans that it has to do with.
        error: description of its failure, ``None`` when it did not fail.
    """

    name: str
    kind: Kind
    trace_id: str
    span_id: str
    parent_id: str
    start: int
    end: int
    attributes: Attributes
    state: str = ""
    links: tuple[tuple[str, str], ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Log:
    """A log record; ``severity`` is INFO, WARN or ERROR."""

    name: str
    time: int
    severity: str
    body: str
    attributes: Attributes
    trace_id: str = ""
    span_id: str = ""


@dataclass(frozen=True, slots=True)
class Measure:
    """One measurement of an instrument of :mod:`sandbox.audit.telemetry.conventions`.

    Attributes:
        value: added to a counter, recorded in a histogram or set on a gauge.
    """

    instrument: str
    value: float
    attributes: Attributes = field(default_factory=dict)


Item = Span | Log | Measure


def plain(value: Any) -> Any:
    """Return a value as OpenTelemetry can carry it; its integers have 64 bits with a sign."""
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return str(value)
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value[:MAX_TEXT]
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return [item[:MAX_TEXT] for item in value]
    return orjson.dumps(value).decode()[:MAX_TEXT]
