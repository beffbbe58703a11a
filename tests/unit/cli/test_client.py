"""``client``: one entry changes, everything else and the file's mode stay, what it was is kept, and nothing is lost."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from sandbox.cli import main
from sandbox.cli.clients.edit import changed
from sandbox.cli.clients.kinds import KINDS
from sandbox.errors import UsageError
from tests.shared import ROOT

DRIVER = str(ROOT / "drivers" / "time-mcp")
JSON = ["claude-desktop", "claude-code", "cursor", "vscode", "gemini"]


@pytest.mark.parametrize("client", JSON)
def test_an_entry_is_added_and_taken_out_and_the_rest_stays(client: str, tmp_path: Path) -> None:
    """Other servers, other settings, the mode and the backup: all as they were."""
    table = KINDS[client].table
    before = {"theme": "dark", table: {"other": {"command": "npx", "args": ["x"], "env": {"TOKEN": "kept"}}}}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(before))
    file.chmod(0o640)
    install = ["client", "install", "time", "--client", client, "--driver", DRIVER, "--config", str(file), "--yes"]

    assert 0 == main(install)
    after = json.loads(file.read_text())
    assert 0 == main(["client", "remove", "time", "--client", client, "--config", str(file), "--yes"])

    assert after[table]["time"]["args"] == ["run", f"{DRIVER}/DRIVER.md"]
    assert after[table]["other"] == before[table]["other"]  # type: ignore[index]
    assert before == json.loads(file.read_text())
    assert 0o640 == file.stat().st_mode & 0o777
    backups = sorted(tmp_path.glob("*.bak"))
    assert [json.dumps(before)] == [backups[0].read_text()]
    assert {0o600} == {backup.stat().st_mode & 0o777 for backup in backups}
    assert 2 == len(backups)


def test_toml_keeps_its_comments(tmp_path: Path) -> None:
    """Codex: what people wrote beside the values stays."""
    file = tmp_path / "config.toml"
    file.write_text('# mine\nmodel = "x" # this one\n\n[mcp_servers.other]\ncommand = "npx"\n')
    url = "https://mcp.example.com/mcp/time"

    assert 0 == main(["client", "install", "time", "--client", "codex", "--url", url, "--config", str(file), "--yes"])
    text = file.read_text()

    assert "# mine" in text
    assert "# this one" in text
    assert {"other": {"command": "npx"}, "time": {"url": url}} == tomllib.loads(text)["mcp_servers"]


def test_nothing_is_written_without_a_yes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The diff is shown; without a terminal and without --yes nobody agreed."""
    file = tmp_path / "mcp.json"
    code = main(["client", "install", "time", "--client", "cursor", "--driver", DRIVER, "--config", str(file)])

    assert 0 == code
    assert '+    "time"' in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ['{"a": 1, // mine\n}', "[]", '{"a":1,"a":2}', '{"mcpServers": []}', "\x00"])
def test_what_cannot_be_kept_is_not_touched(text: str, tmp_path: Path) -> None:
    """A file with comments, double keys or another form is refused, and stays byte for byte."""
    file = tmp_path / "mcp.json"
    file.write_text(text)
    install = ["client", "install", "time", "--client", "cursor", "--driver", DRIVER, "--config", str(file), "--yes"]

    assert 2 == main(install)
    assert text == file.read_text()


def test_a_change_of_somebody_else_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    """Between diff and writing the client itself may write."""
    file = tmp_path / "mcp.json"
    file.write_text("{}")
    change = changed(KINDS["cursor"], file, "time", {"url": "https://x.example"})
    file.write_text('{"theirs": 1}')

    with pytest.raises(UsageError, match="CLI-189"):
        change.write()
    assert '{"theirs": 1}' == file.read_text()


def test_the_list_shows_who_runs_with_the_persons_rights_and_no_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names and kind only: arguments and variables may be secret."""
    file = tmp_path / "mcp.json"
    servers = {
        "a": {"command": "npx", "args": ["--key", "sk-secret"], "env": {"TOKEN": "hidden"}},
        "b": {"command": "/usr/bin/mcp-sandbox", "args": ["run", "x"]},
        "c": {"url": "https://x.example/?token=hidden"},
    }
    file.write_text(json.dumps({"mcpServers": servers}))

    assert 0 == main(["client", "list", "--client", "cursor", "--config", str(file)])
    said = capsys.readouterr().out

    assert ["npx", "in a sandbox", "remote"] == [
        next(word for word in ("npx", "in a sandbox", "remote") if word in line) for line in said.splitlines()
    ]
    assert "secret" not in said
    assert "hidden" not in said
