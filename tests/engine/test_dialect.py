"""The 2025-11 dialect on stdio in front of a real server in a real container."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dialect_lab import invocation, shake
from tests.shared import ROOT


@pytest.mark.timeout(120)
def test_a_tool_in_a_container_is_called_through_pipes_and_as_a_job(tmp_path: Path) -> None:
    """Handshake, a call, a refused argument, a job with its pushed outcome, and an orderly end with the client's."""
    command = [
        sys.executable, "-m", "sandbox", "run", str(ROOT / "drivers" / "time-mcp" / "DRIVER.md"),
        "--dialect", "2025-11", "--audit-dir", str(tmp_path / "audit"), "--jobs", str(tmp_path / "jobs"),
    ]  # fmt: skip
    asked = [
        shake("stdio", server_id="time-mcp"),
        invocation(tool="time-now", timezone="UTC"),
        invocation(tool="time-now", timezone="; rm"),
        invocation(tool="time-now", mode="async", timezone="UTC"),
    ]
    said = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for one in asked:
            process.stdin.write(json.dumps(one) + "\n")
            process.stdin.flush()
            said.append(json.loads(process.stdout.readline()))
        pushed = json.loads(process.stdout.readline())
        process.stdin.close()
        ended = process.wait(30)

    assert ["async", "stream", "sandbox", "schema_ref"] == said[0]["capabilities"]
    assert ("success", "UTC") == (said[1]["status"], said[1]["result"]["timezone"])
    assert "CALL-001" == said[2]["error"]["id"]
    assert (said[3]["job_id"], "success", "UTC") == (pushed["job_id"], pushed["status"], pushed["result"]["timezone"])
    assert 0 == ended
