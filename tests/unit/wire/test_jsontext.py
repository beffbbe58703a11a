from __future__ import annotations

import contextlib
import gc
import json
import time
from collections.abc import Callable

import pytest

from sandbox import jsontext
from tests.shared import shared_data


def refusal(data: bytes, **bounds: int) -> str:
    """Return why some text is refused."""
    with pytest.raises(jsontext.JsonTextError) as caught:
        jsontext.parse(data, **bounds)
    return str(caught.value)


@pytest.mark.claim("P-WIRE-11")
@pytest.mark.data
def test_every_invalid_text_of_the_suite_is_refused() -> None:
    """Not one text that JSONTestSuite calls invalid is read."""
    accepted = []
    for path in sorted((shared_data("json") / "JSONTestSuite" / "test_parsing").glob("n_*.json")):
        try:
            jsontext.parse(path.read_bytes())
        except jsontext.JsonTextError:
            continue
        accepted.append(path.name)

    assert [] == accepted


@pytest.mark.data
def test_every_valid_text_of_the_suite_is_read() -> None:
    """Every text that JSONTestSuite calls valid is read, but for duplicate members, which we refuse on purpose."""
    refused = set()
    for path in sorted((shared_data("json") / "JSONTestSuite" / "test_parsing").glob("y_*.json")):
        try:
            value = jsontext.parse(path.read_bytes())
        except jsontext.JsonTextError:
            refused.add(path.name)
        else:
            assert json.loads(path.read_bytes()) == value

    assert {"y_object_duplicated_key.json", "y_object_duplicated_key_and_value.json"} == refused


@pytest.mark.data
def test_no_text_of_the_suite_ends_otherwise() -> None:
    """Texts on which parsers differ are read or refused; nothing else happens, and what is read can be written."""
    for path in sorted((shared_data("json") / "JSONTestSuite").rglob("*.json")):
        try:
            value = jsontext.parse(path.read_bytes())
        except jsontext.JsonTextError:
            continue
        jsontext.dump(value).decode("utf-8")


@pytest.mark.claim("P-WIRE-11")
@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":1}',
        b'{"a":1, "a":2}',
        b'{"a":1,"\\u0061":2}',
        b'[{"x":{"a":1,"b":2,"a":3}}]',
        b'{"a:b":":","c":1,"c":2}',
        b'{"x":"\\u003a","a":1,"a":2}',
        b'{"x":"\\u003A\\u003a","a":{"p":1},"a":2}',
        b'{"":1,"":2}',
    ],
)
def test_duplicate_members_are_refused(text: bytes) -> None:
    """A member that stands twice is found wherever it hides, also beside escaped colons."""
    assert "duplicate member" in refusal(text)


def test_escaped_colons_alone_are_fine() -> None:
    """A text with escaped colons and no duplicate is read."""
    assert {"a:": ":"} == jsontext.parse(b'{"a\\u003a" : "\\u003a"}')


@pytest.mark.parametrize("value", [2**64, -(2**64), 10**400 // 10**100, 12345678901234567890123])
def test_integers_are_exact(value: int) -> None:
    """An integer beyond 64 bits is neither rounded nor refused while a double could hold its size."""
    text = b'{"n":%d}' % value

    assert {"n": value} == jsontext.parse(text)
    assert text == jsontext.dump(jsontext.parse(text))
    assert text == jsontext.canonical(jsontext.parse(text))


def test_long_digits_in_strings_are_only_text() -> None:
    """A string of digits is no number."""
    assert ["1" * 40] == jsontext.parse(b'["' + b"1" * 40 + b'"]')


def test_depth_bound() -> None:
    """The bound is exact for short texts and long ones."""
    for filler in (b"", b'"' + b"x" * 10_000 + b'",'):
        assert jsontext.parse(b"[" + filler + b"[" * 2 + b"]" * 3, max_depth=3)
        assert "nesting deeper than 2" in refusal(b"[" + filler + b"[" * 2 + b"]" * 3, max_depth=2)


def test_brackets_in_strings_do_not_nest() -> None:
    """A string full of brackets is one value."""
    assert ["[" * 500] == jsontext.parse(b'["' + b"[" * 500 + b'"]')


@pytest.mark.parametrize("item", [b"[]", b"0", b'""', b'{"a":1}'])
def test_value_bound(item: bytes) -> None:
    """A text of more values than the bound is refused before anything is built."""
    assert "more than 100 values" in refusal(b"[" + (item + b",") * 200 + item + b"]", max_values=100)


def test_commas_in_strings_are_no_values() -> None:
    """Text that looks like many values and is one string passes."""
    assert [",[{" * 500] == jsontext.parse(b'["' + b",[{" * 500 + b'"]', max_values=10)
    assert ['\\",[{' * 300] == jsontext.parse(b'["' + b'\\\\\\",[{' * 300 + b'"]', max_values=10)


@pytest.mark.parametrize(
    "hostile",
    [
        b"[" * 4_000_000,
        b"[" + b"[]," * 3_000_000 + b"[]]",
        b'"' + b"\\\\" * 4_000_000 + b'"',
        b"[" + b'"",' * 3_000_000 + b'""]',
        b"[" + b'"\\u003a",' * 300_000 + b"1]",
        b"[" + (b"[" * 120 + b"]" * 120 + b",") * 4000 + b"1]",
    ],
    ids=["open", "lists", "escapes", "strings", "colons", "towers"],
)
def test_hostile_text_costs_no_more_than_honest_text(hostile: bytes) -> None:
    """No text takes a multiple of its size: a quadratic step would cost a thousand times what plain numbers cost."""
    honest = b"[" + b"1," * (len(hostile) // 2) + b"1]"

    def cost(work: Callable[[bytes], object], text: bytes) -> float:
        """Return the least processor time of three runs; the collector would count what else lives."""
        found = []
        for _ in range(3):
            gc.collect()
            gc.freeze()
            started = time.process_time()
            with contextlib.suppress(jsontext.JsonTextError):
                work(text)
            found.append(time.process_time() - started)
            gc.unfreeze()
        return min(found)

    assert cost(jsontext.parse, hostile) < 40 * cost(json.loads, honest)
