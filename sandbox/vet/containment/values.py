"""JSON values as hashable keys that are equal exactly when JSON Schema says the values are equal.

JSON Schema compares by value (2020-12 core §4.2.2): ``1`` equals ``1.0``, ``true`` does not equal ``1``, member order
does not matter. A :data:`Key` is a tuple of the type's name and a hashable content; numbers are exact: an ``int``, or
for a float that is no integer the ``Fraction`` of its binary value, which is how the reference implementation
compares.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final, TypeAlias

from sandbox.vet.containment.budget import MAX_DEPTH, UndecidedError

Key: TypeAlias = tuple[str, Any]
"""``("null", None) | ("boolean", bool) | ("number", int | Fraction) | ("string", str) | ("array", tuple[Key, ...]) |
("object", frozenset[tuple[str, Key]])``."""

NULL: Final = 1
BOOLEAN: Final = 2
NUMBER: Final = 4
STRING: Final = 8
ARRAY: Final = 16
OBJECT: Final = 32
ALL: Final = 63
"""The six types as bits; *integer* is not a type of values but a property of numbers."""

KINDS: Final = (STRING, NUMBER, BOOLEAN, OBJECT, ARRAY, NULL)
"""Order in which witnesses are looked for: the most readable first."""

KIND_OF_NAME: Final = {
    "null": NULL,
    "boolean": BOOLEAN,
    "number": NUMBER,
    "string": STRING,
    "array": ARRAY,
    "object": OBJECT,
}

EXACT_FLOAT_INT: Final = 2**53
"""Largest integer up to which every integer is a binary64 float."""


def exact(number: float) -> int | Fraction:
    """Return the exact value of a JSON number; integers as ``int``.

    Raises:
        UndecidedError: NaN or infinite, which JSON cannot say.
    """
    if isinstance(number, int):
        return number
    try:
        fraction = Fraction(number)
    except (ValueError, OverflowError):
        raise UndecidedError("a schema holds a number that JSON cannot express") from None
    return fraction.numerator if fraction.denominator == 1 else fraction


def key_of(value: Any, depth: int = 0) -> Key:
    """Return the key of a JSON value.

    Raises:
        UndecidedError: the value nests deeper than the bound or is not JSON.
    """
    if depth > MAX_DEPTH:
        raise UndecidedError(f"a value nests deeper than {MAX_DEPTH}")
    if value is None:
        return ("null", None)
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, int | float):
        return ("number", exact(value))
    if isinstance(value, str):
        return ("string", value)
    if isinstance(value, list | tuple):
        return ("array", tuple(key_of(item, depth + 1) for item in value))
    if isinstance(value, dict):
        return ("object", frozenset((name, key_of(item, depth + 1)) for name, item in value.items()))
    raise UndecidedError(f"a schema holds a {type(value).__name__}, which is not JSON")


def value_of(key: Key) -> Any:
    """Return a JSON value for a key; object members are sorted by name."""
    name, content = key
    if name == "number":
        return number_of(content)
    if name == "array":
        return [value_of(item) for item in content]
    if name == "object":
        return {member: value_of(item) for member, item in sorted(content, key=lambda pair: pair[0])}
    return content


def number_of(number: int | Fraction) -> float:
    """Return a JSON number for an exact one; huge integers that are floats anyway are written as floats.

    Raises:
        UndecidedError: no float has this value.
    """
    if isinstance(number, int):
        if abs(number) > EXACT_FLOAT_INT and _as_float(number) == number:
            return float(number)
        return number
    as_float = _as_float(number)
    if as_float is None or Fraction(as_float) != number:
        raise UndecidedError("no floating-point number lies where a witness would have to be")
    return as_float


def _as_float(number: int | Fraction) -> float | None:
    try:
        return float(number)
    except OverflowError:
        return None


def kind_of(key: Key) -> int:
    """Return the type bit of a key."""
    return KIND_OF_NAME[key[0]]
