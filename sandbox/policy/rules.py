"""Reading of ``*.cedar`` files: text → rules with their place, their scope and what they look at.

A rule is one Cedar policy. Cedar itself numbers policies by position and forgets where they stood, so a file is split
here at the semicolons outside strings and comments, and each piece is parsed by Cedar on its own. What Cedar says about
a piece (its JSON form) is the only thing that is interpreted; the splitter decides nothing but lines.

Invariants:

- Every rule has an ``@id`` that is unique in the whole set and a ``@reason``: a decision can always be explained.
- ``looks_at`` names every path below ``principal``, ``resource`` and ``context`` that the conditions can read. A use
  that is not a plain chain of attributes counts as the whole variable, so the set is never too small.
- Templates are refused: a template authorises nothing until it is linked, which looks like a rule and is none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import cedarpy

from sandbox.errors import PolicyError, Problem
from sandbox.limits import KIB

MAX_FILE_BYTES: Final = 256 * KIB
"""One file of rules; a set that nobody can read protects nobody."""

MAX_RULES: Final = 1000
"""Rules of one set; each costs about a microsecond in every decision that its scope reaches."""

Uid: TypeAlias = tuple[str, str]
"""Entity type and id."""

Path: TypeAlias = tuple[str, ...]
"""Variable and attributes: ``("context", "arguments", "path")``; ``("context",)`` is all of it."""

_VARIABLES: Final = frozenset(("principal", "resource", "context"))
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|;', re.DOTALL)
_BLANK: Final = re.compile(r"(?:\s+|//[^\n]*)*")


@dataclass(frozen=True, slots=True)
class Scope:
    """What a rule's head says of one variable.

    Attributes:
        op: ``All``, ``==``, ``in`` or ``is`` (``is`` may carry one entity: ``is T in E``).
        uids: the entities named.
        type: entity type of ``is``.
    """

    op: Literal["All", "==", "in", "is"] = "All"
    uids: tuple[Uid, ...] = ()
    type: str = ""

    def reaches(self, uid: Uid, ancestors: frozenset[Uid]) -> bool:
        """Return whether an entity is within this scope, exactly as Cedar evaluates it."""
        if self.op == "All":
            return True
        if self.op == "==":
            return uid in self.uids
        if self.op == "is" and uid[0] != self.type:
            return False
        if self.op == "is" and not self.uids:
            return True
        return any(named == uid or named in ancestors for named in self.uids)


@dataclass(frozen=True, slots=True)
class Rule:
    """One Cedar policy.

    Attributes:
        id: its ``@id``.
        reason: its ``@reason``, for the operator; never shown to a client.
        text: its source, without what stands around it.
        line: 1-based line of its first token in ``file``.
        looks_at: see the module.
    """

    id: str
    reason: str
    effect: Literal["permit", "forbid"]
    text: str
    file: str
    line: int
    principal: Scope
    action: Scope
    resource: Scope
    looks_at: frozenset[Path]

    @property
    def place(self) -> str:
        """``file:line``."""
        return f"{self.file}:{self.line}"


def read_rules(files: Iterable[tuple[str, str]]) -> tuple[Rule, ...]:
    """Return the rules of all files, in order.

    Args:
        files: name for messages and text of each file.

    Raises:
        PolicyError: every problem of every file: ``POL-001`` not Cedar, ``POL-002`` no ``@id``, ``POL-003`` no
            ``@reason``, ``POL-004`` an id used twice, ``POL-005`` a template, ``POL-008`` too large.
    """
    rules: list[Rule] = []
    problems: list[Problem] = []
    for file, text in files:
        if len(text.encode("utf-8", "replace")) > MAX_FILE_BYTES:
            message = f"the file has more than {MAX_FILE_BYTES} bytes"
            problems.append(Problem("POL-008", file, 0, "", message, mend="split it, or write broader rules"))
            continue
        for line, piece in split(text):
            read = _read(file, line, piece)
            (problems if isinstance(read, Problem) else rules).append(read)  # type: ignore[arg-type]
    problems += _repeated(rules)
    if len(rules) > MAX_RULES:
        beyond = rules[MAX_RULES]
        message = f"the set has {len(rules)} rules, more than {MAX_RULES}"
        problems.append(Problem("POL-008", beyond.file, beyond.line, "", message, mend="write broader rules"))
    if problems:
        raise PolicyError(tuple(problems))
    return tuple(rules)


def split(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and source of each policy of a file; the last piece may be incomplete, which Cedar then says."""
    start = 0
    for token in _TOKEN.finditer(text):
        if token[0] == ";":
            yield _piece(text, start, token.end())
            start = token.end()
    line, rest = _piece(text, start, len(text))
    if rest:
        yield line, rest


def _piece(text: str, start: int, end: int) -> tuple[int, str]:
    blank = _BLANK.match(text, start, end)
    first = blank.end() if blank else start
    return text.count("\n", 0, first) + 1, text[first:end].rstrip()


def _repeated(rules: list[Rule]) -> list[Problem]:
    first: dict[str, Rule] = {}
    mend = "give each rule an id of its own"
    return [
        Problem(
            "POL-004", rule.file, rule.line, "@id", f"`{rule.id}` is also the id of {first[rule.id].place}", mend=mend
        )
        for rule in rules
        if first.setdefault(rule.id, rule) is not rule
    ]


def _read(file: str, line: int, piece: str) -> Rule | Problem:
    try:
        parsed = json.loads(cedarpy.policies_to_json_str(piece))
    except ValueError as error:
        return Problem("POL-001", file, line, "", f"not a Cedar policy: {error}", mend="correct the syntax")
    if parsed["templates"] or len(parsed["staticPolicies"]) != 1:
        message = "a template (a policy with `?principal` or `?resource`) authorises nothing"
        return Problem("POL-005", file, line, "", message, mend="name the principal and the resource")
    (policy,) = parsed["staticPolicies"].values()
    annotations = policy.get("annotations", {})
    name = annotations.get("id") or ""
    if not _NAME.fullmatch(name):
        message = "the rule has no usable `@id`"
        return Problem(
            "POL-002", file, line, "@id", message, name[:80], "letters, digits, `.`, `_`, `-`; at most 64",
            'write `@id("…")` before the rule',
        )  # fmt: skip
    reason = (annotations.get("reason") or "").strip()
    if not reason:
        message = f"the rule `{name}` has no `@reason`"
        return Problem("POL-003", file, line, "@reason", message, mend='write `@reason("…")`: why this rule exists')
    return Rule(
        id=name,
        reason=reason,
        effect=policy["effect"],
        text=piece,
        file=file,
        line=line,
        principal=_scope(policy["principal"]),
        action=_scope(policy["action"]),
        resource=_scope(policy["resource"]),
        looks_at=frozenset(path for clause in policy["conditions"] for path in _paths(clause["body"])),
    )


def _scope(head: Mapping[str, Any]) -> Scope:
    op = head["op"]
    if op == "is":
        within = head.get("in")
        return Scope("is", (_uid(within["entity"]),) if within else (), head["entity_type"])
    named = head.get("entities") or ([head["entity"]] if "entity" in head else [])
    return Scope(op, tuple(_uid(entity) for entity in named))


def _uid(entity: Mapping[str, str]) -> Uid:
    return entity["type"], entity["id"]


def _paths(node: Any) -> Iterator[Path]:
    """Yield what an expression of Cedar's JSON form reads; each node is an object with one member, its operator."""
    if not isinstance(node, dict):
        return
    ((op, operand),) = node.items()
    if op == "Var":
        if operand in _VARIABLES:
            yield (operand,)
    elif op in (".", "has"):
        yield from _chain(operand)
    elif op == "Record":
        for item in operand.values():
            yield from _paths(item)
    elif op not in ("Value", "Slot"):
        children = operand if isinstance(operand, list) else operand.values() if isinstance(operand, dict) else ()
        for child in children:
            yield from _paths(child)


def _chain(operand: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the path of a chain of attributes, or what its root reads when that is an expression."""
    attributes: list[str] = [operand["attr"]]
    node = operand["left"]
    while "." in node and len(node) == 1:
        attributes.append(node["."]["attr"])
        node = node["."]["left"]
    if "Var" in node and len(node) == 1:
        if node["Var"] in _VARIABLES:
            yield (node["Var"], *reversed(attributes))
    else:
        yield from _paths(node)
