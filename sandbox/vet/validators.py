"""Compiled JSON Schema validators for call time: linear-time patterns, no network, no files.

``jsonschema`` is the reference that decides what a schema means; at call time its Rust sibling answers the same
question in microseconds, and its ``regex`` engine matches in linear time, so that a hostile pattern costs nothing
(probe R11). A schema that this engine cannot compile, for a look-around say, falls back to the engine with a bounded
number of steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import jsonschema_rs

from sandbox.errors import VetRefused
from sandbox.jsontext import JsonTextError

MAX_BACKTRACKS: Final = 100_000
"""Steps of one pattern with look-around; past it the value counts as not matching. Real patterns need hundreds."""

MAX_MESSAGE: Final = 300
"""Characters of a validator's message that are shown; it may quote the value."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Why a value does not fit: where in the value, and what was wrong there."""

    pointer: str
    message: str

    def __str__(self) -> str:
        """Return ``/pointer: message``."""
        return f"{self.pointer or '(whole value)'}: {self.message}"


class SchemaValidator:
    """Says whether a JSON value fits one schema (2020-12 unless ``$schema`` says otherwise).

    Args:
        schema: the JSON Schema; references may only be local.
        name: what the schema belongs to, for messages.
        masked: keep the value's own text out of messages, for values that come from a server.

    Raises:
        VetRefused: ``VET-010``, when the schema cannot be compiled.
    """

    def __init__(self, schema: Mapping[str, Any] | bool, name: str, *, masked: bool = False) -> None:
        self._name = name
        self._validator = _compile(schema, name, "the value" if masked else None)

    def fits(self, value: Any) -> bool:
        """Return whether the value is valid."""
        return bool(self._validator.is_valid(value))

    def mismatch(self, value: Any) -> Mismatch | None:
        """Return the first reason why the value is not valid, or ``None``."""
        if self._validator.is_valid(value):
            return None
        for error in self._validator.iter_errors(value):
            pointer = "".join(f"/{part}" for part in error.instance_path)
            return Mismatch(pointer, error.message[:MAX_MESSAGE])
        return Mismatch("", "does not fit the schema")


def _compile(schema: Mapping[str, Any] | bool, name: str, mask: str | None) -> Any:
    plain = dict(schema) if isinstance(schema, Mapping) else schema
    problem: Exception | None = None
    for options in (jsonschema_rs.RegexOptions(), jsonschema_rs.FancyRegexOptions(backtrack_limit=MAX_BACKTRACKS)):
        try:
            cls = (
                jsonschema_rs.validator_cls_for(plain)
                if isinstance(plain, dict)
                else jsonschema_rs.Draft202012Validator
            )
            return cls(plain, validate_formats=False, pattern_options=options, offline=True, mask=mask)
        except (ValueError, TypeError, JsonTextError, jsonschema_rs.ReferencingError) as error:
            problem = error
    raise VetRefused(
        "VET-010",
        f"the schema of {name} cannot be compiled: {str(problem)[:MAX_MESSAGE]}",
        "use JSON Schema 2020-12 or draft-07 with local references only",
    )
