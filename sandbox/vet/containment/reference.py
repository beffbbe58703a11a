"""The reference implementation (``jsonschema``) as a judge of witnesses, made safe against hostile schemas.

1. No network, no files: references resolve within the schema and the specifications' own meta-schemas, or fail.
2. Bounded work: every keyword that is evaluated counts; a schema that multiplies work is abandoned.
3. Bounded matching: Python's ``re`` can take exponential time. A pattern is given to it only when it cannot backtrack
   much (no quantifier inside a quantified group) or the string is very short; otherwise the automaton answers.

``format`` is not asserted: the reference does not either, unless it is told to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache, lru_cache
from typing import Any, Final

from sandbox.vet.containment.automaton import Dfa
from sandbox.vet.containment.budget import UndecidedError
from sandbox.vet.containment.dialect import Dialect

MAX_KEYWORDS: Final = 6_000
"""Keywords evaluated for one witness; an ordinary witness needs below 200."""

MAX_BACKTRACK_CHARS: Final = 12
"""Length of a string that a pattern with nested quantifiers is tried on: at most some 10,000 steps."""

MAX_PLAIN_CHARS: Final = 2_000
"""Length of a string that a pattern without nested quantifiers is tried on: quadratic time at most."""

_meter: ContextVar[list[int]] = ContextVar("keywords left")
_NESTED: Final = re.compile(r"[*+}?]\)?[*+{]|\([^()]*(?:[*+|]|\{[0-9]*,)[^()]*\)[*+{]|\(.*\(.*\)[*+{]")


class TooCostlyError(UndecidedError):
    """The reference would need too long."""


@lru_cache(maxsize=512)
def _backtracks(pattern: str) -> bool:
    """Return whether a pattern may make a backtracking engine slow: anything but a flat sequence of quantified sets."""
    return bool(_NESTED.search(pattern)) or pattern.count("*") + pattern.count("+") + pattern.count("{") > 4  # noqa: PLR2004


def searches(pattern: str, text: str) -> bool:
    """Return whether Python's ``re`` finds a pattern in a string.

    Raises:
        TooCostlyError: it might take too long, or does not know the pattern.
    """
    if len(text) > (MAX_BACKTRACK_CHARS if _backtracks(pattern) else MAX_PLAIN_CHARS):
        known = _linear(pattern)
        if known is None:
            raise TooCostlyError("a pattern is too costly to be tried")
        return known.matches(text)
    try:
        return re.search(pattern, text) is not None
    except (re.error, RecursionError, OverflowError, FutureWarning, DeprecationWarning):
        raise TooCostlyError("a pattern is not one that the reference implementation knows") from None


@lru_cache(maxsize=512)
def _linear(pattern: str) -> Dfa | None:
    from sandbox.vet.containment import automaton, regex  # noqa: PLC0415 - only for the rare long string
    from sandbox.vet.containment.budget import Budget  # noqa: PLC0415

    try:
        return automaton.build(regex.parse(pattern, regex.Reading.PYTHON), regex.Reading.PYTHON, Budget())
    except (regex.UnsupportedError, UndecidedError):
        return None


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415 - loaded by now

    del schema
    if validator.is_type(instance, "string") and not searches(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: dict[str, Any], instance: Any, schema: Any) -> Iterator[Any]:
    del schema
    if not validator.is_type(instance, "object"):
        return
    for pattern, subschema in patterns.items():
        for name, value in instance.items():
            if searches(pattern, name):
                yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _counted(check: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    def counting(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        left = _meter.get()
        left[0] -= 1
        if left[0] < 0:
            raise TooCostlyError("the reference implementation needs too long for a witness")
        yield from check(validator, value, instance, schema) or ()

    return counting


@cache
def _classes() -> dict[Dialect, Any]:
    """Return the reference validators by dialect.

    The import takes 0.2 s and is not needed before the first counterexample: it is deferred so that programs start
    fast.
    """
    import jsonschema  # noqa: PLC0415
    from jsonschema.validators import extend  # noqa: PLC0415

    classes = {
        Dialect.DRAFT4: jsonschema.Draft4Validator,
        Dialect.DRAFT6: jsonschema.Draft6Validator,
        Dialect.DRAFT7: jsonschema.Draft7Validator,
        Dialect.D2019: jsonschema.Draft201909Validator,
        Dialect.D2020: jsonschema.Draft202012Validator,
    }
    changed = {}
    for dialect, one in classes.items():
        checks = {keyword: _counted(check) for keyword, check in one.VALIDATORS.items()}
        checks["pattern"] = _counted(_pattern)
        checks["patternProperties"] = _counted(_pattern_properties)
        changed[dialect] = extend(one, validators=checks)  # type: ignore[no-untyped-call]
    return changed


class Reference:
    """One schema as the reference implementation understands it.

    Args:
        schema: the schema.
        dialect: its dialect.

    Raises:
        UndecidedError: the reference cannot make anything of the schema.
    """

    def __init__(self, schema: Any, dialect: Dialect) -> None:
        from jsonschema_specifications import (  # type: ignore[import-untyped]  # noqa: PLC0415 - as above
            REGISTRY,
        )

        try:
            self._validator = _classes()[dialect](schema, registry=REGISTRY)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong in there, nothing is confirmed
            raise UndecidedError(f"the reference implementation fails on a schema: {type(error).__name__}") from None

    def errors(self, instance: Any, limit: int = 8) -> list[Any]:
        """Return the first few errors of an instance; none when it is valid.

        Raises:
            UndecidedError: the reference cannot tell, or needs too long.
        """
        token = _meter.set([MAX_KEYWORDS])
        found: list[Any] = []
        try:
            for error in self._validator.iter_errors(instance):
                found.append(error)
                if len(found) >= limit:
                    break
        except UndecidedError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever goes wrong in there, the witness is not confirmed
            raise UndecidedError(f"the reference implementation fails on a schema: {type(error).__name__}") from None
        finally:
            _meter.reset(token)
        return found
