from __future__ import annotations

import pytest

from sandbox.wire import meta
from sandbox.wire.states import TRANSITIONS, Event, State, after


def test_every_state_has_a_row() -> None:
    """No state is without rules."""
    assert set(State) == set(TRANSITIONS)


def test_every_open_state_can_end() -> None:
    """Input may end at any time, and nothing follows the end."""
    for state in set(State) - {State.CLOSED}:
        assert State.CLOSED is after(state, Event.EOF)
    assert {} == TRANSITIONS[State.CLOSED]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([Event.INITIALIZE, Event.INITIALIZED, Event.PLAIN], State.READY),
        ([Event.INITIALIZE, Event.PLAIN], State.NEGOTIATED),
        ([Event.PING, Event.INITIALIZE], State.NEGOTIATED),
        ([Event.DISCOVER, Event.ENVELOPED, Event.DISCOVER], State.STATELESS),
        ([Event.DISCOVER, Event.INITIALIZE], State.NEGOTIATED),
        ([Event.ENVELOPED], State.STATELESS),
        ([Event.PLAIN], None),
        ([Event.INITIALIZE, Event.INITIALIZE], None),
        ([Event.INITIALIZE, Event.ENVELOPED], None),
        ([Event.INITIALIZE, Event.DISCOVER], None),
        ([Event.ENVELOPED, Event.INITIALIZE], None),
        ([Event.ENVELOPED, Event.PLAIN], None),
        ([Event.INITIALIZED], None),
    ],
)
def test_openings(events: list[Event], expected: State | None) -> None:
    """A session is decided by what the client opens with, and stays so."""
    state: State | None = State.NEW
    for event in events:
        assert state is not None
        state = after(state, event)

    assert expected is state


@pytest.mark.parametrize(
    ("key", "reserved"),
    [
        ("io.modelcontextprotocol/x", True),
        ("dev.mcp/x", True),
        ("org.modelcontextprotocol.api/x", True),
        ("com.mcp.tools/x", True),
        ("IO.ModelContextProtocol/x", True),
        ("com.example.mcp/x", False),
        ("mcp/x", False),
        ("com.example/modelcontextprotocol", False),
        ("progressToken", True),
        ("baggage", True),
        ("traceparent", False),
        ("name", False),
    ],
)
def test_reserved_meta_keys(key: str, reserved: bool) -> None:
    """A prefix whose second label is the protocol's is reserved (2026-07-28, basic, `_meta`)."""
    assert reserved == meta.is_reserved(key)
    assert ({} if reserved else {key: 1}) == meta.cleaned({key: 1})


def test_meta_that_is_no_object_is_none() -> None:
    """A malformed `_meta` says nothing and goes no further."""
    assert {} == meta.of({"_meta": [1]})
    assert {"a": 1} == meta.without_reserved({"a": 1, "_meta": [1]})
