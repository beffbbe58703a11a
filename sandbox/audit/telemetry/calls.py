"""Calls as spans and durations, by the conventions for MCP: SERVER towards the caller, CLIENT towards the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sandbox.audit.telemetry import conventions as names
from sandbox.audit.telemetry.values import Item, Measure, Span, plain
from sandbox.wire import tracing

MAX_OPEN: Final = 100_000
"""Calls that are remembered; the oldest are forgotten."""

_MEASURED: Final = (names.METHOD, names.TOOL, names.PROMPT, names.OPERATION, names.PROTOCOL, names.NETWORK, names.ERROR)
"""Attributes of the durations; the others have too many values."""

_CONVENTIONAL: Final = {
    "tool": names.TOOL,
    "prompt": names.PROMPT,
    "uri": names.RESOURCE_URI,
    "request_id": names.REQUEST_ID,
    "protocol": names.PROTOCOL,
}
"""Attribute of a record → attribute of the conventions."""


class Calls:
    """Pairs intents with outcomes of calls, and remembers which trace each call lies in."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[int, Mapping[str, Any]]] = {}
        self._traces: dict[str, str] = {}

    def place(self, span: str, trace: str) -> tuple[str, str]:
        """Return (trace id, span id) of a call that a record of ``trace`` names."""
        return self._traces.get(span, trace), span

    def take(
        self, record: Mapping[str, Any], attrs: Mapping[str, Any], moment: int, session: Mapping[str, Any]
    ) -> list[Item]:
        """Return what a record of a call becomes."""
        span, name = str(record.get("span", "")), record.get("name")
        if name == "call.forward" and record.get("phase") == "intent":
            self._open[span] = (moment, attrs)
            remote = tracing.of(attrs.get("traceparent"))
            if remote is not None:
                self._traces[span] = remote.trace_id
            for known in (self._open, self._traces):
                if len(known) > MAX_OPEN:
                    known.pop(next(iter(known)))
            return []
        if name == "call.decide" and attrs.get("decision") == "deny":
            return [_server(record, attrs, moment, moment, session)]
        if name == "call.forward" and record.get("phase") == "outcome":
            begun, said = self._open.pop(span, (moment, {}))
            return _answered(record, {**said, **attrs}, begun, moment, session)
        return []


def _answered(
    record: Mapping[str, Any], attrs: Mapping[str, Any], begun: int, moment: int, session: Mapping[str, Any]
) -> list[Item]:
    """Return both spans of a call that was forwarded, and what was measured."""
    took, added = attrs.get("duration_us"), attrs.get("overhead_us")
    if not isinstance(took, int) or not isinstance(added, int):  # it ended with an error of the platform
        took, added = (moment - begun) // 1000, 0
    took, added = max(0, min(took, moment // 1000)), max(0, min(added, took))
    start = min(moment - took * 1000, begun)
    server = _server(record, attrs, start, moment, session)
    forwarded = (took - added) * 1000
    begins = max(start, min(begun, moment - forwarded))
    client = Span(
        _named(server.attributes, str(attrs.get("mcp_tool_name") or attrs.get("tool") or "")),
        "client",
        server.trace_id,
        tracing.upstream_span(server.span_id),
        server.span_id,
        begins,
        begins + forwarded,
        _upstream(server.attributes, attrs, session),
        server.state,
        error=server.error,
    )
    return [server, client, *call_measures(server, client, took, added)]


def call_measures(server: Span, client: Span, took: int, added: int) -> list[Item]:
    """Return the durations of one call; ``took`` and ``added`` in microseconds."""
    seen, sent = (
        {key: span.attributes[key] for key in _MEASURED if key in span.attributes} for span in (server, client)
    )
    return [
        Measure(names.SERVER_DURATION, took / 1e6, seen),
        Measure(names.CLIENT_DURATION, (took - added) / 1e6, sent),
        Measure(names.OVERHEAD, added / 1e6, {key: seen[key] for key in (names.METHOD, names.TOOL) if key in seen}),
    ]


def _server(
    record: Mapping[str, Any], attrs: Mapping[str, Any], start: int, end: int, session: Mapping[str, Any]
) -> Span:
    remote = tracing.of(attrs.get("traceparent"), attrs.get("tracestate") or "")
    trace, span, root = str(record["trace"]), str(record["span"]), str(session["root"])
    attributes = _attributes(record, attrs)
    error = _failure(attrs)
    if error is not None:
        attributes[names.ERROR] = error
    return Span(
        _named(attributes, str(attrs.get("tool") or "")),
        "server",
        remote.trace_id if remote else trace,
        span,
        remote.span_id if remote else str(record.get("parent") or root),
        start,
        end,
        attributes,
        remote.state if remote else "",
        ((trace, root),) if remote else (),
        None if error is None else str(attrs.get("reason") or attrs.get("error") or error),
    )


def _attributes(record: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conventional attributes of a request, and ours."""
    method = str(attrs.get("method") or ("tools/call" if attrs.get("tool") else "resources/read"))
    found: dict[str, Any] = {names.METHOD: method, names.NETWORK: names.PIPE}
    if attrs.get("transport") == names.HTTP:
        found |= {names.NETWORK: names.TCP, names.NETWORK_PROTOCOL: names.HTTP}
    found |= {name: str(attrs[key]) for key, name in _CONVENTIONAL.items() if attrs.get(key)}
    if method == "tools/call":
        found[names.OPERATION] = names.EXECUTE_TOOL
    if attrs.get("session_id") and str(attrs.get("protocol", "")) < names.STATELESS_SINCE:
        found[names.SESSION] = str(attrs["session_id"])
    own = {key: plain(attrs[key]) for key in ("decision", "reason", "client", "rules") if attrs.get(key)}
    own |= {key: str(record[key]) for key in ("driver", "tenant", "instance", "trace") if record.get(key)}
    return found | {names.OWN + key: value for key, value in own.items()}


def _upstream(attributes: Mapping[str, Any], attrs: Mapping[str, Any], session: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of the span towards the server: its own name of the tool, its own protocol version."""
    own = {key: value for key, value in attributes.items() if not key.startswith(names.OWN) and key != names.SESSION}
    own[names.NETWORK] = names.PIPE
    own.pop(names.NETWORK_PROTOCOL, None)
    if attrs.get("mcp_tool_name"):
        own[names.TOOL] = str(attrs["mcp_tool_name"])
    version = session["attributes"].get(names.PROTOCOL)
    if version:
        own[names.PROTOCOL] = version
    return own


def _failure(attrs: Mapping[str, Any]) -> str | None:
    """Return ``error.type``: our id of an error that has one, ``tool_error`` for a result that says so."""
    if attrs.get("error"):
        return str(attrs["error"])
    if attrs.get("decision") == "deny" or attrs.get("status") == "error":
        return names.TOOL_ERROR
    return None


def _named(attributes: Mapping[str, Any], target: str) -> str:
    target = target or str(attributes.get(names.PROMPT, ""))
    return f"{attributes[names.METHOD]} {target}".rstrip()
