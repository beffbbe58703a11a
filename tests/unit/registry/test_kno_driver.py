"""An entity alone: the driver that stands for it may do what it says and nothing else, or it is refused."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sandbox.cli import main
from sandbox.cli.gateway import entities
from sandbox.cli.gateway.config import GatewayConfig
from sandbox.cli.gateway.mounts import driver_folders, review_one
from sandbox.errors import SandboxError, SpecError
from sandbox.plan.model import EngineFacts
from sandbox.registry.entity import entity_of
from sandbox.registry.kno.driver import Contract, driver_md
from sandbox.registry.kno.server import PACKAGES, named
from sandbox.registry.project import server_json
from sandbox.spec.load import load_driver
from tests.unit.registry.test_kno import WHOLE

CONTRACT = """---
name: Forecast
id: forecast
description: Tell the weather of tomorrow.
version: 1.2.0
inputs: { type: object, properties: { place: { type: string } }, required: [place], additionalProperties: false }
outputs: { type: object }
mutates: []
approval: auto
---

# Forecast
"""
REMOTE = {"type": "streamable-http", "url": "https://weather.example/v1"}
PACKAGE = {"registryType": "npm", "identifier": "x", "version": "1.0.0"}
ONE = [Contract("tools/forecast/TOOL.md", "forecast", "1.2.0")]
NO_ENGINE = EngineFacts("none", "", "", (), "")


def values(**changes: Any) -> dict[str, Any]:
    """Return an entity that names a remote server."""
    made = {**WHOLE, "slug": "pspace-weather-mcp", "version": "1.0.0", "remotes": [REMOTE], **changes}
    return {name: value for name, value in made.items() if value is not None}


def folder_of(place: Path, *, tools: bool = True, **changes: Any) -> Path:
    """Write a folder with an entity and its contract."""
    folder = place / "drivers" / "weather-mcp"
    folder.mkdir(parents=True)
    (folder / "weather.kno").write_text(yaml.safe_dump(values(**changes), sort_keys=False))
    if tools:
        (folder / "tools" / "forecast").mkdir(parents=True)
        (folder / "tools" / "forecast" / "TOOL.md").write_text(CONTRACT)
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put made folders below the test's own."""
    monkeypatch.setattr(entities, "PLACE", tmp_path / "cache" / "entities")
    return tmp_path / "cache"


def arguments(**more: Any) -> argparse.Namespace:
    """Return what `serve` is called with."""
    return argparse.Namespace(**{"policy": None, "rules": None, "runtime": "", "config": None, **more})


def mount(folder: Path) -> Any:
    """Review a folder as the gateway does."""
    return review_one(folder, arguments(), GatewayConfig(), "/nowhere/engine.sock", NO_ENGINE, None)


@pytest.mark.claim("P-REG-03")
def test_an_entity_alone_is_mounted(tmp_path: Path, cache: Path) -> None:
    """Planned and told of like any driver; its one destination is the address that it names; it may do nothing else."""
    folder = folder_of(tmp_path)
    assert [folder] == driver_folders(folder.parent)
    mounted = mount(folder)
    spec, plan = mounted.review.spec, mounted.review.plan

    assert ("weather-mcp", "1.0.0", ["forecast"]) == (spec.id, spec.version, sorted(mounted.tools))
    assert "https://weather.example/v1" == spec.server.url
    assert [("weather.example", (443,))] == [(rule.host, rule.ports) for rule in plan.network.rules]
    assert () == plan.mounts
    assert ("/mcp/admin", "internal") == (mounted.entity.endpoint_path, mounted.entity.visibility)
    assert not mounted.access.anonymous
    assert "pspace:admin:all" in mounted.access.scopes
    assert not (folder / "DRIVER.md").exists()


@pytest.mark.claim("P-REG-04")
def test_the_register_never_tells_how_to_go_around_the_gateway(tmp_path: Path, cache: Path) -> None:
    """Remotes of an entity that lead elsewhere, and our own keys, are not told."""
    own = {"local.mcp-sandbox/tools": {"get_forecast": "forecast"}, "com.example/tier": 1}
    told = server_json(mount(folder_of(tmp_path, _meta=own)).entity, "https://mcp.example.com")

    assert ["https://mcp.example.com/mcp/admin"] == [one["url"] for one in told["remotes"]]
    assert {"com.example/tier", "space.possibility/scopes"} == set(told["_meta"])


def test_a_made_folder_is_of_its_sources(tmp_path: Path, cache: Path) -> None:
    """The same sources make the same folder, others another; what is in it cannot be exchanged by others."""
    folder = folder_of(tmp_path)
    (folder / "driver.lock").write_text("{}\n")
    first, again = entities.manifest_of(folder), entities.manifest_of(folder)
    (folder / "tools" / "forecast" / "TOOL.md").write_text(CONTRACT.replace("tomorrow", "today"))
    other = entities.manifest_of(folder)
    other.chmod(0o666)

    assert first == again != other
    assert "{}\n" == (first.parent / "driver.lock").read_text()
    with pytest.raises(SandboxError, match="GATE-095"):
        entities.manifest_of(folder)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"remotes": None}, "KNO-020"),
        ({"remotes": [{"type": "streamable-http", "url": "{baseUrl}/mcp/admin"}]}, "KNO-020"),
        ({"remotes": [{**REMOTE, "url": "https://{region}.weather.example/"}]}, "KNO-021"),
        ({"remotes": [{**REMOTE, "url": "ftp://weather.example/"}]}, "KNO-021"),
        ({"remotes": [{**REMOTE, "url": "https://weather.example:99999/"}]}, "KNO-021"),
        ({"_meta": {PACKAGES: []}}, "KNO-022"),
        ({"_meta": {PACKAGES: [{"registryType": "npm", "identifier": "x"}]}}, "KNO-022"),
        ({"_meta": {PACKAGES: [{**PACKAGE, "registryType": "nuget"}]}}, "KNO-022"),
        ({"_meta": {PACKAGES: [{**PACKAGE, "environmentVariables": [{"name": "A"}]}]}}, "KNO-023"),
        ({"_meta": {PACKAGES: [{**PACKAGE, "packageArguments": [{"type": "positional"}]}]}}, "KNO-023"),
        ({"_meta": {"local.mcp-sandbox/tools": {"a": "absent"}}}, "KNO-025"),
        ({"_meta": {"local.mcp-sandbox/tools": ["a"]}}, "KNO-025"),
        ({"visibility": "public"}, "KNO-005"),
        ({"slug": "weather"}, "KNO-003"),
    ],
    ids=str,
)  # fmt: skip
def test_what_an_entity_cannot_say_is_refused(
    tmp_path: Path, cache: Path, changes: dict[str, Any], wanted: str
) -> None:
    """Each with its id and a mend; nothing is guessed, and nothing is left behind."""
    with pytest.raises(SpecError) as caught:
        mount(folder_of(tmp_path, **changes))

    assert wanted in [problem.id for problem in caught.value.problems]
    assert all(problem.mend for problem in caught.value.problems)
    assert not cache.exists()


def test_without_contracts_nothing_could_be_called(tmp_path: Path, cache: Path) -> None:
    """That is said, rather than an empty server served."""
    with pytest.raises(SpecError, match="KNO-024"):
        mount(folder_of(tmp_path, tools=False))


def test_links_and_second_entities_are_refused(tmp_path: Path, cache: Path) -> None:
    """A contract that is a link could be changed elsewhere; of two entities nobody can say which counts."""
    folder = folder_of(tmp_path)
    tool = folder / "tools" / "forecast" / "TOOL.md"
    tool.rename(tmp_path / "elsewhere.md")
    tool.symlink_to(tmp_path / "elsewhere.md")
    with pytest.raises(SpecError, match="KNO-026"):
        mount(folder)
    (folder / "second.kno").write_text("a: 1\n")
    with pytest.raises(SpecError, match="KNO-014"):
        mount(folder)


@pytest.mark.parametrize(
    ("package", "server", "install"),
    [
        (
            {"registryType": "npm", "identifier": "@acme/weather", "version": "1.2.3"},
            {"kind": "npm", "package": "@acme/weather@1.2.3"},
            {"method": "npm", "package": "@acme/weather@1.2.3"},
        ),
        (
            {
                "registryType": "pypi", "identifier": "weather", "version": "2.0", "transport": {"type": "stdio"},
                "packageArguments": [
                    {"type": "positional", "value": "a b"}, {"type": "named", "name": "--x", "value": "$(1)"},
                ],
            },
            {"kind": "binary", "path": "weather", "args": ["a b", "--x", "$(1)"]},
            {"method": "pip", "package": "weather==2.0"},
        ),
        (
            {"registryType": "oci", "identifier": "acme/weather@sha256:" + "a" * 64},
            {"kind": "docker", "image": "acme/weather@sha256:" + "a" * 64},
            None,
        ),
    ],
    ids=["npm", "pypi", "oci"],
)  # fmt: skip
def test_a_package_becomes_a_driver_without_rights(
    tmp_path: Path, package: dict[str, Any], server: dict[str, Any], install: dict[str, Any] | None
) -> None:
    """No network, no folders, no programs; the package at its exact version."""
    folder = folder_of(tmp_path, remotes=None, _meta={PACKAGES: [package]})
    entities.write(tmp_path / "made" / "weather-mcp", entities.files_of(folder / "weather.kno"))
    spec = load_driver(tmp_path / "made" / "weather-mcp")
    block = {name: getattr(spec.server, name) for name in server}

    assert {**server, "args": tuple(server["args"])} if "args" in server else server == block
    assert (() if install is None else (install["package"],)) == tuple(one.params["package"] for one in spec.install)
    assert ((), (), ()) == (spec.egress, spec.sandbox.fs.read, spec.sandbox.fs.write)


@given(
    st.dictionaries(st.text(max_size=8), st.text(max_size=12), max_size=3), st.text(max_size=40), st.text(max_size=60)
)
@pytest.mark.claim("P-REG-03")
def test_no_text_of_an_entity_becomes_a_permission(headers: dict[str, str], title: str, description: str) -> None:
    """Whatever stands in its texts: what is made says what it says and no key more."""
    from sandbox.spec import frontmatter

    given_ = values(title=title, description=description, remotes=[{**REMOTE, "headers": headers}])
    text = driver_md(given_, "x.kno", ONE)
    try:
        found = frontmatter.parse(text.encode("utf-8", "surrogatepass")).values
    except frontmatter.FrontMatterError:
        return  # refused as a whole, by the reader that decides
    keys = {
        "name",
        "id",
        "description",
        "version",
        "kind",
        "server",
        "transport",
        "network",
        "mcp_tools",
        "implements",
        "tags",
    }

    assert keys == set(found)
    assert {"egress": ["weather.example:443"]} == found["network"]
    assert found["server"] == {"kind": "remote", "url": REMOTE["url"], **({"headers": headers} if headers else {})}


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, []),
        ({"version": "1.0.1"}, ["KNO-018"]),
        ({"remotes": None}, []),
        ({"remotes": [{**REMOTE, "url": "https://weather.example/v1/"}]}, []),
        ({"remotes": [{**REMOTE, "url": "https://other.example/v1"}]}, ["KNO-019"]),
        (
            {"_meta": {PACKAGES: [{"registryType": "oci", "identifier": "a", "version": "1"}]}},
            ["KNO-019"],
        ),
    ],
    ids=str,
)
def test_an_entity_and_a_driver_describe_one_server(tmp_path: Path, changes: dict[str, Any], wanted: list[str]) -> None:
    """Where both are there and say different things, neither is believed."""
    folder = folder_of(tmp_path)
    entities.write(tmp_path / "made" / "weather-mcp", entities.files_of(folder / "weather.kno"))
    beside = tmp_path / "made" / "weather-mcp"
    (beside / "weather.kno").write_text(yaml.safe_dump(values(**changes)))
    try:
        entity_of(beside, load_driver(beside), "space.possibility", {})
        found = []
    except SpecError as error:
        found = [problem.id for problem in error.problems]

    assert wanted == found


def test_the_command_shows_and_writes_the_driver(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`kno driver` prints DRIVER.md, or writes the folder once."""
    entity = str(folder_of(tmp_path) / "weather.kno")
    status = main(["kno", "driver", entity])
    printed = capsys.readouterr().out
    written = main(["kno", "driver", entity, "--to", str(tmp_path / "weather-mcp")])
    again = main(["kno", "driver", entity, "--to", str(tmp_path / "weather-mcp")])

    assert (0, 0, 2) == (status, written, again)
    assert "CLI-210" in capsys.readouterr().err
    assert printed == (tmp_path / "weather-mcp" / "DRIVER.md").read_text()
    assert "weather-mcp" == load_driver(tmp_path / "weather-mcp").id


def test_a_streamable_remote_is_taken_before_a_legacy_one() -> None:
    """And variables with defaults are filled in."""
    remotes = [
        {"type": "sse", "url": "https://weather.example/sse"},
        {**REMOTE, "url": "http://{host}:8080/v1", "variables": {"host": {"default": "weather.example"}}},
    ]
    found = named(values(remotes=remotes), "x.kno")

    assert found is not None
    assert ("http", ("http://weather.example:8080",)) == (found.transport, found.egress)
