"""Hostile schemas cost a bounded amount of work, and running out of it is never a yes."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import pytest

from sandbox.vet.containment import Dialect, No, Options, Unknown, Yes, contained
from sandbox.vet.containment.budget import MAX_DEPTH, Budget, UndecidedError


def chain(keyword: str, length: int) -> dict[str, Any]:
    """Return a schema whose unfolding doubles with every step."""
    steps = {f"x{i}": {keyword: [{"$ref": f"#/$defs/x{i - 1}"}] * 2} for i in range(1, length)}
    return {"$defs": {"x0": {"type": "object"}, **steps}, "$ref": f"#/$defs/x{length - 1}"}


def mixed_chain(length: int) -> dict[str, Any]:
    """Return a schema whose branches multiply and do not collapse."""
    steps: dict[str, Any] = {"x0": {"type": "object"}, "y0": {"required": ["a"]}}
    for i in range(1, length):
        below = [{"$ref": f"#/$defs/x{i - 1}"}, {"$ref": f"#/$defs/y{i - 1}"}]
        steps[f"x{i}"] = {"oneOf": below}
        steps[f"y{i}"] = {"oneOf": [*below, {"required": [f"k{i}"]}]}
    return {"$defs": steps, "$ref": f"#/$defs/x{length - 1}"}


def wide_chain(length: int, width: int) -> dict[str, Any]:
    """Return a schema whose smallest instance has ``width ** length`` leaves."""
    names = [f"p{i}" for i in range(width)]
    steps = {
        f"x{i}": {
            "type": "object",
            "properties": {name: {"$ref": f"#/$defs/x{i - 1}"} for name in names},
            "required": names,
        }
        for i in range(1, length)
    }
    return {"$defs": {"x0": {"type": "string"}, **steps}, "$ref": f"#/$defs/x{length - 1}"}


def nested(depth: int) -> dict[str, Any]:
    """Return a schema of values inside values."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


PATTERNS = [f"{first}.*{second}" for first, second in itertools.pairwise("abcdefghijklmnopqrstu")]
BOMBS: dict[str, tuple[Any, Any]] = {
    "doubling allOf": (chain("allOf", 40), {"type": "object"}),
    "doubling anyOf": (chain("anyOf", 40), {"type": "array"}),
    "doubling oneOf": (chain("oneOf", 40), {"type": "object"}),
    "doubling oneOf on the other side": ({"type": "object"}, chain("oneOf", 40)),
    "branches that multiply": (mixed_chain(14), mixed_chain(13)),
    "a value of a million leaves": (wide_chain(20, 2), wide_chain(19, 2)),
    "wide values against themselves": (wide_chain(12, 8), {**wide_chain(12, 8), "minProperties": 2}),
    "overlapping names": (
        {"patternProperties": {text: {"minLength": i} for i, text in enumerate(PATTERNS)}},
        {"patternProperties": {text: {"maxLength": i} for i, text in enumerate(PATTERNS)}},
    ),
    "exponential automaton": ({"pattern": "(a|b)*a(a|b){30}"}, {"pattern": "(a|b)*b(a|b){30}"}),
    "product of automata": (
        {"allOf": [{"pattern": f"(a|b)*a(a|b){{{i}}}"} for i in range(2, 11)]},
        {"pattern": "(a|b)*b(a|b){9}"},
    ),
    "huge repetition": ({"pattern": "^(a{1,900}){1,900}$"}, {"minLength": 1}),
    "many exact counts": (
        {"allOf": [{"contains": {"const": i}, "maxContains": 1} for i in range(8)], "maxItems": 7},
        {"type": "string"},
    ),
    "many different values": (
        {"uniqueItems": True, "minItems": 60, "items": {"type": "array", "items": {"type": "boolean"}, "maxItems": 5}},
        {"maxItems": 3},
    ),
    "huge bounds": ({"minItems": 10**9, "minProperties": 10**9, "minLength": 10**9}, {"maxItems": 10**8}),
    "long enum": ({"enum": [f"v{i}" for i in range(20_000)]}, {"enum": [f"w{i}" for i in range(20_000)]}),
    "many properties": (
        {"properties": {f"p{i}": {"maxLength": i} for i in range(5_000)}},
        {"properties": {f"p{i}": {"maxLength": i + 1} for i in range(5_000)}},
    ),
    "deep schema": (nested(99), nested(99)),
    "deep value": ({"const": [[[[[]]]]]}, {"const": nested(60)}),
}


@pytest.mark.parametrize(("a", "b"), BOMBS.values(), ids=list(BOMBS))
@pytest.mark.claim("P-VET-02")
def test_a_bomb_costs_a_bounded_number_of_steps(a: Any, b: Any) -> None:
    """Whatever a schema does, the work ends with an answer or an unknown, and a few steps are never a yes."""
    full = contained(a, b)
    hurried = contained(a, b, options=Options(steps=200))

    assert isinstance(full, Yes | No | Unknown)
    assert type(hurried) in {Unknown, type(full)}


def test_the_callers_clock_ends_it() -> None:
    """A caller that has a clock bounds the time: the question is given up when it runs out."""
    ticks = itertools.count()
    options = Options(clock=lambda: float(next(ticks)), seconds=3.0)

    assert "time" in contained(mixed_chain(14), mixed_chain(13), options=options).reason


def test_without_a_budget_nothing_is_a_yes() -> None:
    """With no steps at all, even a schema in itself is unknown."""
    assert isinstance(contained({"type": "string"}, {"type": "string"}, options=Options(steps=0)), Unknown)


def test_an_empty_budget_raises() -> None:
    """The last unit may be spent, the next one not."""
    budget = Budget(2)
    budget.spend(2)

    with pytest.raises(UndecidedError):
        budget.spend()


@pytest.mark.parametrize(("depth", "answer"), [(MAX_DEPTH - 2, Yes), (MAX_DEPTH + 2, Unknown)])
def test_depth_is_bounded(depth: int, answer: type) -> None:
    """Values nested up to the bound are compared, deeper ones not."""
    looser = {**nested(depth), "required": []}
    tighter = nested(depth)
    tighter["properties"]["a"]["title"] = "kept"
    inner = tighter
    for _ in range(depth - 1):
        inner = inner["properties"]["a"]
    inner["properties"]["a"] = {"type": "string", "minLength": 1}

    assert answer is type(contained(tighter, looser))


MALFORMED = [
    {"type": "strng"}, {"type": []}, {"type": [1]}, {"minLength": "3"}, {"minLength": -1}, {"required": True},
    {"required": [1]}, {"properties": []}, {"properties": {"a": 1}}, {"items": [{}]}, {"anyOf": []}, {"anyOf": {}},
    {"pattern": 3}, {"multipleOf": 0}, {"enum": 1}, {"$ref": 1}, {"minimum": "0"}, {"maximum": True},
    {"uniqueItems": 1}, {"patternProperties": {"a": 3}}, 7, "x", None, {"const": float("nan")},
    {"minimum": float("inf")}, {"enum": ["\ud800"]}, {"contains": {}, "minContains": -1},
]  # fmt: skip


@pytest.mark.parametrize("schema", MALFORMED, ids=repr)
def test_a_malformed_keyword_is_not_skipped(schema: Any) -> None:
    """Nobody knows what a validator makes of a malformed schema, so that it is in nothing, nor anything in it."""
    modern = Options(dialect=Dialect.D2020)

    assert isinstance(contained(schema, True, options=modern), Unknown)
    assert isinstance(contained({"type": "string"}, schema, options=modern), Unknown)


def test_a_yes_does_not_load_the_reference() -> None:
    """The validator that confirms counterexamples takes long to import; who needs none does not pay for it."""
    code = (
        "import sys; from sandbox.vet.containment import contained; "
        "assert contained({'type': 'integer'}, {'type': 'number'}); "
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'jsonschema', 'referencing', 'pydantic'}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "[]" == ran.stdout.strip()
