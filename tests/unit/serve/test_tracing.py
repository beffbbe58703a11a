"""Trace context of clients: what is taken, what a server is told, and what never goes any further."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.events import Scope
from sandbox.wire import tracing
from sandbox.wire.jsonrpc import Request, Result
from tests.wire_kit import HANDSHAKE, STATELESS, of_client, serving

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
BOTH = pytest.mark.parametrize("era", [HANDSHAKE, STATELESS])
KEYS = {"traceparent", "tracestate", "baggage"}


async def told(era: str, **sent: Any) -> tuple[dict[str, Any], Any]:
    """Return what of traces the server gets for a call with this ``_meta``, and the session's scope."""
    async with serving(server_era=era, client_era=era) as stage:
        stage.client.call("tools/call", of_client(era, {"name": "echo"}, **sent))
        request = await stage.server.receive(Request)
        stage.server.send(Result(request.id, {"content": []}))
        got = request.params.get("_meta", {})
        return {key: value for key, value in got.items() if key in KEYS}, stage.session._scope


@pytest.mark.anyio
@BOTH
async def test_context_passes_unchanged_where_nothing_is_exported(era: str) -> None:
    """A span that nobody exports must not become a parent; who said nothing is not spoken for."""
    said, _ = await told(era, traceparent=PARENT, tracestate="a=1")

    assert {"traceparent": PARENT, "tracestate": "a=1"} == said
    assert {} == (await told(era))[0]


@pytest.mark.anyio
@BOTH
async def test_server_is_told_our_span_where_spans_are_exported(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the client's trace when it has one, else below the session's."""
    monkeypatch.setattr(Scope, "exported", True)
    said, _ = await told(era, traceparent=PARENT, tracestate="a=1")
    own, scope = await told(era)

    parent, alone = tracing.of(said["traceparent"]), tracing.of(own["traceparent"])
    assert parent is not None
    assert alone is not None
    assert (TRACE, "01", "a=1") == (parent.trace_id, parent.flags, said["tracestate"])
    assert parent.span_id != SPAN
    assert (scope.trace.trace_id, False) == (alone.trace_id, "tracestate" in own)


@pytest.mark.anyio
@pytest.mark.claim("P-AUDIT-12")
@pytest.mark.parametrize("exported", [True, False])
@BOTH
async def test_baggage_goes_nowhere(era: str, exported: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's baggage, which may hold one tenant's values, does not reach a server; its trace context does."""
    monkeypatch.setattr(Scope, "exported", exported)
    said, _ = await told(era, baggage="tenant=ada,user=secret", traceparent=PARENT)

    assert {"traceparent"} == set(said)


@pytest.mark.parametrize(
    "text",
    [
        "",
        PARENT.upper(),
        PARENT + "-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE}-{SPAN}-0g",
        7,
        None,
        [PARENT],
    ],
)
def test_what_is_no_trace_context_is_nothing(text: Any) -> None:
    """W3C Trace Context, level 1: everything that is not exactly its form is as if nothing was said."""
    assert tracing.of(text) is None


@pytest.mark.parametrize("state", ["a=1\r\nevil", "x" * 513, 7, None, "\x1b[2J", "ü=1"])
def test_odd_state_is_dropped_and_the_parent_kept(state: Any) -> None:
    """A state that could end a header or a line does not go on."""
    found = tracing.of(PARENT, state)

    assert found is not None
    assert found.state == ""


@given(st.integers(1, (1 << 64) - 1))
def test_upstream_ids_are_valid_other_and_one_for_each_call(number: int) -> None:
    """The id that a server is told follows from the call's, is never zero and never the call's own."""
    span = f"{number:016x}"
    found = tracing.upstream_span(span)

    assert tracing.of(f"00-{TRACE}-{found}-01") is not None
    assert found != span
    assert tracing.upstream_span(found) in {span, "0" * 15 + "1"} or int(found, 16) == 1
