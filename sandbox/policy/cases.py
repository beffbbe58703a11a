"""Cases that a policy must decide as written: the tests of an operator (``mcp-sandbox policy test CASES.yaml``).

Pure: parsed YAML in, results out. The form::

    version: 1
    defaults:
      principal: { tenant: acme, user: alice }
    cases:
      - name: alice reads
        action: tools/call                                  # the default
        resource: { driver: filesystem-mcp, tool: fs.read } # or prompt:, uri: (and template:), or the driver alone
        arguments: { path: /workspace/a.txt }
        context: { calls: { target: 3, tenant: 9 } }        # facts other than the arguments; the rest have plain values
        expect: allow
        rule: readers-read                                  # optional: this rule must be among those that decided

A rule that no case makes decide is reported: a permit that nobody has seen needed, or a forbid that nobody has seen
work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sandbox.errors import CallRefused, PolicyError, Problem
from sandbox.policy.cedar import Decision, PolicySet
from sandbox.policy.request import (
    ACTIONS,
    CALL,
    DriverFacts,
    Principal,
    PromptFacts,
    Request,
    ResourceFacts,
    Target,
    ToolFacts,
)

NOON: Final = 1_800_014_400.0
"""2027-01-15 12:00 UTC, a Friday: the time of a case that names none. A result must not depend on the day it is run."""

_CASE_KEYS: Final = frozenset(("name", "principal", "action", "resource", "arguments", "context", "expect", "rule"))
_WHO_KEYS: Final = frozenset(("tenant", "user", "kind", "groups", "scopes", "claims"))
_PLAIN: Final[Mapping[str, Any]] = {
    "now": NOON,
    "client": {},
    "calls": {"target": 0, "tenant": 0},
    "hosts": [],
    "schemes": [],
    "paths": [],
    "findings": [],
    "argument_names": [],
    "argument": "",
    "max_tokens": 0,
    "mode": "form",
    "host": "",
}

FindDriver = Callable[[str], DriverFacts | None]
FindTool = Callable[[str, str], ToolFacts | None]
FindFacts = Callable[[ToolFacts, Mapping[str, Any]], Mapping[str, Any]]
"""Returns what steps 6 and 7 of a call make of its arguments (``arguments``, ``paths``, ``hosts``, ``schemes``), or
raises CallRefused."""


@dataclass(frozen=True, slots=True)
class Case:
    """One case, read."""

    name: str
    request: Request
    expect: str
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one case."""

    case: Case
    decision: Decision

    @property
    def passed(self) -> bool:
        """Whether it was decided as written, by the rule that is named."""
        decided = self.decision.effect == self.case.expect
        return decided and (not self.case.rule or self.case.rule in self.decision.rules)

    def line(self) -> str:
        """Return the result for a terminal."""
        by = ", ".join(self.decision.rules) or self.decision.basis
        wanted = f"expected {self.case.expect}" + (f" by {self.case.rule}" if self.case.rule else "")
        verdict = "ok  " if self.passed else "FAIL"
        return f"{verdict} {self.case.name}: {self.decision.effect} by {by}" + ("" if self.passed else f"; {wanted}")


@dataclass(frozen=True, slots=True)
class Report:
    """All results, and the ids of the rules that no case made decide."""

    results: tuple[Result, ...]
    idle: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether every case was decided as written."""
        return all(result.passed for result in self.results)


def run_cases(policy: PolicySet, cases: tuple[Case, ...]) -> Report:
    """Decide every case."""
    results = tuple(Result(case, policy.decide(case.request)) for case in cases)
    decided = {name for result in results for name in result.decision.rules}
    return Report(results, tuple(rule.id for rule in policy.rules if rule.id not in decided))


def _no_facts(_tool: ToolFacts, _arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    return {}


def read_cases(
    parsed: Any, file: str, driver: FindDriver, tool: FindTool, facts: FindFacts = _no_facts
) -> tuple[Case, ...]:
    """Return the cases of a parsed YAML document.

    Args:
        parsed: the document.
        file: its name for messages.
        driver: finds a loaded driver by id.
        tool: finds an exposed tool by driver id and name.
        facts: finds what a call's arguments say beside themselves; what a case's ``context`` names stands above it.

    Raises:
        PolicyError: ``POL-010``, every case that is not of the form above or names something that is not loaded.
    """
    if not isinstance(parsed, Mapping) or parsed.get("version") != 1 or not isinstance(parsed.get("cases"), list):
        raise PolicyError((_problem(file, "", "the file has no `version: 1` and list of `cases`"),))
    defaults = parsed.get("defaults") or {}
    cases: list[Case] = []
    problems: list[Problem] = []
    for index, item in enumerate(parsed["cases"]):
        try:
            cases.append(_case({**defaults, **_mapping(item, "the case")}, driver, tool, facts))
        except _Wrong as error:
            problems.append(_problem(file, f"cases[{index}]", str(error)))
    if problems:
        raise PolicyError(tuple(problems))
    return tuple(cases)


class _Wrong(Exception):
    """What is wrong with one case."""


def _problem(file: str, field: str, message: str) -> Problem:
    return Problem("POL-010", file, 0, field, message, mend="see docs/policies.md, Cases")


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _Wrong(f"{what} is not a mapping")
    return value


def _case(item: Mapping[str, Any], driver: FindDriver, tool: FindTool, facts: FindFacts) -> Case:
    unknown = item.keys() - _CASE_KEYS
    if unknown:
        raise _Wrong(f"unknown key `{min(unknown)}`")
    expect = item.get("expect")
    if expect not in ("allow", "deny"):
        raise _Wrong("`expect` is neither `allow` nor `deny`")
    action = item.get("action", CALL)
    if action not in ACTIONS:
        raise _Wrong(f"`action` is none of {', '.join(ACTIONS)}")
    target = _target(_mapping(item.get("resource"), "`resource`"), driver, tool)
    context = {**_PLAIN, **_mapping(item.get("context") or {}, "`context`")}
    if action == CALL and isinstance(target, ToolFacts):
        context = {**context, **_call_facts(item, target, facts)}
    elif isinstance(target, ResourceFacts):
        context.setdefault("uri", {"text": target.uri, "scheme": target.uri.partition(":")[0], "host": "", "path": ""})
    request = Request(_principal(_mapping(item.get("principal"), "`principal`")), action, target, context)
    return Case(str(item.get("name") or f"{action} {target.uid[1]}"), request, expect, str(item.get("rule") or ""))


def _call_facts(item: Mapping[str, Any], tool: ToolFacts, facts: FindFacts) -> dict[str, Any]:
    arguments = dict(_mapping(item.get("arguments") or {}, "`arguments`"))
    try:
        found = facts(tool, arguments)
    except CallRefused as refusal:
        raise _Wrong(f"policy is not asked: {refusal}") from None
    said = item.get("context") or {}
    return {"arguments": arguments, **{name: value for name, value in found.items() if name not in said}}


def _principal(item: Mapping[str, Any]) -> Principal:
    unknown = item.keys() - _WHO_KEYS
    if unknown or not item.get("tenant"):
        raise _Wrong(f"`principal` needs `tenant` and has only {', '.join(sorted(_WHO_KEYS))}")
    kind = item.get("kind", "User")
    if kind not in ("User", "Agent"):
        raise _Wrong("`principal.kind` is neither `User` nor `Agent`")
    claims = tuple(sorted((str(key), str(value)) for key, value in (item.get("claims") or {}).items()))
    groups, scopes = tuple(item.get("groups") or ()), tuple(item.get("scopes") or ())
    return Principal(str(item["tenant"]), str(item.get("user") or ""), kind, groups, scopes, claims)


def _target(item: Mapping[str, Any], driver: FindDriver, tool: FindTool) -> Target:
    name = str(item.get("driver") or "")
    found = driver(name)
    if found is None:
        raise _Wrong(f"the driver `{name}` is not loaded")
    for key, make in _targets(item, found):
        if key == "tool":
            exposed = tool(name, str(item["tool"]))
            if exposed is None:
                raise _Wrong(f"the driver `{name}` exposes no tool `{item['tool']}`")
            return exposed
        return make
    return found


def _targets(item: Mapping[str, Any], found: DriverFacts) -> Iterator[tuple[str, Target]]:
    if "tool" in item:
        yield "tool", found
    elif "prompt" in item:
        yield "prompt", PromptFacts(found, str(item["prompt"]))
    elif "uri" in item:
        yield "uri", ResourceFacts(found, str(item["uri"]), str(item.get("template") or ""))
