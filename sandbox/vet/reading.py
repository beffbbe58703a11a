"""Changes as a reviewer reads them: schemas as meaning, texts line by line, every hidden character written out. Pure.

Nothing that a server says is printed as it stands: characters that people do not see appear as ``<U+202E>``, other
control characters too, so that a terminal obeys none of them and a line cannot pass for two.
"""

from __future__ import annotations

import difflib
import json
import sys
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sandbox.vet.containment import shown
from sandbox.vet.drift import ABSENT, Change
from sandbox.vet.drift_schema import NO_WITNESS
from sandbox.vet.drift_words import LISTS, MAPS, SINGLES
from sandbox.vet.hazards import visible

WIDTH: Final = 100
"""Columns that texts are wrapped to."""

MAX_LINES: Final = 60
"""Lines of one field; a longer one is cut and says so."""

MAX_VALUE: Final = 300
"""Characters of one value."""

_EVERYTHING: Final = sys.maxsize

_MARKS: Final = {
    "same": "=", "noted": "·", "narrowing": "<", "widening": ">", "text": "~", "undecided": "?",
}  # fmt: skip


def lines(changes: tuple[Change, ...], *, every: bool = False, whole: bool = False) -> list[str]:
    """Return the changes as lines, those of one subject together.

    Args:
        changes: made by :func:`sandbox.vet.drift.drift`.
        every: also show what nobody has to decide.
        whole: cut nothing, for somebody who decides on exactly what is shown.
    """
    told: list[str] = []
    subject, most = "", _EVERYTHING if whole else MAX_VALUE
    for change in changes:
        if not (every or change.waits or change.kind == "narrowing"):
            continue
        heading = plain(f"{change.sort}/{change.name}")
        if heading != subject:
            told.append(heading)
            subject = heading
        told.extend(f"  {line}" for line in _one(change, most))
    return told


def _one(change: Change, most: int) -> Iterator[str]:
    label = plain(change.field) or ("new" if change.before is ABSENT else "gone" if change.after is ABSENT else "value")
    why = f": {plain(change.why)}" if change.why else ""
    yield f"{_MARKS[change.kind]} {label}, {change.kind}{why}"
    told = list(_details(change, most))
    shown_lines = len(told) if most == _EVERYTHING else MAX_LINES
    yield from (f"    {line}" for line in told[:shown_lines])
    if len(told) > shown_lines:
        yield f"    … {len(told) - shown_lines} more lines"


def _details(change: Change, most: int) -> Iterator[str]:
    if not change.field and isinstance(change.after, Mapping):
        yield from _definition(change.after, most)
    elif change.field in ("inputSchema", "outputSchema"):
        before, after = (None if one is ABSENT else one for one in (change.before, change.after))
        yield from schema_lines(before, after, most)
        if change.witness is not NO_WITNESS and change.kind in ("widening", "narrowing"):
            yield f"for example {shown(change.witness)}"
    elif isinstance(change.before, str) and isinstance(change.after, str):
        yield from text_lines(change.before, change.after, most)
    else:
        yield from (f"- {line}" for line in value_lines(change.before, most))
        yield from (f"+ {line}" for line in value_lines(change.after, most))


def _definition(definition: Mapping[str, Any], most: int) -> Iterator[str]:
    """Yield a whole definition: its texts, then what it takes and gives, then the rest."""
    for name, value in definition.items():
        if name in ("inputSchema", "outputSchema"):
            yield f"{name}:"
            yield from (f"  {line}" for line in schema_lines(None, value, most))
        elif isinstance(value, str) and name != "name":
            yield f"{plain(name)}:"
            yield from (f"  {line}" for line in value_lines(value, most))
        elif name != "name":
            yield f"{plain(str(name))}: {_short(value, most)}"


def text_lines(before: str, after: str, most: int = MAX_VALUE) -> Iterator[str]:
    """Yield the difference of two texts, wrapped, with ``-`` and ``+``."""
    old, new = (_wrapped(text, most) for text in (before, after))
    for line in difflib.unified_diff(old, new, n=1, lineterm=""):
        if not line.startswith(("---", "+++", "@@")):
            yield f"{line[0]} {line[1:]}"


def value_lines(value: Any, most: int = MAX_VALUE) -> Iterator[str]:
    """Yield a JSON value as lines, nothing for what is absent."""
    if value is ABSENT:
        return
    if isinstance(value, str):
        yield from _wrapped(value, most)
    elif isinstance(value, Mapping) and value:
        yield from (f"{plain(str(name))}: {_short(inner, most)}" for name, inner in sorted(value.items()))
    else:
        yield _short(value, most)


def schema_lines(before: Any, after: Any, most: int = MAX_VALUE) -> Iterator[str]:
    """Yield what two schemas say differently, in the terms of the values they describe: ``files[].path``."""
    old, new = (dict(_facts("", schema)) for schema in (before, after))
    for place in sorted(old.keys() | new.keys()):
        was, now = old.get(place), new.get(place)
        if was is None and now is not None:
            yield f"+ {place or 'value'}: {_summary(now, most)}"
        elif now is None and was is not None:
            yield f"- {place or 'value'}: {_summary(was, most)}"
        elif was is not None and now is not None and was != now:
            yield from _differences(place or "value", was, now, most)


def _differences(place: str, was: Mapping[str, Any], now: Mapping[str, Any], most: int) -> Iterator[str]:
    for keyword in sorted(was.keys() | now.keys()):
        old, new = was.get(keyword, ABSENT), now.get(keyword, ABSENT)
        if old == new and old is not ABSENT and json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True):
            continue
        name = f"{place} {plain(keyword)}"
        if isinstance(old, str) and isinstance(new, str) and len(old) + len(new) > WIDTH // 2:
            yield f"~ {name}"
            yield from (f"    {line}" for line in text_lines(old, new, most))
        elif old is ABSENT:
            yield f"+ {name}: {_short(new, most)}"
        elif new is ABSENT:
            yield f"- {name}: {_short(old, most)}"
        else:
            yield f"~ {name}: {_short(old, most)} → {_short(new, most)}"


def _facts(place: str, schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each place of the described value with the keywords that say something about it."""
    todo = [(place, schema)]
    while todo:
        at, one = todo.pop()
        if not isinstance(one, Mapping):
            if one is not None:
                yield at, {"accepts": "anything" if one is True else "nothing" if one is False else one}
            continue
        own = {name: value for name, value in one.items() if name not in MAPS and name not in LISTS | SINGLES}
        own.update({name: value for name, value in one.items() if name in SINGLES and isinstance(value, bool)})
        yield at, own
        todo.extend(_inner(at, one))


def _inner(at: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for keyword, value in schema.items():
        if keyword in MAPS and isinstance(value, Mapping):
            named = keyword == "properties"
            for name, inner in value.items():
                step = plain(str(name))
                yield (f"{at}.{step}" if at else step) if named else f"{at}({plain(keyword)} {step})", inner
        elif keyword == "items" and not isinstance(value, list | bool):
            yield f"{at}[]", value
        elif (keyword in LISTS or keyword == "items") and isinstance(value, list):
            yield from ((f"{at}({keyword} {index + 1})", inner) for index, inner in enumerate(value))
        elif keyword in SINGLES and isinstance(value, Mapping):
            yield f"{at}({keyword})", value


def _summary(facts: Mapping[str, Any], most: int) -> str:
    kind = facts.get("type", facts.get("$ref", facts.get("accepts", "any")))
    rest = [f"{plain(name)} {_short(value, most)}" for name, value in facts.items() if name not in ("type", "accepts")]
    return ", ".join([_short(kind, most).strip('"'), *rest])


def _wrapped(text: str, most: int) -> list[str]:
    found = [part for line in text.splitlines() or [""] for part in (textwrap.wrap(plain(line), WIDTH) or [""])]
    if text != "\n".join(text.splitlines()) or any(line != line.strip() or "  " in line for line in text.splitlines()):
        found.append(f"(as JSON: {_short(text, most)})")  # blanks and line ends that wrapping does not show
    return found


def _short(value: Any, most: int) -> str:
    text = plain(json.dumps(value, ensure_ascii=False, sort_keys=True))
    return text if len(text) <= most else f"{text[: most * 2 // 3]} … {text[-most // 3 :]}"


def plain(text: str) -> str:
    """Return a text of a server in one printable line, with what people do not see written out."""
    return "".join(
        one if one.isprintable() else f"<U+{ord(one):04X}>" for one in visible(text).replace("\n", "<U+000A>")
    )


def to_json(change: Change) -> dict[str, Any]:
    """Return one change as a JSON value; what is absent is left out."""
    body: dict[str, Any] = {"place": change.place, "kind": change.kind, "waits": change.waits, "why": change.why}
    sides = (("before", change.before), ("after", change.after))
    body.update({name: value for name, value in sides if value is not ABSENT})
    if change.witness is not NO_WITNESS:
        body["witness"] = change.witness
    if change.news:
        body["news"] = [{"place": "/".join(one.place), "what": one.what} for one in change.news]
    return body
