"""Server-sent events: what browsers read is read, whole and byte by byte alike, and nothing is kept without bound."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.limits import MAX_EVENT_LINES, MAX_LINE_BYTES
from sandbox.wire.errors import WireError
from sandbox.wire.sse import Event, EventDecoder


@pytest.mark.parametrize(
    ("stream", "events", "last_id"),
    [
        (b"data: a\n\n", [Event("message", b"a")], ""),
        (b"data: a\r\n\r\n", [Event("message", b"a")], ""),
        (b"data: a\r\rdata: b\r\r", [Event("message", b"a"), Event("message", b"b")], ""),
        (b"\xef\xbb\xbfdata: a\n\n", [Event("message", b"a")], ""),
        (b"data:a\ndata: b\ndata\n\n", [Event("message", b"a\nb\n")], ""),
        (b"event: endpoint\ndata: /x\n\n", [Event("endpoint", b"/x")], ""),
        (b": keep\n\n: alive\n\n", [], ""),
        (b"id: 7\ndata:\n\n", [Event("message", b"")], "7"),
        (b"id: 7\n\n", [], "7"),
        (b"id: 7\ndata: a\n\nid\ndata: b\n\n", [Event("message", b"a"), Event("message", b"b")], ""),
        (b"id: 7\ndata: a", [], ""),
        (b"id: 1\n\nid: a\0b\ndata: x\n\n", [Event("message", b"x")], "1"),
        (b"nonsense: 1\ndata: a\n\n", [Event("message", b"a")], ""),
    ],
)
def test_streams(stream: bytes, events: list[Event], last_id: str) -> None:
    """Each stream gives what the standard says; an unfinished event gives nothing."""
    decoder = EventDecoder()

    assert events == decoder.feed(stream)
    assert last_id == decoder.last_id


@given(
    st.lists(st.sampled_from([b"data: x", b"id: 1", b"event: e", b":c", b"\n", b"\r", b"\r\n", b"retry: 9", b"\xff"]))
)
@settings(max_examples=300)
def test_whole_and_byte_by_byte_agree(pieces: list[bytes]) -> None:
    """How the network cuts a stream changes nothing."""

    def read(parts: list[bytes]) -> object:
        decoder = EventDecoder()
        try:
            found = [event for part in parts for event in decoder.feed(part)]
        except WireError as error:
            return error.id
        return found, decoder.last_id, decoder.retry

    stream = b"".join(pieces)

    assert read([stream]) == read([stream[at : at + 1] for at in range(len(stream))])


@pytest.mark.parametrize("piece", [b"x" * 65536, b"data: " + b"x" * 65530 + b"\n"])
def test_what_is_kept_is_bounded(piece: bytes) -> None:
    """A line or an event without an end is given up at the bound."""
    decoder = EventDecoder()

    def read() -> None:
        for _ in range(2 * MAX_LINE_BYTES // len(piece)):
            decoder.feed(piece)
            assert decoder.held <= MAX_LINE_BYTES

    with pytest.raises(WireError) as caught:
        read()

    assert "WIRE-060" == caught.value.id


def test_many_short_lines_are_bounded() -> None:
    """An event of many lines costs no more than its bytes."""
    with pytest.raises(WireError):
        EventDecoder().feed(b"data:\n" * (MAX_EVENT_LINES + 1))
