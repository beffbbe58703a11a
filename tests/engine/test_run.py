"""``mcp-sandbox run`` in front of real servers, spoken to by real clients of both protocol eras."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.engine.drivers import COMMAND, EXAMPLES, Example, run_argv

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.timeout(180)]

BY_NAME = {example.name: example for example in EXAMPLES}
FILESYSTEM = BY_NAME["filesystem-mcp"]


def parameters(example: Example, scratch: Path, *more: str) -> StdioServerParameters:
    """Return what an MCP client starts."""
    argv = run_argv(example, scratch, *more)
    return StdioServerParameters(command=argv[0], args=argv[1:], env={**os.environ, **example.env})


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
async def test_a_client_of_either_era_uses_every_example(example: Example, mode: str, tmp_path: Path) -> None:
    """The Python SDK's client lists the tools and calls one, whatever era the server speaks."""
    async with Client(stdio_client(parameters(example, tmp_path)), mode=mode) as client:  # type: ignore[arg-type]
        tools = {tool.name for tool in (await client.list_tools()).tools}
        result = await client.call_tool(example.tool, example.arguments)

    assert example.tool in tools
    assert not result.is_error
    assert example.answer in result.model_dump_json()


def call(example: Example, scratch: Path, tool: str, arguments: object) -> subprocess.CompletedProcess[str]:
    """Call one tool through the command line."""
    argv = [*COMMAND, "call", example.path, tool, "--args", json.dumps(arguments), *example.options(scratch)]
    return subprocess.run(
        [*argv, "--audit-dir", str(scratch / "audit")],
        capture_output=True,
        text=True,
        env={**os.environ, **example.env},
        check=False,
    )


@pytest.mark.claim("P-FS-01")
def test_a_read_outside_the_root_is_refused_and_inside_it_succeeds(tmp_path: Path) -> None:
    """The same tool that reads inside the root cannot read outside of it."""
    inside = call(FILESYSTEM, tmp_path, "fs-read", {"path": "/workspace/hello.txt"})
    outside = call(FILESYSTEM, tmp_path, "fs-read", {"path": "/etc/passwd"})

    assert (0, "hello from inside\n\n") == (inside.returncode, inside.stdout)
    assert 4 == outside.returncode
    assert "root:" not in outside.stdout + outside.stderr


def test_a_written_file_lands_in_the_granted_folder_only(tmp_path: Path) -> None:
    """What a server writes is on the host where the driver says, and nowhere else."""
    done = call(FILESYSTEM, tmp_path, "fs-write", {"path": "/workspace/new.txt", "content": "written"})

    assert 0 == done.returncode, done.stdout + done.stderr
    assert "written" == (tmp_path / "root" / "new.txt").read_text()


def test_an_unknown_tool_is_refused_with_what_exists(tmp_path: Path) -> None:
    """A tool that no contract binds cannot be called, also when the server has it."""
    done = call(FILESYSTEM, tmp_path, "read_file", {"path": "/workspace/hello.txt"})

    assert 2 == done.returncode
    assert "CLI-013" in done.stderr
    assert "fs-read" in done.stderr


def test_the_trail_has_the_intent_before_the_outcome_under_one_trace(tmp_path: Path) -> None:
    """Driver, plan, launch, vetting, call and teardown are in one trail, in order, without values."""
    call(FILESYSTEM, tmp_path, "fs-read", {"path": "/workspace/hello.txt"})
    records = [
        json.loads(line)
        for path in sorted((tmp_path / "audit" / "segments").glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]

    names = [(record.get("name"), record.get("phase")) for record in records]
    wanted = [
        ("spec.load", "fact"),
        ("plan.derive", "fact"),
        ("launch.create", "intent"),
        ("launch.create", "outcome"),
        ("vet.admit", "fact"),
        ("call.forward", "intent"),
        ("call.forward", "outcome"),
        ("teardown", "fact"),
    ]
    assert wanted == [name for name in names if name in wanted]
    assert 1 == len({record["trace"] for record in records if record.get("name") in dict(wanted)})
    assert "hello from inside" not in repr(records)


def test_a_secret_reaches_the_server_and_nothing_else(tmp_path: Path) -> None:
    """The signing key is not in the container's labels, the process arguments, the output or the trail."""
    example = BY_NAME["signing-mcp"]
    done = call(
        Example(**{**vars(example), "env": {"SIGNING_KEY": "c4nary-value"}}), tmp_path, "text-sign", {"text": "a"}
    )

    trail = "".join(path.read_text() for path in (tmp_path / "audit" / "segments").glob("*.jsonl"))
    assert 0 == done.returncode, done.stderr
    assert "c4nary-value" not in trail + done.stdout + done.stderr


def test_a_missing_secret_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """Without a value for a declared secret there is no container."""
    done = call(
        Example(**{**vars(BY_NAME["signing-mcp"]), "env": {"SIGNING_KEY": ""}}), tmp_path, "text-sign", {"text": "a"}
    )

    assert 3 == done.returncode
    assert "SEC-003" in done.stderr
