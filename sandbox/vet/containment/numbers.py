"""Sets of numbers: unions of boxes, each an intersection of an interval, multiples, listed values, opaque predicates.

Numbers are exact rationals. A rational that no JSON parser can deliver only makes a set larger, so emptiness proved
here holds for every parser; a witness must be a number that the reference implementation can read.

``multipleOf`` with a divisor that is exact in binary (``5``, ``0.25``, ``1.5``) is arithmetic, as far as floats are
exact (2**53) when it is written as a float that is no power of two. With any other (``0.1``) validators disagree
about the same value: the reference divides floats (0.3 is no multiple of 0.1), others compute in decimals (it is).
Such a divisor is an opaque predicate; it holds of a single value only when both ways of computing agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import product
from typing import Final, NamedTuple, TypeAlias

from sandbox.vet.containment.budget import MAX_BOXES, Budget, UndecidedError
from sandbox.vet.containment.outcome import EMPTY, Found, Open, Outcome, better, doubt
from sandbox.vet.containment.values import number_of

Rational: TypeAlias = int | Fraction

MAX_TRIED: Final = 400
"""Multiples that are looked at one by one before periodicity decides."""

MAX_DYADIC: Final = 64
"""Halvings tried to find a readable fraction between two bounds."""

_NONE: Final[frozenset[Rational]] = frozenset()
_NO_NAME: Final[frozenset[str]] = frozenset()
MULTIPLE: Final = "multipleOf:"
"""Prefix of the opaque predicate of a divisor that is not exact in binary."""


class Range(NamedTuple):
    """One conjunction of facts about a number.

    Attributes:
        low: lower bound, ``None`` without one; ``above`` when the bound itself is excluded.
        high: upper bound, ``None`` without one; ``below`` when the bound itself is excluded.
        step: the number is a multiple of this; ``None`` when it need not be a multiple of anything.
        no_step: it is a multiple of none of these.
        only: when given, it is one of these.
        but: it is none of these.
        is_a: opaque predicates that hold.
        is_not: opaque predicates that do not hold.
    """

    low: Rational | None = None
    above: bool = False
    high: Rational | None = None
    below: bool = False
    step: Rational | None = None
    no_step: frozenset[Rational] = _NONE
    only: frozenset[Rational] | None = None
    but: frozenset[Rational] = _NONE
    is_a: frozenset[str] = _NO_NAME
    is_not: frozenset[str] = _NO_NAME


NumberSet: TypeAlias = tuple[Range, ...]

EVERY_NUMBER: Final[NumberSet] = (Range(),)
NO_NUMBER: Final[NumberSet] = ()


def numbers(listed: Iterable[Rational]) -> NumberSet:
    """Return the set of the given numbers."""
    only = frozenset(listed)
    return (Range(only=only),) if only else NO_NUMBER


def divides(step: Rational, number: Rational) -> bool:
    """Return whether ``number`` is an integral multiple of ``step``."""
    return (Fraction(number) / step).denominator == 1


def _lcm(one: Rational | None, other: Rational | None) -> Rational | None:
    if one is None or other is None:
        return one if other is None else other
    left, right = Fraction(one), Fraction(other)
    result = Fraction(math.lcm(left.numerator, right.numerator), math.gcd(left.denominator, right.denominator))
    return result.numerator if result.denominator == 1 else result


def meet_ranges(one: Range, other: Range) -> Range | None:
    """Return the intersection of two boxes, ``None`` when it is empty for a simple reason."""
    low, above = _tighter(one.low, one.above, other.low, other.above, up=True)
    high, below = _tighter(one.high, one.below, other.high, other.below, up=False)
    if low is not None and high is not None and (low > high or (low == high and (above or below))):
        return None
    is_a, is_not = one.is_a | other.is_a, one.is_not | other.is_not
    if not is_a.isdisjoint(is_not):
        return None
    only = one.only if other.only is None else other.only if one.only is None else one.only & other.only
    step, no_step = _lcm(one.step, other.step), one.no_step | other.no_step
    if step is not None and any(divides(unwanted, step) for unwanted in no_step):
        return None
    met = Range(low, above, high, below, step, no_step, only, one.but | other.but, is_a, is_not)
    if only is None:
        return met
    kept = frozenset(number for number in only if _plainly_in(number, met))
    return Range(only=kept, is_a=is_a, is_not=is_not) if kept else None


def _tighter(
    one: Rational | None, one_open: bool, other: Rational | None, other_open: bool, *, up: bool
) -> tuple[Rational | None, bool]:
    if one is None or other is None:
        return (one, one_open) if other is None else (other, other_open)
    if one == other:
        return one, one_open or other_open
    return (one, one_open) if (one > other) is up else (other, other_open)


def _plainly_in(number: Rational, box: Range) -> bool:
    """Return whether a number is in a box, opaque predicates and ``only`` aside."""
    if box.low is not None and (number < box.low or (number == box.low and box.above)):
        return False
    if box.high is not None and (number > box.high or (number == box.high and box.below)):
        return False
    if number in box.but or (box.step is not None and not divides(box.step, number)):
        return False
    return not any(divides(step, number) for step in box.no_step)


def meet(one: NumberSet, other: NumberSet) -> NumberSet:
    """Return the intersection of two sets.

    Raises:
        UndecidedError: the result has too many boxes.
    """
    if one == EVERY_NUMBER:
        return other
    if other == EVERY_NUMBER:
        return one
    met = (meet_ranges(left, right) for left, right in product(one, other))
    return simplify(box for box in met if box is not None)


def join(*sets: NumberSet) -> NumberSet:
    """Return the union of sets."""
    return simplify(box for one in sets for box in one)


def simplify(boxes: Iterable[Range]) -> NumberSet:
    """Return equal boxes once, listed values merged, everything when one box is everything."""
    kept: dict[Range, None] = {}
    merged: dict[Range, frozenset[Rational]] = {}
    for box in boxes:
        if box == EVERY_NUMBER[0]:
            return EVERY_NUMBER
        if box.only is None:
            kept[box] = None
        else:
            rest = box._replace(only=None)
            merged[rest] = merged.get(rest, _NONE) | box.only
        if len(kept) + len(merged) > MAX_BOXES:
            raise UndecidedError("a set of numbers has too many alternatives")
    return (*(rest._replace(only=only) for rest, only in merged.items()), *kept)


def without(one: NumberSet) -> NumberSet:
    """Return the complement.

    Raises:
        UndecidedError: the result has too many boxes.
    """
    result = EVERY_NUMBER
    for box in one:
        result = meet(result, tuple(_outside(box)))
    return result


def _outside(box: Range) -> Iterator[Range]:
    if box.only is not None:
        yield Range(but=box.only)
    if box.low is not None:
        yield Range(high=box.low, below=not box.above)
    if box.high is not None:
        yield Range(low=box.high, above=not box.below)
    if box.step is not None:
        yield Range(no_step=frozenset({box.step}))
    if box.but:
        yield Range(only=box.but)
    yield from (Range(step=step) for step in sorted(box.no_step))
    yield from (Range(is_not=frozenset({name})) for name in sorted(box.is_a))
    yield from (Range(is_a=frozenset({name})) for name in sorted(box.is_not))


def predicate_holds(name: str, number: Rational) -> bool | None:
    """Return whether an opaque predicate holds of a number, ``None`` when validators may disagree."""
    if not name.startswith(MULTIPLE):
        return None
    divisor = float(name.removeprefix(MULTIPLE))
    if number == 0:
        return True
    try:
        value = number_of(number)
        quotient = value / divisor
        by_float = int(quotient) == quotient
        decimal = (Fraction(str(value)) / Fraction(str(divisor))).denominator == 1
    except (OverflowError, ValueError, UndecidedError):
        return None
    return by_float if by_float == decimal else None


def holds(number: Rational, box: Range) -> bool | None:
    """Return whether a number is in a box, ``None`` when that is not decided."""
    if (box.only is not None and number not in box.only) or not _plainly_in(number, box):
        return False
    verdicts = [predicate_holds(name, number) for name in box.is_a]
    verdicts += [None if held is None else not held for held in (predicate_holds(name, number) for name in box.is_not)]
    if False in verdicts:
        return False
    return None if None in verdicts else True


def contains(number: Rational, where: NumberSet) -> bool | None:
    """Return whether a number is in a set, ``None`` when that is not decided."""
    undecided = False
    for box in where:
        held = holds(number, box)
        if held:
            return True
        undecided = undecided or held is None
    return None if undecided else False


def find(where: NumberSet, budget: Budget) -> Outcome:
    """Return a short number of the set, or that there is none."""
    undecided: Open | None = None
    best: Found | None = None
    for box in where:
        outcome = _search(box, budget)
        if isinstance(outcome, Open):
            undecided = better(undecided, outcome)
        elif isinstance(outcome, Found) and (best is None or _size(outcome) < _size(best)):
            best = outcome
    return best or undecided or EMPTY


def _size(found: Found) -> tuple[int, float]:
    return (len(str(found.value)), abs(found.value))


def _search(box: Range, budget: Budget) -> Outcome:
    opaque = box.is_a | box.is_not
    undecided: Open | None = None
    complete = False
    for number in candidates(box):
        budget.spend()
        if number is None:
            complete = True
            break
        held = holds(number, box)
        if held is False:
            continue
        try:
            value = number_of(number)
        except UndecidedError as error:
            undecided = better(undecided, Open(error.reason))
            continue
        if held:
            return Found(value)
        undecided = better(undecided, Open(doubt(sorted(opaque)), value))
    if complete:
        return undecided or EMPTY
    if opaque:
        return undecided or Open(doubt(sorted(opaque)))
    return undecided or _by_period(box)


def candidates(box: Range) -> Iterator[Rational | None]:
    """Yield numbers worth trying, the most readable first; then ``None`` if these were all that the box can hold."""
    if box.only is not None:
        yield from sorted(box.only, key=lambda number: (abs(number), number < 0))
        yield None
    elif box.low is not None and box.low == box.high:
        yield box.low
        yield None
    elif box.step is not None:
        yield from _multiples(box, box.step)
    else:
        yield from _dense(box)


def _span(box: Range, step: Rational) -> tuple[int | None, int | None]:
    """Return the least and the greatest k such that k·step lies within the bounds."""
    least = most = None
    if box.low is not None:
        ratio = Fraction(box.low) / step
        least = math.ceil(ratio) + (1 if box.above and ratio.denominator == 1 else 0)
    if box.high is not None:
        ratio = Fraction(box.high) / step
        most = math.floor(ratio) - (1 if box.below and ratio.denominator == 1 else 0)
    return least, most


def _multiples(box: Range, step: Rational) -> Iterator[Rational | None]:
    least, most = _span(box, step)
    if least is not None and most is not None and least > most:
        yield None
        return
    near = 0
    if least is not None:
        near = max(near, least)
    if most is not None:
        near = min(near, most)
    tries = MAX_TRIED + 2 * len(box.but)
    for distance in range(tries):
        up, down = near + distance, near - distance
        fits_up = most is None or up <= most
        fits_down = least is None or down >= least
        if fits_up:
            yield _tidy(up * Fraction(step))
        if fits_down and distance:
            yield _tidy(down * Fraction(step))
        if not fits_up and not fits_down:
            yield None
            return


def _tidy(number: Fraction) -> Rational:
    return number.numerator if number.denominator == 1 else number


def _dense(box: Range) -> Iterator[Rational | None]:
    """Yield numbers of an interval: small integers first, then simple fractions."""
    for number in _multiples(box, 1):
        if number is not None:
            yield number
    low, high = box.low, box.high
    if low is None:
        low = (0 if high is None else high) - 2 - len(box.but)
    if high is None:
        high = low + 2 + len(box.but)
    for halvings in range(1, MAX_DYADIC):
        step = Fraction(1, 2**halvings)
        inside = _multiples(box._replace(low=low, high=high, above=True, below=True, step=None, but=_NONE), step)
        for _, number in zip(range(8 + 2 * len(box.but)), inside, strict=False):
            if number is not None:
                yield number


def _by_period(box: Range) -> Outcome:
    """Decide a box whose candidates all failed: either numbers exist that are hard to write, or none do.

    For multiples k·s, whether k·s is a multiple of an unwanted t depends on k modulo lcm(s, t)/s only.
    """
    if box.step is None:
        return Open("numbers exist there, but none that is easy to write")
    step = Fraction(box.step)
    moduli = [int(Fraction(_lcm(step, unwanted) or step) / step) for unwanted in box.no_step]
    period = math.lcm(*moduli) if moduli else 1
    if period > MAX_TRIED:
        return Open("the multiples are too sparse to be enumerated")
    least, most = _span(box, step)
    if least is None or most is None or (most - least) // period > len(box.but):
        if all(any(residue % modulus == 0 for modulus in moduli) for residue in range(period)):
            return EMPTY
        return Open("numbers exist there, but none that is easy to write")
    return Open("the multiples are too sparse to be enumerated")
