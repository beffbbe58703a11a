"""The Cedar schema of what is loaded, and the check that finds a typo in a rule before anything runs.

Cedar gives one context type to an action, while each tool has its own arguments. So a rule that looks at arguments is
validated once for each shape of arguments that it can meet (the tools that its head reaches), and Cedar's validator has
one blind spot that is closed here: ``context.arguments has pth`` is valid Cedar and never true. Every path that a rule
looks at must exist for at least one target it can reach.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Final

import cedarpy

from sandbox.errors import Problem
from sandbox.policy.request import ACTIONS, CALL, DriverFacts, ToolFacts, ancestors_of
from sandbox.policy.rules import Path, Rule
from sandbox.policy.types import CedarType, arguments_type, member_names, record
from sandbox.policy.vocabulary import ATTRIBUTES, required_context, schema_json

ARGUMENTS: Final[Path] = ("context", "arguments")
_ACTION: Final = re.compile(r' in context for Action::"[^"]*"')


def schema_text(tools: Iterable[ToolFacts]) -> str:
    """Return the schema for people, in Cedar's own notation: arguments of all tools merged, each optional.

    An argument that two tools give different types is left out; a rule may still look at it when its head names a tool.
    """
    merged: dict[str, CedarType | None] = {}
    for tool in tools:
        for name, kind in _members(arguments_type(tool.inputs)).items():
            bare = {key: value for key, value in kind.items() if key != "required"}
            merged[name] = bare if merged.get(name, bare) == bare else None
    known = record({name: kind for name, kind in merged.items() if kind})
    return str(cedarpy.Schema.from_json_str(json.dumps(schema_json(known))))


def check(rules: Iterable[Rule], drivers: Iterable[DriverFacts], tools: Iterable[ToolFacts]) -> tuple[Problem, ...]:
    """Return what is wrong with rules, given what is loaded.

    Errors: ``POL-006`` Cedar's validator objects (unknown attribute, action, entity type; wrong type); ``POL-007`` a
        rule
    looks at something that nothing it reaches has. Warnings: ``POL-009`` a rule names a driver or tool that is not
    loaded, so that it could not be checked against it.
    """
    known_drivers, known_tools = tuple(drivers), tuple(tools)
    problems: list[Problem] = []
    for rule in rules:
        reached = tuple(tool for tool in known_tools if reaches_tool(rule, tool))
        problems += _absent(rule, known_drivers, known_tools)
        unknown = list(_unknown(rule, reached))
        problems += unknown or _invalid(rule, reached)
    return tuple(problems)


def reaches_tool(rule: Rule, tool: ToolFacts) -> bool:
    """Return whether a rule's head can be met by a call of a tool."""
    called = rule.action.reaches(("Action", CALL), frozenset())
    return called and rule.resource.reaches(tool.uid, ancestors_of(tool))


def _absent(rule: Rule, drivers: tuple[DriverFacts, ...], tools: tuple[ToolFacts, ...]) -> list[Problem]:
    loaded = {driver.uid for driver in drivers} | {tool.uid for tool in tools}
    return [
        Problem(
            "POL-009",
            rule.file,
            rule.line,
            "resource",
            f'the rule `{rule.id}` names {kind}::"{name}", which is not loaded',
            mend="correct the name, or load that driver to have the rule checked",
            severity="warning",
        )
        for kind, name in rule.resource.uids
        if kind in ("Driver", "Tool") and (kind, name) not in loaded
    ]


def _unknown(rule: Rule, reached: tuple[ToolFacts, ...]) -> Iterator[Problem]:
    for path in sorted(rule.looks_at):
        if path[:2] == ARGUMENTS and len(path) > len(ARGUMENTS):
            if reached and not any(_has(arguments_type(tool.inputs), path[2:]) for tool in reached):
                yield _typo(rule, path, _argument_names(reached), _why(reached, path[2]))
        elif len(path) > 1:
            names = _names_of(path[0], rule)
            if path[1] not in names:
                yield _typo(rule, path[:2], names, "nothing that the rule reaches has it")


def _names_of(variable: str, rule: Rule) -> set[str]:
    if variable == "context":
        reached = [action for action in ACTIONS if rule.action.reaches(("Action", action), frozenset())]
        return {name for action in reached for name in required_context(action)}
    scope = rule.principal if variable == "principal" else rule.resource
    kinds = ("User", "Agent") if variable == "principal" else ("Driver", "Tool", "Prompt", "Resource")
    exact = {scope.type} if scope.op == "is" else {kind for kind, _ in scope.uids} if scope.op == "==" else set(kinds)
    return {name for kind in exact for name in ATTRIBUTES.get(kind, {})}


def _argument_names(reached: tuple[ToolFacts, ...]) -> set[str]:
    return {name for tool in reached for name in _members(arguments_type(tool.inputs))}


def _why(reached: tuple[ToolFacts, ...], name: str) -> str:
    if any(name in member_names(tool.inputs) for tool in reached):
        return "its contract gives it no single type, so no rule can look at it"
    return "no tool that the rule reaches has it"


def _typo(rule: Rule, path: Path, names: set[str], why: str) -> Problem:
    close = difflib.get_close_matches(path[-1], names, n=1, cutoff=0.5)
    mend = f"write `{close[0]}`" if close else f"look at one of {', '.join(sorted(names)[:12]) or 'nothing'}"
    message = f"the rule `{rule.id}` looks at `{'.'.join(path)}`: {why}"
    return Problem("POL-007", rule.file, rule.line, ".".join(path), message, mend=mend)


def _has(kind: CedarType, path: Path) -> bool:
    for name in path:
        members = _members(kind)
        if name not in members:
            return False
        kind = members[name]
    return True


def _members(kind: CedarType) -> dict[str, CedarType]:
    return dict(kind["attributes"]) if kind["type"] == "Record" else {}


def _invalid(rule: Rule, reached: tuple[ToolFacts, ...]) -> list[Problem]:
    """Return what Cedar's validator says, for each shape of the arguments that the rule looks at."""
    shapes: dict[str, tuple[CedarType, str]] = {}
    for tool in reached:
        kind = _restricted(arguments_type(tool.inputs), rule)
        shapes.setdefault(json.dumps(kind, sort_keys=True), (kind, f" (for the tool `{tool.name}`)"))
    if not shapes:
        if rule.action.reaches(("Action", CALL), frozenset()) and any(path[:2] == ARGUMENTS for path in rule.looks_at):
            return []  # about arguments of tools that are not loaded: POL-009 says so
        shapes[""] = (record({}), "")
    found: dict[str, Problem] = {}
    for kind, where in shapes.values():
        for error in cedarpy.validate_policies(rule.text, schema_json(kind)).errors:
            text = error.error.replace("for policy `policy0`, ", "")
            suffix = where if "argument" in text else ""
            message = f"the rule `{rule.id}` is not valid{suffix}: {text}"
            problem = Problem(
                "POL-006", rule.file, rule.line, "", message, mend="correct the rule; see `policy schema`"
            )
            found.setdefault(_ACTION.sub("", text), problem)
    return list(found.values())


def _restricted(kind: CedarType, rule: Rule) -> CedarType:
    """Return the arguments' type with only the members that a rule looks at: fewer shapes to validate against."""
    if ARGUMENTS in rule.looks_at or ("context",) in rule.looks_at:
        return kind
    looked = {path[2] for path in rule.looks_at if path[:2] == ARGUMENTS}
    return {"type": "Record", "attributes": {name: item for name, item in _members(kind).items() if name in looked}}
