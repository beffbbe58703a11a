"""The line of a record: canonical, printable, bounded, whatever is put in."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.audit.record import AFTER, HEAD, MAX_DEPTH, MAX_RECORD_BYTES, Clock, encode, first_after, leaf, plain


def line(attrs: Any, **fields: Any) -> bytes:
    """Return the line of a record with these attributes."""
    return encode({"after": "a" * 64, "seq": 1, "name": "x.y", "attrs": attrs, **fields})


def test_line_begins_with_the_hash_of_the_one_before() -> None:
    """``after`` sorts first and stands at a fixed place."""
    found = line({"a": 1}, driver="d", time="t")

    assert found.startswith(HEAD)
    assert b"a" * 64 == found[AFTER]


def test_equal_records_give_equal_bytes() -> None:
    """Members are sorted at every depth."""
    assert line({"b": {"d": 1, "c": 2}, "a": 1}) == line({"a": 1, "b": {"c": 2, "d": 1}})


@pytest.mark.claim("P-AUDIT-04")
@pytest.mark.parametrize(
    "text",
    [
        "a\nb",
        "a\r\nb",
        "\x1b[2J",
        "\x00",
        "\x7f",
        "\x9b31m",
        "\u0085",
        "\u2028\u2029",
        "\u202e",
        "\ufeff",
        "\ud800",
        "\udfff\ud800",
        "\U0001f600",
        "\U000e0041",
        '"}\n{"name":"forged"}',
        "\\",
    ],
)
def test_hostile_text_stays_in_its_line_and_prints_nothing(text: str) -> None:
    """Newlines, escapes, NUL, bidirectional marks and lone surrogates are JSON escapes or text (probe J21)."""
    found = line({text: text, "list": [text]}, tenant=text)

    assert all(0x20 <= byte <= 0x7E for byte in found)
    assert 1 == len(found.decode().splitlines())
    assert "x.y" == json.loads(found)["name"]


@pytest.mark.parametrize("text", ["tab\t", "é", "\u2028", "\U0001f600", "\x7f", "a\nb"])
def test_text_comes_back_as_it_was(text: str) -> None:
    """Escaping loses nothing that JSON can say."""
    assert text == json.loads(line({"a": text}))["attrs"]["a"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2**70, str(2**70)),
        (b"x", "<bytes>"),
        ({1: 2}, {"1": 2}),
        ({"a"}, ["a"]),
        (object, "<type>"),
        ("\ud800", "\\ud800"),
        (math.inf, "inf"),
    ],
)
def test_what_json_cannot_say_becomes_text(value: Any, expected: Any) -> None:
    """Large integers, bytes, sets and objects become something that says what they were."""
    assert expected == plain(value)
    assert json.loads(line({"a": value}))["attrs"]["a"] in (expected, None)


def test_deep_attributes_are_cut() -> None:
    """Nesting beyond what any reader takes is replaced by its kind."""
    deep: Any = "x"
    for _ in range(2000):
        deep = [deep]
    found = line({"a": deep})

    assert found.count(b"[") <= MAX_DEPTH + 1
    assert b"<list>" in found


def test_oversized_attributes_are_cut_to_their_small_members() -> None:
    """A record is bounded; its small members survive, and it says how much it was."""
    found = json.loads(line({"tool": "t", "big": "x" * MAX_RECORD_BYTES}))["attrs"]

    assert "t" == found["tool"]
    assert 1 == found["oversize"]["dropped"]
    assert found["oversize"]["bytes"] > MAX_RECORD_BYTES


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_attributes_give_one_printable_bounded_line(value: Any) -> None:
    """No value breaks the form, whatever it is."""
    found = line({"value": value}, tenant="\n")

    assert all(0x20 <= byte <= 0x7E for byte in found)
    assert len(found) <= MAX_RECORD_BYTES
    assert {"after", "attrs", "name", "seq", "tenant"} == set(json.loads(found))


def test_hash_is_the_leaf_hash_and_chains_are_bound_to_their_name() -> None:
    """Chain and tree use one hash; two streams never begin alike."""
    assert "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d" == leaf(b"").hex()
    assert first_after("a") != first_after("b")


def test_clock_is_rfc_3339_in_utc() -> None:
    """Times sort as text within a second and have one length."""
    clock = Clock()
    times = [clock() for _ in range(100)]

    assert times == sorted(times)
    assert {27} == {len(time) for time in times}
    assert all(time.endswith("Z") for time in times)
