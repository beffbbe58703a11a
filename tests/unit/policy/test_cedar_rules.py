"""Reading of rules: places, compulsory annotations, templates, and what a rule looks at."""

from __future__ import annotations

import pytest

from sandbox.errors import PolicyError
from sandbox.policy.rules import MAX_FILE_BYTES, Scope, read_rules, split

HEAD = '@id("a") @reason("r") permit(principal, action, resource)'


def ids(*texts: str) -> list[tuple[str, int]]:
    """Return id and line of each problem."""
    with pytest.raises(PolicyError) as caught:
        read_rules([(f"f{index}", text) for index, text in enumerate(texts)])
    return [(problem.id, problem.line) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("permit(principal, action, resource);", "POL-002"),
        ('@id("") @reason("r") permit(principal, action, resource);', "POL-002"),
        ('@id("a b") @reason("r") permit(principal, action, resource);', "POL-002"),
        ('@id("a") permit(principal, action, resource);', "POL-003"),
        ('@id("a") @reason(" ") permit(principal, action, resource);', "POL-003"),
        (HEAD, "POL-001"),
        (HEAD + " when { context.arguments.x == 1.5 };", "POL-001"),
        ('@id("a") @reason("r") permit(principal == ?principal, action, resource);', "POL-005"),
        ("x" * (MAX_FILE_BYTES + 1), "POL-008"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused(text: str, expected: str) -> None:
    """A rule without id or reason, a template and a syntax error each have their message."""
    assert [expected] == [name for name, _ in ids(text)]


def test_every_problem_is_told_at_once_with_its_line() -> None:
    """Problems of all rules and files come together."""
    first = '// a comment; with " in it\n' + HEAD + ";\n\npermit(principal,\n action, resource);"
    second = HEAD + ';\n@id("b") permit(principal, action, resource);'

    assert ids(first, second) == [("POL-002", 4), ("POL-003", 2), ("POL-004", 1)]


def test_semicolons_in_strings_and_comments_do_not_split() -> None:
    """A piece ends at a semicolon of the syntax only."""
    text = '@id("a;b") // ; \n@reason("say \\"x;y\\"") permit(principal, action, resource); // end;\n'

    assert [(1, text[: text.index("; // end") + 1])] == list(split(text))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ('context.arguments.path == "x"', {("context", "arguments", "path")}),
        ("context has q.a.b", {("context", "q"), ("context", "q", "a"), ("context", "q", "a", "b")}),
        ('context["arguments"]["k k"] == 1', {("context", "arguments", "k k")}),
        ("[context.arguments].contains(principal)", {("context", "arguments"), ("principal",)}),
        ("(if true then context else context).hour == 1", {("context",)}),
        ("{a: context.hour}.a == 1", {("context", "hour")}),
        ('{"Var": 1, "Value": context.hour} == {}', {("context", "hour")}),
        ('principal.hasTag("x") && resource.name == "y"', {("principal",), ("resource", "name")}),
        ("-context.hour < 3 && !(context.hosts.isEmpty())", {("context", "hour"), ("context", "hosts")}),
        ('decimal("1.0").lessThan(context.arguments.n)', {("context", "arguments", "n")}),
        ('User::"context" == principal && "context.x" == ""', {("principal",)}),
    ],
)  # fmt: skip
def test_what_a_rule_looks_at_is_found(condition: str, expected: set[tuple[str, ...]]) -> None:
    """Every path that a condition can read is listed; anything unusual counts as the whole."""
    (rule,) = read_rules([("f", f"{HEAD} when {{ {condition} }};")])

    assert expected == set(rule.looks_at)


def test_heads_are_read() -> None:
    """Scopes of principal, action and resource become values."""
    text = (
        '@id("a") @reason("r") forbid(principal in Tenant::"t", action in [Action::"x", Action::"y"],'
        ' resource is Tool in Driver::"d");'
    )
    (rule,) = read_rules([("f", text)])

    assert (
        Scope("in", (("Tenant", "t"),)),
        Scope("in", (("Action", "x"), ("Action", "y"))),
        Scope("is", (("Driver", "d"),), "Tool"),
    ) == (rule.principal, rule.action, rule.resource)
