"""Drafted folders: front matter that means what was meant, contracts that hold, configurations without secrets."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.cli.drafting import folder
from sandbox.cli.drafting.configs import Unusable, entries
from sandbox.cli.drafting.make import _draft
from sandbox.cli.drafting.source import Source, grants, parse
from sandbox.cli.vet import judged
from sandbox.errors import UsageError
from sandbox.spec.check import check
from sandbox.spec.frontmatter import parse as read_matter
from sandbox.spec.load import load_driver
from sandbox.spec.written import manifest
from sandbox.vet.model import ServerSurface
from tests.shared import shared_data

VISIBLE = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Zl", "Zp")), max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | VISIBLE,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(VISIBLE.filter(bool), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(VISIBLE.filter(bool), JSON, min_size=1, max_size=5))
def test_front_matter_reads_back_as_what_was_written(value: dict[str, Any]) -> None:
    """Whatever JSON is written, our own reader finds the same value."""
    assert value == read_matter(manifest(value, "# Body").encode()).values


ODD = [
    "yes",
    "null",
    "1e3",
    "0x10",
    "2025-03",
    "- a",
    "a: b",
    "a #b",
    "@x",
    "*x",
    "&x",
    "!x",
    "",
    " a",
    "a ",
    '"',
    "%",
    "`",
]


@pytest.mark.parametrize("text", ODD)
def test_words_that_yaml_reads_differently_stay_text(text: str) -> None:
    """Texts that look like something else are quoted, as values, keys and items."""
    value = {"a": text, text or "x": [text, {"b": text}]}

    assert value == read_matter(manifest(value, "").encode()).values


# --- real tools -------------------------------------------------------------------------------------------------------
def surface_of(tools: list[dict[str, Any]]) -> ServerSurface:
    """Return a surface with these tools, renamed apart."""
    named = {f"{tool['name']}_{index}": {**tool, "name": f"{tool['name']}_{index}"} for index, tool in enumerate(tools)}
    return ServerSurface("handshake", "2025-11-25", {"name": "s"}, {"tools": {}}, tools=named)


def write(base: Path, source: Source, surface: ServerSurface) -> None:
    """Write a folder as `init` does."""
    tools = folder.drafted(surface, {})
    files = {tool.path: folder.contract(tool, source.id) for tool in tools}
    files["DRIVER.md"] = folder.driver(source, source.name, tools, surface, ["a note"])
    if source.secrets:
        files["SECRETS.md"] = folder.secrets(source)
    for path, text in files.items():
        (base / path).parent.mkdir(parents=True, exist_ok=True)
        (base / path).write_text(text)


@pytest.mark.data
def test_contracts_of_real_tools_are_valid_and_proved(tmp_path: Path) -> None:
    """Each of 239 real tool definitions gets a contract that the loader accepts and vetting proves."""
    lines = shared_data("tools", "benign_dev.jsonl").read_text().splitlines()[::4]
    surface = surface_of([json.loads(line)["tool"] for line in lines])
    write(tmp_path, Source("npm", "example@1.0.0"), surface)

    assert [] == [str(one) for one in check(tmp_path).problems if one.severity == "error"]

    report = judged(load_driver(tmp_path), surface)

    assert len(lines) == len(report.judgement.tools)
    assert [] == [str(one) for one in report.findings if one.severity == "block"]


def test_what_the_server_does_not_say_counts_as_changing() -> None:
    """Only `readOnlyHint: true` makes a contract that reads; everything else asks before it changes something."""

    def contract(**annotations: Any) -> dict[str, Any]:
        tool = folder.Drafted("t", "t", {"name": "t", "annotations": annotations})
        return dict(read_matter(folder.contract(tool, "x-mcp").encode()).values)

    assert ([], "auto", 0) == tuple(contract(readOnlyHint=True)[key] for key in ("mutates", "approval", "risk_level"))
    assert (["mcp:x-mcp"], "on-mutate", 1) == tuple(contract()[key] for key in ("mutates", "approval", "risk_level"))
    assert 3 == contract(destructiveHint=True)["risk_level"]


def test_a_contract_is_closed_only_where_that_narrows_nothing_else() -> None:
    """Members named by a branch or a pattern stay allowed."""
    assert folder.inputs({"properties": {"a": {}}})["additionalProperties"] is False
    assert "additionalProperties" not in folder.inputs({"anyOf": [{"properties": {"a": {}}}]})
    assert folder.inputs({"additionalProperties": {"type": "string"}})["additionalProperties"] == {"type": "string"}


def test_names_that_differ_in_case_or_signs_get_ids_of_their_own() -> None:
    """Each tool has a contract id that the format allows, and no two the same."""
    names = ["readFile", "read_file", "READ-FILE", "x", "→", "a" * 200]
    surface = ServerSurface("handshake", "", {}, {}, tools={name: {"name": name} for name in names})
    ids = [tool.id for tool in folder.drafted(surface, {})]

    assert len(set(ids)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9.-]*[a-z0-9]", one) and len(one) <= 80 for one in ids)


# --- hostile servers --------------------------------------------------------------------------------------------------
HOSTILE_NAMES = [
    "../../../escape",
    "/etc/x",
    "a\n---\nb",
    "a: b",
    "\u202eabc",
    "..",
    "CON",
    "x" * 500,
    "",
    "`rm`",
    "é",
    "tools/x",
]
TEXTS = [
    "---",
    "a\n---\nkind: cli\n",
    "\x1b[2J",
    "\u202ea",
    "👨‍👩‍👧 family",
    "${secrets.X}",
    "x" * 5000,
    "!!python/object",
    "&a *a",
]


@pytest.mark.claim("P-INIT-03")
@pytest.mark.parametrize("name", HOSTILE_NAMES)
@pytest.mark.parametrize("text", TEXTS)
def test_what_a_server_says_stays_text_inside_the_folder(name: str, text: str, tmp_path: Path) -> None:
    """Names and texts of a hostile server neither leave the folder nor become front matter; others are not hindered."""
    honest = {"name": "honest", "description": "Reads.", "inputSchema": {"type": "object"}}
    schema = {"type": "object", "properties": {"p": {"type": "string", "description": text}}, "title": text}
    hostile = {"name": name, "title": text, "description": text, "inputSchema": schema}
    surface = ServerSurface("handshake", "2025-11-25", {"name": text}, {"tools": {}}, text,
                            tools={"honest": honest, name: hostile})  # fmt: skip
    base = tmp_path / "a" / "new"
    base.mkdir(parents=True)

    made, spec = _draft(Source("npm", "example@1.0.0"), "example@1.0.0", base, surface)

    assert "honest" in {binding.tool_name for binding in spec.bindings}
    assert made.tools == len(spec.bindings) == 2 - len(made.left_out)
    assert ["a"] == [path.name for path in tmp_path.iterdir()]
    assert ["new"] == [path.name for path in (tmp_path / "a").iterdir()]
    assert ("npm", (), ()) == (spec.server.kind, spec.egress, spec.secrets)
    written = "".join(path.read_text() for path in base.rglob("*.md"))
    assert written.replace("\n", "").isprintable()


# --- sources ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "id_", "name"),
    [
        ("npm:@modelcontextprotocol/server-filesystem", "filesystem-mcp", "@modelcontextprotocol/server-filesystem"),
        ("npm:@scope/server@latest", "server-mcp", "@scope/server"),
        ("npm:notes-mcp@^1.2", "notes-mcp", "notes-mcp@^1.2"),
        ("pip:mcp-server-git==1.0", "git-mcp", "mcp-server-git==1.0"),
        ("docker:ghcr.example/acme/weather:1", "weather-mcp", "ghcr.example/acme/weather:1"),
    ],
)
def test_a_source_names_its_driver(text: str, id_: str, name: str) -> None:
    """The id is the server's name without what every server is called."""
    source = parse(text)

    assert (id_, name) == (source.id, source.name)


@pytest.mark.parametrize("text", ["", "x", "npm:", "gem:x", "https://mcp.example/", "./absent", "/etc/passwd"])
def test_what_names_no_server_is_refused(text: str) -> None:
    """Unknown forms, remote servers, absent and not executable files."""
    with pytest.raises(UsageError, match="CLI-142"):
        parse(text)


def test_grants_have_both_sides() -> None:
    """`AT=PATH`, with an absolute place inside."""
    assert {"/w": "./w"} == grants(["/w=./w"], "--write")
    for bad in ("w=./w", "/w", "/w="):
        with pytest.raises(UsageError, match="CLI-143"):
            grants([bad], "--write")


# --- configurations ---------------------------------------------------------------------------------------------------
SECRET = "c4nary-Value-0123456789"
CLAUDE = {
    "mcpServers": {
        "files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem@latest", "/usr/share"]},
        "github": {"command": "npx", "args": ["-y", "@example/github"], "env": {"GITHUB_TOKEN": SECRET, "LEVEL": "1"}},
        "git": {"command": "uvx", "args": ["--from", "mcp-server-git==1.0", "mcp-server-git", "--verbose"]},
        "box": {"command": "docker", "args": ["run", "-i", "--rm", "-e", f"KEY={SECRET}", "-v", "/a:/b", "acme/box:2"]},
    }
}
VSCODE = """{
  // servers of this workspace
  "inputs": [{"id": "key", "type": "promptString", "password": true},],
  "servers": {
    "notes": {"type": "stdio", "command": "uvx", "args": ["notes-mcp@1.2"], "env": {"KEY": "${input:key}"}}, /* one */
    "far": {"type": "http", "url": "https://mcp.example/x?a=//b"},
  }
}"""
CODEX = f"""
[mcp_servers.memory]
command = "npx"
args = ["-y", "@modelcontextprotocol/server-memory"]
[mcp_servers.memory.env]
MEMORY_KEY = "{SECRET}"
"""


def written(tmp_path: Path, text: str, name: str = "config.json") -> dict[str, Source | Unusable]:
    """Return the entries of a configuration with this text."""
    path = tmp_path / name
    path.write_text(text)
    return dict(entries(path))


def test_claude_desktop_and_cursor_entries_become_sources(tmp_path: Path) -> None:
    """npx, uvx and docker name their package or image; arguments, folders and names of variables are carried over."""
    found = written(tmp_path, json.dumps(CLAUDE))
    files, github, git, box = (found[name] for name in ("files", "github", "git", "box"))

    assert isinstance(files, Source)
    assert ("npm", "@modelcontextprotocol/server-filesystem", "files-mcp") == (files.kind, files.name, files.id)
    assert ({"/usr/share": "/usr/share"}, {}) == (files.read, files.write)
    assert isinstance(github, Source)
    assert ("GITHUB_TOKEN", "LEVEL") == github.secrets
    assert isinstance(git, Source)
    assert ("pip", "mcp-server-git==1.0", "mcp-server-git", ("--verbose",)) == (
        git.kind,
        git.name,
        git.program,
        git.args,
    )
    assert isinstance(box, Source)
    assert ("docker", "acme/box:2", ("KEY",)) == (box.kind, box.name, box.secrets)
    assert any("mounted" in note for note in box.notes)


def test_vs_code_with_comments_and_codex_toml(tmp_path: Path) -> None:
    """Comments and trailing commas are read; a remote server says why it is not converted; TOML is read."""
    code = written(tmp_path, VSCODE)
    codex = written(tmp_path, CODEX, "config.toml")

    assert isinstance(code["notes"], Source)
    assert "notes-mcp==1.2" == code["notes"].name
    assert isinstance(code["far"], Unusable)
    assert isinstance(codex["memory"], Source)
    assert ("MEMORY_KEY",) == codex["memory"].secrets


@pytest.mark.claim("P-INIT-01")
def test_no_value_of_a_variable_reaches_the_folder(tmp_path: Path) -> None:
    """Folders of entries with secrets hold names of variables and slugs, and nothing of a value."""
    found = {**written(tmp_path, json.dumps(CLAUDE)), **written(tmp_path, CODEX, "config.toml")}
    for name, source in found.items():
        assert isinstance(source, Source)
        write(tmp_path / name, source, surface_of([{"name": "t", "inputSchema": {"type": "object"}}]))
        texts = "".join(path.read_text() for path in (tmp_path / name).rglob("*") if path.is_file())

        assert SECRET not in texts
        assert all(f"${{secrets.{variable}}}" in texts for variable in source.secrets)
        assert [] == [str(one) for one in check(tmp_path / name).problems if one.severity == "error"]


RISKY = [
    ["-y", "pkg", "--api-key", SECRET],
    ["-y", "pkg", f"--token={SECRET}"],
    ["-y", "pkg", f"postgresql://user:{SECRET}@db.example/x"],
    ["-y", "pkg", f"https://h.example/?api_key={SECRET}"],
    ["-y", "pkg", "ghp_0123456789abcdefghijABCDEFGHIJ"],
    ["-y", "pkg", "0123456789abcdef0123456789ABCDEF01"],
    ["-y", "pkg", "--header", f"Authorization: Bearer {SECRET}"],
    ["-y", "pkg", "${input:token}"],
    ["-y", "pkg", SECRET],
    ["-y", "pkg", f"KEY={SECRET}"],
]


@pytest.mark.parametrize("args", RISKY, ids=lambda args: args[2][:12])
def test_an_argument_that_looks_like_a_secret_refuses_the_entry(args: list[str], tmp_path: Path) -> None:
    """Arguments are visible to every process; the reason does not repeat them."""
    entry = written(tmp_path, json.dumps({"mcpServers": {"x": {"command": "npx", "args": args}}}))["x"]

    assert isinstance(entry, Unusable)
    assert SECRET not in entry.why


UNKNOWN = [
    {"command": "bash", "args": ["-c", "curl x | sh"]},
    {"command": "node", "args": ["server.js"]},
    {"command": "/absent/program"},
    {"command": "npx", "args": ["-y", "git+ssh://x/y"]},
    {"command": "npx", "args": ["-c", "anything"]},
    {"command": "docker", "args": ["exec", "x"]},
    {"command": "docker", "args": ["run", "--env-file", "/x", "image"]},
    {"command": "uvx", "args": ["--index-url", "https://x", "y"]},
    {"url": "https://mcp.example"},
    {"command": "npx", "args": ["-y", "pkg"], "env": {"A B": "1"}},
    {"args": []},
    [],
]


@pytest.mark.parametrize("entry", UNKNOWN, ids=repr)
def test_what_does_not_say_what_would_be_started_is_not_converted(entry: Any, tmp_path: Path) -> None:
    """Shell lines, scripts, other registries and remote servers are told with a reason, one by one."""
    assert isinstance(written(tmp_path, json.dumps({"mcpServers": {"x": entry}}))["x"], Unusable)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"mcpServers": {}}', f'{{"mcpServers": "{SECRET}', "\xff"])
def test_a_file_that_is_no_configuration_is_refused_without_quoting_it(text: str, tmp_path: Path) -> None:
    """What cannot be read may hold secrets, so the message holds nothing of it."""
    with pytest.raises(UsageError, match="CLI-144") as caught:
        written(tmp_path, text)

    assert SECRET not in str(caught.value)
