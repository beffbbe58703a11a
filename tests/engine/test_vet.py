"""``mcp-sandbox vet`` on every shipped driver's real server, whole and broken, and what is left afterwards."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.engine.drivers import COMMAND, EXAMPLES, Example
from tests.shared import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

BY_NAME = {example.name: example for example in EXAMPLES}


def vet(folder: str, scratch: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the command with an audit trail of its own and without the variables that hold secrets."""
    env = {name: value for name, value in os.environ.items() if name != "SIGNING_KEY"}
    argv = [*COMMAND, "vet", folder, "--audit-dir", str(scratch / "audit"), *more]
    return subprocess.run(argv, capture_output=True, text=True, env=env, check=False)


def trail(scratch: Path) -> str:
    """Return everything that was recorded."""
    return "".join(path.read_text() for path in sorted((scratch / "audit" / "segments").glob("*.jsonl")))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_every_shipped_driver_passes(example: Example, tmp_path: Path) -> None:
    """The real server keeps the shipped contracts, without a network and without its secrets."""
    done = vet(example.path, tmp_path, *example.options(tmp_path), "--json")
    report = json.loads(done.stdout)

    assert 0 == done.returncode, done.stderr
    assert report["ok"]
    assert {"fits"} == {tool["outcome"] for tool in report["tools"]}
    assert [] == [one for one in report["findings"] if one["severity"] == "block"]


def broken(scratch: Path, name: str, file: str, old: str, new: str) -> str:
    """Return a copy of a shipped driver with one text replaced."""
    folder = scratch / name
    shutil.copytree(ROOT / "drivers" / name, folder)
    path = folder / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    return str(folder)


@pytest.mark.claim("P-VET-11")
def test_a_broken_contract_is_refused_by_vet_and_by_run_with_the_same_counterexample(tmp_path: Path) -> None:
    """`vet` exits with 3 and the file and line; `run` refuses at registration, before the client's first byte."""
    folder = broken(tmp_path, "time-mcp", "tools/time-now/TOOL.md", "      type: string\n", "      type: integer\n")
    text = Path(folder, "tools/time-now/TOOL.md").read_text().replace("minLength: 1", "").replace("maxLength: 64", "")
    Path(folder, "tools/time-now/TOOL.md").write_text(text.replace("timezone: UTC", "timezone: 1"))

    found = vet(folder, tmp_path)
    ran = subprocess.run(
        [*COMMAND, "run", folder, "--audit-dir", str(tmp_path / "audit")],
        input="", capture_output=True, text=True, check=False,
    )  # fmt: skip

    said = '`time-now` accepts `{"timezone": 0}`; `get_current_time` refuses it: `timezone` must be string'
    assert (3, 3) == (found.returncode, ran.returncode), found.stderr + ran.stderr
    assert said in found.stdout
    assert said in ran.stderr
    assert "tools/time-now/TOOL.md:" in ran.stderr
    assert "argument_mapping" in ran.stderr
    assert "schema_narrowing" in ran.stderr
    assert "" == ran.stdout
    assert "vet.refuse" in trail(tmp_path)


def test_the_seeds_own_extract_is_caught_with_the_path_that_exists(tmp_path: Path) -> None:
    """`$.contents` does not exist in the published server; `vet` says which path does (T0-9)."""
    example = BY_NAME["filesystem-mcp"]
    folder = broken(tmp_path, example.name, "DRIVER.md", '"$.content"', '"$.contents"')

    done = vet(folder, tmp_path, *example.options(tmp_path))

    assert 3 == done.returncode
    assert "VET-103" in done.stdout
    assert "set `result_extract` to `$.content`" in done.stdout


def test_sarif_points_into_the_folder(tmp_path: Path) -> None:
    """The log of a broken driver has the result at the line of the contract's field."""
    folder = broken(tmp_path, "text-mcp", "tools/text-crc32/TOOL.md", "  required: [text]\n", "")
    done = subprocess.run(
        [*COMMAND, "vet", "text-mcp", "--sarif", "--audit-dir", str(tmp_path / "audit")],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env=dict(os.environ),
    )  # fmt: skip
    results = json.loads(done.stdout)["runs"][0]["results"]
    place = results[0]["locations"][0]["physicalLocation"]

    assert 3 == done.returncode
    assert "text-mcp/tools/text-crc32/TOOL.md" == place["artifactLocation"]["uri"]
    line = Path(folder, "tools/text-crc32/TOOL.md").read_text().splitlines()[place["region"]["startLine"] - 1]
    assert line.startswith("inputs")


def test_declared_destinations_are_not_reached_and_nothing_remains(tmp_path: Path) -> None:
    """A driver that names a host is vetted without any network part, and its container is gone afterwards."""
    folder = broken(tmp_path, "text-mcp", "DRIVER.md", "egress: []", 'egress: ["api.example.com:443"]')

    done = vet(folder, tmp_path)
    records = [json.loads(line) for line in trail(tmp_path).splitlines()]
    instances = {record["instance"] for record in records if record.get("instance")}
    left = subprocess.run(["docker", "ps", "-aq", "--no-trunc"], capture_output=True, text=True, check=True).stdout

    assert 0 == done.returncode, done.stderr
    assert [] == [record["name"] for record in records if str(record.get("name")).startswith("egress.")]
    assert ["teardown"] == [record["name"] for record in records if record.get("name") == "teardown"]
    assert instances
    assert not any(one in left for one in instances)
