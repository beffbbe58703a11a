"""The evaluator: may this principal do this to that? Deny by default, forbid wins, and any error denies.

Cedar itself skips a rule that errors, forbids included, so ``forbid`` with a misspelt attribute forbids nothing. Here a
decision with any diagnostic error is a deny, whatever Cedar decided.

Steps of one decision, the same numbers in the code:

1. The rules whose head (principal, action, resource) reaches the request are taken; none means deny. Cedar does not
   evaluate the conditions of the others, so leaving them out changes neither decision nor errors (shown by a property
   test); what it saves is their cost.
2. The facts that those rules look at are turned into Cedar values. A fact without an exact Cedar form, one that should
   have been supplied and was not, or more than :data:`MAX_CONTEXT_BYTES` of them: deny. Facts that no rule looks at are
   not converted at all.
3. Cedar decides, on policies and entities that were parsed before.
4. Any error: deny.
5. Allow exactly when Cedar allowed, and name the rules that did.

Parsing rules in each call costs about a millisecond, parsed once about 0.05 ms (``benchmarks/policy.py``).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Literal

import cedarpy
import orjson

from sandbox.errors import CallRefused
from sandbox.limits import KIB
from sandbox.policy.request import Principal, Request, Target, ToolFacts, ancestors_of
from sandbox.policy.rules import Rule, read_rules
from sandbox.policy.types import arguments_type, record
from sandbox.policy.values import Selection, Unrepresentable, selection, to_cedar
from sandbox.policy.vocabulary import required_context

MAX_CONTEXT_BYTES: Final = 256 * KIB
"""Facts of one request that rules look at, as JSON. Cedar copies them several times; a rule about more is about
content, which is for a scanner and not for a policy."""

PREPARED: Final = 4096
"""Pairs of caller and target kept ready; each holds a few kilobytes."""

REMEMBERED: Final = 8192
"""Answers kept. Cedar is a pure function of rules, entities and context, so the same question has the same answer;
rules that look at nothing of a call are asked once for each caller and tool."""

MAX_REMEMBERED_BYTES: Final = KIB
"""Context of an answer that is kept; with the number above, at most 8 MiB of text."""

_TIME_NAMES: Final = frozenset(("now", "hour", "weekday"))
_POSITION: Final = re.compile(r"policy `policy(\d+)`")
_KINDS: Final = (
    ("does not have the attribute", "missing attribute"),
    ("type error", "wrong type"),
    ("overflow", "overflow"),
    ("does not exist", "missing entity"),
    ("extension function", "malformed value"),
)


@dataclass(frozen=True, slots=True)
class Ground:
    """A rule that decided."""

    id: str
    effect: Literal["permit", "forbid"]
    reason: str
    place: str


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a request could not be decided.

    Attributes:
        rule: id of the rule that errored, empty when the request itself could not be put to Cedar.
        kind: class of the error, without any value of the request: what goes into evidence.
        text: the whole message; may quote values, so it is shown to an operator who asks and never recorded.
    """

    rule: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided, and by which rules.

    Attributes:
        effect: ``allow`` or ``deny``.
        basis: ``permit`` (a rule permits), ``forbid`` (a rule forbids), ``none`` (no rule permits) or ``error``.
        grounds: the rules that decided; empty for ``none``.
        errors: what could not be evaluated; never empty for ``error``.
    """

    effect: Literal["allow", "deny"]
    basis: Literal["permit", "forbid", "none", "error"]
    grounds: tuple[Ground, ...] = ()
    errors: tuple[Fault, ...] = ()

    @property
    def allowed(self) -> bool:
        """Whether it may be done."""
        return self.effect == "allow"

    @property
    def rules(self) -> tuple[str, ...]:
        """Ids of the rules that decided."""
        return tuple(ground.id for ground in self.grounds)

    def record(self) -> dict[str, Any]:
        """Return what the audit trail keeps: rules and classes of error, no value of the request."""
        kept: dict[str, Any] = {"decision": self.effect, "basis": self.basis, "rules": list(self.rules)}
        if self.errors:
            kept["errors"] = [{"rule": fault.rule, "kind": fault.kind} for fault in self.errors]
        return kept

    def why(self) -> str:
        """Return the rules that decided, with place and reason, in one line: for the operator and nobody else."""
        if self.basis == "none":
            return "no rule permits it"
        named = [f"{ground.id} ({ground.place}) {ground.effect}s it: {ground.reason}" for ground in self.grounds]
        failed = [f"{fault.rule or 'the request'} errs ({fault.kind})" for fault in self.errors]
        return "; ".join(failed if self.basis == "error" else named)

    def refusal(self, what: str) -> CallRefused:
        """Return the error that a client sees: what was refused, and the same for every basis.

        Args:
            what: the thing asked for, such as "`fs.write`".
        """
        return CallRefused(
            "POL-020",
            f"policy does not allow {what} for this caller with these arguments",
            "ask the operator; the audit trail names the rule",
        )


NO_RULE: Final = Decision("deny", "none")


@dataclass(slots=True, eq=False)
class _Prepared:
    """Everything about a pair of caller and target that does not change between requests.

    Attributes:
        chosen: the facts that the rules look at.
        needed: those of them that must have been supplied.
        kinds: Cedar type of the context, where the contract gives one.
    """

    rules: tuple[Rule, ...]
    grounds: dict[str, Ground]
    handle: cedarpy.PolicySet
    entities: cedarpy.Entities
    head: dict[str, Any]
    chosen: Selection
    needed: frozenset[str]
    kinds: Any


class PolicySet:
    """Rules, parsed once, immutable and safe to share between threads.

    Args:
        rules: what :func:`~sandbox.policy.rules.read_rules` returned. An empty set denies everything.
    """

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules
        self.digest = "sha256:" + hashlib.sha256("\n".join(rule.text for rule in rules).encode()).hexdigest()
        self._handle: Callable[[tuple[Rule, ...]], cedarpy.PolicySet] = lru_cache(PREPARED)(parse)
        self._remembered: Callable[[_Prepared, str], Decision] = lru_cache(REMEMBERED)(evaluate)
        self._ready: Callable[[Principal, str, Target], _Prepared | None] = lru_cache(PREPARED)(self._prepare)

    @classmethod
    def load(cls, files: Iterable[tuple[str, str]]) -> PolicySet:
        """Return the set of all rules of the files (name, text).

        Raises:
            PolicyError: every problem of every file.
        """
        return cls(read_rules(files))

    def decide(self, request: Request) -> Decision:
        """Return the decision; never raises for what a request holds."""
        prepared = self._ready(request.principal, request.action, request.target)
        if prepared is None:  # 1
            return NO_RULE
        try:
            context = _context(prepared, request.context)  # 2
        except Unrepresentable as error:
            return Decision("deny", "error", errors=(Fault("", "value without a Cedar form", str(error)),))
        return (self._remembered if len(context) <= MAX_REMEMBERED_BYTES else evaluate)(prepared, context)

    def reaching(self, principal: Principal, action: str, target: Target) -> tuple[Rule, ...]:
        """Return the rules whose head reaches a request (step 1)."""
        above = frozenset(principal.parents())
        over = ancestors_of(target)
        who, what = principal.uid, target.uid
        return tuple(
            rule
            for rule in self.rules
            if rule.action.reaches(("Action", action), frozenset())
            and rule.resource.reaches(what, over)
            and rule.principal.reaches(who, above)
        )

    def _prepare(self, principal: Principal, action: str, target: Target) -> _Prepared | None:
        rules = self.reaching(principal, action, target)
        if not rules:
            return None
        chosen = selection(path[1:] for rule in rules for path in rule.looks_at if path[0] == "context")
        required = required_context(action)
        return _Prepared(
            rules=rules,
            grounds={rule.id: Ground(rule.id, rule.effect, rule.reason, rule.place) for rule in rules},
            handle=self._handle(rules),
            entities=entities_of(principal, target),
            head=head_of(principal, action, target),
            chosen=chosen,
            needed=frozenset(required if chosen is None else required & chosen.keys()),
            kinds=record({"arguments": arguments_type(target.inputs)}) if isinstance(target, ToolFacts) else None,
        )


def evaluate(prepared: _Prepared, context: str) -> Decision:
    """Return Cedar's answer as a decision (steps 3 to 5)."""
    answer = cedarpy.is_authorized({**prepared.head, "context": context}, prepared.handle, prepared.entities)  # 3
    errors = tuple(_fault(prepared.rules, text) for text in answer.diagnostics.errors)
    grounds = tuple(prepared.grounds[name] for name in answer.diagnostics.id_annotations_by_reason.values())
    if errors or answer.decision is cedarpy.Decision.NoDecision:  # 4
        return Decision("deny", "error", grounds, errors or (Fault("", "undecided", "Cedar gave no decision"),))
    if answer.decision is cedarpy.Decision.Allow and grounds:  # 5
        return Decision("allow", "permit", grounds)
    return Decision("deny", "forbid", grounds) if grounds else NO_RULE


def parse(rules: tuple[Rule, ...]) -> cedarpy.PolicySet:
    """Return Cedar's form of some rules; their order gives the positions that Cedar's messages name."""
    return cedarpy.PolicySet.from_str("\n".join(rule.text for rule in rules))


def entities_of(principal: Principal, target: Target) -> cedarpy.Entities:
    """Return Cedar's form of everything that rules can reach from a pair of caller and target, and nothing else."""
    return cedarpy.Entities.from_json_str(orjson.dumps([*principal.entities(), *target.entities()]).decode())


def head_of(principal: Principal, action: str, target: Target) -> dict[str, Any]:
    """Return principal, action and resource of a Cedar request; entity ids as values, not as Cedar text."""
    return {
        "principal": {"type": principal.uid[0], "id": principal.uid[1]},
        "action": {"type": "Action", "id": action},
        "resource": {"type": target.uid[0], "id": target.uid[1]},
    }


def cedar_context(facts: Mapping[str, Any], chosen: Selection = None, kinds: Any = None) -> str:
    """Return the chosen facts as Cedar's JSON.

    Raises:
        Unrepresentable: one of them has no exact Cedar form, or they are too large.
    """
    plain = {name: value for name, value in facts.items() if name != "now"}
    context = to_cedar(plain, chosen, kinds)
    now = facts.get("now")
    if now is not None and (chosen is None or _TIME_NAMES & chosen.keys()):
        context |= _time(now)
    try:
        text = orjson.dumps(context)
    except TypeError:  # a lone surrogate, or something that is no JSON value
        raise Unrepresentable("a fact is not a JSON value") from None
    if len(text) > MAX_CONTEXT_BYTES:
        raise Unrepresentable(f"the facts that rules look at have more than {MAX_CONTEXT_BYTES} bytes")
    return text.decode()


def _context(prepared: _Prepared, facts: Mapping[str, Any]) -> str:
    for name in prepared.needed:
        if ("now" if name in _TIME_NAMES else name) not in facts:
            raise Unrepresentable(f"`{name}` was not supplied")
    return cedar_context(facts, prepared.chosen, prepared.kinds)


def _time(now: float) -> dict[str, Any]:
    """Return seconds since 1970 as the facts ``now``, ``hour`` and ``weekday`` (1: Monday), all UTC."""
    moment = datetime.fromtimestamp(now, UTC)
    text = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"now": {"__extn": {"fn": "datetime", "arg": text}}, "hour": moment.hour, "weekday": moment.isoweekday()}


def _fault(rules: tuple[Rule, ...], text: str) -> Fault:
    position = _POSITION.search(text)
    index = int(position[1]) if position else len(rules)
    kind = next((kind for sign, kind in _KINDS if sign in text), "other")
    return Fault(rules[index].id if index < len(rules) else "", kind, text)


__all__ = ["Decision", "Fault", "Ground", "PolicySet", "cedar_context", "entities_of", "evaluate", "head_of", "parse"]
