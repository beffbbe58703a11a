"""Which arguments of a contract are paths or URIs, and their replacement by checked forms (S0-70).

An argument is marked by ``format: uri | uri-reference | path`` (``iri``, ``iri-reference`` and ``url`` count as the
first two) or by ``x-mcp-sandbox: path | relative-path | uri | uri-reference``. The mark is found wherever JSON Schema
lets a schema apply to a value: members, items, references, branches, recursion. Where it is unclear whether a branch
applies, it counts: a check too many refuses, a check too few forwards.

A mark on an array or object holds for every string in it. ``patternProperties`` hold for every member not named
otherwise: the pattern is not evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from sandbox.errors import VetRefused

KINDS: Final = ("path", "relative-path", "uri", "uri-reference")
_FORMATS: Final = {
    "uri": "uri",
    "iri": "uri",
    "url": "uri",
    "uri-reference": "uri-reference",
    "iri-reference": "uri-reference",
    "path": "path",
}
_BRANCHES: Final = ("allOf", "anyOf", "oneOf")
_SINGLE: Final = ("if", "then", "else", "not")
_REST: Final = ("additionalProperties", "unevaluatedProperties")
_ITEMS: Final = ("items", "additionalItems", "unevaluatedItems")

Check: TypeAlias = Callable[[str, str, str], str]
"""Takes kind, text and place, returns what is forwarded, or raises."""


@dataclass(slots=True, eq=False)
class Mark:
    """What holds for a value at one place.

    Attributes:
        kinds: how its strings are checked, in order.
        members: for members by name; ``rest`` for the others.
        prefix: for the first items; ``items`` for the others.
    """

    kinds: tuple[str, ...] = ()
    members: dict[str, Mark] = field(default_factory=dict)
    rest: Mark | None = None
    prefix: list[Mark] = field(default_factory=list)
    items: Mark | None = None

    def below(self) -> Iterator[Mark]:
        """Yield the marks of parts."""
        yield from self.members.values()
        yield from self.prefix
        yield from (mark for mark in (self.rest, self.items) if mark is not None)

    def apply(self, value: Any, check: Check, place: str = "") -> Any:
        """Return a value with its marked strings checked; parts that hold none are the same objects."""
        if isinstance(value, str):
            for kind in self.kinds:
                value = check(kind, value, place)
            return value
        if isinstance(value, Mapping):
            return self._object(value, check, place)
        return self._array(value, check, place) if isinstance(value, list) else value

    def _object(self, value: Mapping[str, Any], check: Check, place: str) -> Mapping[str, Any]:
        changed = {
            name: mark.apply(item, check, f"{place}/{name}")
            for name, item in value.items()
            if (mark := self._inherited(self.members.get(name, self.rest))) is not None
        }
        return {**value, **changed} if changed else value

    def _array(self, value: list[Any], check: Check, place: str) -> list[Any]:
        if not self.prefix and self.items is None and not self.kinds:
            return value
        count = len(self.prefix)
        marks = (self._inherited(self.prefix[i] if i < count else self.items) for i in range(len(value)))
        pairs = zip(value, marks, strict=True)
        return [mark.apply(item, check, f"{place}/{i}") if mark else item for i, (item, mark) in enumerate(pairs)]

    def _inherited(self, mark: Mark | None) -> Mark | None:
        """Return a part's mark; a whole that is marked hands its own down to parts that have none."""
        if not self.kinds:
            return mark
        if mark is None:
            return Mark(self.kinds, rest=None)
        return Mark(self.kinds + mark.kinds, mark.members, mark.rest, mark.prefix, mark.items)


def compile_marks(schema: Mapping[str, Any], name: str) -> Mark | None:
    """Return the marks of a contract's inputs, or ``None`` when there are none.

    Args:
        schema: JSON Schema.
        name: the contract, for messages.

    Raises:
        VetRefused: ``CALL-047``, a mark of unknown kind: what it asks for cannot be enforced.
    """
    root = _Compiler(schema, name).node((schema,))
    live = _live(root)
    return _pruned(root, live) if root in live else None


def find_marked(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the places of marked values with their kinds, for people: ``/paths/*: path``. Recursion is cut."""
    root = compile_marks(schema, "the contract")
    return tuple(dict.fromkeys(_places(root, "", frozenset()))) if root else ()


def _places(mark: Mark, place: str, above: frozenset[Mark]) -> Iterator[str]:
    if mark in above:
        return
    inside = above | {mark}
    if mark.kinds:
        yield f"{place or '/'}: {', '.join(mark.kinds)}"
    for name, part in mark.members.items():
        yield from _places(part, f"{place}/{name}", inside)
    for index, part in enumerate(mark.prefix):
        yield from _places(part, f"{place}/{index}", inside)
    for other in (mark.rest, mark.items):
        if other is not None:
            yield from _places(other, f"{place}/*", inside)


class _Compiler:
    """Builds marks; schemas that refer to each other give marks that do."""

    def __init__(self, root: Mapping[str, Any], name: str) -> None:
        self._root = root
        self._name = name
        self._made: dict[frozenset[int], Mark] = {}

    def node(self, schemas: tuple[Any, ...]) -> Mark:
        applied = self._applied(schemas)
        key = frozenset(id(schema) for schema in applied)
        if key in self._made:
            return self._made[key]
        mark = self._made[key] = Mark()
        mark.kinds = tuple(dict.fromkeys(kind for schema in applied for kind in self._kinds(schema)))
        named: dict[str, list[Any]] = {}
        for schema in applied:
            for name, part in _mapping(schema.get("properties")).items():
                named.setdefault(name, []).append(part)
        patterns = [part for schema in applied for part in _mapping(schema.get("patternProperties")).values()]
        rest = [schema[word] for schema in applied for word in _REST if word in schema] + patterns
        mark.members = {name: self.node((*parts, *patterns)) for name, parts in named.items()}
        mark.rest = self.node(tuple(rest)) if rest else None
        self._array(mark, applied)
        return mark

    def _array(self, mark: Mark, applied: list[Mapping[str, Any]]) -> None:
        longest = max((len(_prefix(schema)) for schema in applied), default=0)
        for index in range(longest):
            mark.prefix.append(self.node(tuple(part for schema in applied for part in _item(schema, index))))
        items = tuple(part for schema in applied for part in _item(schema, longest))
        mark.items = self.node(items) if items else None

    def _applied(self, schemas: tuple[Any, ...]) -> list[Mapping[str, Any]]:
        """Return the schemas and all that apply to the same value: references and branches."""
        found: dict[int, Mapping[str, Any]] = {}
        pending = list(schemas)
        for schema in pending:  # grows while it is walked
            if not isinstance(schema, Mapping) or id(schema) in found:
                continue
            found[id(schema)] = schema
            pending += [branch for word in _BRANCHES for branch in schema.get(word) or ()]
            pending += [schema[word] for word in _SINGLE if word in schema]
            pending += _mapping(schema.get("dependentSchemas")).values()
            pending += [self._target(schema[word]) for word in ("$ref", "$dynamicRef") if word in schema]
        return list(found.values())

    def _target(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        if reference == "#":
            return self._root
        node: Any = self._root
        if not reference.startswith("#/"):
            return self._anchored(reference[1:])
        for step in reference[2:].split("/"):
            node = _step(node, step.replace("~1", "/").replace("~0", "~"))
        return node

    def _anchored(self, anchor: str) -> Any:
        pending: list[Any] = [self._root]
        while pending:
            node = pending.pop()
            if isinstance(node, Mapping):
                if anchor in (node.get("$anchor"), node.get("$dynamicAnchor")):
                    return node
                pending += node.values()
            elif isinstance(node, list):
                pending += node
        return None

    def _kinds(self, schema: Mapping[str, Any]) -> Iterator[str]:
        word = schema.get("x-mcp-sandbox")
        if word is not None:
            if word not in KINDS:
                raise VetRefused(
                    "CALL-047",
                    f"the contract `{self._name}` has `x-mcp-sandbox: {str(word)[:60]}`, which asks for nothing known",
                    f"write one of {', '.join(KINDS)}",
                )
            yield word
        elif schema.get("format") in _FORMATS:
            yield _FORMATS[schema["format"]]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _prefix(schema: Mapping[str, Any]) -> list[Any]:
    """Return the schemas of the first items: ``prefixItems``, or ``items`` of older drafts when it is a list."""
    found = schema.get("prefixItems", schema.get("items"))
    return found if isinstance(found, list) else []


def _item(schema: Mapping[str, Any], index: int) -> Iterator[Any]:
    """Yield what one schema says of the item at an index."""
    prefix = _prefix(schema)
    if index < len(prefix):
        yield prefix[index]
    else:
        yield from (schema[word] for word in _ITEMS if word in schema and not isinstance(schema[word], list))
    if "contains" in schema:
        yield schema["contains"]


def _step(node: Any, name: str) -> Any:
    if isinstance(node, Mapping):
        return node.get(name)
    return node[int(name)] if isinstance(node, list) and name.isdigit() and int(name) < len(node) else None


def _live(root: Mark) -> set[Mark]:
    """Return the marks from which a kind can be reached."""
    nodes, pending = {root}, [root]
    while pending:
        fresh = [part for part in pending.pop().below() if part not in nodes]
        nodes.update(fresh)
        pending += fresh
    live = {node for node in nodes if node.kinds}
    while True:
        more = {node for node in nodes - live if any(part in live for part in node.below())}
        if not more:
            return live
        live |= more


def _pruned(root: Mark, live: set[Mark]) -> Mark:
    """Drop what leads to no kind, in place."""
    for node in live:
        node.members = {name: part for name, part in node.members.items() if part in live or node.rest in live}
        node.rest = node.rest if node.rest in live else None
        node.prefix = node.prefix if any(part in live for part in node.prefix) else []
        node.items = node.items if node.items in live else None
    return root
