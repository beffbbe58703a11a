"""What a person reads about a refutation: a small instance, the place in it, and why."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.vet.containment import No, contained, describe, example, place_name, shown

READ = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "head": {"type": "integer"}, "deep": {"type": "array", "items": {}}},
    "required": ["path"],
    "additionalProperties": False,
}


def server(**properties: Any) -> dict[str, Any]:
    """Return a server's schema that differs from ``READ`` in some properties."""
    return {"type": "object", "properties": {**READ["properties"], **properties}, "required": ["path"]}


CASES: list[tuple[Any, Any, str]] = [
    (server(head={"type": "string"}), {"path": "a", "head": 0}, "`head` must be string"),
    (server(head={"type": ["string", "null"]}), {"path": "a", "head": 0}, "`head` must be string or null"),
    (server(head={"enum": [1, 2]}), {"path": "a", "head": 0}, "`head` must be one of [1, 2]"),
    (server(head={"minimum": 1}), {"path": "a", "head": 0}, "`head` must be at least 1"),
    (server(path={"minLength": 3}), {"path": "a"}, "`path` must have at least 3 characters"),
    (server(path={"pattern": "^/"}), {"path": "a"}, '`path` must match "^/"'),
    (server(path={"anyOf": [{"type": "null"}, {"type": "integer"}]}), {"path": "a"}, "`path` must be null or integer"),
    (server(path={"oneOf": [{"const": "x"}, {"const": "y"}]}), {"path": "a"}, '`path` must be one of ["x", "y"]'),
    (server(deep={"items": {"type": "null"}}), {"path": "a", "deep": ["a"]}, "`deep[0]` must be null"),
    (server(deep={"items": {"type": "object"}}), {"path": "a", "deep": ["a"]}, "`deep[0]` must be object"),
    ({**server(), "required": ["path", "mode"]}, {"path": "a"}, "`mode` is required"),
    ({**server(), "dependentRequired": {"path": ["mode"]}}, {"path": "a"}, "`mode` is required when `path` is given"),
    ({"properties": {"path": True}, "additionalProperties": False}, {"path": "a", "deep": []}, "`deep` is not allowed"),
    (server(head=False), {"path": "a", "head": 0}, "`head` is not allowed"),
    ({"maxProperties": 0}, {"path": "a"}, "the value must have at most 0 members"),
    ({"type": "array"}, {"path": "a"}, "the value must be array"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "witness", "message"), CASES, ids=[case[2] for case in CASES])
def test_a_refutation_reads_well(schema: Any, witness: Any, message: str) -> None:
    """The witness holds the required members and the one that matters; the message names the place and the demand."""
    answer = contained(READ, schema)

    assert isinstance(answer, No)
    assert (witness, message) == (answer.witness, answer.message)


def test_the_sentence_names_both_sides() -> None:
    """A refutation becomes one sentence with the instance in it."""
    answer = contained(READ, server(head={"type": "string"}))

    assert isinstance(answer, No)
    assert '`fs-read` accepts `{"path": "a", "head": 0}`; `read_file` refuses it: `head` must be string' == describe(
        answer, "fs-read", "read_file"
    )
    assert (("head",), "type") == (answer.path, answer.keyword)


def test_the_empty_string_is_a_last_resort() -> None:
    """Witnesses prefer a letter to the empty string, which is hard to see."""
    assert "a" == example({"type": "string"})
    assert "" == example({"const": ""})


def test_long_values_are_cut_in_the_middle() -> None:
    """A sentence stays a sentence."""
    text = shown(["x" * 500])

    assert len(text) < 200
    assert " … " in text


@pytest.mark.parametrize(
    ("path", "name"),
    [((), "the value"), (("a", 0, "b-c"), "`a[0].b-c`"), (("x y",), '`["x y"]`'), (("\u202e",), '`["\\u202e"]`')],
)
def test_places_are_named_safely(path: tuple[str | int, ...], name: str) -> None:
    """Names that could mislead a reader are quoted and escaped."""
    assert name == place_name(path)


def test_an_example_of_nothing_is_an_error() -> None:
    """Asking for an instance where there is none says so."""
    with pytest.raises(LookupError, match="no instance"):
        example({"type": "string", "maxLength": 1, "minLength": 2})
