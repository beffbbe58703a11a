"""Hands values to opentelemetry-sdk; imported only in the process that exports, since it takes half a second.

The SDK reads its own environment variables. Two things are ours: ids come from the values, and what a collector does
not take is counted.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry import trace as api
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricsData, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from sandbox import __version__
from sandbox.audit.telemetry import conventions as names
from sandbox.audit.telemetry.settings import GRPC
from sandbox.audit.telemetry.values import Item, Log, Span

_MODULES: Final = {
    "traces": ("trace_exporter", "OTLPSpanExporter"),
    "metrics": ("metric_exporter", "OTLPMetricExporter"),
    "logs": ("_log_exporter", "OTLPLogExporter"),
}
_KINDS: Final = {"internal": SpanKind.INTERNAL, "server": SpanKind.SERVER, "client": SpanKind.CLIENT}
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)


@dataclass(slots=True)
class Tally:
    """What became of what was handed over, by signal: numbers of spans, log records and metric exports."""

    sent: dict[str, int]
    failed: dict[str, int]
    told: Callable[[bool], None]

    def count(self, signal: str, number: int, *, good: bool) -> None:
        """Count one export and tell how it went."""
        kept = self.sent if good else self.failed
        kept[signal] = kept.get(signal, 0) + number
        self.told(good)


class Ids(IdGenerator):
    """Gives the SDK the ids of the value that is being handed over."""

    trace, span = 1, 1

    def generate_span_id(self) -> int:
        """Return the span's id."""
        return self.span

    def generate_trace_id(self) -> int:
        """Return the trace's id, asked for at roots only."""
        return self.trace


class Exporters:
    """The SDK's providers for some signals.

    Args:
        signals: signal → protocol.
        tally: counts what went out.
        stream: name of the stream, as ``service.instance.id``.
    """

    def __init__(self, signals: Mapping[str, str], tally: Tally, stream: str) -> None:
        resource = _resource(stream)
        exporters = {
            signal: _counted(signal, _exporter(signal, protocol), tally) for signal, protocol in signals.items()
        }
        self._ids = Ids()
        self._tracing = self._logging = self._metering = None
        if "traces" in exporters:
            self._tracing = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
            self._tracing.add_span_processor(BatchSpanProcessor(exporters["traces"]))
            self._tracer = self._tracing.get_tracer(names.SCOPE, __version__)
        if "logs" in exporters:
            self._logging = LoggerProvider(resource=resource, shutdown_on_exit=False)
            self._logging.add_log_record_processor(BatchLogRecordProcessor(exporters["logs"]))
            self._logger = self._logging.get_logger(names.SCOPE, __version__)
        if "metrics" in exporters:
            reader = PeriodicExportingMetricReader(exporters["metrics"])
            self._metering = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
            self._instruments = _instruments(self._metering)

    def emit(self, item: Item) -> None:
        """Hand over one value."""
        if isinstance(item, Span):
            if self._tracing is not None:
                self._span(item)
        elif isinstance(item, Log):
            if self._logging is not None:
                self._logger.emit(_log_record(item))
        elif self._metering is not None:
            self._instruments[item.instrument](item.value, dict(item.attributes))

    def flush(self) -> None:
        """Send the spans and log records that were handed over; metrics go at their own interval."""
        for provider in (self._tracing, self._logging):
            if provider is not None:
                provider.force_flush()

    def shutdown(self) -> None:
        """Send everything and end."""
        for provider in (self._tracing, self._logging, self._metering):
            if provider is not None:
                provider.shutdown()

    def _span(self, item: Span) -> None:
        self._ids.trace, self._ids.span = int(item.trace_id, 16), int(item.span_id, 16)
        parent = None
        if item.parent_id:
            known = _context(item.trace_id, item.parent_id, item.state)
            parent = api.set_span_in_context(NonRecordingSpan(known))
        span = self._tracer.start_span(
            item.name,
            parent,
            _KINDS[item.kind],
            dict(item.attributes),
            [Link(_context(*link)) for link in item.links],
            item.start,
        )
        if item.error is not None:
            span.set_status(Status(StatusCode.ERROR, item.error))
        span.end(item.end)


def _context(trace: str, span: str, state: str = "") -> SpanContext:
    remembered = TraceState.from_header([state]) if state else None
    return SpanContext(int(trace, 16), int(span, 16), is_remote=True, trace_flags=_SAMPLED, trace_state=remembered)


def _log_record(item: Log) -> LogRecord:
    context = None
    if item.trace_id and item.span_id:
        context = api.set_span_in_context(NonRecordingSpan(_context(item.trace_id, item.span_id)))
    return LogRecord(
        timestamp=item.time,
        observed_timestamp=item.time,
        context=context,
        severity_text=item.severity,
        severity_number=SeverityNumber[item.severity],
        body=item.body,
        attributes=dict(item.attributes),
        event_name=item.name,
    )


def _instruments(provider: MeterProvider) -> dict[str, Callable[[float, dict[str, Any]], None]]:
    meter = provider.get_meter(names.SCOPE, __version__)
    found: dict[str, Callable[[float, dict[str, Any]], None]] = {}
    for name, (bounds, description) in names.HISTOGRAMS.items():
        found[name] = meter.create_histogram(
            name, unit="s", description=description, explicit_bucket_boundaries_advisory=bounds
        ).record
    for name, (unit, description) in names.COUNTERS.items():
        found[name] = meter.create_counter(name, unit=unit, description=description).add
    for name, (unit, description) in names.GAUGES.items():
        found[name] = meter.create_gauge(name, unit=unit, description=description).set
    return found


def _resource(stream: str) -> Resource:
    """Return who exports; the environment's own word counts more than ours."""
    said = Resource.create({}).attributes
    own = {"service.version": __version__, "service.instance.id": stream}
    if str(said.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        own[SERVICE_NAME] = names.SERVICE
    return Resource({**said, **{key: value for key, value in own.items() if key == SERVICE_NAME or key not in said}})


def _exporter(signal: str, protocol: str) -> Any:
    module, name = _MODULES[signal]
    package = "grpc" if protocol == GRPC else "http"
    return getattr(importlib.import_module(f"opentelemetry.exporter.otlp.proto.{package}.{module}"), name)()


def _counted(signal: str, exporter: Any, tally: Tally) -> Any:
    """Return an exporter whose exports are counted."""
    export = exporter.export

    def counted(batch: Sequence[Any] | MetricsData, *more: Any, **named: Any) -> Any:
        number = 1 if isinstance(batch, MetricsData) else len(batch)
        try:
            result = export(batch, *more, **named)
        except Exception:
            tally.count(signal, number, good=False)
            raise
        tally.count(signal, number, good=result.name == "SUCCESS")
        return result

    exporter.export = counted
    return exporter
