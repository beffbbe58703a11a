"""From the reference implementation's errors to one clause that a person reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from sandbox.vet.containment.result import No

MAX_SHOWN: Final = 160
"""Characters of a value that a sentence shows."""

Path: TypeAlias = tuple[str | int, ...]


def explain(witness: Any, errors: list[Any]) -> No:
    """Return a *no* with the place and message of the error that says most: the deepest one."""
    if not errors:
        return No(witness)
    error = _narrow(max(errors, key=_depth))
    path = tuple(error.absolute_path)
    if error.validator is None and not path:
        path = _locate(witness, error.instance) or path
    return No(witness, path, str(error.validator or "false"), _message(error, path))


def _locate(value: Any, part: Any) -> Path | None:
    """Return where a part of a value stands; the reference does not say it for what a ``false`` schema refuses."""
    if value is part:
        return ()
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, member in members:
        found = _locate(member, part)
        if found is not None:
            return (name, *found)
    return None


def describe(no: No, a_name: str, b_name: str) -> str:
    """Return a refutation as a sentence.

    Args:
        no: the refutation.
        a_name: what the first schema belongs to, such as ``fs-read``.
        b_name: what the second schema belongs to, such as ``read_file``.
    """
    return f"`{a_name}` accepts `{shown(no.witness)}`; `{b_name}` refuses it: {no.message or 'it is not valid there'}"


def shown(value: Any) -> str:
    """Return a JSON value as text, shortened in the middle; everything but ASCII is escaped."""
    text = json.dumps(value, ensure_ascii=True)
    if len(text) <= MAX_SHOWN:
        return text
    half = MAX_SHOWN // 2 - 2
    return f"{text[:half]} … {text[-half:]}"


def place_name(path: Path) -> str:
    """Return a path as ``a.b[0]``; the whole value is "the value"."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.replace("-", "_").isidentifier() and part.isascii():
            text += f".{part}" if text else part
        else:
            text += f"[{json.dumps(part)}]"
    return f"`{text}`" if text else "the value"


def _depth(error: Any) -> tuple[int, bool]:
    return (len(error.absolute_path), error.validator not in {"anyOf", "oneOf", "not"})


def _narrow(error: Any) -> Any:
    """Follow ``anyOf`` and ``oneOf`` into the one branch that goes deeper into the value, if it is only one."""
    while error.context and error.validator in {"anyOf", "oneOf"}:
        deeper = [one for one in error.context if len(one.absolute_path) > len(error.absolute_path)]
        if len({one.schema_path[0] for one in deeper}) != 1:
            break
        error = max(deeper, key=_depth)
    return error


def _message(error: Any, path: Path) -> str:
    maker = _MESSAGES.get(str(error.validator))
    if maker is not None:
        try:
            return maker(place_name(path), error.validator_value, error)
        except (TypeError, KeyError, ValueError, IndexError, AttributeError):
            pass  # a schema of an odd form: the reference's own words will do
    return f"{place_name(path)}: {error.message[:MAX_SHOWN]}"


def _words(value: Any) -> str:
    return value if isinstance(value, str) else " or ".join(value)


def _inside(name: str) -> str:
    return "" if name == "the value" else f" in {name}"


def _missing(name: str, value: Any, error: Any) -> str:
    missing = [one for one in value if one not in error.instance]
    return f"`{missing[0]}` is required{_inside(name)}"


def _dependent(name: str, value: Any, error: Any) -> str:
    pairs = ((one, other) for one, others in value.items() if one in error.instance for other in others)
    present, missing = next(pair for pair in pairs if pair[1] not in error.instance)
    return f"`{missing}` is required{_inside(name)} when `{present}` is given"


def _extra(name: str, value: Any, error: Any) -> str:
    del value
    listed = error.schema.get("properties", {})
    extra = [one for one in error.instance if one not in listed]
    return f"`{extra[0]}` is not allowed{_inside(name)}"


def _branches(name: str, value: Any, error: Any) -> str:
    """Say what several alternatives ask for when all of them ask for the same sort of thing."""
    failures = [one for one in error.context or () if len(one.absolute_path) == len(error.absolute_path)]
    sorts = {one.validator for one in failures}
    if len(failures) == len(error.context or ()) == len(value) and len(sorts) == 1:
        if sorts == {"type"}:
            return f"{name} must be {' or '.join(_words(one.validator_value) for one in failures)}"
        if sorts <= {"const", "enum"}:
            return f"{name} must be one of {shown(list(_listed(failures)))}"
    return f"{name} fits none of {len(value)} alternatives"


def _exactly_one(name: str, value: Any, error: Any) -> str:
    return _branches(name, value, error) if error.context else f"{name} fits more than one of {len(value)} alternatives"


def _listed(failures: list[Any]) -> Iterator[Any]:
    for one in failures:
        yield from one.validator_value if one.validator == "enum" else [one.validator_value]


_MESSAGES: Final[dict[str, Callable[[str, Any, Any], str]]] = {
    "None": lambda name, _value, _: f"{name} is not allowed",
    "type": lambda name, value, _: f"{name} must be {_words(value)}",
    "enum": lambda name, value, _: f"{name} must be one of {shown(value)}",
    "const": lambda name, value, _: f"{name} must be {shown(value)}",
    "not": lambda name, value, _: f"{name} must not fit {shown(value)}",
    "anyOf": _branches,
    "oneOf": _exactly_one,
    "minimum": lambda name, value, _: f"{name} must be at least {value}",
    "maximum": lambda name, value, _: f"{name} must be at most {value}",
    "exclusiveMinimum": lambda name, value, _: f"{name} must be greater than {value}",
    "exclusiveMaximum": lambda name, value, _: f"{name} must be less than {value}",
    "multipleOf": lambda name, value, _: f"{name} must be a multiple of {value}",
    "minLength": lambda name, value, _: f"{name} must have at least {value} characters",
    "maxLength": lambda name, value, _: f"{name} must have at most {value} characters",
    "pattern": lambda name, value, _: f"{name} must match {shown(value)}",
    "minItems": lambda name, value, _: f"{name} must have at least {value} elements",
    "maxItems": lambda name, value, _: f"{name} must have at most {value} elements",
    "uniqueItems": lambda name, _value, _: f"{name} must not hold equal elements",
    "contains": lambda name, value, _: f"{name} must hold an element that fits {shown(value)}",
    "items": lambda name, _value, _: f"{name} holds more elements than are allowed",
    "minProperties": lambda name, value, _: f"{name} must have at least {value} members",
    "maxProperties": lambda name, value, _: f"{name} must have at most {value} members",
    "required": _missing,
    "dependentRequired": _dependent,
    "additionalProperties": _extra,
}
