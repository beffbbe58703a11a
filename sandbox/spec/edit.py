"""Small changes of a DRIVER.md that leave everything else byte for byte as its author wrote it; pure.

A list gets further entries or a field a value, at the place where a person would write it: in the line of a flow list
(``[a, b]``), below the last entry of a block list, as a new key where there is none. The result is read again and must
be the old values with the change and nothing else; otherwise there is no result.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from sandbox.spec.frontmatter import FrontMatterError, parse

INDENT: Final = 2
"""Columns of a new level."""


class NotEditable(ValueError):
    """The text is written in a way that cannot be changed at one place; a person has to."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What is to be different.

    Attributes:
        added: dotted path of a list → entries it gets, JSON values.
        set: dotted path of a field → its new value.
    """

    added: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    set: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(self.added.values()) or bool(self.set)


def changed(data: bytes, changes: Changes) -> bytes:
    """Return a manifest with changes.

    Args:
        data: the whole file, valid front matter.
        changes: what is to be different.

    Raises:
        NotEditable: there is no place to write it, or the result would mean something else.
    """
    try:
        before = parse(data).values
    except FrontMatterError as error:
        raise NotEditable(str(error)) from None
    text = data.decode("utf-8")
    for path, entries in changes.added.items():
        if entries:
            text = _added(text, path.split("."), list(entries))
    for path, value in changes.set.items():
        text = _set(text, path.split("."), value)
    result = text.encode("utf-8")
    try:
        after = parse(result).values
    except FrontMatterError as error:
        raise NotEditable(f"the change does not fit where it belongs: {error}") from None
    if after != _expected(before, changes):
        raise NotEditable("the change would also change something else")
    return result


def _expected(values: dict[str, Any], changes: Changes) -> dict[str, Any]:
    wanted = copy.deepcopy(values)
    for path, entries in changes.added.items():
        if entries:
            parent, key = _parent(wanted, path)
            parent[key] = [*(parent.get(key) or []), *entries]
    for path, value in changes.set.items():
        parent, key = _parent(wanted, path)
        parent[key] = value
    return wanted


def _parent(values: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
    *above, key = path.split(".")
    for name in above:
        if values.get(name) is None:
            values[name] = {}
        values = values[name]
        if not isinstance(values, dict):
            raise NotEditable(f"`{name}` is no mapping")
    return values, key


def _added(text: str, path: list[str], entries: list[Any]) -> str:
    """Return the text with further entries of a list."""
    node, rest, base = _find(text, path)
    if rest or _empty(node):
        return _insert(text, node, base, rest, entries)
    if not isinstance(node, yaml.SequenceNode):
        raise NotEditable(f"`{'.'.join(path)}` is no list")
    shown = [_flow(entry) for entry in entries]
    if node.flow_style:
        at = base + node.end_mark.index - 1
        ahead = text[:at].rstrip()
        lead = "" if not node.value or ahead.endswith(",") else ", "
        return ahead + lead + ", ".join(shown) + text[at:]
    at = _line_end(text, base + _end(node.value[-1]))
    margin = " " * node.start_mark.column
    return text[:at] + "".join(f"\n{margin}- {entry}" for entry in shown) + text[at:]


def _set(text: str, path: list[str], value: Any) -> str:
    """Return the text with another value of a field."""
    node, rest, base = _find(text, path)
    if rest or _empty(node):
        return _insert(text, node, base, rest, value)
    if not isinstance(node, yaml.ScalarNode):
        raise NotEditable(f"`{'.'.join(path)}` is no single value")
    return text[: base + node.start_mark.index] + _flow(value) + text[base + node.end_mark.index :]


def _find(text: str, path: list[str]) -> tuple[Any, list[str], int]:
    """Return the deepest node that exists, the keys below it that do not, and where the front matter begins."""
    base = text.index("\n") + 1
    end = next((at for at in _lines(text, base) if text[at:].startswith("---")), len(text))
    try:
        node: Any = yaml.compose(text[base:end], Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise NotEditable(str(error)) from None
    for depth, key in enumerate(path):
        found = None
        if isinstance(node, yaml.MappingNode):
            found = next((value for name, value in node.value if name.value == key), None)
        elif not _empty(node):
            raise NotEditable(f"`{'.'.join(path[:depth])}` is no mapping")
        if found is None:
            return node, path[depth:], base
        node = found
    return node, [], base


def _insert(text: str, node: Any, base: int, rest: list[str], value: Any) -> str:
    """Return the text with new keys below a mapping, or with a value where there is none."""
    if _empty(node):
        for key in reversed(rest):
            value = {key: value}
        at = base + node.start_mark.index
        return text[:at].rstrip(" ") + " " + _flow(value) + text[base + node.end_mark.index :]
    if node.flow_style:
        for key in reversed(rest[1:]):
            value = {key: value}
        at = base + node.end_mark.index - 1
        ahead = text[:at].rstrip()
        lead = ", " if node.value and not ahead.endswith(",") else ""
        return f"{ahead}{lead}{json.dumps(rest[0])}: {_flow(value)}{text[at:]}"
    at = _line_end(text, base + _end(node.value[-1][1]))
    column = int(node.value[0][0].start_mark.column)
    lines = [f"{' ' * (column + INDENT * depth)}{key}:" for depth, key in enumerate(rest)]
    if isinstance(value, list):
        lines += [f"{' ' * (column + INDENT * len(rest))}- {_flow(entry)}" for entry in value]
    else:
        lines[-1] += f" {_flow(value)}"
    return text[:at] + "".join(f"\n{line}" for line in lines) + text[at:]


def _empty(node: Any) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.value == "" and not node.style


def _end(node: Any) -> int:
    """Return where the last text of a node ends: a block's own mark lies behind the comments that follow it."""
    if getattr(node, "flow_style", True) or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(last, tuple) else last)


def _lines(text: str, start: int) -> Any:
    """Yield where each line from ``start`` on begins."""
    at = start
    while 0 <= at < len(text):
        yield at
        at = text.find("\n", at) + 1
        if not at:
            return


def _line_end(text: str, at: int) -> int:
    """Return the end of the line of the character before ``at``, its comment included."""
    if at and text[at - 1] == "\n":  # a block text ends behind its line
        return at - 1
    found = text.find("\n", at)
    return len(text) if found < 0 else found - (text[found - 1] == "\r")


def _flow(value: Any) -> str:
    """Return a value in flow style: JSON, but with bare keys of mappings, as drivers write them."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)
