"""`mcp-sandbox policy`: cases, explanations and the schema, from reviewed folders and without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.cli import main
from sandbox.resources import shipped

FILES = str(shipped("drivers", "filesystem-mcp"))
RULES = """
@id("staff-read") @reason("staff may use every tool that changes nothing")
permit (principal in Group::"acme/staff", action == Action::"tools/call", resource in Driver::"filesystem-mcp")
when { resource.read_only };
@id("drafts-only") @reason("agents write drafts; people publish")
forbid (principal is Agent, action == Action::"tools/call", resource == Tool::"filesystem-mcp/fs-write")
unless { context.arguments.path like "/workspace/drafts/*" };
@id("readme-only") @reason("paths are compared as step 7 made them")
permit (principal in Tenant::"beta", action == Action::"tools/call", resource == Tool::"filesystem-mcp/fs-read")
when { context.paths.contains("/workspace/README.txt") };
"""
CASES = """
version: 1
drivers: [DRIVER]
defaults:
  principal: { tenant: acme, user: alice, groups: [staff] }
  resource: { driver: filesystem-mcp, tool: fs-read }
cases:
  - name: staff reads
    arguments: { path: /workspace/a.txt }
    expect: allow
    rule: staff-read
  - name: paths follow from the arguments
    principal: { tenant: beta }
    arguments: { path: /workspace/README.txt }
    expect: allow
    rule: readme-only
  - name: agents publish nothing
    principal: { tenant: acme, kind: Agent }
    resource: { driver: filesystem-mcp, tool: fs-write }
    arguments: { path: /workspace/final.md, content: x }
    expect: EXPECT
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with rules and cases."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "a.cedar").write_text(RULES)
    (tmp_path / "cases.yaml").write_text(CASES.replace("DRIVER", FILES).replace("EXPECT", "deny"))
    return tmp_path


def explain(folder: Path, *arguments: str) -> int:
    """Explain a request under the folder's rules."""
    return main(["policy", "explain", FILES, *arguments, "--rules", str(folder / "rules")])


def test_cases_that_hold_pass(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every case is decided as written, by the rule that it names; the drivers stand in the file."""
    status = main(["policy", "test", str(folder / "cases.yaml"), "--rules", str(folder / "rules")])

    assert 0 == status
    assert "3 of 3 cases as written" in capsys.readouterr().out


def test_a_case_that_does_not_hold_fails_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status is 1 and the line says what was decided, by which rule, and what was expected."""
    file = folder / "cases.yaml"
    file.write_text(file.read_text().replace("expect: deny", "expect: allow"))

    status = main(["policy", "test", str(file), "--rules", str(folder / "rules"), "--json"])

    report = json.loads(capsys.readouterr().out)
    assert (1, False) == (status, report["passed"])
    assert {"passed": False, "rules": ["drafts-only"]}.items() <= report["results"][2].items()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("version: 1", "version: 2"), "version"),
        (("fs-write", "fs-wrote"), "fs-wrote"),
        (("/workspace/a.txt", "/etc/passwd"), "CALL-042"),
        (("expect: deny", "expect: perhaps"), "expect"),
        (("cases:", "cases: &x"), "cases"),
    ],
)
def test_a_case_that_says_nothing_definite_is_an_error(
    folder: Path, change: tuple[str, str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong version, an unknown tool, arguments that never reach policy: ``POL-010`` with what is wrong."""
    file = folder / "cases.yaml"
    file.write_text(file.read_text().replace(*change))

    status = main(["policy", "test", str(file), "--rules", str(folder / "rules")])

    shown = capsys.readouterr().err
    assert 1 == status
    assert "POL-010" in shown
    assert named in shown


@pytest.mark.claim("P-POLICY-05")
def test_a_typo_in_a_rule_fails_before_any_case(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt attribute or argument is an error of the rules, whatever the cases say."""
    rules = folder / "rules" / "a.cedar"
    rules.write_text(rules.read_text().replace("arguments.path", "arguments.pth"))

    status = main(["policy", "test", str(folder / "cases.yaml"), "--rules", str(rules.parent)])

    shown = capsys.readouterr().err
    assert 1 == status
    assert "pth" in shown


def test_explain_names_the_rule_that_decides_and_why_others_do_not(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The deciding rule is marked, with place and reason; the permit says which part of its head does not fit."""
    status = explain(folder, "fs-write", "--args", '{"path": "/workspace/x", "content": ""}', "--agent")

    shown = capsys.readouterr().out
    assert 3 == status
    assert "* forbid drafts-only" in shown
    assert "agents write drafts" in shown
    assert "permit staff-read" in shown
    assert "other principal" in shown


def test_explain_says_when_policy_is_not_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A path out of every root is refused by step 7, and no rule is blamed."""
    status = explain(folder, "fs-read", "--args", '{"path": "/workspace/../etc/shadow"}')

    assert 3 == status
    assert "before policy is asked: CALL-04" in capsys.readouterr().out


def test_explain_of_an_allowed_call_succeeds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 0, and JSON for programs."""
    status = explain(
        folder, "fs-read", "--args", '{"path": "/workspace/a"}', "--tenant", "acme", "--group", "staff", "--json"
    )

    answer = json.loads(capsys.readouterr().out)
    assert 0 == status
    assert ("allow", ["staff-read"]) == (answer["decision"], answer["rules"])


def test_an_unknown_tool_is_the_callers_mistake(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message lists what is bound."""
    status = explain(folder, "fs-wrote")

    shown = capsys.readouterr().err
    assert 2 == status
    assert "CLI-150" in shown
    assert "fs-write" in shown


def test_the_schema_has_the_arguments_of_the_contracts(capsys: pytest.CaptureFixture[str]) -> None:
    """``policy schema`` prints what rules may look at."""
    status = main(["policy", "schema", FILES])

    assert 0 == status
    assert "content?: __cedar::String" in capsys.readouterr().out
