"""Hazards of structure and of hidden text: decided exactly, and blocking."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urldefrag, urljoin

from sandbox.limits import KIB
from sandbox.vet.containment import shown
from sandbox.vet.findings import Finding, Severity
from sandbox.vet.hazards.interface import Subject
from sandbox.vet.hazards.invisible import hidden
from sandbox.vet.hazards.texts import depth, schemas, texts

MAX_TEXT_CHARS: Final = 16 * KIB
"""Characters of one text. The longest real one seen has 3,100; longer ones push the user's words out of sight."""

MAX_DEFINITION_BYTES: Final = 256 * KIB
"""JSON of one tool. The largest real one seen has 8 KB."""

MAX_SCHEMA_DEPTH: Final = 64
"""Nesting of one tool's JSON; real ones stay below 25, validators' stacks end somewhere above."""

MAX_DATA_CHARS: Final = 2 * KIB
"""Characters of one default, example or choice; real ones are values, not essays."""

MAX_PLACES: Final = 5
"""Findings of one sort for one tool; more say nothing new."""


class HiddenCharacters:
    """Characters that people do not see and models do."""

    id = "VET-201"
    title = "hidden characters"
    severity: Severity = "block"
    mend = "ask the server's author to take them out; never approve text that cannot be seen"

    def check(self, subject: Subject) -> Iterator[Finding]:
        """Yield one finding for each text that hides something, up to a few."""
        found = 0
        for text in texts(subject.definition):
            sorts = Counter(f"{one.sort} U+{ord(one.char):04X}" for one in hidden(text.text, name=text.role == "name"))
            if sorts and found < MAX_PLACES:
                found += 1
                listed = ", ".join(f"{count} × {sort}" for sort, count in sorts.most_common(3))
                yield subject.finding(self, text.place, f"the text hides {listed}")


class TooLarge:
    """Definitions that are over-long or nest too deep."""

    id = "VET-206"
    title = "over-long or deep definition"
    severity: Severity = "block"
    mend = "bind another tool, or ask the server's author for a shorter definition"

    def check(self, subject: Subject) -> Iterator[Finding]:
        """Yield what exceeds a bound."""
        nesting = depth(subject.definition)
        if nesting > MAX_SCHEMA_DEPTH:
            yield subject.finding(self, "", f"the definition nests {nesting} deep, more than {MAX_SCHEMA_DEPTH}")
            return
        size = len(json.dumps(subject.definition, ensure_ascii=True, default=str))
        if size > MAX_DEFINITION_BYTES:
            yield subject.finding(self, "", f"the definition has {size} bytes, more than {MAX_DEFINITION_BYTES}")
        for text in texts(subject.definition):
            if len(text.text) > MAX_TEXT_CHARS:
                message = f"the text has {len(text.text)} characters, more than {MAX_TEXT_CHARS}"
                yield subject.finding(self, text.place, message)


class OutsideReference:
    """References out of the schema, which some validators would follow."""

    id = "VET-207"
    title = "`$ref` outside the schema"
    severity: Severity = "block"
    mend = "ask the server's author to put what is referred to into the schema's `$defs`"

    def check(self, subject: Subject) -> Iterator[Finding]:
        """Yield every reference that leaves its schema."""
        for side, schema in schemas(subject.definition):
            known = _identifiers(schema)
            for place, base, reference in _references(schema, side, ""):
                if not _stays(base, reference, known):
                    yield subject.finding(self, place, f"`$ref` points outside: {shown(reference)}")


def _walk(value: Any, place: str, base: str) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield every object with its place and the base URI that holds in it."""
    todo: list[tuple[Any, str, str]] = [(value, place, base)]
    while todo:
        inner, path, around = todo.pop()
        if isinstance(inner, dict):
            own = inner.get("$id", inner.get("id"))
            around = _resolve(around, own) if isinstance(own, str) else around
            yield inner, path, around
            todo.extend((one, f"{path}/{key}", around) for key, one in inner.items() if key not in {"const", "enum"})
        elif isinstance(inner, list):
            todo.extend((one, f"{path}/{index}", around) for index, one in enumerate(inner))


def _identifiers(schema: Any) -> set[str]:
    return {"", *(urldefrag(base)[0] for _, _, base in _walk(schema, "", ""))}


def _references(schema: Any, side: str, base: str) -> Iterator[tuple[str, str, str]]:
    for node, place, around in _walk(schema, side, base):
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(node.get(keyword), str):
                yield f"{place}/{keyword}", around, node[keyword]


def _stays(base: str, reference: str, known: set[str]) -> bool:
    if reference.startswith("#"):
        return True
    target = urldefrag(_resolve(base, reference))[0]
    return target in known or target.startswith(("http://json-schema.org/", "https://json-schema.org/"))


def _resolve(base: str, reference: str) -> str:
    try:
        return urljoin(base, reference)
    except ValueError:
        return reference


class ContradictedContract:
    """A server that says of itself that a tool changes things which the contract says it does not."""

    id = "VET-208"
    title = "annotations that contradict the contract"
    severity: Severity = "block"
    mend = "correct the contract's `mutates` and `risk_level`, or bind another tool"

    def check(self, subject: Subject) -> Iterator[Finding]:
        """Yield a contradiction: dangerous the one way, worth a look the other way."""
        claims = subject.definition.get("annotations")
        if subject.mutates is None or not isinstance(claims, Mapping):
            return
        changes = claims.get("destructiveHint") is True or claims.get("readOnlyHint") is False
        if changes and claims.get("readOnlyHint") is not True and not subject.mutates:
            hint = "destructiveHint: true" if claims.get("destructiveHint") is True else "readOnlyHint: false"
            message = f"the server says `{hint}`, the contract says that the tool changes nothing"
            severity: Severity = "block" if claims.get("destructiveHint") is True else "inform"
            yield subject.finding(self, "annotations", message, severity)
        elif claims.get("readOnlyHint") is True and subject.mutates:
            changed = shown(list(subject.mutates))
            message = f"the server says `readOnlyHint: true`, the contract says that it changes {changed}"
            yield subject.finding(self, "annotations", message, "inform")


class TextInData:
    """Defaults, examples and choices that are texts rather than values."""

    id = "VET-209"
    title = "text in default, example or enum"
    severity: Severity = "inform"
    mend = "read it: a model reads it too"

    def check(self, subject: Subject) -> Iterator[Finding]:
        """Yield values that are longer than values are."""
        for text in texts(subject.definition):
            if text.role == "data" and len(text.text) > MAX_DATA_CHARS:
                yield subject.finding(
                    self, text.place, f"a value has {len(text.text)} characters: {shown(text.text[:80])}"
                )
