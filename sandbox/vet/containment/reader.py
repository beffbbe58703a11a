"""From JSON Schema documents to nodes: the walk, references and recursion; keywords are in :mod:`keywords`.

References are followed while reading. A reference to a subschema that is being read (recursion) becomes a
:class:`~sandbox.vet.containment.nodes.Ref`; one that comes back without having stepped into a member or element has no
meaning and is refused.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from sandbox.vet.containment.algebra import Algebra
from sandbox.vet.containment.budget import MAX_INPLACE_DEPTH, UndecidedError
from sandbox.vet.containment.dialect import Dialect, named
from sandbox.vet.containment.document import Document, Library, Place, Pointer
from sandbox.vet.containment.keywords import KEYWORDS
from sandbox.vet.containment.nodes import Node
from sandbox.vet.containment.unevaluated import unevaluated

Formats: TypeAlias = Literal["unknown", "annotation"]
"""``unknown``: ``format`` may or may not be asserted, a *yes* holds either way; ``annotation``: it never is."""

Scope: TypeAlias = tuple[tuple[int, str], ...]
"""Resources entered, outermost first, as (document, URI): what ``$dynamicRef`` looks through (2020-12 core §7.1)."""

MAX_READER_DEPTH: Final = 70
"""Subschemas inside each other while reading; every level costs a few Python frames."""


@dataclass(slots=True)
class _Open:
    """Subschemas that are being read: ``inplace`` since the last step into a member or element."""

    inplace: list[Hashable]
    depth: int = 0


class Reader:
    """Reads schemas into one algebra.

    Args:
        algebra: where nodes are made.
        library: resolves references.
        formats: what ``format`` means.
    """

    def __init__(self, algebra: Algebra, library: Library, formats: Formats) -> None:
        self.algebra = algebra
        self.library = library
        self.formats = formats
        self._known: dict[Hashable, Node] = {}
        self._reading: dict[Hashable, None] = {}
        self._open = _Open([])
        self._documents: dict[Document, int] = {}

    def read(self, document: Document) -> Node:
        """Return the node of a whole document, whose dialect has been settled.

        Raises:
            UndecidedError: the schema is malformed, refers outside, or is too large.
        """
        return self.node(document.at(()), ())

    def child(self, place: Place, path: Pointer, scope: Scope) -> Node:
        """Return the node of a subschema that applies to a member or element."""
        before = self._open.inplace
        self._open.inplace = []
        try:
            return self.inplace(place, path, scope)
        finally:
            self._open.inplace = before

    def inplace(self, place: Place, path: Pointer, scope: Scope) -> Node:
        """Return the node of a subschema that applies to the same value."""
        return self.node(place.below(path), scope)

    def node(self, place: Place, scope: Scope) -> Node:
        """Return the node of a subschema."""
        if isinstance(place.schema, bool):
            return self.algebra.everything if place.schema else self.algebra.nothing
        if not isinstance(place.schema, dict):
            raise UndecidedError(f"{place} is not a schema")
        scope = self._enter(place, scope)
        key = (self._number(place.document), place.document.dialect, place.pointer, scope)
        if key in self._known:
            return self._known[key]
        if key in self._open.inplace:
            raise UndecidedError(f"{place} refers to itself without an end")
        if key in self._reading:
            return self.algebra.ref(key)
        return self._new(place, scope, key)

    def _new(self, place: Place, scope: Scope, key: Hashable) -> Node:
        state = self._open
        if state.depth >= MAX_READER_DEPTH or len(state.inplace) >= MAX_INPLACE_DEPTH:
            raise UndecidedError(f"a schema nests deeper than {MAX_READER_DEPTH}")
        self.algebra.budget.spend(2)
        state.depth += 1
        state.inplace.append(key)
        self._reading[key] = None
        try:
            node = self.algebra.all_of(self._keywords(place, scope))
        finally:
            state.depth -= 1
            state.inplace.pop()
            del self._reading[key]
        self._known[key] = node
        self.algebra.targets[key] = node
        return node

    def _number(self, document: Document) -> int:
        return self._documents.setdefault(document, len(self._documents))

    def _enter(self, place: Place, scope: Scope) -> Scope:
        """Return the dynamic scope inside a subschema: only resources with a dynamic anchor matter."""
        document = place.document
        resource = (self._number(document), place.base)
        if resource in scope or not any(base == place.base for base, _ in document.dynamic):
            return scope
        return (*scope, resource)

    # --- keywords -----------------------------------------------------------------------------------------------------
    def _keywords(self, place: Place, scope: Scope) -> list[Node]:
        schema, dialect = place.schema, place.document.dialect
        if "$schema" in schema and place.pointer and named(schema["$schema"]) is not dialect:
            raise UndecidedError(f"{place} is in another dialect than the schema around it")
        if "$ref" in schema and dialect <= Dialect.DRAFT7:
            return [self._ref(place, "$ref", scope)]
        parts: list[Node] = []
        for keyword, value in schema.items():
            known = KEYWORDS.get(keyword)
            if known is not None and known.since <= dialect <= known.until:
                parts.append(known.make(self, place, value, scope))
        parts.extend(self._ref(place, keyword, scope) for keyword in self.references(place))
        if dialect >= Dialect.D2019:
            parts.extend(unevaluated(self, place, scope))
        return parts

    def references(self, place: Place) -> list[str]:
        """Return the keywords of a schema that refer to another one for the same value.

        Raises:
            UndecidedError: ``$recursiveRef`` of 2019-09, which is not supported.
        """
        if place.document.dialect is Dialect.D2019 and "$recursiveRef" in place.schema:
            raise UndecidedError(f"`$recursiveRef` at {place} is not supported")
        known = ("$ref", "$dynamicRef") if place.document.dialect >= Dialect.D2020 else ("$ref",)
        return [keyword for keyword in known if keyword in place.schema]

    def _ref(self, place: Place, keyword: str, scope: Scope) -> Node:
        return self.node(self.target(place, keyword, scope), scope)

    def target(self, place: Place, keyword: str, scope: Scope) -> Place:
        """Return the place that ``$ref`` or ``$dynamicRef`` points to."""
        reference = place.schema[keyword]
        if not isinstance(reference, str):
            raise UndecidedError(f"`{keyword}` at {place} is not a string")
        found, uri, fragment = self.library.resolve(place, reference)
        if keyword == "$dynamicRef" and (uri, fragment) in found.document.dynamic:
            for number, resource in self._enter(place, scope):
                document = next(one for one, index in self._documents.items() if index == number)
                if (resource, fragment) in document.dynamic:
                    return document.at(document.anchors[resource, fragment])
        return found

    def scope_in(self, place: Place, scope: Scope) -> Scope:
        """Return the dynamic scope that holds inside a subschema."""
        return self._enter(place, scope)
