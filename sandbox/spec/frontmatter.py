"""Front matter of a manifest: bytes in, plain values and the line of each field out.

Theory: a driver folder is reviewed by a person and read by this program, and both must see the same thing. So YAML is
read as a subset in which text cannot surprise (ADR 0010):

- UTF-8, no control or invisible formatting characters; ``---`` on the first line and ``---`` at the end;
- one document, mappings with text keys, each key once;
- no tags, anchors, aliases, merge keys or directives;
- plain scalars by the YAML 1.2 core schema: ``true``, ``false``, ``null``, decimal, ``0x`` and ``0o`` integers, decimal
  fractions; everything else, ``yes``, ``no``, ``on``, ``2025-03`` and ``1:30`` too, is text. Numbers with a leading
  zero, ``.inf`` and ``.nan`` are refused, for readers of YAML 1.1 and 1.2 disagree or JSON has no such value;
- bounded bytes, nodes and depth, counted while parsing and before anything is built.

Any bytes either become a :class:`Document` or a :class:`FrontMatterError`; nothing else leaves this module.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import yaml
from frontmatter.default_handlers import YAMLHandler

from sandbox.limits import MAX_MANIFEST_BYTES, MAX_YAML_DEPTH, MAX_YAML_NODES
from sandbox.spec.report import join, shorten

_HANDLER: Final = YAMLHandler(fm_boundary=re.compile(r"^---[ \t]*$", re.MULTILINE))
"""python-frontmatter's splitter, held to exactly three dashes: its own pattern also takes longer rules as the end."""

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml where PyYAML was built with it; only its event stream is used, never a constructor."""

_BYTE_ORDER_MARK: Final = "\ufeff"

_INVISIBLE: Final = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u2069\\ufeff\\ufffe\\uffff"
    "\\U000e0000-\\U000e007f]"
)
"""Controls, line separators only some readers honour, bidirectional overrides, zero-width and tag characters: no
reviewer sees them. Zero-width joiners (U+200C, U+200D) stay allowed: Persian and emoji need them."""

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL: Final = {text: text.lower() == "true" for text in ("true", "True", "TRUE", "false", "False", "FALSE")}
_INT: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LEADING_ZERO: Final = re.compile(r"[-+]?0[0-9_]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?")
_NOT_A_NUMBER: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")

_MAX_INT: Final = 2**63 - 1
"""Largest integer: beyond it JSON readers disagree (RFC 8259 §6)."""

_MAX_INT_CHARS: Final = 24
"""Digits that are looked at; ``int`` is quadratic in their number."""

_PLAIN_STYLES: Final = (None, "")
"""How PyYAML and libyaml call a scalar without quotes."""

_MAX_KEY_CHARS: Final = 256
"""A key; the longest known has 24."""

_MAX_PATH_CHARS: Final = 4 * 1024 * 1024
"""All dotted paths of one front matter together: long keys above many values would multiply."""

_MAX_FAULTS: Final = 50
"""Faults of one front matter that are told."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with the text, before it is known what the fields mean."""

    id: str
    line: int
    path: str
    message: str
    mend: str
    found: str = ""


class FrontMatterError(Exception):
    """The bytes are not front matter that can be read safely; ``faults`` says all that was found."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__(faults[0].message)
        self.faults = faults


@dataclass(frozen=True, slots=True)
class Document:
    """Front matter as values.

    Attributes:
        values: JSON values; keys in the order of the file.
        lines: dotted path (``implements[0].metadata.mcp.tool_name``) → 1-based line.
        written: path → the text of a plain number, truth value or null, for messages.
        faults: duplicates, tags and other faults whose neighbours could still be read.
        mark: whether the file began with a byte order mark.
    """

    values: dict[str, Any]
    lines: dict[str, int]
    written: dict[str, str] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    mark: bool = False


def parse(data: bytes) -> Document:
    """Return the front matter of a manifest.

    Args:
        data: the whole file.

    Raises:
        FrontMatterError: ids ``SPEC-012`` and ``SPEC-020`` … ``SPEC-032``; the text cannot be read at all.
    """
    text, mark = _decode(data)
    matter, first = _split(text)
    builder = _Builder(first)
    try:
        root = builder.build(yaml.parse(matter, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        raise FrontMatterError(*builder.faults, _syntax(error, first)) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        fault = Fault("SPEC-024", first, "", f"the front matter is not YAML: {error!s:.200}", "correct the YAML")
        raise FrontMatterError(*builder.faults, fault) from None
    if not isinstance(root, dict):
        fault = Fault("SPEC-025", first, "", "the front matter is not a mapping", "write `key: value` lines")
        raise FrontMatterError(*builder.faults, fault)
    return Document(root, builder.lines, builder.written, tuple(builder.faults), mark)


# --- text ------------------------------------------------------------------------------------------------------------
def _decode(data: bytes) -> tuple[str, bool]:
    if len(data) > MAX_MANIFEST_BYTES:
        mend = f"keep the file below {MAX_MANIFEST_BYTES} bytes"
        raise FrontMatterError(Fault("SPEC-012", 0, "", "the file is too large", mend))
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"byte {error.start} is not UTF-8"
        raise FrontMatterError(Fault("SPEC-020", line, "", message, "save the file as UTF-8")) from None
    mark = text.startswith(_BYTE_ORDER_MARK)
    text = text.removeprefix(_BYTE_ORDER_MARK).replace("\r\n", "\n")
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise FrontMatterError(Fault("SPEC-021", line, "", "the file contains a NUL character", "remove it"))
    return text, mark


def _split(text: str) -> tuple[str, int]:
    """Return the text between the two ``---`` lines and the number of its first line."""
    mend = "begin the file with a line `---`, then `key: value` lines, then a line `---`"
    if not _HANDLER.detect(text):
        raise FrontMatterError(Fault("SPEC-022", 1, "", "the file does not begin with front matter", mend))
    try:
        matter, _ = _HANDLER.split(text)
    except ValueError:
        raise FrontMatterError(Fault("SPEC-022", 1, "", "the front matter has no end", mend)) from None
    faults = []
    for found in _INVISIBLE.finditer(matter):
        line = matter.count("\n", 0, found.start()) + 1
        message = f"the front matter contains the invisible character U+{ord(found.group()):04X}"
        faults.append(Fault("SPEC-021", line, "", message, "remove it; what a reviewer reads must be all there is"))
        if len(faults) >= _MAX_FAULTS:
            break
    if faults:
        raise FrontMatterError(*faults)
    return matter.removeprefix("\n"), 2


def _syntax(error: yaml.MarkedYAMLError, first: int) -> Fault:
    mark = error.problem_mark if error.problem_mark is not None else error.context_mark
    line = first + int(getattr(mark, "line", 0))
    text = ": ".join(part for part in (error.context, error.problem) if part)
    return Fault("SPEC-024", line, "", f"the front matter is not YAML: {text:.200}", "correct the YAML")


# --- values ----------------------------------------------------------------------------------------------------------
class _Builder:
    """Makes values of a YAML event stream; depth is bounded, so recursion is."""

    def __init__(self, first: int) -> None:
        self.lines: dict[str, int] = {}
        self.written: dict[str, str] = {}
        self.faults: list[Fault] = []
        self._first = first
        self._nodes = 0
        self._path_chars = 0

    def build(self, events: Iterator[yaml.Event]) -> Any:
        """Return the value of the only document."""
        root: Any = None
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1 or event.version or event.tags:
                    self._stop("SPEC-026", event, "", "directives and further documents are not read", "remove them")
            elif isinstance(event, yaml.NodeEvent):
                root = self._value(event, events, "", 1)
        return root

    def _value(self, event: Any, events: Iterator[yaml.Event], path: str, depth: int) -> Any:
        self._count(event, path, depth)
        if path not in self.lines:
            self.lines[path] = self._line(event)
        if isinstance(event, yaml.AliasEvent):
            self._fault("SPEC-027", event, path, "aliases are not read", "write the value again")
            return None
        self._refuse_decoration(event, path)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(events, path, depth)
        return self._mapping(events, path, depth)

    def _sequence(self, events: Iterator[yaml.Event], path: str, depth: int) -> list[Any]:
        items: list[Any] = []
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            items.append(self._value(event, events, join(path, len(items)), depth + 1))
        return items

    def _mapping(self, events: Iterator[yaml.Event], path: str, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self._key(event, path)
            member = join(path, key)
            known = key in members
            if known:
                message = f"the key {shorten(key)} stands here and in line {self.lines[member]}"
                self._fault("SPEC-029", event, member, message, "keep one of them")
            else:
                self.lines[member] = self._line(event)
            self._count(event, path, depth)
            value = self._value(next(events), events, member, depth + 1)
            if not known:
                members[key] = value
        return members

    def _key(self, event: Any, path: str) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            self._stop("SPEC-030", event, path, "a key is not text", "write each key as one word")
        self._refuse_decoration(event, path)
        if event.value == "" or "\n" in event.value or "\t" in event.value:
            self._stop("SPEC-030", event, path, "a key is empty or has a line break or tab", "write it as one word")
        self._refuse_invisible(event, path, event.value)
        if len(event.value) > _MAX_KEY_CHARS:
            self._stop("SPEC-032", event, path, f"a key has more than {_MAX_KEY_CHARS} characters", "shorten it")
        if event.value == "<<" and event.implicit[0]:
            self._fault("SPEC-027", event, path, "merge keys are not read", "write the members out")
        return str(event.value)

    def _refuse_decoration(self, event: Any, path: str) -> None:
        if event.anchor is not None:
            self._fault("SPEC-027", event, path, "anchors are not read", "remove the anchor")
        if event.tag is not None:
            self._fault("SPEC-028", event, path, "tags are not read", "remove the tag", event.tag)

    def _refuse_invisible(self, event: Any, path: str, text: str) -> None:
        if found := _INVISIBLE.search(text):
            message = f"the text contains the control or invisible character U+{ord(found.group()):04X}"
            self._fault("SPEC-021", event, path, message, "remove it")

    def _scalar(self, event: Any, path: str) -> Any:
        text = str(event.value)
        self._refuse_invisible(event, path, text)
        if not event.implicit[0] or event.style not in _PLAIN_STYLES:
            return text
        value = _plain(text)
        if isinstance(value, _Refused):
            self._fault("SPEC-031", event, path, value.message, value.mend, text)
            return None
        if not isinstance(value, str):
            self.written[path] = text
        return value

    def _count(self, event: Any, path: str, depth: int) -> None:
        self._nodes += 1
        self._path_chars += len(path)
        if self._path_chars > _MAX_PATH_CHARS:
            self._stop("SPEC-032", event, path, "the names of all fields together are too long", "shorten them")
        if self._nodes > MAX_YAML_NODES:
            self._stop("SPEC-032", event, path, f"the front matter has more than {MAX_YAML_NODES} values", "shorten it")
        if depth > MAX_YAML_DEPTH:
            self._stop("SPEC-032", event, path, f"values nest deeper than {MAX_YAML_DEPTH}", "flatten them")

    def _line(self, event: Any) -> int:
        return int(event.start_mark.line) + self._first

    def _fault(self, id: str, event: Any, path: str, message: str, mend: str, found: str = "") -> None:  # noqa: A002
        if len(self.faults) >= _MAX_FAULTS:
            raise FrontMatterError(*self.faults)
        self.faults.append(Fault(id, self._line(event), path, message, mend, found))

    def _stop(self, id: str, event: Any, path: str, message: str, mend: str) -> NoReturn:  # noqa: A002
        raise FrontMatterError(*self.faults, Fault(id, self._line(event), path, message, mend))


@dataclass(frozen=True, slots=True)
class _Refused:
    message: str
    mend: str


def _plain(text: str) -> Any:
    """Return the value of a plain scalar in the YAML 1.2 core schema (YAML 1.2.2 §10.3.2), or why it is refused."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return _integer(text)
    if _LEADING_ZERO.fullmatch(text):
        return _Refused("readers disagree about a number with a leading zero", "quote it, or drop the zero")
    if _NOT_A_NUMBER.fullmatch(text):
        return _Refused("JSON has no such number", "write a finite number, or quote the text")
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else _Refused("the number is too large", "write a smaller one")
    return text


def _integer(text: str) -> int | _Refused:
    too_large = _Refused("the number does not fit 64 bits", "write a smaller number, or quote the text")
    if len(text) > _MAX_INT_CHARS:
        return too_large
    number = int(text, 0) if text[:2] in ("0x", "0o") else int(text)
    return number if abs(number) <= _MAX_INT else too_large
