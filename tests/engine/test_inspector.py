"""The MCP Inspector, which is nobody's we know, uses every example driver in both protocol eras."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.drivers import EXAMPLES, Example, run_argv
from tests.inspector import PROGRAM, inspect

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]


@pytest.fixture(autouse=True)
def installed() -> None:
    """The Inspector is there, as the set-up of the tests leaves it."""
    if not PROGRAM.exists():
        pytest.fail(f"{PROGRAM} is missing: `.ci/setup test` installs it")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_inspector_lists_the_tools(example: Example, tmp_path: Path) -> None:
    """It finds what the driver binds."""
    status, result, said = inspect(run_argv(example, tmp_path), "--method", "tools/list", env=example.env)

    assert 0 == status, said
    assert example.tool in [tool["name"] for tool in result["result"]["tools"]]


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_inspector_calls_a_tool(example: Example, era: str, tmp_path: Path) -> None:
    """It gets the answer of a tool, whatever era the server speaks."""
    given = ("--tool-name", example.tool, "--tool-args-json", json.dumps(example.arguments))
    argv = run_argv(example, tmp_path)
    status, result, said = inspect(argv, "--protocol-era", era, "--method", "tools/call", *given, env=example.env)

    assert 0 == status, said
    assert example.answer in json.dumps(result)


def test_the_inspector_is_told_why_a_call_is_refused(tmp_path: Path) -> None:
    """A read outside the root is an answer that the Inspector shows, with our words and not the file's."""
    filesystem = next(example for example in EXAMPLES if example.name == "filesystem-mcp")
    given = ("--tool-name", "fs-read", "--tool-args-json", json.dumps({"path": "/etc/passwd"}))

    _, result, said = inspect(run_argv(filesystem, tmp_path), "--method", "tools/call", *given, env={})

    assert "CALL-042" in json.dumps(result) + said
    assert "root:" not in json.dumps(result) + said
