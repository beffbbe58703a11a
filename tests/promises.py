"""The promise table of SECURITY.md and the tests that claim its rows: read, compared, and its last column written.

``python -m tests.promises`` says what differs; ``--write`` puts the tests of each promise into the table, and a row
with the docstring of its first test for a claim that has none (attacker and barrier as in its family's first row).
What is promised, by whom it is attacked and what stops it stays as people wrote it.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
SECURITY = ROOT / "SECURITY.md"

SHOWN = 3
"""Tests that a row names; the others are counted."""

PENDING = "pending"
MEND = "run `python -m tests.promises --write`, read what it wrote, and commit it with the test"

_ROW = re.compile(r"^\| (P-[A-Z]+-\d+) \|")


@dataclass(frozen=True)
class Claim:
    """One test that shows a promise: ``path::name`` below tests/, and the first line of its docstring."""

    test: str
    says: str


def rows(text: str | None = None) -> dict[str, str]:
    """Return promise id → row of the table."""
    lines = (SECURITY.read_text("utf-8") if text is None else text).splitlines()
    return {match[1]: line for line in lines if (match := _ROW.match(line))}


def claims() -> dict[str, list[Claim]]:
    """Return promise id → the tests that are marked with it, by path and in the order in which they stand there."""
    found: dict[str, list[Claim]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for promise, claim in _of_file(path):
            if claim not in found.setdefault(promise, []):
                found[promise].append(claim)
    return found


def _of_file(path: Path) -> Iterator[tuple[str, Claim]]:
    tree = ast.parse(path.read_text("utf-8"))
    place = path.relative_to(TESTS).as_posix()
    whole: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "pytestmark" for target in node.targets):
            whole += _ids(node.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            own = [promise for decorator in node.decorator_list for promise in _ids(decorator)]
            for inner in node.body:
                if _is_test(inner):
                    yield from ((promise, _claim(place, inner)) for promise in own)
        elif _is_test(node):
            own = [promise for decorator in node.decorator_list for promise in _ids(decorator)]
            yield from ((promise, _claim(place, node)) for promise in (*whole, *own))


def _is_test(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")


def _claim(place: str, node: ast.AST) -> Claim:
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return Claim(f"{place}::{node.name}", (ast.get_docstring(node) or "").split("\n")[0])


def _ids(expression: ast.AST) -> Iterator[str]:
    """Yield the ids of every ``pytest.mark.claim(...)`` within an expression, marks of parameters included."""
    for call in ast.walk(expression):
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "claim":
            yield from (str(argument.value) for argument in call.args if isinstance(argument, ast.Constant))


def column(claimed: list[Claim]) -> str:
    """Return the last cell of a row."""
    named = ", ".join(f"`{claim.test}`" for claim in claimed[:SHOWN])
    more = len(claimed) - SHOWN
    return f"{named} and {more} more" if more > 0 else named


def written(text: str) -> str:
    """Return SECURITY.md with the tests of each promise, and a row for each claim that had none."""
    claimed, known = claims(), rows(text)
    lines = text.splitlines()
    for number, line in enumerate(lines):
        match = _ROW.match(line)
        if match and match[1] in claimed:
            lines[number] = " | ".join([*line.split(" | ")[:4], f"{column(claimed[match[1]])} |"])
    for promise in sorted(set(claimed) - set(known)):
        family = [at for at, line in enumerate(lines) if line.startswith(f"| {promise.rpartition('-')[0]}-")]
        attacker, barrier = (lines[family[0]].split(" | ")[at] for at in (1, 3)) if family else ("?", "?")
        row = " | ".join([f"| {promise}", attacker, claimed[promise][0].says, barrier, column(claimed[promise])])
        table = [at for at, line in enumerate(lines) if _ROW.match(line)]
        before = [at for at in family if lines[at].split(" | ")[0] < f"| {promise}"] or table[-1:]
        lines.insert(before[-1] + 1, f"{row} |")
    return "\n".join(lines) + "\n"


def differences(text: str | None = None) -> list[str]:
    """Return what the table and the marks do not agree on, one sentence each; empty when they agree."""
    known, claimed = rows(text), claims()
    found = [f"{promise} has no test and does not say {PENDING}" for promise, row in known.items()
             if promise not in claimed and PENDING not in row]  # fmt: skip
    found += [f"{promise} is claimed by {claimed[promise][0].test} and not promised" for promise in sorted(
        set(claimed) - set(known))]  # fmt: skip
    for promise, row in known.items():
        if promise in claimed and row.removesuffix(" |").split(" | ", 4)[-1] != column(claimed[promise]):
            found.append(f"{promise} names other tests than those that claim it")
    return found


def main() -> int:
    """Compare, or write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    if parser.parse_args().write:
        SECURITY.write_text(written(SECURITY.read_text("utf-8")), "utf-8")
    found = differences()
    print(*found, sep="\n", end="\n" if found else "")  # noqa: T201 - a tool for people
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
