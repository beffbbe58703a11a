"""Holds values against pydantic models and says every difference in an author's words.

A model describes one block of a manifest (:mod:`sandbox.spec.fields`). :func:`check` reports everything that does not
fit at the line where it stands and returns the model only when all fits. Checks of text that a model makes itself are
raised with :func:`fault`, so that they carry their own id, what is allowed and the mend.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from sandbox.spec.report import Source, join, shorten

Block = TypeVar("Block", bound="Closed")


class Closed(BaseModel):
    """A block whose every key is known: an unknown one is an error, as ``additionalProperties: false`` upstream.

    A key that is written without a value is an error too, except those in ``nullable``: ``read:`` with nothing behind
    it looks like a grant, or like a limit, and is neither.

    Validators are built when a block is first met, not when this module is imported: most drivers have few of them, and
    starting waits for each.
    """

    nullable: ClassVar[frozenset[str]] = frozenset()

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True, defer_build=True)


def fault(id: str, message: str, *, allowed: str = "", mend: str = "", secret: bool = False) -> PydanticCustomError:  # noqa: A002
    """Return the error that a field's own check raises.

    Args:
        id: ``SPEC-nnn``.
        message: one sentence.
        allowed: what may stand there.
        mend: how to put it right.
        secret: whether the value may be one, and must not be repeated.
    """
    context = {"sentence": message, "allowed": allowed, "mend": mend, "secret": secret}
    return PydanticCustomError("fault", "{sentence}", {**context, "id": id})


def check(model: type[Block], value: Any, source: Source, path: str) -> Block | None:
    """Return the block, or report what is wrong with it and return ``None``.

    Args:
        model: what the block must be.
        value: the value that stands there.
        source: the file.
        path: dotted path of the block.
    """
    nothing = _nothing(model, value, path)
    for place in nothing:
        wrong_type(source, place, None, "a value; a key without one means nothing")
    try:
        block = model.model_validate(value)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            if _place(path, details["loc"]) not in nothing:
                _report(details, model, source, path)
        return None
    return None if nothing else block


def _nothing(model: type[Closed], value: Any, path: str) -> list[str]:
    """Return the paths of keys that are written without a value."""
    if not isinstance(value, dict):
        return []
    found: list[str] = []
    for name, field in model.model_fields.items():
        key = field.alias or name
        if key not in value or field.annotation is Any:
            continue
        inner = _model_of(field.annotation)
        if value[key] is None and key not in model.nullable:
            found.append(join(path, key))
        elif inner is not None and isinstance(value[key], list):
            for index, item in enumerate(value[key]):
                found += _nothing(inner, item, join(join(path, key), index))
        elif inner is not None:
            found += _nothing(inner, value[key], join(path, key))
    return found


def unknown_key(source: Source, path: str, key: str, known: Iterable[str], *, warning: bool = False) -> None:
    """Report a key that nothing reads, naming the closest one that is."""
    names = sorted(known)
    near = closest(key, names)
    say = source.warn if warning else source.error
    say(
        "SPEC-042",
        path,
        f"the key {shorten(key)} is not known here",
        allowed=", ".join(names),
        mend=f"write `{near}`, or remove it" if near else "remove it",
    )


def closest(text: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the name most like a text, or an empty string."""
    # Imported here: costs 10 ms and is needed only when something is wrong.
    import difflib  # noqa: PLC0415

    folded = {name.lower().replace("_", "").replace("-", ""): name for name in names}
    near = difflib.get_close_matches(text.lower().replace("_", "").replace("-", ""), folded, n=1, cutoff=cutoff)
    return folded[near[0]] if near else ""


# --- pydantic's errors ------------------------------------------------------------------------------------------------
_KINDS: Final = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "`true` or `false`",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}

_BOUNDS: Final = {
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "string_too_short": "text of at least {min_length} characters",
    "string_too_long": "text of at most {max_length} characters",
    "string_pattern_mismatch": "text that matches `{pattern}`",
    "too_short": "at least {min_length} entries",
    "too_long": "at most {max_length} entries",
}


def _report(details: ErrorDetails, model: type[Closed], source: Source, path: str) -> None:
    kind = details["type"]
    context: Mapping[str, Any] = details.get("ctx", {})
    place = _place(path, details["loc"])
    found = details["input"]
    if kind == "fault":
        shown = "" if context["secret"] else _found(source, place, found)
        source.error(
            context["id"], place, context["sentence"], found=shown, allowed=context["allowed"], mend=context["mend"]
        )
    elif kind == "missing":
        _missing(source, place)
    elif kind == "extra_forbidden":
        unknown_key(source, place, str(details["loc"][-1]), _keys(model, details["loc"]))
    elif kind in _KINDS:
        wrong_type(source, place, found, _KINDS[kind])
    elif kind in ("literal_error", "enum"):
        source.error(
            "SPEC-044",
            place,
            "the value is not one of those allowed",
            found=_found(source, place, found),
            allowed=str(context.get("expected", "")).replace("'", "`"),
            mend="write one of them",
        )
    else:
        source.error(
            "SPEC-045",
            place,
            "the value is out of bounds",
            found=_found(source, place, found),
            allowed=_BOUNDS.get(kind, details["msg"]).format(**context),
            mend="write a value within them",
        )


def wrong_type(source: Source, path: str, found: Any, wanted: str) -> None:
    """Report a value of the wrong type; an unquoted number where text is wanted is the commonest case."""
    scalar = found is not None and not isinstance(found, str | list | dict)
    mend = f"write {wanted.partition(';')[0]}, or remove the key" if found is None else f"write {wanted}"
    if wanted == "text" and scalar:
        mend = "put it in quotes"
    elif isinstance(found, str) and wanted != "text":
        mend = f"write {wanted}, without quotes"
    source.error(
        "SPEC-043", path, "the value has the wrong type", found=_found(source, path, found), allowed=wanted, mend=mend
    )


def _missing(source: Source, path: str) -> None:
    source.error("SPEC-041", path, "the field is missing", mend=f"add `{path}`")


def _found(source: Source, path: str, value: Any) -> Any:
    return source.written.get(path, value)


def _place(path: str, parts: tuple[int | str, ...]) -> str:
    for part in parts:
        if part != "[key]":
            path = join(path, part)
    return path


def _keys(model: type[Closed], parts: tuple[int | str, ...]) -> list[str]:
    """Return the keys of the block that an unknown key stands in."""
    fields: Any = model
    for part in parts[:-1]:
        inner = getattr(fields, "model_fields", {}).get(part)
        if inner is not None:
            fields = _model_of(inner.annotation)
    return [field.alias or name for name, field in getattr(fields, "model_fields", {}).items()]


def _model_of(annotation: Any) -> Any:
    """Return the model inside an annotation such as ``list[Model] | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _model_of(inner)
        if found is not None:
            return found
    return None
