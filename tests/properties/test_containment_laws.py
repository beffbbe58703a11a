"""Containment obeys the laws of sets, and no value of a small universe ever refutes a *yes*."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sandbox.vet.containment import (
    No,
    Relation,
    Unknown,
    Yes,
    compare,
    contained,
    disjoint,
    equivalent,
    example,
    inhabited,
)
from tests.properties.containment_schemas import accepted, refutes, related, schemas

pytestmark = pytest.mark.claim("P-VET-01")

slow_to_draw = settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@slow_to_draw
@given(related())
def test_a_yes_is_never_refuted(pair: tuple[Any, Any]) -> None:
    """No small value that two independent validators accept under the first schema is refused under the second."""
    a, b = pair
    assume(isinstance(contained(a, b), Yes))

    assert [] == refutes(a, b)


@slow_to_draw
@given(related())
def test_a_witness_refutes(pair: tuple[Any, Any]) -> None:
    """The witness of a *no* is valid under the first schema and not under the second, for both judges."""
    a, b = pair
    answer = contained(a, b)
    assume(isinstance(answer, No))
    first, second = (jsonschema_rs.Draft202012Validator(schema) for schema in pair)

    assert (True, False) == (accepted(a, answer.witness), accepted(b, answer.witness))
    assert (True, False) == (first.is_valid(answer.witness), second.is_valid(answer.witness))


@slow_to_draw
@given(schemas())
def test_every_schema_is_in_itself(schema: Any) -> None:
    """Containment is reflexive; a schema that is too odd to be read is unknown, never a *no*."""
    answer = contained(schema, schema)

    assert isinstance(answer, Yes) or (isinstance(answer, Unknown) and answer.reason)


@slow_to_draw
@given(related(), schemas(2))
def test_containment_is_transitive(pair: tuple[Any, Any], far: Any) -> None:
    """When a is in b and b is in c, a is not outside c."""
    a, b = pair
    c = {"anyOf": [far, b]}
    assume(isinstance(contained(a, b), Yes))
    assume(isinstance(contained(b, c), Yes))

    assert not isinstance(contained(a, c), No)


@slow_to_draw
@given(related())
def test_negation_turns_containment_around(pair: tuple[Any, Any]) -> None:
    """When a is in b, what is not in b is not in a."""
    a, b = pair
    assume(isinstance(contained(a, b), Yes))

    assert isinstance(contained({"not": b}, {"not": a}), Yes | Unknown)


@slow_to_draw
@given(schemas(), schemas(2))
def test_bounds_of_union_and_intersection(a: Any, b: Any) -> None:
    """Every schema is in a union with it, and an intersection with it is in it."""
    answers = [
        contained(a, {"anyOf": [a, b]}),
        contained({"allOf": [a, b]}, a),
        contained(False, a),
        contained(a, True),
    ]

    assert not any(isinstance(answer, No) for answer in answers)


@slow_to_draw
@given(schemas())
def test_excluded_middle(schema: Any) -> None:
    """A schema and its negation cover everything and share nothing."""
    both = {"allOf": [schema, {"not": schema}]}
    either = {"anyOf": [schema, {"not": schema}]}

    assert not isinstance(contained(True, either), No)
    assert not isinstance(inhabited(both), Yes)


@slow_to_draw
@given(related())
def test_disjointness_is_containment_in_the_negation(pair: tuple[Any, Any]) -> None:
    """Two schemas are disjoint exactly when one is in the other's negation."""
    a, b = pair
    answers = {type(disjoint(a, b)), type(contained(a, {"not": b}))} - {Unknown}

    assert len(answers) <= 1


@slow_to_draw
@given(schemas())
def test_an_example_is_an_instance(schema: Any) -> None:
    """What is offered as an instance is one; when there is none, nothing in the universe is one either."""
    try:
        value = example(schema)
    except LookupError:
        value = None
        assume(isinstance(inhabited(schema), No))

        assert [] == refutes(schema, False)
    else:
        assert accepted(schema, value)


@slow_to_draw
@given(related())
def test_comparisons_agree_with_containment(pair: tuple[Any, Any]) -> None:
    """The relation of two schemas is that of the two containments, and turns around with them."""
    a, b = pair
    turned = {Relation.NARROWER: Relation.WIDER, Relation.WIDER: Relation.NARROWER}
    forth, back = compare(a, b), compare(b, a)

    assert turned.get(forth, forth) == back
    assert (forth is Relation.EQUAL) == isinstance(equivalent(a, b), Yes)


KEYWORDS = (
    *("type", "enum", "items", "required", "properties", "$ref", "$id", "$schema", "anyOf", "pattern", "minLength"),
    *("multipleOf", "dependencies", "unevaluatedProperties", "$dynamicRef", "if", "then", "contains", "not"),
)

JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 3),
        st.floats(),
        st.sampled_from(("", "a", "#", "#/$defs/a", "(", "x:")),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4)),
    max_leaves=12,
)


@slow_to_draw
@given(JSON, JSON)
def test_any_json_gets_an_answer(a: Any, b: Any) -> None:
    """Whatever JSON stands where a schema should, there is an answer and no exception."""
    answer = contained(a, b)

    assert isinstance(answer, Yes | No | Unknown)
