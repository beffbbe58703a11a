"""Why was it decided so? Each rule on its own, against one request.

A decision names the rules that decided. That says little when nothing permits: here every rule is looked at, and the
answer names the part of its head that does not fit, or says that its condition is false or in error. For operators
only (``mcp-sandbox policy explain``); errors may quote values of the request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import cedarpy

from sandbox.policy.cedar import Decision, PolicySet, cedar_context, entities_of, head_of, parse
from sandbox.policy.request import Request, ToolFacts, ancestors_of
from sandbox.policy.rules import Rule
from sandbox.policy.types import arguments_type, record
from sandbox.policy.values import Unrepresentable, selection

Outcome = Literal["holds", "other action", "other resource", "other principal", "condition false", "error"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one rule says of one request."""

    rule: Rule
    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision and the verdict of every rule, those closest to holding first."""

    decision: Decision
    verdicts: tuple[Verdict, ...]

    def lines(self) -> list[str]:
        """Return the explanation for a terminal, one line each."""
        decided = set(self.decision.rules)
        head = {
            "permit": "allowed: a rule permits it and none forbids it",
            "forbid": "denied: a rule forbids it",
            "none": "denied: no rule permits it",
            "error": "denied: something could not be evaluated, which always denies",
        }[self.decision.basis]
        return [
            head,
            *(f"  error: {fault.text}" for fault in self.decision.errors if not fault.rule),
            *(_line(verdict, verdict.rule.id in decided) for verdict in self.verdicts),
        ]


_ORDER = ("holds", "error", "condition false", "other principal", "other resource", "other action")


def explain(policy: PolicySet, request: Request) -> Explanation:
    """Return the decision on a request and why each rule did or did not hold."""
    verdicts = (_verdict(rule, request) for rule in policy.rules)
    ordered = tuple(sorted(verdicts, key=lambda verdict: _ORDER.index(verdict.outcome)))
    return Explanation(policy.decide(request), ordered)


def _verdict(rule: Rule, request: Request) -> Verdict:
    who, what = request.principal, request.target
    if not rule.action.reaches(("Action", request.action), frozenset()):
        return Verdict(rule, "other action")
    if not rule.resource.reaches(what.uid, ancestors_of(what)):
        return Verdict(rule, "other resource", f'the resource is {what.uid[0]}::"{what.uid[1]}"')
    if not rule.principal.reaches(who.uid, frozenset(who.parents())):
        return Verdict(rule, "other principal", f'the principal is {who.uid[0]}::"{who.uid[1]}"')
    chosen = selection(path[1:] for path in rule.looks_at if path[0] == "context")
    try:
        facts = cedar_context(request.context, chosen, _kinds(request))
    except Unrepresentable as error:
        return Verdict(rule, "error", str(error))
    head = {**head_of(who, request.action, what), "context": facts}
    answer = cedarpy.is_authorized(head, parse((rule,)), entities_of(who, what))
    if answer.diagnostics.errors:
        return Verdict(rule, "error", answer.diagnostics.errors[0].replace("policy `policy0`", "it"))
    return Verdict(rule, "holds" if answer.diagnostics.reasons else "condition false")


def _kinds(request: Request) -> object:
    target = request.target
    return record({"arguments": arguments_type(target.inputs)}) if isinstance(target, ToolFacts) else None


def _line(verdict: Verdict, decided: bool) -> str:
    rule = verdict.rule
    mark = "*" if decided else " "
    detail = f": {verdict.detail}" if verdict.detail else ""
    return f"{mark} {rule.effect} {rule.id} ({rule.place}): {verdict.outcome}{detail} — {rule.reason}"
