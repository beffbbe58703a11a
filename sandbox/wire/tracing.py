"""W3C Trace Context in ``_meta``: what a client says of its trace, and what a server is told of ours.

MCP carries ``traceparent`` and ``tracestate`` as bare keys of ``params._meta`` (SEP-414). They are taken strictly
(W3C Trace Context, level 1, section 3): anything else is as if nothing was said. ``baggage`` is never read and never
sent: it would carry one tenant's values to another's server.

What goes up depends on whether this process exports spans. When it does, the server's parent is our own client span,
below the caller's trace if there is one. When it does not, a span of ours would be a gap in the caller's trace, so its
context goes through unchanged; and where the caller said nothing, neither do we.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

MAX_STATE: Final = 512
"""Characters of ``tracestate`` that are passed on: what the specification asks everybody to carry."""

SAMPLED: Final = "01"

_PARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_STATE: Final = re.compile(r"[\x20-\x7e]*")
_UPSTREAM: Final = 0x6D63702D_73616E64


@dataclass(frozen=True, slots=True)
class Remote:
    """The span of a caller.

    Attributes:
        trace_id: 32 lower-case hex digits.
        span_id: 16 lower-case hex digits.
        flags: two hex digits; the last bit says sampled.
        state: ``tracestate``, empty when there is none.
    """

    trace_id: str
    span_id: str
    flags: str
    state: str = ""

    @property
    def parent(self) -> str:
        """Return ``traceparent`` as it was sent."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


def read(meta: Mapping[str, Any]) -> Remote | None:
    """Return the caller's span that a ``_meta`` names, or ``None``."""
    return of(meta.get(TRACEPARENT), meta.get(TRACESTATE))


def of(parent: object, state: object = "") -> Remote | None:
    """Return the span that a ``traceparent`` names, or ``None`` when it is none."""
    found = _PARENT.fullmatch(parent) if isinstance(parent, str) else None
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        return None
    good = isinstance(state, str) and len(state) <= MAX_STATE and _STATE.fullmatch(state) is not None
    return Remote(found[1], found[2], found[3], str(state) if good else "")


def upstream_span(span_id: str) -> str:
    """Return the id of the span between us and the server for a call's own span.

    It follows from the call's, so that whoever projects the ledger later finds the id that the server was told.
    """
    return f"{int(span_id, 16) ^ _UPSTREAM or 1:016x}"


def upstream(remote: Remote | None, trace_id: str, span_id: str, *, exported: bool) -> dict[str, str]:
    """Return the ``_meta`` members for a request to the server.

    Args:
        remote: what the caller said.
        trace_id: of the session.
        span_id: of the call.
        exported: whether this process exports its spans.
    """
    if not exported:
        if remote is None:
            return {}
        return {TRACEPARENT: remote.parent, **_stated(remote)}
    trace, flags = (trace_id, SAMPLED) if remote is None else (remote.trace_id, remote.flags)
    return {TRACEPARENT: f"00-{trace}-{upstream_span(span_id)}-{flags}", **_stated(remote)}


def _stated(remote: Remote | None) -> dict[str, str]:
    return {TRACESTATE: remote.state} if remote is not None and remote.state else {}
