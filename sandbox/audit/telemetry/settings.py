"""Which signals go where, by the standard variables of OpenTelemetry; light to import.

Read here: OTEL_SDK_DISABLED, OTEL_{TRACES,LOGS,METRICS}_EXPORTER, OTEL_EXPORTER_OTLP[_{TRACES,LOGS,METRICS}]_{ENDPOINT,
PROTOCOL}, OTEL_PROPAGATORS. Everything else (headers, certificates, compression, timeouts, batching, sampling, limits,
resource, intervals) is read by opentelemetry-sdk and its exporters, in the process that exports.

Without an endpoint nothing is exported and nothing is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SIGNALS: Final = ("traces", "logs", "metrics")

HTTP: Final = "http/protobuf"
GRPC: Final = "grpc"
PROTOCOLS: Final = (HTTP, GRPC)

TRACE_CONTEXT: Final = "tracecontext"


@dataclass(frozen=True, slots=True)
class Settings:
    """What is exported.

    Attributes:
        signals: signal → protocol.
        problems: what was asked for and cannot be done, one sentence each.
        propagate: whether servers are told of our spans.
    """

    signals: Mapping[str, str]
    problems: tuple[str, ...] = ()
    propagate: bool = True


def settings(environ: Mapping[str, str]) -> Settings | None:
    """Return what the environment asks for, or ``None`` when that is nothing.

    An empty variable is as good as none, and values are compared without case (OpenTelemetry specification,
    configuration/sdk-environment-variables).
    """
    if _value(environ, "OTEL_SDK_DISABLED") == "true":
        return None
    signals: dict[str, str] = {}
    problems: list[str] = []
    for signal in SIGNALS:
        protocol = _signal(environ, signal, problems)
        if protocol:
            signals[signal] = protocol
    if not signals and not problems:
        return None
    names = {name.strip() for name in (_value(environ, "OTEL_PROPAGATORS") or TRACE_CONTEXT).split(",")}
    return Settings(signals, tuple(problems), "traces" in signals and TRACE_CONTEXT in names)


def _signal(environ: Mapping[str, str], signal: str, problems: list[str]) -> str:
    """Return the protocol of a signal; empty when it is not exported."""
    if not _either(environ, signal, "ENDPOINT"):
        return ""
    chosen = _value(environ, f"OTEL_{signal.upper()}_EXPORTER") or "otlp"
    exporters = {name.strip() for name in chosen.split(",")} - {"none"}
    unknown = sorted(exporters - {"otlp"})
    problems += [
        f"OTEL_{signal.upper()}_EXPORTER: {name!r} is not an exporter of ours (otlp, none)" for name in unknown
    ]
    if "otlp" not in exporters:
        return ""
    protocol = _either(environ, signal, "PROTOCOL") or HTTP
    if protocol in PROTOCOLS:
        return protocol
    problems.append(f"{signal} are not exported: protocol {protocol!r} is none of {', '.join(PROTOCOLS)}")
    return ""


def _either(environ: Mapping[str, str], signal: str, what: str) -> str:
    own = _value(environ, f"OTEL_EXPORTER_OTLP_{signal.upper()}_{what}")
    return own or _value(environ, f"OTEL_EXPORTER_OTLP_{what}")


def _value(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "").strip().lower()
