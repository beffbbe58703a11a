"""Cases and explanations: what an operator runs and reads."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.errors import PolicyError
from sandbox.policy.cases import read_cases, run_cases
from sandbox.policy.cedar import PolicySet
from sandbox.policy.explain import explain
from sandbox.policy.request import CALL, DriverFacts, Principal, Request, ToolFacts

DRIVER = DriverFacts("files")
TOOL = ToolFacts(DRIVER, "fs.read", inputs={"type": "object", "properties": {"path": {"type": "string"}}})
POLICY = PolicySet.load(
    [
        (
            "p.cedar",
            """
            @id("staff") @reason("staff reads")
            permit(principal in Group::"acme/staff", action == Action::"tools/call", resource);
            @id("no-etc") @reason("system files are not for tools")
            forbid(principal, action == Action::"tools/call", resource)
              when { context.arguments has path && context.arguments.path like "/etc/*" };
            @id("never") @reason("never met") forbid(principal in Tenant::"gone", action, resource);
            @id("num") @reason("errors") forbid(principal in Tenant::"odd", action, resource)
              when { context.arguments.path > 1 };
            """,
        )
    ]
)
ALICE = {"tenant": "acme", "user": "alice", "groups": ["staff"]}


def read(*cases: dict[str, Any]) -> Any:
    """Return cases of a document with one default principal."""
    document = {
        "version": 1,
        "defaults": {"principal": ALICE, "resource": {"driver": "files", "tool": "fs.read"}},
        "cases": list(cases),
    }
    driver = {"files": DRIVER}.get
    return read_cases(
        document, "CASES.yaml", driver, lambda name, tool: TOOL if (name, tool) == ("files", "fs.read") else None
    )


def test_cases_are_decided_and_idle_rules_named() -> None:
    """Each case says what was decided by which rule; a rule that no case needs is listed."""
    report = run_cases(
        POLICY,
        read(
            {"name": "reads", "arguments": {"path": "/w/a"}, "expect": "allow", "rule": "staff"},
            {"name": "etc", "arguments": {"path": "/etc/passwd"}, "expect": "deny", "rule": "no-etc"},
            {"name": "wrong", "arguments": {"path": "/etc/passwd"}, "expect": "allow"},
            {"name": "wrong rule", "arguments": {"path": "/w/a"}, "expect": "allow", "rule": "no-etc"},
        ),
    )

    assert [result.passed for result in report.results] == [True, True, False, False]
    assert report.idle == ("never", "num")
    assert report.results[2].line() == "FAIL wrong: deny by no-etc; expected allow"
    assert not report.passed


@pytest.mark.parametrize(
    "case",
    [
        {"expect": "maybe"},
        {"expect": "allow", "argument": {}},
        {"expect": "allow", "action": "tools/cal"},
        {"expect": "allow", "principal": {"user": "x"}},
        {"expect": "allow", "principal": {"tenant": "x", "role": "x"}},
        {"expect": "allow", "resource": {"driver": "other"}},
        {"expect": "allow", "resource": {"driver": "files", "tool": "fs.raed"}},
        {"expect": "allow", "resource": "files"},
        {"expect": "allow", "arguments": [1]},
    ],
)
def test_a_case_that_says_nothing_definite_is_refused(case: dict[str, Any]) -> None:
    """A typo in a case is an error, not a case that passes."""
    with pytest.raises(PolicyError) as caught:
        read(case)

    assert [problem.id for problem in caught.value.problems] == ["POL-010"]


def test_a_document_without_version_is_refused() -> None:
    """What is no cases file is refused whole."""
    with pytest.raises(PolicyError):
        read_cases({"cases": []}, "CASES.yaml", lambda _: None, lambda _, __: None)


@pytest.mark.parametrize(
    ("tenant", "groups", "path", "head", "outcomes"),
    [
        ("acme", ("staff",), "/w", "allowed", {"no-etc": "condition false", "never": "other principal"}),
        ("acme", ("staff",), "/etc/x", "denied: a rule forbids", {"staff": "holds", "no-etc": "holds"}),
        ("acme", (), "/w", "denied: no rule permits", {"staff": "other principal"}),
        ("odd", (), "/w", "denied: something could not", {"num": "error"}),
    ],
)  # fmt: skip
def test_an_explanation_says_why_each_rule_did_or_did_not_hold(
    tenant: str, groups: tuple[str, ...], path: str, head: str, outcomes: dict[str, str]
) -> None:
    """The decision comes first, then every rule with the part that did not fit."""
    facts = {
        "arguments": {"path": path},
        "now": 0.0,
        "client": {},
        "calls": {},
        "hosts": [],
        "schemes": [],
        "paths": [],
    }
    explanation = explain(POLICY, Request(Principal(tenant, "u", groups=groups), CALL, TOOL, facts))
    found = {verdict.rule.id: verdict.outcome for verdict in explanation.verdicts}

    assert explanation.lines()[0].startswith(head)
    assert outcomes == {name: found[name] for name in outcomes}
