"""What has changed in a server's surface since it was approved, and which changes wait for a person. Pure.

Each difference is one :class:`Change` of one field of one subject. A tool's description never reaches a client, and a
change of it takes the tool out of service all the same: it was what the tool was approved for.

========================  ============================================================================================
``name``                  a tool is known by it; another name is one tool gone and one new
``inputSchema`` and       :mod:`sandbox.vet.drift_schema`; a missing output schema promises nothing
``outputSchema``
``annotations``           compared as meant: absent hints have the protocol's defaults, and what only matters to a
                          tool that changes something does not matter to one that says it does not. Any other
                          difference is *text*, also towards harmlessness: that is the direction of an attack
``execution``             absent means ``taskSupport: forbidden``
everything else           any difference is *text*: title, description, icons, ``_meta``, unknown members
a tool that is gone       *narrowing*
a tool that is new        *text* when the driver binds it, else *noted*: it stays invisible
prompts, resources        any difference is *text*; new ones are *text*, gone ones *narrowing*; ``size`` and
                          ``lastModified`` of a resource are *noted*
server                    another name, era or instructions: *text* about every tool; version and the rest: *noted*
capabilities              what is new is *widening* and not passed on; what is gone is *narrowing*
========================  ============================================================================================
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from sandbox import jsontext
from sandbox.vet.containment import Options
from sandbox.vet.drift_schema import NO_WITNESS, Kind, SchemaDrift, compare
from sandbox.vet.drift_words import News
from sandbox.vet.model import ServerSurface

ABSENT: Final[Any] = object()
"""Value of a field that is not there; ``None`` is JSON's null."""

Sort = Literal["server", "capabilities", "tools", "prompts", "resources", "templates"]

WAITS: Final = frozenset({"widening", "text", "undecided"})
"""Kinds that are out of service until a person approves them."""

HINTS: Final[Mapping[str, bool]] = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}
"""Defaults of MCP ``ToolAnnotations``."""

_OF_CHANGES_ONLY: Final = ("destructiveHint", "idempotentHint")
"""Hints that are meaningful only when ``readOnlyHint`` is false (MCP ``ToolAnnotations``)."""

_EXECUTION: Final[Mapping[str, Any]] = {"taskSupport": "forbidden"}

_FACTS: Final = frozenset({"size", "lastModified"})
"""Members of a resource and of its annotations that are facts about its contents."""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between what was approved and what is offered.

    Attributes:
        sort: what has changed.
        name: of the tool or prompt, URI of the resource, member of the server; as the server says it.
        field: member of the subject, empty when the whole subject is gone or new.
        kind: see :data:`sandbox.vet.drift_schema.Kind`.
        before: value that was approved, or :data:`ABSENT`.
        after: value that is offered, or :data:`ABSENT`.
        why: one sentence for a person; quoted parts are the server's.
        witness: for schemas, a value that only one of the two accepts.
        news: for schemas, what is said differently, place by place.
    """

    sort: Sort
    name: str
    field: str
    kind: Kind
    before: Any
    after: Any
    why: str = ""
    witness: Any = NO_WITNESS
    news: tuple[News, ...] = ()

    @property
    def waits(self) -> bool:
        """Whether what has changed is out of service until a person approves it."""
        return self.kind in WAITS

    @property
    def place(self) -> str:
        """Return where, such as ``tools/read_file/inputSchema``."""
        return "/".join(part for part in (self.sort, self.name, self.field) if part)


def drift(
    approved: ServerSurface,
    offered: ServerSurface,
    bound: Collection[str] | None = None,
    options: Options | None = None,
) -> tuple[Change, ...]:
    """Return every difference, in the order of the table above, server first.

    Args:
        approved: what a person approved.
        offered: what the server says now.
        bound: names of tools that the driver binds; changes of others are *noted* without a decision about schemas.
            ``None`` decides about all.
        options: bounds of the decisions about schemas.
    """
    chosen = options or Options()
    found: list[Change] = [*_server(approved, offered), *_capabilities(approved, offered)]
    for name in sorted(approved.tools.keys() | offered.tools.keys()):
        if name not in approved.tools:
            found.append(_new(name, offered.tools[name], bound))
        else:
            watched = bound is None or name in bound
            found += _tool(name, approved.tools[name], offered.tools.get(name), chosen if watched else None)
    found += _others("prompts", approved.prompts, offered.prompts)
    found += _others("resources", _keyed(approved.resources, "uri"), _keyed(offered.resources, "uri"))
    before, after = (_keyed(one.resource_templates, "uriTemplate") for one in (approved, offered))
    return (*found, *_others("templates", before, after))


# --- the server ----------------------------------------------------------------------------------------------------
def _server(approved: ServerSurface, offered: ServerSurface) -> Iterator[Change]:
    if approved.era != offered.era:
        yield Change("server", "era", "", "text", approved.era, offered.era, "it speaks the other protocol era")
    if approved.protocol_version != offered.protocol_version:
        yield Change("server", "protocol_version", "", "noted", approved.protocol_version, offered.protocol_version)
    if approved.instructions != offered.instructions:
        why = "its instructions, which are about every tool, read differently"
        yield Change("server", "instructions", "", "text", approved.instructions, offered.instructions, why)
    for field, before, after in _members(approved.server_info, offered.server_info):
        if field == "name":
            yield Change("server", field, "", "text", before, after, "it calls itself another server")
        else:
            yield Change("server", field, "", "noted", before, after)


def _capabilities(approved: ServerSurface, offered: ServerSurface) -> Iterator[Change]:
    for name, before, after in _members(approved.capabilities, offered.capabilities):
        gone = after is ABSENT
        why = "" if gone else "it was not approved, and is not passed on"
        yield Change("capabilities", name, "", "narrowing" if gone else "widening", before, after, why)


def common_capabilities(approved: Mapping[str, Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Return the server capabilities that were approved and are still offered."""
    return {
        name: common_capabilities(value, offered[name]) if isinstance(value, Mapping) else value
        for name, value in approved.items()
        if name in offered and (value == offered[name] or _both_mappings(value, offered[name]))
    }


def _both_mappings(one: Any, other: Any) -> bool:
    return isinstance(one, Mapping) and isinstance(other, Mapping)


# --- tools ---------------------------------------------------------------------------------------------------------
def _new(name: str, after: Mapping[str, Any], bound: Collection[str] | None) -> Change:
    if bound is not None and name in bound:
        return Change("tools", name, "", "text", ABSENT, after, "new, and not approved")
    return Change("tools", name, "", "noted", ABSENT, after, "new, and not bound")


def _tool(
    name: str, before: Mapping[str, Any], after: Mapping[str, Any] | None, options: Options | None
) -> Iterator[Change]:
    """Yield the changes of one tool that was approved; without ``options`` nothing binds it."""
    if after is None:
        yield Change("tools", name, "", "narrowing", before, ABSENT, "no longer offered")
        return
    for field, old, new in _members(before, after):
        if options is None:
            yield Change("tools", name, field, "noted", old, new, "not bound")
        else:
            yield _field(name, field, old, new, options)


def _field(name: str, field: str, before: Any, after: Any, options: Options) -> Change:
    if field in ("inputSchema", "outputSchema"):
        found = compare(True if before is ABSENT else before, True if after is ABSENT else after, options)
    elif field == "annotations":
        found = _told(_meant(before) == _meant(after))
    elif field == "execution":
        found = _told(_with_defaults(before) == _with_defaults(after))
    else:
        found = SchemaDrift("text")
    return Change("tools", name, field, found.kind, before, after, found.why, found.witness, found.news)


def _told(equal: bool) -> SchemaDrift:
    return SchemaDrift("same", "absent members have the protocol's defaults") if equal else SchemaDrift("text")


def _meant(annotations: Any) -> Any:
    """Return annotations with the protocol's defaults, and without what has no meaning for a tool that only reads."""
    if annotations is not ABSENT and not isinstance(annotations, Mapping):
        return annotations
    meant = {**HINTS, **({} if annotations is ABSENT else annotations)}
    if meant["readOnlyHint"] is True:
        meant = {name: value for name, value in meant.items() if name not in _OF_CHANGES_ONLY}
    return meant


def _with_defaults(execution: Any) -> Any:
    if execution is not ABSENT and not isinstance(execution, Mapping):
        return execution
    return {**_EXECUTION, **({} if execution is ABSENT else execution)}


# --- prompts, resources, templates ---------------------------------------------------------------------------------
def _others(
    sort: Sort, approved: Mapping[str, Mapping[str, Any]], offered: Mapping[str, Mapping[str, Any]]
) -> Iterator[Change]:
    for name in sorted(approved.keys() | offered.keys()):
        before, after = approved.get(name), offered.get(name)
        if before is None:
            yield Change(sort, name, "", "text", ABSENT, after, "new, and not approved")
        elif after is None:
            yield Change(sort, name, "", "narrowing", before, ABSENT, "no longer offered")
        else:
            for field, old, new in _members(before, after):
                noted = sort == "resources" and _only_facts(field, old, new)
                yield Change(sort, name, field, "noted" if noted else "text", old, new)


def _only_facts(field: str, before: Any, after: Any) -> bool:
    if field in _FACTS:
        return True
    if field != "annotations":
        return False
    old, new = ({} if one is ABSENT else one for one in (before, after))
    return _both_mappings(old, new) and all(name in _FACTS for name, _, _ in _members(old, new))


def _keyed(items: tuple[Mapping[str, Any], ...], key: str) -> dict[str, Mapping[str, Any]]:
    """Return items by URI; items that share one are told apart by a number, so that none hides behind another."""
    named: dict[str, Mapping[str, Any]] = {}
    for item in sorted(items, key=jsontext.canonical):
        name = unnumbered = uri_of(item, key)
        number = 2
        while name in named:
            name, number = f"{unnumbered} #{number}", number + 1
        named[name] = item
    return named


def uri_of(item: Mapping[str, Any], key: str) -> str:
    """Return what an item is known by; one that is no text, which the protocol forbids, by its canonical JSON."""
    found = item.get(key, "")
    return found if isinstance(found, str) else jsontext.canonical(found).decode()


def _members(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the members that differ, with both values."""
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name, ABSENT), after.get(name, ABSENT)
        if not _equal(old, new):
            yield name, old, new


def _equal(one: Any, other: Any) -> bool:
    """Return whether two JSON values are the same text: ``1`` is neither ``true`` nor ``1.0``."""
    if one is other:
        return True
    if one is ABSENT or other is ABSENT:
        return False
    return jsontext.canonical(one) == jsontext.canonical(other)


__all__ = ["ABSENT", "HINTS", "WAITS", "Change", "Kind", "Sort", "common_capabilities", "drift", "uri_of"]
