"""The author skill is a valid AIP-3 skill, ships in the wheel and names only commands that exist."""

from __future__ import annotations

import json
import re
import tomllib

import jsonschema
import yaml

from sandbox.cli import find, main
from sandbox.resources import shipped
from tests.shared import ROOT, shared

SKILL = shipped("skills", "author-mcp-driver", "SKILL.md")


def test_the_front_matter_is_valid_under_aip_3() -> None:
    """The upstream schema accepts it, the name is the folder's, and the extensions say which schema they follow."""
    path = shared("upstream", "agentproto", "specs", "resources", "aip-3", "draft", "SKILL.schema.json")
    matter = yaml.safe_load(SKILL.read_text().split("---\n")[1])

    jsonschema.Draft202012Validator(json.loads(path.read_text())).validate(matter)
    assert matter["name"] == SKILL.parent.name
    assert "skills/v1" == matter["metadata"]["aip3"]["schema"]


def test_every_command_that_it_names_exists() -> None:
    """An agent that follows it never meets an unknown command."""
    named = set(re.findall(r"^    mcp-sandbox ([a-z]+)", SKILL.read_text(), re.MULTILINE))

    assert {"init", "check", "vet", "plan"} <= named
    assert set() == {name for name in named if find(name) is None}


def test_it_ships_in_the_wheel() -> None:
    """The build puts the folder where an installation looks for it."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]

    assert "sandbox/_shipped/skills" == build["force-include"]["docs/skills"]


def test_the_command_prints_it(capsys) -> None:
    """`init --skill` needs no engine and prints the file as it is."""
    assert 0 == main(["init", "--skill"])
    assert SKILL.read_text() == capsys.readouterr().out
