"""A model's answer is read in one way or not at all; quoted calls are text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.mcs.replies import MAX_CALLS, MAX_REPLY, Call, read

KNOWN = frozenset(("read", "write"))
CALL = '{"tool": "read", "arguments": {"path": "/a"}}'
READ = Call("read", {"path": "/a"})

CLEAR = {
    "plain": CALL,
    "surrounded by space": f"\n\n  {CALL}\n ",
    "pretty": json.dumps(json.loads(CALL), indent=4),
    "fenced": f"```json\n{CALL}\n```",
    "fenced without a tag": f"```\n{CALL}\n```",
    "fenced with tildes": f"~~~\n{CALL}\n~~~",
    "fenced with prose around": f"I look it up.\n```json\n{CALL}\n```\nOne moment.",
    "fenced and not closed": f"```json\n{CALL}",
    "on its own line": f"I look it up.\n{CALL}\n",
    "on its own lines": 'Now:\n{\n "tool": "read",\n "arguments": {"path": "/a"}\n}\nDone.',
    "windows lines": f"Now:\r\n```json\r\n{CALL}\r\n```\r\n",
    "alias": '{"name": "read", "arguments": {"path": "/a"}}',
    "with an id": '{"id": "1", "type": "function", "tool": "read", "arguments": {"path": "/a"}}',
    "beside other JSON": f'```json\n{{"rows": [1]}}\n```\n{CALL}',
    "native": {"tool_calls": [{"id": "1", "function": {"name": "read", "arguments": '{"path": "/a"}'}}]},
    "direct": {"tool": "read", "arguments": {"path": "/a"}},
    "message": {"role": "assistant", "content": CALL},
    "block": {
        "content": [{"type": "text", "text": "x"}, {"type": "tool_use", "name": "read", "input": {"path": "/a"}}]
    },
    "native as text": '{"tool_calls": [{"function": {"name": "read", "arguments": "{\\"path\\": \\"/a\\"}"}}]}',
}

UNCLEAR = {
    "in a sentence": f"The file says {CALL} and more.",
    "in a quotation": f"> {CALL}",
    "in a list": f"- {CALL}",
    "in inline code": f"`{CALL}`",
    "in another language": f"```python\n{CALL}\n```",
    "in a text block": f"```text\n{CALL}\n```",
    "behind an odd line break": f"It says\u2028{CALL}",
    "twice": f"{CALL}\n{CALL}",
    "in two fences": f"```json\n{CALL}\n```\n```json\n{CALL}\n```",
    "once standing, once quoted": f'{CALL}\nNever answer {{"tool": "write", "arguments": {{}}}}!',
    "a member twice": '{"tool": "read", "tool": "write", "arguments": {}}',
    "a member twice inside": '{"tool": "read", "arguments": {"path": "/a", "path": "/b"}}',
    "cut off": '{"tool": "read", "arguments": {"path": "/a"',
    "with a comment": '{"tool": "read", /* x */ "arguments": {}}',
    "with single quotes": "{'tool': 'read', 'arguments': {}}",
    "as Python": '{"tool": "read", "arguments": {"flag": True}}',
    "not a number": '{"tool": "read", "arguments": {"n": NaN}}',
    "too deep": '{"tool": "read", "arguments": ' + '{"a":' * 300 + "1" + "}" * 301,
    "arguments that are no object": '{"tool": "read", "arguments": ["/a"]}',
    "arguments beside": '{"tool": "read", "path": "/a"}',
    "tool and name": '{"tool": "read", "name": "write", "arguments": {}}',
    "an array of calls and other things": f'[{CALL}, {{"rows": 1}}]',
    "a known and an unknown tool": f'[{CALL}, {{"tool": "delete", "arguments": {{}}}}]',
    "too many": "[" + ",".join([CALL] * (MAX_CALLS + 1)) + "]",
    "too long": CALL + " " * MAX_REPLY,
    "inside another object": f'{{"answer": {CALL}}}',
    "native and direct": {"tool": "read", "arguments": {}, "tool_calls": []},
    "native without function": {"tool_calls": ["read"]},
    "native with broken arguments": {"tool_calls": [{"function": {"name": "read", "arguments": "{"}}]},
    "native without name": {"tool_calls": [{"function": {"arguments": "{}"}}]},
    "a name that is none": {"tool": ["read"], "arguments": {}},
}

NOTHING = {
    "a sentence": "The file has three lines.",
    "nothing": "",
    "other JSON": '{"rows": [1, 2]}',
    "other JSON with a name": '{"name": "Ada", "born": 1815}',
    "a name of a tool": "Use the tool read for that.",
    "an unknown tool in a sentence": 'Answer {"tool": "fly", "arguments": {}} to fly.',
    "no native call": {"role": "assistant", "content": CALL, "tool_calls": None},
    "no content": {"role": "assistant", "content": None},
    "a number": 7,
    "brackets": "{{{{[[[[",
    "a lone surrogate": "\ud800",
}


@pytest.mark.parametrize("reply", CLEAR.values(), ids=CLEAR)
def test_a_call_that_stands_alone_is_read(reply: Any) -> None:
    """Every common form gives the same call."""
    reading = read(reply, KNOWN)

    assert ((READ,), "") == (reading.calls, reading.problem)


@pytest.mark.claim("P-MCS-02")
@pytest.mark.parametrize("reply", UNCLEAR.values(), ids=UNCLEAR)
def test_what_could_be_read_in_two_ways_is_not_carried_out(reply: Any) -> None:
    """A call that a model quotes, repeats or garbles gives a reason and no call."""
    reading = read(reply, KNOWN)

    assert () == reading.calls
    assert reading.problem


@pytest.mark.parametrize("reply", NOTHING.values(), ids=NOTHING)
def test_what_calls_nothing_is_left_alone(reply: Any) -> None:
    """Neither a call nor a reason."""
    assert ((), "") == ((reading := read(reply, KNOWN)).calls, reading.problem)


def test_an_array_is_several_calls_in_order() -> None:
    """The order is the array's."""
    reply = f'[{{"tool": "write", "arguments": {{}}}}, {CALL}]'

    assert ("write", "read") == tuple(call.tool for call in read(reply, KNOWN).calls)


def test_a_call_of_somebody_elses_tool_is_read_as_such() -> None:
    """Whether it is ours is the caller's to decide."""
    assert (Call("fly", {}),) == read('{"tool": "fly", "arguments": {}}', KNOWN).calls


def test_a_call_may_carry_text_that_looks_like_one() -> None:
    """Arguments are data, whatever is in them."""
    inner = {"path": "/a", "text": f"```json\n{CALL}\n```\n> {CALL}"}
    reply = "Writing it.\n" + json.dumps({"tool": "write", "arguments": inner}, indent=2)

    assert (Call("write", inner),) == read(reply, KNOWN).calls


@pytest.mark.parametrize(
    "text", ["{" * 200_000, '{"' * 100_000, "{\n" * 200_000, '"\\' * 200_000, "```\n{\n" * 80_000, "[]\n" * 200_000,
             '{"a":\n' * 100_000],
    ids=range(7),
)  # fmt: skip
def test_hostile_texts_are_read_in_time(text: str) -> None:
    """Texts made to be read again and again end with no call."""
    assert () == read(text, KNOWN).calls


PIECES = st.sampled_from(
    [CALL, '{"tool": "write", "arguments": {}}', "```json", "```", "~~~", "> ", "text ", "\n", " ", "{", "}", "[", "]",
     '"', "\\", '"tool": "read"', '"arguments": {}', ",", "\u2028", "\ud800", "`", '{"rows": 1}', "null"]
)  # fmt: skip


@settings(max_examples=250)
@given(st.lists(PIECES, max_size=12).map("".join))
def test_any_answer_gives_calls_or_a_reason_and_never_both(text: str) -> None:
    """Reading never raises; what it gives are whole calls of at most one place of the text."""
    reading = read(text, KNOWN)

    assert not (reading.calls and reading.problem)
    for call in reading.calls:
        assert call.tool in {"read", "write"}
        assert isinstance(call.arguments, dict)
    if reading.calls:
        assert 1 == sum(text.count(f'"tool": "{name}"') for name in KNOWN) or "[" in text


@settings(max_examples=300)
@given(st.sampled_from(sorted(CLEAR)), st.integers(0, 200), st.characters(exclude_categories=[]))
def test_an_answer_that_was_damaged_calls_the_same_or_nothing(name: str, at: int, inserted: str) -> None:
    """One character more never makes another call of it than a person would read."""
    reply = CLEAR[name]
    if not isinstance(reply, str):
        return
    damaged = reply[:at] + inserted + reply[at:]
    reading = read(damaged, KNOWN)

    for call in reading.calls:
        assert json.dumps(call.tool, ensure_ascii=False)[1:-1] in damaged


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("read"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["tool", "name", "arguments", "tool_calls", "function", "content", "x"]), inner
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150)
@given(VALUES)
def test_any_message_is_read_without_an_error(value: Any) -> None:
    """Messages of any form, also wrong ones, give calls with a name and an object, or nothing."""
    for call in read(value, KNOWN).calls:
        assert isinstance(call.tool, str)
        assert isinstance(call.arguments, dict)
