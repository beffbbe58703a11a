"""The schema of what is loaded: a typo in a rule is an error before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.policy.request import DriverFacts, ToolFacts
from sandbox.policy.rules import read_rules
from sandbox.policy.schema import check, schema_text
from sandbox.policy.types import arguments_type
from sandbox.resources import shipped

DRIVER = DriverFacts("files")
READ = ToolFacts(
    DRIVER,
    "fs.read",
    inputs={
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "tail": {"type": "integer"},
            "either": {"type": ["string", "number"]},
            "options": {"$ref": "#/$defs/options"},
        },
        "required": ["path"],
        "$defs": {"options": {"type": "object", "properties": {"mode": {"enum": ["a", "b"]}}}},
    },
)
LIST = ToolFacts(DRIVER, "fs.list", inputs={"type": "object", "properties": {"folder": {"type": "string"}}})
CALLED = 'action == Action::"tools/call"'
ARGS = "context.arguments"


def problems(body: str) -> list[Any]:
    """Return what is wrong with one rule."""
    return list(check(read_rules([("f", f'@id("a") @reason("r") permit{body};')]), [DRIVER], [READ, LIST]))


@pytest.mark.claim("P-POLICY-05")
@pytest.mark.parametrize(
    ("body", "id_", "mend"),
    [
        (f"(principal, {CALLED}, resource) when {{ context.arguments has pth }}", "POL-007", "write `path`"),
        (f"(principal, {CALLED}, resource) when {{ context.arguments has options.mdoe }}", "POL-007", ""),
        (f"(principal, {CALLED}, resource) when {{ context.arguments has either }}", "POL-007", ""),
        (f"(principal, {CALLED}, resource) when {{ resource has rsik }}", "POL-007", "write `risk`"),
        (f"(principal, {CALLED}, resource) when {{ context has hots }}", "POL-007", "write `hosts`"),
        (f'(principal, {CALLED}, resource) when {{ principal.tenat == "x" }}', "POL-007", "write `tenant`"),
        (f'(principal, {CALLED}, resource) when {{ context.arguments.path == "x" }}', "POL-006", ""),
        (f'(principal, {CALLED}, resource) when {{ {ARGS} has tail && {ARGS}.tail == "x" }}', "POL-006", ""),
        ('(principal, action == Action::"tools/cal", resource)', "POL-006", ""),
        ('(principal in Tennant::"x", action, resource)', "POL-006", ""),
        (f'(principal, {CALLED}, resource == Tool::"files/fs.raed")', "POL-009", ""),
    ],
)  # fmt: skip
def test_a_typo_is_an_error_before_anything_runs(body: str, id_: str, mend: str) -> None:
    """Misspelt attributes, arguments, actions and types are found, behind `has` too."""
    found = problems(body)

    assert {id_} == {problem.id for problem in found}
    assert mend in found[0].mend


@pytest.mark.parametrize(
    "body",
    [
        f'(principal, {CALLED}, resource) when {{ {ARGS} has path && {ARGS}.path like "/x/*" }}',
        f'(principal, {CALLED}, resource == Tool::"files/fs.read") when {{ context.arguments.path like "/x/*" }}',
        f'(principal, {CALLED}, resource) when {{ {ARGS} has options.mode && {ARGS}.options.mode == "a" }}',
        '(principal is Agent in Group::"acme/bots", action, resource) when { principal.hasTag("x") }',
        '(principal, action == Action::"resources/read", resource) when { context.uri.scheme == "demo" }',
        f"(principal, {CALLED}, resource) when {{ context.calls.target < 10 && context.client has name }}",
    ],
)  # fmt: skip
def test_sound_rules_pass(body: str) -> None:
    """A rule that fits what is loaded has no problem."""
    assert problems(body) == []


def test_a_rule_about_a_driver_that_is_not_loaded_is_only_a_warning() -> None:
    """One policy serves many drivers; what is not loaded here cannot be checked here."""
    (found,) = problems(f'(principal, {CALLED}, resource in Driver::"other") when {{ context.arguments.sql like "x" }}')

    assert (found.id, found.severity) == ("POL-009", "warning")


def test_the_starter_policy_is_valid() -> None:
    """What ships passes its own check."""
    text = shipped("policies", "starter.cedar").read_text()

    assert check(read_rules([("starter.cedar", text)]), [DRIVER], [READ, LIST]) == ()


def test_the_schema_can_be_read() -> None:
    """The schema for people has every tool's arguments, each optional."""
    text = schema_text([READ, LIST])

    assert all(line in text for line in ("folder?: __cedar::String", "path?: __cedar::String", "tail?: __cedar::Long"))


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string"}, "String"),
        ({"type": ["string", "null"]}, "String"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "String"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, None),
        ({"type": "number"}, "Extension"),
        ({"const": True}, "Boolean"),
        ({"enum": [1, 2]}, "Long"),
        ({"enum": [1, "a"]}, None),
        ({"type": "array", "items": {"type": "string"}}, "Set"),
        ({"type": "array"}, None),
        ({"type": "array", "items": {}}, None),
        ({"$ref": "#/properties/x"}, None),
        ({"$ref": "http://example.com/s"}, None),
        ({}, None),
        (True, None),
    ],
)
def test_types_follow_the_contract(schema: Any, kind: str | None) -> None:
    """A schema has a Cedar type only when all of its values have that type."""
    members = arguments_type({"type": "object", "properties": {"x": schema}})["attributes"]

    assert kind == (members["x"]["type"] if "x" in members else None)
