"""JSON → Cedar values: what rules see of a call's arguments.

Cedar has no fraction type but ``decimal`` (four digits after the point), no null, and no ordered list; and its JSON
form has escapes (``__entity``, ``__extn``) by which a value can claim to be something else. So:

==================  =======================================================================================
JSON                Cedar
==================  =======================================================================================
string              String, unchanged: no case folding, no Unicode normalisation
true, false         Bool
integral number     Long (``100``, ``100.0`` and ``1e2`` alike); ``decimal`` when the contract says ``number``
other number        ``decimal``, when four digits after the point are enough
array               Set: order and repetition are lost
object              Record
null                the entity ``JsonNull::"null"``: equal to nothing a rule can write, and of no other type
==================  =======================================================================================

What has no exact form (an integer beyond 64 bits, more than four digits after the point, a member named like an escape)
is never rounded, dropped or replaced: :class:`Unrepresentable` is raised and the decision is a deny. Only members that
some rule looks at are converted (``Selection``), so such a value matters exactly when a rule would read it.

A number is converted by its value, not by how it was written: were ``100.0`` another thing than ``100``, a rule that
forbids ``amount == 100`` could be passed by writing a point.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final, TypeAlias

Selection: TypeAlias = "dict[str, Selection] | None"
"""Members that are looked at, by name; ``None``: all of the value."""

MAX_DEPTH: Final = 24
"""Nesting of one argument that rules can see; real tools stay below six, and Cedar recurses on values."""

MAX_LONG: Final = 2**63 - 1
MIN_LONG: Final = -(2**63)
DECIMAL_DIGITS: Final = 4
"""Digits after the point of Cedar's ``decimal``; its range is that of a Long, shifted by them."""

NULL: Final = {"__entity": {"type": "JsonNull", "id": "null"}}
_SCALE: Final = 10**DECIMAL_DIGITS
_ESCAPES: Final = frozenset(("__entity", "__extn", "__expr"))


class Unrepresentable(ValueError):
    """A value that a rule looks at has no exact Cedar form; the text names the kind and the place, never the value."""


def selection(paths: Iterable[tuple[str, ...]]) -> Selection:
    """Return the union of attribute paths as one selection; an empty path selects everything."""
    chosen: dict[str, Selection] = {}
    for path in paths:
        if not path:
            return None
        below = chosen
        for name in path[:-1]:
            deeper = below.setdefault(name, {})
            if deeper is None:
                break
            below = deeper
        else:
            below[path[-1]] = None
    return chosen


def to_cedar(value: Any, chosen: Selection = None, kind: Any = None, place: str = "", depth: int = 0) -> Any:
    """Return a JSON value in Cedar's JSON form.

    Args:
        value: strict JSON value.
        chosen: members to convert; the others are left out.
        kind: Cedar type from the contract (``sandbox.policy.types``), where there is one: it decides whether an
            integral number becomes a Long or a decimal.
        place: path for messages.
        depth: nesting above this value.

    Raises:
        Unrepresentable: see the module.
    """
    if isinstance(value, str) or value is True or value is False:
        return value
    if value is None:
        return NULL
    if depth > MAX_DEPTH:
        raise Unrepresentable(f"`{place}` is nested deeper than {MAX_DEPTH}")
    if isinstance(value, int | float):
        return _number(value, kind, place)
    if isinstance(value, Mapping):
        return _record(value, chosen, kind, place, depth)
    element = kind["element"] if kind and kind["type"] == "Set" else None
    return [to_cedar(item, None, element, place, depth + 1) for item in value]


def _record(value: Mapping[str, Any], chosen: Selection, kind: Any, place: str, depth: int) -> dict[str, Any]:
    kinds = kind["attributes"] if kind and kind["type"] == "Record" else {}
    names = value if chosen is None else [name for name in chosen if name in value]
    record = {}
    for name in names:
        if name in _ESCAPES:
            raise Unrepresentable(f"`{place}` has a member named like a Cedar escape")
        below = None if chosen is None else chosen[name]
        record[name] = to_cedar(value[name], below, kinds.get(name), f"{place}.{name}" if place else name, depth + 1)
    return record


def _number(value: float, kind: Any, place: str) -> Any:
    wants_decimal = bool(kind) and kind.get("name") == "decimal"
    integral = isinstance(value, int) or value.is_integer()
    if integral and not wants_decimal:
        if not MIN_LONG <= value <= MAX_LONG:
            raise Unrepresentable(f"`{place}` is an integer beyond 64 bits")
        return int(value)
    exact = Decimal(repr(value))  # the shortest form that reads back as the same number: what the client meant by 0.1
    scaled = exact.scaleb(DECIMAL_DIGITS)
    if scaled != scaled.to_integral_value() or not MIN_LONG <= scaled <= MAX_LONG:
        raise Unrepresentable(f"`{place}` is a number with more than {DECIMAL_DIGITS} digits after the point")
    whole, rest = divmod(abs(int(scaled)), _SCALE)
    return {"__extn": {"fn": "decimal", "arg": f"{'-' if scaled < 0 else ''}{whole}.{rest:0{DECIMAL_DIGITS}d}"}}
