"""Keywords about types, listed values, numbers and strings, as nodes."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from sandbox.vet.containment.algebra import Algebra
from sandbox.vet.containment.budget import UndecidedError
from sandbox.vet.containment.dialect import STRING_FORMATS, Dialect
from sandbox.vet.containment.facts import AtLeast, MultipleOf, NumberIs, Opaque, Pattern, StringIs
from sandbox.vet.containment.nodes import Node
from sandbox.vet.containment.numbers import MULTIPLE, Rational
from sandbox.vet.containment.values import ALL, EXACT_FLOAT_INT, KIND_OF_NAME, NUMBER, STRING, exact, key_of

if TYPE_CHECKING:
    from sandbox.vet.containment.document import Place
    from sandbox.vet.containment.reader import Reader, Scope

SMALLEST: Final = Fraction(1, 2**1000)
"""Magnitude above which no quotient of two ordinary floats underflows."""

UNDERFLOWS_FROM: Final = 2
"""Divisors from which dividing the smallest float gives zero."""


def type_(reader: Reader, place: Place, value: Any, _scope: Scope) -> Node:
    """``type``: a name or a list of names; *integer* is a number that is a multiple of one."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names:
        raise UndecidedError(f"`type` at {place} is neither a name nor a list of names")
    mask = 0
    for name in names:
        if not isinstance(name, str) or (name != "integer" and name not in KIND_OF_NAME):
            raise UndecidedError(f"`type` at {place} names {str(name)[:40]!r}, which is not a type")
        mask |= KIND_OF_NAME.get(name, NUMBER)
    if "integer" not in names or "number" in names:
        return reader.algebra.types(mask)
    whole = [reader.algebra.types(mask), reader.algebra.fact(MultipleOf(1))]
    if place.document.dialect is Dialect.DRAFT4:
        whole.append(reader.algebra.fact(NumberIs("integer in the sense of draft-04")))
    return reader.algebra.all_of(whole)


def listed(reader: Reader, place: Place, value: Any, _scope: Scope) -> Node:
    """``enum``."""
    if not isinstance(value, list):
        raise UndecidedError(f"`enum` at {place} is not a list")
    return reader.algebra.values([key_of(one) for one in value])


def constant(reader: Reader, _place: Place, value: Any, _scope: Scope) -> Node:
    """``const``."""
    return reader.algebra.values((key_of(value),))


# --- numbers ----------------------------------------------------------------------------------------------------------
def number(place: Place, keyword: str, value: Any) -> Rational:
    """Return the exact value of a numeric keyword."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UndecidedError(f"`{keyword}` at {place} is not a number")
    return exact(value)


def minimum(reader: Reader, place: Place, value: Any, _scope: Scope) -> Node:
    """``minimum``; in draft-04 with its boolean companion."""
    return reader.algebra.fact(AtLeast(number(place, "minimum", value), _exclusive(place, "exclusiveMinimum")))


def maximum(reader: Reader, place: Place, value: Any, _scope: Scope) -> Node:
    """``maximum``; in draft-04 with its boolean companion."""
    opened = not _exclusive(place, "exclusiveMaximum")
    return reader.algebra.at_most(AtLeast(number(place, "maximum", value), opened))


def _exclusive(place: Place, keyword: str) -> bool:
    return place.document.dialect is Dialect.DRAFT4 and place.schema.get(keyword) is True


def above(reader: Reader, place: Place, value: Any, _scope: Scope) -> Node:
    """``exclusiveMinimum`` as a number."""
    return reader.algebra.fact(AtLeast(number(place, "exclusiveMinimum", value), open=True))


def below(reader: Reader, place: Place, value: Any, _scope: Scope) -> Node:
    """``exclusiveMaximum`` as a number."""
    return reader.algebra.at_most(AtLeast(number(place, "exclusiveMaximum", value), open=False))


def multiple(reader: Reader, place: Place, value: Any, _scope: Scope) -> Node:
    """``multipleOf``: arithmetic where every validator computes the same, else opaque (see :mod:`numbers`)."""
    step = number(place, "multipleOf", value)
    if step <= 0:
        raise UndecidedError(f"`multipleOf` at {place} is not positive")
    multiple_of = reader.algebra.fact(MultipleOf(step))
    fraction = Fraction(step)
    if isinstance(value, int) or (fraction.numerator == 1 and fraction.denominator & (fraction.denominator - 1) == 0):
        return multiple_of
    opaque_multiple = reader.algebra.fact(NumberIs(f"{MULTIPLE}{value!r}"))
    if Fraction(str(value)) != step:
        return opaque_multiple
    return _as_floats_divide(reader.algebra, multiple_of, opaque_multiple, fraction)


def _as_floats_divide(algebra: Algebra, exact_multiple: Node, opaque_multiple: Node, step: Fraction) -> Node:
    """Return the multiples of a divisor that is written as a float: exact where float division is, else opaque.

    Validators that divide floats take every number beyond 2**53 for a multiple, and every one that is so small that the
    quotient underflows; others compute exactly. Of the large ones only being a multiple of the common unit is sure.
    """
    large = _outside(algebra, EXACT_FLOAT_INT)
    sure = algebra.fact(MultipleOf(_plain(Fraction(1, step.denominator))))
    cases = [algebra.all_of((large, opaque_multiple, sure))]
    ordinary = [algebra.negate(large)]
    if step >= UNDERFLOWS_FROM:
        tiny = algebra.all_of(
            (algebra.negate(_outside(algebra, SMALLEST)), algebra.negate(algebra.values((key_of(0),))))
        )
        cases.append(algebra.all_of((tiny, opaque_multiple)))
        ordinary.append(algebra.negate(tiny))
    cases.append(algebra.all_of((*ordinary, exact_multiple)))
    return algebra.any_of((algebra.types(ALL & ~NUMBER), *cases))


def _outside(algebra: Algebra, bound: Rational) -> Node:
    """Return the numbers of at least a magnitude."""
    above = algebra.fact(AtLeast(bound, open=False))
    below = algebra.fact(AtLeast(-bound, open=True), positive=False)
    return algebra.all_of((algebra.types(NUMBER), algebra.any_of((above, below))))


def _plain(number: Fraction) -> Rational:
    return number.numerator if number.denominator == 1 else number


def pattern(reader: Reader, place: Place, value: Any, _scope: Scope) -> Node:
    """``pattern``."""
    if not isinstance(value, str):
        raise UndecidedError(f"`pattern` at {place} is not a string")
    return reader.algebra.fact(Pattern(value))


def format_(reader: Reader, _place: Place, value: Any, _scope: Scope) -> Node:
    """``format``: nothing, or a predicate that is only known to be equal to itself."""
    if reader.formats == "annotation" or not isinstance(value, str):
        return reader.algebra.everything
    if value in STRING_FORMATS:
        return reader.algebra.fact(StringIs(f"format:{value}"))
    return reader.algebra.fact(Opaque(f"format:{value}", STRING | NUMBER))


def content(reader: Reader, place: Place, value: Any, _scope: Scope) -> Node:
    """``contentEncoding``, ``contentMediaType``: draft-07 lets validators assert them, and servers go on doing so."""
    keyword = next(name for name in ("contentEncoding", "contentMediaType") if place.schema.get(name) is value)
    if reader.formats == "annotation" or not isinstance(value, str):
        return reader.algebra.everything
    both = (place.schema.get("contentEncoding"), place.schema.get("contentMediaType"))
    return reader.algebra.fact(StringIs(f"{keyword}:{value} of {both}"))
