from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import jsontext
from sandbox.wire.attach import AttachDecoder
from sandbox.wire.errors import WireError
from sandbox.wire.framing import LineDecoder
from sandbox.wire.jsonrpc import Failure, Message, Notification, Request, Result, decode, encode
from sandbox.wire.states import Event, State, after

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**300), 10**300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=20,
)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=5)
IDS = st.integers(-(2**53) + 1, 2**53 - 1) | st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
METHODS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=60)
MESSAGES = st.one_of(
    st.builds(Request, IDS, METHODS, OBJECTS),
    st.builds(Notification, METHODS, OBJECTS),
    st.builds(Result, IDS, OBJECTS),
    st.builds(Failure, IDS | st.none(), st.integers(-(2**53) + 1, 2**53 - 1), TEXT, VALUES),
)
NEARLY = st.binary(max_size=200) | st.sampled_from(
    [b'{"jsonrpc":"2.0","id":1,"method":"a"}', b"\r", b"\n", b"\r\n", b"{", b'"\\', b"\xef\xbb\xbf", b"\x00"]
)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """Return data in pieces of the given sizes, the rest last."""
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data]


def lines(pieces: list[bytes], bound: int) -> list[bytes | str]:
    """Return what a decoder makes of pieces, errors as ids."""
    decoder = LineDecoder(bound)
    items = [item for piece in pieces for item in decoder.feed(piece)]
    end = decoder.end()
    return [item.id if isinstance(item, WireError) else item for item in [*items, *([end] if end else [])]]


@given(st.lists(NEARLY, max_size=12), st.lists(st.integers(0, 40), max_size=20), st.integers(1, 60))
def test_any_cut_of_a_stream_gives_the_same_lines(parts: list[bytes], sizes: list[int], bound: int) -> None:
    """Whole, cut anywhere and byte by byte, a stream gives the same lines and the same errors."""
    data = b"".join(parts)
    whole = lines([data], bound)

    assert whole == lines(cut(data, sizes), bound)
    assert whole == lines([data[at : at + 1] for at in range(len(data))], bound)


@given(st.binary(max_size=400), st.integers(1, 30))
def test_a_line_never_exceeds_the_bound(data: bytes, bound: int) -> None:
    """Neither a line that is given on nor what is kept for one is longer than the bound."""
    decoder = LineDecoder(bound)
    for item in decoder.feed(data):
        assert isinstance(item, WireError) or len(item) <= bound
    assert decoder.pending <= bound


@given(st.lists(NEARLY, max_size=8).map(b"".join))
def test_any_line_is_a_message_or_a_wire_error(line: bytes) -> None:
    """Reading never ends in any other way."""
    try:
        message = decode(line)
    except WireError:
        return

    assert message == decode(encode(message)[:-1])


@given(MESSAGES)
def test_messages_survive(message: Message) -> None:
    """What is written reads back as the same value, on one line."""
    line = encode(message)

    assert 1 == line.count(b"\n")
    assert message == decode(line[:-1])


@given(OBJECTS, st.sampled_from(["jsonrpc", "id", "method", "params"]), VALUES)
def test_an_extra_or_repeated_member_is_never_accepted(params: dict[str, Any], member: str, value: Any) -> None:
    """A request with any member twice, whatever the second value, is refused."""
    head = encode(Request(1, "a", {**params, "x": 1}))[:-2]
    doubled = head + b"," + json.dumps(member).encode() + b":" + json.dumps(value).encode() + b"}"
    with pytest.raises(WireError) as caught:
        decode(doubled)

    assert "WIRE-010" == caught.value.id


@given(VALUES, st.booleans(), st.booleans())
def test_strict_json_agrees_with_the_standard_parser(value: Any, spaced: bool, escaped: bool) -> None:
    """Whatever way a value is written, it is read as the standard parser reads it."""
    text = json.dumps(value, indent=1 if spaced else None, ensure_ascii=escaped).encode()
    ours = jsontext.parse(text, max_depth=100)

    assert json.loads(text) == ours
    assert json.loads(jsontext.dump(ours)) == ours


@given(st.lists(st.tuples(TEXT, VALUES), min_size=1, max_size=6), st.booleans())
def test_duplicates_are_found_however_they_are_written(pairs: list[tuple[str, Any]], escaped: bool) -> None:
    """An object is refused exactly when two of its members have the same name."""
    members = ",".join(f"{json.dumps(k, ensure_ascii=escaped)}:{json.dumps(v)}" for k, v in pairs)
    unique = len({name for name, _ in pairs}) == len(pairs)
    try:
        jsontext.parse(f"{{{members}}}".encode())
        accepted = True
    except jsontext.JsonTextError:
        accepted = False

    assert unique == accepted


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=50)), max_size=8), st.lists(st.integers(0, 30)))
def test_any_cut_of_an_attached_stream_gives_the_same_bytes(frames: list[tuple[int, bytes]], sizes: list[int]) -> None:
    """Frames may be cut anywhere; each stream gets its bytes in order."""
    data = b"".join(bytes((s, 0, 0, 0)) + len(p).to_bytes(4, "big") + p for s, p in frames)
    decoder = AttachDecoder()
    pieces = [piece for part in cut(data, sizes) for piece in decoder.feed(part)]

    for stream in (1, 2):
        assert b"".join(p for s, p in frames if s == stream) == b"".join(p for s, p in pieces if s == stream)


@given(st.lists(st.sampled_from(list(Event)), max_size=12))
def test_a_session_never_changes_its_era(events: list[Event]) -> None:
    """Once decided, no sequence of events leads from one era to the other."""
    state, seen = State.NEW, set()
    for event in events:
        state = after(state, event) or state
        seen.add(state)

    assert not ({State.NEGOTIATED, State.READY} & seen and State.STATELESS in seen)
