"""SECURITY.md and the tests say the same: no promise without a test, no mark without a promise."""

from __future__ import annotations

import ast
import re

from tests.shared import ROOT

PROMISE = re.compile(r"^\| (P-[A-Z]+-\d+) \|")
PENDING = "pending"


def promises() -> dict[str, str]:
    """Return promise id → table row of SECURITY.md."""
    rows = (ROOT / "SECURITY.md").read_text().splitlines()
    return {match[1]: row for row in rows if (match := PROMISE.match(row))}


def claims() -> dict[str, set[str]]:
    """Return promise id → names of the tests that are marked with it."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            for call in _claim_calls(node):
                for argument in call.args:
                    if isinstance(argument, ast.Constant):
                        found.setdefault(str(argument.value), set()).add(f"{path.name}::{getattr(node, 'name', '*')}")
    return found


def _claim_calls(node: ast.AST) -> list[ast.Call]:
    """Return the ``pytest.mark.claim(...)`` calls that decorate a test, a class or a whole module."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        candidates: list[ast.AST] = list(node.decorator_list)
    elif isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "pytestmark" for target in node.targets):
        candidates = list(ast.walk(node.value))
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "param":
        candidates = [inner for keyword in node.keywords if keyword.arg == "marks" for inner in ast.walk(keyword.value)]
    else:
        return []
    return [call for call in candidates if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "claim"]


def test_every_promise_has_a_test_or_says_pending() -> None:
    """A row of SECURITY.md names a test that carries its id, or says visibly that the test is pending."""
    claimed = claims()

    untested = {promise for promise, row in promises().items() if promise not in claimed and PENDING not in row}

    assert set() == untested


def test_every_claim_has_a_promise() -> None:
    """A test cannot claim what SECURITY.md does not promise."""
    assert set() == set(claims()) - set(promises())


def test_a_tested_promise_is_not_pending() -> None:
    """A promise whose test exists no longer says pending."""
    claimed = claims()

    assert set() == {promise for promise, row in promises().items() if promise in claimed and PENDING in row}
