"""Whatever stands in a record, telemetry is made of it without an error, and is valid OTLP."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from sandbox.audit.telemetry import conventions as names
from sandbox.audit.telemetry.otlp_json import lines
from sandbox.audit.telemetry.project import Projector
from sandbox.audit.telemetry.values import Measure, Span

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        *("tool", "method", "uri", "prompt", "calls", "host", "port", "traceparent", "tracestate", "duration_us"),
        *("overhead_us", "usage", "count", "decision", "reason", "error", "status", "rules", "client", "request_id"),
        *("protocol", "session_id", "transport", "bytes_up", "mcp_tool_name", "container_name", "ok"),
    ]
)
HEX = "0123456789abcdef"
RECORD = st.fixed_dictionaries(
    {
        "name": st.sampled_from(
            [
                *("call.forward", "call.decide", "egress.connect", "egress.dns"),
                *("launch.create", "teardown", "instance.usage", "audit.open"),
            ]
        ),
        "phase": st.sampled_from(["intent", "outcome", "fact"]),
        "attrs": st.dictionaries(KEYS, JSON, max_size=8) | JSON,
        "seq": st.integers(0, 2**40),
        "time": st.sampled_from(["2026-11-21T08:15:00.000001Z", "2026-11-21T08:15:01.000000Z", "", "never"]),
    },
    optional={
        "trace": st.just("1" * 32),
        "span": st.sampled_from(["2" * 16, "3" * 16]),
        "parent": st.just("4" * 16),
        "tenant": st.text(max_size=8),
    },
)


def coherent(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record with both trace and span, or neither, as the ledger has them."""
    if ("trace" in record) != ("span" in record):
        return {key: value for key, value in record.items() if key not in {"trace", "span", "parent"}}
    return record


@settings(max_examples=300, deadline=None)
@given(st.lists(RECORD.map(coherent), max_size=6))
def test_any_records_become_valid_otlp(records: list[dict[str, Any]]) -> None:
    """No form of attributes stops the export, and every line is a message of the protocol."""
    for line in lines(records):
        parsed = json.loads(line)
        text = line.decode().replace("1" * 32, "AAAA").replace('Id":"' + "2" * 16, 'Id":"AAAA')
        kind = TracesData() if "resourceSpans" in parsed else LogsData()
        json_format.Parse(text, kind)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["call.forward", "egress.connect", "launch.create"]), st.dictionaries(KEYS, JSON, max_size=12))
def test_any_pair_becomes_valid_otlp(name: str, attrs: dict[str, Any]) -> None:
    """The same of an intent with its outcome, of which spans and measurements are made."""
    common = {"name": name, "attrs": attrs, "seq": 1, "time": "2026-11-21T08:15:00.000001Z", "trace": "1" * 32}
    pair: list[dict[str, Any]] = [{**common, "span": "2" * 16, "phase": phase} for phase in ("intent", "outcome")]
    projector = Projector()
    made = [item for record in pair for item in projector.take(record)]

    assert any(isinstance(item, Span) for item in made)
    for line in lines(pair):
        json.loads(line)
    for item in made:
        held = item.attributes.values()
        assert all(isinstance(value, str | bool | int | float | list) for value in held)


def test_processor_time_is_added_once() -> None:
    """Samples of an instance are a counter's increments, not its sum again and again."""
    projector, common = Projector(), {"trace": "1" * 32, "span": "2" * 16, "instance": "i", "time": ""}
    found = []
    for seconds in (1.0, 1.5, 4.0):
        attrs = {"usage": {"cpu_seconds": seconds, "memory_bytes": None}}
        found += projector.take({**common, "name": "instance.usage", "phase": "fact", "attrs": attrs})

    assert [1.0, 0.5, 2.5] == [item.value for item in found if isinstance(item, Measure)]
    assert {names.CPU_TIME} == {item.instrument for item in found if isinstance(item, Measure)}
