"""``mcp-sandbox init`` on real servers: a folder that `check` accepts, `vet` proves and `run` serves."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.engine.drivers import COMMAND
from tests.shared import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

TEXT_SERVER = ROOT / "drivers" / "text-mcp" / "text-server"


def sandbox(*words: str, scratch: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run one command in the scratch folder with an audit trail of its own."""
    return subprocess.run(
        [*COMMAND, *words, *(() if words[0] == "check" else ("--audit-dir", str(scratch / "audit")))],
        cwd=scratch, capture_output=True, text=True, check=False,
        env={**os.environ, **env},
    )  # fmt: skip


SOURCES = {
    "npm": (
        ["npm:@modelcontextprotocol/server-filesystem", "--write", "/workspace=./workspace", "--arg", "/workspace"],
        "list-allowed-directories", "{}", "/workspace",
    ),
    "npm-with-prompts": (
        ["npm:@modelcontextprotocol/server-everything@latest"], "echo", '{"message": "hi"}', "hi",
    ),
    "pip": (["pip:mcp-server-time", "--arg=--local-timezone", "--arg", "UTC"], "get-current-time",
            '{"timezone": "UTC"}', "UTC"),
    "docker": (["docker:mcp-sandbox/signing-server:1", "--secret", "SIGNING_KEY"], "sign", '{"text": "a"}', "signature"
    ),
    "program": ([str(TEXT_SERVER)], "crc32", '{"text": "123456789"}', "cbf43926"),
}  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
def test_a_folder_is_made_that_is_valid_proved_and_served(name: str, tmp_path: Path) -> None:
    """`init`, then `check`, `vet`, `vet --pinned` and a call, without touching a file by hand."""
    words, tool, sent, answer = SOURCES[name]
    made = sandbox("init", *words, "--output", "new", scratch=tmp_path)

    assert 0 == made.returncode, made.stderr
    assert ["audit", "new"] == sorted(path.name for path in tmp_path.iterdir())
    assert 0 == sandbox("check", "new", scratch=tmp_path).returncode
    for more in ((), ("--pinned",)):
        report = sandbox("vet", "new", "--json", *more, scratch=tmp_path)
        assert 0 == report.returncode, report.stderr
        assert "match" == json.loads(report.stdout)["pins"]

    called = sandbox("call", "new", tool, "--args", sent, scratch=tmp_path, SIGNING_KEY="k")

    assert 0 == called.returncode, called.stderr
    assert answer in called.stdout


@pytest.mark.claim("P-INIT-02")
@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_an_existing_folder_is_left_alone(kind: str, tmp_path: Path) -> None:
    """Whatever stands at the wanted path stays byte for byte, and nothing else is left beside it."""
    new = tmp_path / "new"
    if kind == "folder":
        new.mkdir()
        (new / "DRIVER.md").write_text("mine")
    elif kind == "file":
        new.write_text("mine")
    else:
        new.symlink_to(tmp_path / "absent")

    done = sandbox("init", str(TEXT_SERVER), "--output", "new", scratch=tmp_path)

    assert 2 == done.returncode
    assert "CLI-145" in done.stderr
    assert {"new", "audit"} == {path.name for path in tmp_path.iterdir()}
    if kind != "link":
        assert "mine" == (new / "DRIVER.md" if kind == "folder" else new).read_text()


def test_a_server_that_does_not_speak_leaves_nothing(tmp_path: Path) -> None:
    """A program that is no MCP server is told with what it said, and no folder remains."""
    done = sandbox("init", "/bin/true", "--output", "new", scratch=tmp_path)

    assert done.returncode in {3, 4, 5}, done.stderr
    assert ["audit"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.claim("P-INIT-01")
def test_every_entry_of_a_configuration_is_converted_or_explained(tmp_path: Path) -> None:
    """What can be run becomes a folder that serves with the person's secret; what cannot is told; no value is kept."""
    value = "c4nary-Value-0123456789"
    servers = {
        "Signer": {"command": "docker", "args": ["run", "-i", "--rm", "mcp-sandbox/signing-server:1"],
                   "env": {"SIGNING_KEY": value}},
        "text": {"command": str(TEXT_SERVER)},
        "shell": {"command": "bash", "args": ["-c", "true"]},
        "leaky": {"command": str(TEXT_SERVER), "args": ["--token", value]},
    }  # fmt: skip
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "client.json").write_text(json.dumps({"mcpServers": servers}))

    done = sandbox("init", "--from", "config/client.json", "--output", "drivers", scratch=tmp_path)
    texts = done.stdout + done.stderr
    texts += "".join(path.read_text() for path in (tmp_path / "drivers").rglob("*") if path.is_file())
    texts += "".join(path.read_text(errors="replace") for path in (tmp_path / "audit").rglob("*.jsonl"))

    assert 3 == done.returncode
    assert {"signer-mcp", "text-mcp"} == {path.name for path in (tmp_path / "drivers").iterdir()}
    assert "`shell` is not converted" in done.stderr
    assert "`leaky` is not converted" in done.stderr
    assert value not in texts

    called = sandbox("call", "drivers/signer-mcp", "sign", "--args", '{"text":"a"}', scratch=tmp_path, SIGNING_KEY="k")

    assert 0 == called.returncode, called.stderr
