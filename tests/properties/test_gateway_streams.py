"""Streams and bodies of the gateway: no answer is lost, order never changes, no bytes pass as something else."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.serve.http.bounds import MAX_WAITING_BYTES
from sandbox.serve.http.endpoint import read_message
from sandbox.serve.http.fields import decoded, folded
from sandbox.serve.http.refusals import HttpRefused
from sandbox.serve.http.streams import Stream
from sandbox.wire.headers import encoded
from sandbox.wire.jsonrpc import Failure, Notification, Request, Result, to_json

KEYS = st.sampled_from(["", "3"])


@given(KEYS, st.lists(st.sampled_from(["put", "take", "back"]), max_size=60))
def test_what_is_read_is_what_was_written_in_order(key: str, steps: list[str]) -> None:
    """Whatever the order of writing, reading and coming back: numbers only grow between two comings back."""

    async def play() -> None:
        stream, written, last = Stream(key), 0, 0
        for step in steps:
            if step == "put":
                written += 1
                stream.put(Notification("n", {"number": written}))
            elif step == "back" and key:
                last = max(0, last - 1)
                stream.back_to(last)
            else:
                for sent in stream.take():
                    assert sent.number == last + 1
                    assert {"number": sent.number} == json.loads(sent.data)["params"]
                    last = sent.number
        stream.put(Result(1, {}), last=True)
        assert [sent.number for sent in stream.take()] == list(range(last + 1, written + 2))
        assert stream.drained

    asyncio.run(play())


def test_a_flood_that_nobody_reads_is_bounded_and_the_answer_still_comes() -> None:
    """Notifications beyond the bound are dropped and counted; the answer is there, however large."""

    async def play() -> None:
        stream = Stream("1")
        for _ in range(2000):
            stream.put(Notification("n", {"data": "x" * 10_000}))
        stream.put(Result(1, {"text": "y" * 5_000_000}), last=True)
        found = stream.take()

        assert sum(len(sent.data) for sent in found[:-1]) <= MAX_WAITING_BYTES
        assert stream.dropped + len(found) == 2001
        assert isinstance(found[-1].message, Result)

    asyncio.run(play())


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_a_body_is_one_message_or_is_refused(body: bytes) -> None:
    """Nothing else leaves the reader, and a message that is read says the same when it is written again."""
    message, refusal = read(body)
    if refusal is not None:
        assert 400 == refusal.status
        assert {"jsonrpc", "error"} <= set(json.loads(refusal.body()))
        return
    assert isinstance(message, Request | Notification | Result | Failure)
    assert message == read_message(json.dumps(to_json(message)).encode())


def read(body: bytes) -> tuple[Any, HttpRefused | None]:
    """Return the message of a body, or why it is none."""
    try:
        return read_message(body), None
    except HttpRefused as refusal:
        return None, refusal


@given(st.text(max_size=60))
def test_a_repeated_value_survives_its_header_field(value: str) -> None:
    """What a client repeats is what is compared, whatever characters it has."""
    try:
        sent = encoded(value)
    except UnicodeEncodeError:
        return
    assert value == decoded(sent)
    assert sent.isascii()


@given(st.lists(st.tuples(st.sampled_from([b"host", b"origin", b"mcp-method", b"x-other"]), st.binary(max_size=5))))
def test_a_field_that_may_stand_once_is_never_chosen_among_two(raw: list[tuple[bytes, bytes]]) -> None:
    """Two of them are refused; what may repeat keeps its first value."""
    twice = any(sum(1 for name, _ in raw if name == one) > 1 for one in (b"host", b"origin", b"mcp-method"))
    if twice:
        with pytest.raises(HttpRefused, match="GATE-003"):
            folded(raw)
    else:
        assert set(folded(raw)) == {name.decode() for name, _ in raw}
