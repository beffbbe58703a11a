"""Schema documents: where subschemas stand, what they are called, what a reference points to. Nothing is fetched.

Identifiers follow RFC 3986 and 2020-12 core §8.2: ``$id`` (``id`` in draft-04) changes the base, ``$anchor`` and
``$dynamicAnchor`` name a place. Only places where the dialect has subschemas are searched for them: a ``$id`` inside an
``enum`` or an unknown keyword is data. The meta-schemas of the specifications are known and come from memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urldefrag, urljoin

from sandbox.vet.containment.budget import MAX_SCHEMA_NODES, Budget, UndecidedError
from sandbox.vet.containment.dialect import REF_SIBLINGS_WITHOUT_MEANING, URIS, VALIDATING, Dialect

Pointer: TypeAlias = tuple[str, ...]

MAX_SCHEMA_DEPTH: Final = 100
"""Nesting of one schema document, in JSON values; real ones stay below 40."""

_ONE: Final = 1
_LIST: Final = 2
_MAP: Final = 4
_SUBSCHEMAS: Final = {
    **dict.fromkeys(("additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if"), _ONE),
    **dict.fromkeys(("not", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"), _ONE),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _LIST),
    **dict.fromkeys(
        ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"), _MAP
    ),
    "items": _ONE | _LIST,
}
"""Where a keyword of any dialect has subschemas: as its value, in a list, or in a map."""

_IDENTIFIERS: Final = frozenset({"$id", "id", "$anchor", "$dynamicAnchor"})


@dataclass(frozen=True, slots=True)
class Place:
    """One subschema: its document, JSON Pointer, value, and the base URI that holds for references in it."""

    document: Document
    pointer: Pointer
    schema: Any
    base: str

    def below(self, path: Pointer) -> Place:
        """Return the place of a pointer that starts here.

        Raises:
            UndecidedError: there is nothing there.
        """
        value, base, bases = self.schema, self.base, self.document.bases
        for depth, token in enumerate(path, 1):
            value = _step(value, token)
            if bases:
                base = bases.get((*self.pointer, *path[:depth]), base)
        return Place(self.document, (*self.pointer, *path), value, base)

    def __str__(self) -> str:
        """Return the place as a URI fragment."""
        return "#" + "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in self.pointer)


@dataclass(eq=False)
class Document:
    """One schema with its identifiers.

    Args:
        schema: the JSON value.
        budget: pays for the scan.
        uri: where the document comes from; empty for schemas that were handed over.

    Attributes:
        traits: keywords and forms seen, by which the dialect of a schema without ``$schema`` is told.
        resources: pointer of every embedded resource by absolute URI.
        anchors: pointer of every plain-name fragment by (resource, name).
        dynamic: those of ``anchors`` that are dynamic.
    """

    schema: Any
    budget: Budget
    uri: str = ""
    dialect: Dialect = Dialect.D2020
    traits: frozenset[str] = frozenset()
    resources: dict[str, Pointer] = field(default_factory=dict)
    anchors: dict[tuple[str, str], Pointer] = field(default_factory=dict)
    dynamic: set[tuple[str, str]] = field(default_factory=set)
    bases: dict[Pointer, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.traits = frozenset(self._scan())
        self.budget.spend(len(self.traits))

    def _scan(self) -> Iterator[str]:
        """Yield the traits of every subschema, counting and bounding them."""
        todo: list[tuple[Any, int]] = [(self.schema, 0)]
        seen = 0
        while todo:
            schema, depth = todo.pop()
            seen += 1
            if seen > MAX_SCHEMA_NODES or depth > MAX_SCHEMA_DEPTH:
                raise UndecidedError(
                    f"a schema has more than {MAX_SCHEMA_NODES} subschemas or nests deeper than {MAX_SCHEMA_DEPTH}"
                )
            self.budget.spend()
            if isinstance(schema, dict):
                yield from schema
                yield from _forms(schema)
                todo.extend((child, depth + 1) for _, child in children(schema))

    def settle(self, dialect: Dialect) -> None:
        """Read identifiers as a dialect does; replaces what an earlier call read."""
        self.dialect = dialect
        for table in (self.resources, self.anchors, self.bases):
            table.clear()
        self.dynamic.clear()
        self.resources[self.uri] = ()
        if not self.traits & _IDENTIFIERS:
            return
        todo: list[tuple[Pointer, Any, str]] = [((), self.schema, self.uri)]
        while todo:
            pointer, schema, base = todo.pop()
            if not isinstance(schema, dict):
                continue
            self.budget.spend()
            base = self._identify(pointer, schema, base)
            self.bases[pointer] = base
            todo.extend(((*pointer, *path), child, base) for path, child in children(schema))

    def _identify(self, pointer: Pointer, schema: dict[str, Any], base: str) -> str:
        """Take in the identifiers of one subschema and return the base that holds in it."""
        legacy = self.dialect <= Dialect.DRAFT7
        own = schema.get("id" if self.dialect is Dialect.DRAFT4 else "$id")
        if own is not None and not isinstance(own, str):
            raise UndecidedError("an identifier of a schema is not a string")
        if own is not None and not (legacy and "$ref" in schema):
            uri, fragment = urldefrag(_join(base, own))
            if fragment and legacy:
                self.anchors[uri, fragment] = pointer
            else:
                base = uri
                self.resources.setdefault(base, pointer)
        if not legacy:
            for keyword in ("$anchor", "$dynamicAnchor"):
                name = schema.get(keyword)
                if isinstance(name, str):
                    self.anchors[base, name] = pointer
                    if keyword == "$dynamicAnchor":
                        self.dynamic.add((base, name))
        return base

    def at(self, pointer: Pointer) -> Place:
        """Return the place of a pointer from the root of the document.

        Raises:
            UndecidedError: there is nothing there.
        """
        return Place(self, (), self.schema, self.bases.get((), self.uri)).below(pointer)


def children(schema: dict[str, Any]) -> Iterator[tuple[Pointer, Any]]:
    """Yield the subschemas of a schema with their relative pointers."""
    for keyword, value in schema.items():
        form = _SUBSCHEMAS.get(keyword, 0)
        if form & _ONE and isinstance(value, dict | bool):
            yield (keyword,), value
        elif form & _LIST and isinstance(value, list):
            yield from (((keyword, str(index)), child) for index, child in enumerate(value))
        elif form & _MAP and isinstance(value, dict):
            yield from (((keyword, name), child) for name, child in value.items() if isinstance(child, dict | bool))


def _forms(schema: dict[str, Any]) -> Iterator[str]:
    if isinstance(schema.get("items"), list):
        yield "list of items"
    if isinstance(schema.get("exclusiveMinimum"), bool) or isinstance(schema.get("exclusiveMaximum"), bool):
        yield "boolean exclusive bound"
    if isinstance(schema.get("$id"), str) and schema["$id"].rstrip("#").count("#"):
        yield "identifier with a fragment"
    if "$ref" in schema and (set(schema) & VALIDATING) - REF_SIBLINGS_WITHOUT_MEANING:
        yield "$ref with siblings"


def _join(base: str, reference: str) -> str:
    """Resolve a reference (RFC 3986 §5.2); a fragment alone is appended, whatever the scheme of the base."""
    if reference.startswith("#"):
        return base + reference
    try:
        return urljoin(base, reference)
    except ValueError:
        raise UndecidedError(f"{reference[:100]!r} is not a URI reference") from None


def _step(value: Any, token: str) -> Any:
    if isinstance(value, dict) and token in value:
        return value[token]
    if isinstance(value, list) and token.isascii() and token.isdigit() and int(token) < len(value):
        return value[int(token)]
    raise UndecidedError(f"a reference points to {token[:60]!r}, which is not there")


class Library:
    """The documents of one question, and the resolution of references among their resources.

    Args:
        budget: pays for meta-schemas that are loaded.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._specifications: dict[str, Document] = {}

    def resolve(self, place: Place, reference: str) -> tuple[Place, str, str]:
        """Return what a reference points to, with the resource's URI and the fragment.

        Raises:
            UndecidedError: it points outside the schema, or to nothing.
        """
        uri, fragment = urldefrag(_join(place.base, reference))
        document = place.document
        if uri not in document.resources:
            document = self._specification(uri, reference)
            uri = uri.removesuffix("#")
        root = document.resources[uri]
        if not fragment or fragment.startswith("/"):
            tokens = tuple(token.replace("~1", "/").replace("~0", "~") for token in unquote(fragment).split("/")[1:])
            return document.at((*root, *tokens)), uri, fragment
        pointer = document.anchors.get((uri, unquote(fragment)))
        if pointer is None:
            raise UndecidedError(f"`$ref` {reference[:100]!r} names an anchor that is not there")
        return document.at(pointer), uri, unquote(fragment)

    def _specification(self, uri: str, reference: str) -> Document:
        """Return a meta-schema of the specifications; everything else outside is refused."""
        if uri not in self._specifications:
            contents = _known_specification(uri)
            if contents is None:
                raise UndecidedError(f"`$ref` {reference[:100]!r} points outside the schema and is not followed")
            document = Document(contents, self._budget, uri)
            declared = str(contents.get("$schema", "")).removesuffix("#")
            document.settle(URIS.get(declared, Dialect.D2020))
            document.resources.setdefault(uri, ())
            self._specifications[uri] = document
        return self._specifications[uri]


def _known_specification(uri: str) -> Any | None:
    if "//json-schema.org/" not in uri:
        return None
    # 40 ms that hardly any schema needs
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]  # noqa: PLC0415

    for candidate in (uri, f"{uri}#"):
        if candidate in REGISTRY:
            return REGISTRY[candidate].contents
    return None
