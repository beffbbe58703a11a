"""The shapes of the dialect: read strictly, written back the same, and nothing else ever comes of bytes."""

from __future__ import annotations

import json
import uuid

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from sandbox.dialect.model import (
    Descriptor,
    Handshake,
    Shape,
    ToolRequest,
    ToolResponse,
    convert,
    milliseconds,
    read,
    schema,
    to_json,
    trace_parent,
)
from sandbox.dialect.refusals import DialectRefused
from tests.dialect_lab import invocation, shake

KINDS = (Handshake, ToolRequest, ToolResponse, Descriptor)
NAMES = st.sampled_from(
    ("request_id", "tool_id", "arguments", "session", "mode", "context", "version", "client_id", "transport", "x")
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.uuids().map(str),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=10,
)


@given(st.sampled_from(KINDS), st.binary(max_size=80) | JSON.map(lambda value: json.dumps(value).encode()))
def test_bytes_become_a_shape_or_a_refusal(kind: type[Shape], data: bytes) -> None:
    """No bytes make anything but a shape of the kind or `DIA-004`."""
    try:
        found = read(kind, data)
    except DialectRefused as refused:
        number = refused.id
    else:
        number = ""
        assert isinstance(found, kind)

    assert number in ("", "DIA-004")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Handshake, shake()),
        (ToolRequest, invocation(str(uuid.uuid4()), mode="async", a=[1, {"b": None}])),
        (ToolResponse, {"request_id": None, "status": "error", "error": {"id": "X-1"}, "metadata": {
            "duration_ms": 1, "tokens_used": 2}}),
        (Descriptor, {"tool_id": "a", "name": "A", "input_schema": {}, "output_schema": {},
                      "metadata": {"cost_estimate": 0.001, "latency": "50ms"}}),
    ],
)  # fmt: skip
def test_a_shape_is_written_as_it_was_read_and_fits_its_schema(kind: type[Shape], value: dict[str, object]) -> None:
    """What goes out is what came in, but for members that say nothing; both fit the published schema."""
    again = to_json(read(kind, orjson.dumps(value)))
    judge = Draft202012Validator(schema(kind))

    assert read(kind, orjson.dumps(again)) == convert(kind, value)
    assert [] == [*judge.iter_errors(value), *judge.iter_errors(again)]


@pytest.mark.parametrize(
    ("text", "expected"), [("50ms", 50.0), ("1.5s", 1500.0), ("20us", 0.02), ("50", None), ("-1ms", None), ("", None)]
)
def test_latencies_are_numbers_with_a_unit(text: str, expected: float | None) -> None:
    """Anything else is no latency."""
    if expected is None:
        with pytest.raises(DialectRefused, match="DIA-004"):
            milliseconds(text)
    else:
        assert expected == pytest.approx(milliseconds(text))


@given(st.uuids(), st.uuids())
def test_a_trace_is_a_valid_traceparent_or_none(request: uuid.UUID, trace: uuid.UUID) -> None:
    """The caller's trace id is kept; ids of zeros, which W3C forbids, are never sent."""
    named = convert(ToolRequest, {**invocation(), "request_id": str(request), "context": {"trace_id": str(trace)}})
    said = trace_parent(named)

    assert said in ("", f"00-{trace.hex}-{request.hex[:16]}-01")
    assert (said == "") == (trace.int == 0 or int(request.hex[:16], 16) == 0)
