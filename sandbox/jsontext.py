r"""Strict, bounded JSON text: what every stage that reads JSON uses, and the canonical form that digests are made of.

Strict means RFC 8259 and nothing beside it: UTF-8 without byte order mark, no NaN or Infinity, no lone surrogate, no
duplicate member name, bounded depth and number of values. Duplicate names are refused because two parsers that pick
different ones disagree about what was decided (parser differentials; probe J05). Integers are exact at any size that
Python converts (4300 digits); a number beyond the range of a double is refused rather than turned into infinity.

Canonical means: members sorted by code point, no insignificant space, UTF-8. For the values used here (strings,
booleans, integers, finite floats) equal values give equal bytes. It is not RFC 8785: floats keep Python's shortest
form.

The theory of the fast path: orjson reads, and the value is written again. If that gives the same bytes, nothing was
dropped or changed; most peers write compact JSON, so one comparison settles it. Otherwise the checks are counts over
the whole text in C. A text names as many members as it has colons outside strings; writing the value again writes each
surviving member once and the colons inside strings as they were, so fewer colons mean that a member was dropped. The
one way to hide a colon from the count is the escape ``\u003a``, which leads to the slow path, as numbers do that
orjson may have rounded.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

import orjson

from sandbox.limits import MAX_JSON_DEPTH, MAX_JSON_VALUES

_DIGITS_TO_ZERO: Final = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER: Final = b"0" * 19
"""Digits from which a number may exceed 64 bits, which orjson would turn into a float."""

_SHORT: Final = 4096
"""Bytes below which counting is cheaper than splitting."""

_TOO_DEEP: Final = "depth limit exceeded"
"""How orjson words that a text nests deeper than it reads (1024)."""

_NOT_STRUCTURE: Final = bytes(byte for byte in range(256) if byte not in b'[{,"')


class JsonTextError(ValueError):
    """The bytes are not strict JSON within the bounds; the text says why."""


class JsonBoundError(JsonTextError):
    """The bytes may be JSON, and nest deeper or hold more values than the bounds allow."""


def parse(data: bytes, *, max_depth: int = MAX_JSON_DEPTH, max_values: int = MAX_JSON_VALUES) -> Any:
    """Return the value of strict JSON text.

    Args:
        data: UTF-8 bytes of one JSON text.
        max_depth: deepest allowed nesting of arrays and objects, at most 250.
        max_values: most values the text may hold.

    Raises:
        JsonTextError: not strict JSON, beyond a bound, or with a duplicate member name.
    """
    if len(data) > 2 * max_values:  # a shorter text cannot hold more: each value and its separator take two bytes
        _check_values(data, max_values)
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if error.msg.startswith(_TOO_DEEP):
            raise JsonBoundError(f"nesting deeper than {max_depth}") from None
        raise JsonTextError(str(error)) from None
    if len(data) > 2 * max_depth and _nests_perhaps(data, max_depth):  # every level takes two bytes
        _check_depth(value, max_depth)
    again = orjson.dumps(value)
    if again == data:
        return value
    if data.count(b":") != again.count(b":") or b"\\u003" in data or _LONG_NUMBER in data.translate(_DIGITS_TO_ZERO):
        return _parse_exactly(data)
    return value


def _nests_perhaps(data: bytes, max_depth: int) -> bool:
    """Return whether ``data`` has enough opening brackets to nest deeper than ``max_depth``."""
    if len(data) < _SHORT:
        return data.count(b"[") + data.count(b"{") > max_depth
    most = max_depth + 1  # splitting stops there and, unlike counting, searches with the machine's wide instructions
    return len(data.split(b"[", most)) + len(data.split(b"{", most)) - 2 > max_depth


def _check_values(data: bytes, max_values: int) -> None:
    """Raise when ``data`` holds more than ``max_values`` values, before anything builds them."""
    if _openings(data) <= max_values:
        return
    plain = data.replace(rb"\\", b"").replace(rb"\"", b"").translate(None, _NOT_STRUCTURE)
    # Every string is a value or the name of one; the split below then makes at most four parts for each value.
    if plain.count(b'"') > 4 * max_values or _openings(b"".join(plain.split(b'"')[::2])) > max_values:
        raise JsonBoundError(f"more than {max_values} values")


def _openings(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _check_depth(value: Any, max_depth: int) -> None:
    """Raise when ``value`` nests deeper than ``max_depth``; level by level, so that no recursion of ours is needed."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(max_depth):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
        if not level:
            return
    raise JsonBoundError(f"nesting deeper than {max_depth}")


def _parse_exactly(data: bytes) -> Any:
    """Return the value with exact integers, or raise and name the member that stands twice; ``data`` is JSON."""
    try:
        return json.loads(data, object_pairs_hook=_unique)
    except JsonTextError:
        raise
    except ValueError as error:  # an integer of more digits than Python converts
        raise JsonTextError(str(error)) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise JsonTextError(f"duplicate member {name[:80]!r}")
            seen.add(name)
    return members


def dump(value: Any) -> bytes:
    """Return compact UTF-8 JSON of a value, in its own member order."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return _dump_exactly(value, sort=False)


def canonical(value: Any) -> bytes:
    """Return the canonical bytes of a JSON value: equal values, equal bytes."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return _dump_exactly(value, sort=True)


def _dump_exactly(value: Any, *, sort: bool) -> bytes:
    """Return JSON of a value with integers beyond 64 bits, which orjson does not write.

    Raises:
        TypeError: something that is not JSON.
        ValueError: a float that is not finite, or a lone surrogate.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=sort)
    return text.encode()


def digest(value: Any) -> str:
    """Return ``sha256:<hex>`` of the canonical bytes of a JSON value."""
    return "sha256:" + hashlib.sha256(canonical(value)).hexdigest()
