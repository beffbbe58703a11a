"""Numbers are where validators differ most: no *yes* is refuted by either of two of them alone."""

from __future__ import annotations

from typing import Any

import jsonschema
import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox.vet.containment import Yes, contained

pytestmark = pytest.mark.claim("P-VET-01")

DIVISORS = (1, 2, 3, 4, 5, 6, 7, 10, 12, 0.5, 0.25, 1.5, 2.5, 0.75, 2.0, 3.0, 10.0, 0.1, 0.2, 0.3, 0.01, 0.7, 1e-3)
BOUNDS = (
    *(-10, -1.5, -1, -0.1, 0, 0.0, 0.1, 0.2, 0.3, 0.5, 1, 1.0, 1.5, 2, 2.5, 3, 5, 6, 7, 10, 12, 20),
    *(2**53, 2**53 + 1, 9007199254740992.0, 1e16, 1e23, 10**23, 1e308, 5e-324, -0.0, 1e-7),
)
VALUES = (
    *BOUNDS,
    *(tenth / 10 for tenth in range(-60, 200)),
    *(quarter / 4 for quarter in range(-40, 160)),
    *range(-40, 160),
    *(count * 0.1 for count in range(40)),
    *(count * 0.3 for count in range(40)),
    *(2**53 - 1, 2**53 + 2, 2**60, 2**60 + 1, 1e22, 10**22),
)


def schemas(depth: int = 1) -> st.SearchStrategy[dict[str, Any]]:
    """Return schemas of numbers."""
    bound, divisor = st.sampled_from(BOUNDS), st.sampled_from(DIVISORS)
    parts = [
        *(
            bound.map(lambda value, keyword=keyword: {keyword: value})
            for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        ),
        divisor.map(lambda value: {"multipleOf": value}),
        divisor.map(lambda value: {"type": "integer", "multipleOf": value}),
        st.lists(bound, min_size=1, max_size=3).map(lambda values: {"enum": values}),
    ]
    if depth:
        inner = schemas(depth - 1)
        parts += [
            inner.map(lambda one: {"not": one}),
            st.lists(inner, min_size=1, max_size=2).map(lambda some: {"anyOf": some}),
            st.lists(inner, min_size=2, max_size=2).map(lambda some: {"oneOf": some}),
        ]
    merged = st.lists(st.one_of(*parts), min_size=1, max_size=3)
    return merged.map(lambda some: {"type": "number", **{key: value for one in some for key, value in one.items()}})


@st.composite
def pairs(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a pair that often is contained: one is made out of the other."""
    a, b = draw(schemas()), draw(schemas())
    kept = draw(st.lists(st.sampled_from(sorted(a)), unique=True))
    fewer = {key: a[key] for key in kept}
    return draw(st.sampled_from([(a, fewer), (a, {"anyOf": [fewer, b]}), ({"allOf": [a, b]}, fewer), (a, b)]))


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pairs())
def test_no_validator_refutes_a_yes_about_numbers(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Each validator by itself accepts under the second schema every number that it accepts under the first."""
    if not isinstance(contained(*pair), Yes):
        return
    refuted: list[Any] = []
    for validator in (jsonschema.Draft202012Validator, jsonschema_rs.Draft202012Validator):
        first, second = (validator(schema) for schema in pair)
        refuted += [value for value in VALUES if first.is_valid(value) and not second.is_valid(value)]

    assert [] == refuted
