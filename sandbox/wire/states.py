"""What a client session may receive when: a table of state → event → state, as h11 does for HTTP.

A session begins undecided and is decided by what the client opens with (MCP 2026-07-28, basic/versioning):

- ``initialize`` makes it a handshake session; it is open for requests at once, and for what we send on our own after
  ``notifications/initialized`` (2025-11-25, basic/lifecycle: requests *should* wait, and real clients do not all);
- ``server/discover`` alone decides nothing: a client of both eras probes with it and may still choose to initialize;
- any other request with the per-request fields makes it a stateless session.

An event without a row is refused: ``initialize`` twice, a handshake method in a stateless session, and the reverse.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import Final


class State(Enum):
    """Where a client session stands."""

    __hash__ = object.__hash__  # members are unique; the enum's own hash is Python code on the path of every request

    NEW = "new"
    PROBED = "probed"
    NEGOTIATED = "negotiated"
    READY = "ready"
    STATELESS = "stateless"
    CLOSED = "closed"


class Event(Enum):
    """What arrives, as far as the state is concerned."""

    __hash__ = object.__hash__

    INITIALIZE = "initialize"
    INITIALIZED = "notifications/initialized"
    DISCOVER = "server/discover"
    PING = "ping"
    PLAIN = "a request without per-request fields"
    ENVELOPED = "a request with per-request fields"
    EOF = "end of input"


TRANSITIONS: Final = MappingProxyType(
    {
        State.NEW: {
            Event.INITIALIZE: State.NEGOTIATED,
            Event.DISCOVER: State.PROBED,
            Event.PING: State.NEW,
            Event.ENVELOPED: State.STATELESS,
            Event.EOF: State.CLOSED,
        },
        State.PROBED: {
            Event.INITIALIZE: State.NEGOTIATED,
            Event.DISCOVER: State.PROBED,
            Event.PING: State.PROBED,
            Event.ENVELOPED: State.STATELESS,
            Event.EOF: State.CLOSED,
        },
        State.NEGOTIATED: {
            Event.INITIALIZED: State.READY,
            Event.PING: State.NEGOTIATED,
            Event.PLAIN: State.NEGOTIATED,
            Event.EOF: State.CLOSED,
        },
        State.READY: {
            Event.INITIALIZED: State.READY,
            Event.PING: State.READY,
            Event.PLAIN: State.READY,
            Event.EOF: State.CLOSED,
        },
        State.STATELESS: {
            Event.DISCOVER: State.STATELESS,
            Event.ENVELOPED: State.STATELESS,
            Event.EOF: State.CLOSED,
        },
        State.CLOSED: {},
    }
)
"""State → event → next state; a missing event is refused in that state."""


def after(state: State, event: Event) -> State | None:
    """Return the next state, or ``None`` when the event is not allowed."""
    return TRANSITIONS[state].get(event)
