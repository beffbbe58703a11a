"""What a person sees of denied egress: lines that would allow it, records with the call, what `learn` proposes."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.spec.load import load_driver
from tests.egress_lab import PEERS
from tests.engine.drivers import COMMAND

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]

DRIVER = """---
name: Reaching
id: reaching-mcp
description: A server that reaches out when it is asked to.
version: 1.0.0
kind: mcp
server: { kind: binary, path: ./reaching.py }
transport: stdio
install: []
network:
  egress: %s   # reviewed
implements:
  - tool: ./tools/reach/TOOL.md
    version: "^1.0.0"
    metadata: { mcp: { tool_name: reach } }
  - tool: ./tools/open/TOOL.md
    version: "^1.0.0"
    metadata: { mcp: { tool_name: open } }
---
# Reaching
"""

TOOL = """---
name: %(name)s
id: %(name)s
description: Does %(name)s.
version: 1.0.0
inputs:
  type: object
  properties: %(properties)s
  required: %(required)s
  additionalProperties: false
outputs:
  type: object
  properties: { said: { type: string } }
---
# Tool
"""


def driver(folder: Path, egress: str = "[]") -> Path:
    """Write the driver and return its file."""
    tools = {
        "reach": ({"host": {"type": "string"}, "port": {"type": "integer"}}, ["host", "port"]),
        "open": ({"name": {"type": "string"}}, ["name"]),
    }
    for name, (properties, required) in tools.items():
        (folder / "tools" / name).mkdir(parents=True)
        values = {"name": name, "properties": json.dumps(properties), "required": json.dumps(required)}
        (folder / "tools" / name / "TOOL.md").write_text(TOOL % values)
    program = folder / "reaching.py"
    program.write_bytes((PEERS / "reaching.py").read_bytes())
    program.chmod(0o755)
    (folder / "DRIVER.md").write_text(DRIVER % egress)
    return folder / "DRIVER.md"


def run(command: str, file: Path, scratch: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run a command of ours on the driver."""
    argv = [*COMMAND, command, str(file), *more, "--audit-dir", str(scratch / "audit")]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)


def records(scratch: Path) -> list[dict[str, Any]]:
    """Return the records of the trail."""
    files = sorted((scratch / "audit" / "segments").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.fixture
def data() -> Iterator[Path]:
    """Return a file outside of /tmp, which a container has as its own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        file = Path(folder) / "x.txt"
        file.write_text("x")
        yield file


def test_a_denial_names_its_line_on_stderr_and_in_the_trail_with_the_call(tmp_path: Path) -> None:
    """Each destination once, in words that can be pasted; the record has the span of the call that was in flight."""
    file = driver(tmp_path / "d", '["allowed.test:5432"]')
    sent = json.dumps({"host": "allowed.test", "port": 6379})
    done = run("call", file, tmp_path, "reach", "--args", sent)
    denied = [r for r in records(tmp_path) if r["name"] == "egress.connect" and r["attrs"]["decision"] == "deny"]
    (call,) = [r for r in records(tmp_path) if r["name"] == "call.forward" and r["phase"] == "intent"]
    (asked,) = [r for r in records(tmp_path) if r["name"] == "egress.dns" and r["attrs"]["host"] == "startup.test"][:1]

    assert done.returncode == 0, done.stdout + done.stderr
    assert "ConnectionRefusedError" in done.stdout
    told = [line for line in done.stderr.splitlines() if "egress denied" in line]
    assert sum('- "allowed.test:6379"' in line for line in told) == 1
    assert sum('- "startup.test"' in line for line in told) == 1
    assert denied[0]["attrs"]["allow_line"] == '- "allowed.test:6379"'
    assert denied[0]["attrs"]["calls"] == [call["span"]]
    assert denied[0]["tenant"] == "local"
    assert denied[0]["instance"]
    assert denied[0]["attrs"]["sandbox"] == asked["attrs"]["sandbox"]
    assert denied[0]["trace"] == call["trace"]


def test_learn_proposes_a_diff_that_applies_and_is_what_was_tried(tmp_path: Path, data: Path) -> None:
    """Everything is refused, the file stays as it is, and the diff, applied by another program, has all of it."""
    file = driver(tmp_path / "d")
    before = file.read_text()
    (tmp_path / "calls").write_text(json.dumps({"tool": "open", "arguments": {"name": str(data)}}))
    calls = [("db.internal", 5432), ("api.example.test", 443), ("api.example.test", 443), ("api.example.test", 8443)]
    options = [f"--call=reach={json.dumps({'host': host, 'port': port})}" for host, port in calls]
    done = run("learn", file, tmp_path, *options, "--script", str(tmp_path / "calls"), "--wait", "0.5")

    assert done.returncode == 0, done.stderr
    assert file.read_text() == before
    assert "nothing was changed" in done.stderr
    subprocess.run(["patch", "-s", str(file)], input=done.stdout, text=True, check=True)
    spec = load_driver(file)
    assert spec.egress == ("api.example.test:443,8443", "db.internal:5432", "startup.test")
    assert "# reviewed" in file.read_text()
    assert [grant.path for grant in spec.sandbox.fs.read] == [str(data)]
    outcomes = [r for r in records(tmp_path) if r["name"] == "egress.connect" and r["phase"] != "fact"]
    assert outcomes == [], "nothing was dialled"


def test_learn_writes_only_when_it_is_told_to_and_then_has_nothing_more_to_say(tmp_path: Path) -> None:
    """With --write the entries are in the file; learning again proposes nothing, although all is refused again."""
    file = driver(tmp_path / "d")
    sent = json.dumps({"host": "db.internal", "port": 5432})
    first = run("learn", file, tmp_path, f"--call=reach={sent}", "--wait", "0.5", "--write")
    second = run("learn", file, tmp_path, f"--call=reach={sent}", "--wait", "0.5")

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert load_driver(file).egress == ("db.internal:5432", "startup.test")
    assert second.stdout == ""
    assert "nothing to propose" in second.stderr


@pytest.mark.parametrize(
    ("more", "id_"),
    [(["--call=reach=[]"], "CLI-110"), (["--call=reach={"], "CLI-110"), (["--script=SCRIPT"], "CLI-111")],
)
def test_a_call_that_is_none_is_refused_before_anything_starts(more: list[str], id_: str, tmp_path: Path) -> None:
    """The message names the option; no container was made for it."""
    (tmp_path / "script").write_text('{"tool": 1}\n')
    done = run(
        "learn", driver(tmp_path / "d"), tmp_path, *(o.replace("SCRIPT", str(tmp_path / "script")) for o in more)
    )

    assert done.returncode == 2
    assert id_ in done.stderr
    assert not (tmp_path / "audit").exists()
