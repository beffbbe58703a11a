"""Schemas of the whole supported grammar, small values for them, and two judges that share no code with the decision.

Constants come from tiny pools, so that generated schemas meet each other and :func:`universe` holds an instance of most
regions that they can tell apart.
"""

from __future__ import annotations

import itertools
import random
from functools import cache
from typing import Any

import jsonschema
import jsonschema_rs
from hypothesis import strategies as st

NAMES = ("a", "b", "c", "ab", "")
TEXTS = ("", "a", "b", "ab", "aa", "abc", "A", "1")
NUMBERS = (-2, -1, 0, 1, 2, 3, 4, 5, 6, 0.5, 1.5, 1.0, 10)
PATTERNS = ("a", "^a", "b$", "^a*$", "^[ab]+$", "^.{2}$", "a|b", "^(a|ab)$", "^$", "[^a]", "^(?!a)", "^[a-c]{1,2}$")
SCALARS = (None, True, False, *NUMBERS, *TEXTS)
CONTAINERS: tuple[Any, ...] = ([], {}, [1], [1, 2], ["a"], {"a": 1}, {"a": "a", "b": 1})
TYPES = ("string", "integer", "number", "boolean", "null", "array", "object")


@cache
def schemas(depth: int = 3) -> st.SearchStrategy[Any]:
    """Return schemas nested up to a depth."""
    leaf = st.one_of(
        st.sampled_from((True, False, {})),
        st.builds(lambda name: {"type": name}, st.sampled_from(TYPES)),
        st.builds(lambda value: {"const": value}, st.sampled_from((*SCALARS, *CONTAINERS))),
    )
    if depth <= 0:
        return leaf
    inner = st.deferred(lambda: schemas(depth - 1))
    parts = st.lists(st.one_of(*keywords(inner)), min_size=1, max_size=4)
    return st.one_of(leaf, parts.map(_merged), parts.map(_merged), parts.map(_merged))


def _merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {keyword: value for part in parts for keyword, value in part.items()}


def keywords(inner: st.SearchStrategy[Any]) -> list[st.SearchStrategy[dict[str, Any]]]:
    """Return strategies of one keyword each, or of a few that belong together."""
    name, size = st.sampled_from(NAMES), st.integers(0, 3)
    number, pattern = st.sampled_from(NUMBERS), st.sampled_from(PATTERNS)
    some = st.lists(inner, min_size=1, max_size=3)

    def one(keyword: str, value: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
        return value.map(lambda found: {keyword: found})

    return [
        one("type", st.sampled_from((*TYPES, ["string", "null"], ["integer", "string"], ["array", "object"]))),
        one("enum", st.lists(st.sampled_from((*SCALARS, *CONTAINERS)), min_size=1, max_size=4)),
        one("const", st.sampled_from((*SCALARS, *CONTAINERS))),
        *[one(bound, number) for bound in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")],
        one("multipleOf", st.sampled_from((1, 2, 3, 4, 0.5))),
        *[
            one(bound, size)
            for bound in ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
        ],
        one("pattern", pattern),
        one("items", inner),
        one("prefixItems", some),
        one("uniqueItems", st.booleans()),
        one("unevaluatedItems", st.one_of(st.just(False), inner)),
        st.fixed_dictionaries(
            {"contains": inner}, optional={"minContains": st.integers(0, 2), "maxContains": st.integers(0, 2)}
        ),
        one("properties", st.dictionaries(name, inner, min_size=1, max_size=3)),
        one("patternProperties", st.dictionaries(pattern, inner, min_size=1, max_size=2)),
        one("additionalProperties", st.one_of(st.just(False), inner)),
        one("unevaluatedProperties", st.one_of(st.just(False), inner)),
        one("propertyNames", st.one_of(pattern.map(lambda text: {"pattern": text}), inner)),
        one("required", st.lists(name, min_size=1, max_size=2, unique=True)),
        one("dependentRequired", st.dictionaries(name, st.lists(name, max_size=2, unique=True), max_size=1)),
        one("dependentSchemas", st.dictionaries(name, inner, min_size=1, max_size=1)),
        *[one(keyword, some) for keyword in ("allOf", "anyOf", "oneOf")],
        one("not", inner),
        st.fixed_dictionaries({"if": inner}, optional={"then": inner, "else": inner}),
    ]


@st.composite
def related(draw: st.DrawFn) -> tuple[Any, Any]:
    """Return a pair of schemas that often are in one another: one is made out of the other."""
    a, b = draw(schemas()), draw(schemas(2))
    if not isinstance(a, dict) or not a:
        return a, b
    kept = draw(st.lists(st.sampled_from(sorted(a)), unique=True, max_size=len(a)))
    fewer = {keyword: a[keyword] for keyword in kept}
    choices = [
        (a, fewer),
        (fewer, a),
        (a, {"anyOf": [b, fewer]}),
        ({"allOf": [a, b]}, fewer),
        ({"allOf": [a, b]}, {"allOf": [b, fewer]}),
        ({"oneOf": [a, b]}, {"anyOf": [fewer, b]}),
        (a, {"if": b, "then": fewer, "else": a}),
        ({"properties": {"a": a}}, {"properties": {"a": fewer}}),
        ({"items": a}, {"items": fewer}),
        (a, {**a, **b} if isinstance(b, dict) else b),
    ]
    return draw(st.sampled_from(choices))


@cache
def universe() -> tuple[Any, ...]:
    """Return about a thousand small values."""
    rng = random.Random(7)
    small = (None, True, False, 0, 1, 2, 0.5, "", "a", "ab", "b")
    nested: tuple[Any, ...] = ([], {}, [1], ["a"], {"a": 1}, {"a": "a"}, {"b": 0}, [[1]], [{"a": 1}], {"a": [1]})
    values: list[Any] = [*SCALARS, [], {}]
    values += [[one] for one in (*small, 3, -1, "aa", *nested)]
    values += [list(pair) for pair in itertools.product(small, repeat=2)]
    values += [[rng.choice((*small, *nested)) for _ in range(rng.choice((3, 3, 4)))] for _ in range(250)]
    values += [{name: one} for name in (*NAMES, "d") for one in (*small, 3, *nested)]
    for _ in range(400):
        names = rng.sample((*NAMES, "aa", "d"), rng.choice((2, 2, 3, 4)))
        values.append({name: rng.choice((*small, *nested)) for name in names})
    return tuple(values)


def refutes(a: Any, b: Any) -> list[Any]:
    """Return the values of the universe that both judges accept under ``a`` and refuse under ``b``."""
    first, second = (jsonschema_rs.Draft202012Validator(schema) for schema in (a, b))
    suspects = [value for value in universe() if first.is_valid(value) and not second.is_valid(value)]
    return [value for value in suspects if accepted(a, value) and not accepted(b, value)]


def accepted(schema: Any, value: Any) -> bool:
    """Return what the reference implementation says about a value under a 2020-12 schema."""
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))
