"""``mcp-sandbox pins`` and ``run`` with real servers: what was approved, what has changed, and what is left of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.engine.drivers import COMMAND, EXAMPLES, Example
from tests.shared import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]

TOLD = "Get current time in a specific timezone"
HIDDEN = "Get current time\u202e in a specific timezone"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of the time driver, as it ships."""
    return Path(shutil.copytree(ROOT / "drivers" / "time-mcp", tmp_path / "time-mcp"))


def command(name: str, folder: Path, *more: str, status: int = 0) -> str:
    """Run a command on a driver and return what it printed."""
    argv = [*COMMAND, *name.split(), str(folder), *more, "--audit-dir", str(folder.parent / "audit")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert status == done.returncode, done.stderr
    return done.stdout + done.stderr


def edit(folder: Path, old: str, new: str) -> None:
    """Change what was approved, as if the server had been another one then."""
    lock = folder / "driver.lock"
    assert old in lock.read_text()
    lock.write_text(lock.read_text().replace(old, json.dumps(new)[1:-1]))


def left(folder: Path) -> set[str]:
    """Return the containers that the trail beside a folder names and that are still there."""
    trail = "".join(path.read_text() for path in (folder.parent / "audit" / "segments").glob("*.jsonl"))
    made = set(re.findall(r'"instance":"([0-9a-f]{64})"', trail))
    assert made, "something was started"
    argv = ["docker", "ps", "-aq", "--no-trunc"]
    return made & set(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_every_example_is_as_it_was_approved(example: Example, tmp_path: Path) -> None:
    """The shipped pins are those of the server that the shipped lock installs."""
    argv = [*COMMAND, "pins", "diff", example.path, *example.options(tmp_path), "--json"]
    done = subprocess.run([*argv, "--audit-dir", str(tmp_path / "a")], capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)

    assert (0, []) == (done.returncode, found["changes"])
    assert found["approved"]


@pytest.mark.anyio
async def test_a_changed_tool_is_out_and_the_rest_goes_on(folder: Path) -> None:
    """A real client sees the tool that is as it was approved, and is told why the other one is not there."""
    edit(folder, TOLD, "Get the time")
    argv = [*COMMAND, "run", str(folder), "--audit-dir", str(folder.parent / "audit")]
    server = StdioServerParameters(command=argv[0], args=argv[1:], env=dict(os.environ))

    async with Client(stdio_client(server)) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        refused = await client.call_tool("time-now", {"timezone": "UTC"})
        other = {"source_timezone": "UTC", "target_timezone": "UTC", "time": "10:00"}
        answered = await client.call_tool("time-convert", other)

    assert {"time-convert"} == tools
    assert refused.is_error
    assert "VET-140" in refused.model_dump_json()
    assert not answered.is_error
    assert not left(folder)


def test_a_reviewer_sees_reads_and_approves_a_change(folder: Path) -> None:
    """`diff` shows the field with what hides in it, says 3, and names what `approve` then accepts; nothing else is."""
    edit(folder, TOLD, HIDDEN)

    told = command("pins diff", folder, status=3)
    digest = told.rsplit("--expect ", 1)[1].split("`")[0]
    other = command("pins approve", folder, "--expect", "sha256:" + "0" * 64, status=3)
    still = command("pins diff", folder, "--json", status=3)
    command("pins approve", folder, "--expect", digest)
    after = command("pins diff", folder)

    assert "tools/get_current_time" in told
    assert "- Get current time<U+202E> in a specific timezone" in told
    assert f"+ {TOLD}" in told
    assert "\u202e" not in told
    assert "VET-133" in other
    assert ["tools/get_current_time/description"] == [one["place"] for one in json.loads(still)["changes"]]
    assert "waiting for approval: 0 of 0 changes" in after
    assert (folder / "driver.lock").read_bytes() == (ROOT / "drivers" / "time-mcp" / "driver.lock").read_bytes()
    assert not left(folder)


def test_what_would_not_be_served_is_not_approved(folder: Path) -> None:
    """A contract that the server does not fit is refused by `approve`, and the lock stays as it was."""
    contract = folder / "tools" / "time-now" / "TOOL.md"
    contract.write_text(contract.read_text().replace("      type: string\n", "      type: integer\n", 1))
    for word in ("minLength: 1", "maxLength: 64", "timezone: UTC"):
        contract.write_text(contract.read_text().replace(word, "timezone: 1" if "UTC" in word else ""))
    before = (folder / "driver.lock").read_bytes()

    said = command("pins approve", folder, status=3)

    assert "VET-101" in said
    assert before == (folder / "driver.lock").read_bytes()


def test_without_pins_the_operator_decides(folder: Path, tmp_path: Path) -> None:
    """The shipped policy serves for a session and says so; one that does not allow a first use refuses."""
    lock = json.loads((folder / "driver.lock").read_text())
    del lock["pins"]
    (folder / "driver.lock").write_text(json.dumps(lock))
    policy = tmp_path / "policy.toml"
    policy.write_text('version = 1\nname = "own"\nnarrows = "default"\n\n[pins]\nfirst_use = false\n')

    call = ("--args", '{"timezone": "UTC"}')
    argv = [*COMMAND, "call", str(folder), "time-now", *call, "--audit-dir", str(tmp_path / "audit")]
    served = subprocess.run(argv, capture_output=True, text=True, check=False)
    refused = subprocess.run([*argv, "--policy", str(policy)], capture_output=True, text=True, check=False)
    none = command("pins show", folder, status=2)

    assert 0 == served.returncode, served.stderr
    assert 3 == refused.returncode
    assert "VET-130" in refused.stderr
    assert "CLI-131" in none
    trail = "".join(path.read_text() for path in (tmp_path / "audit" / "segments").glob("*.jsonl"))
    assert '"trust":"first use"' in trail
    assert not left(folder)


def test_show_needs_no_server(folder: Path) -> None:
    """What was approved can be read without an engine."""
    text = command("pins show", folder)
    found = json.loads(command("pins show", folder, "--json"))

    assert "get_current_time: bound as time-now" in text
    assert ["{}"] == list(found["surfaces"])
