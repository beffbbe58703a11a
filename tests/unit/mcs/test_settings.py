"""Settings of drivers: from files and variables, strict, and never an option of the command line."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from sandbox.errors import UsageError
from sandbox.mcs import DriverSettings, Orchestrator, OrchestratorSettings, SandboxedDriver
from sandbox.mcs.contract import DriverResponse
from sandbox.mcs.opening import arguments_of
from sandbox.mcs.published import schemas
from tests.mcs_kit import Toy, tool
from tests.shared import ROOT

WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12) | st.sampled_from(
    ["--unsafe", "-x", "--policy=/x", "=", "a=b", "--root"]
)


@given(driver=WORDS, policy=WORDS, at=WORDS, path=WORDS)
def test_no_value_becomes_an_option(driver: str, policy: str, at: str, path: str) -> None:
    """Whatever the values are, `run`'s own parser gives exactly them back."""
    arguments = arguments_of(DriverSettings(driver=driver, policy=policy, roots={at: path}))

    assert (Path(driver), Path(policy)) == (arguments.driver, arguments.policy)
    assert [f"{at}={path}"] == arguments.root
    assert ("contract", "local", None) == (arguments.names, arguments.tenant, arguments.rules)


def test_what_is_not_said_is_as_run_has_it() -> None:
    """The defaults are those of `run`, since its parser gives them."""
    arguments = arguments_of(DriverSettings(driver="d"))

    assert ("kernel", "file", [], "") == (arguments.durability, arguments.key_store, arguments.keep, arguments.user)
    assert "mcp-sandbox" in str(arguments.audit_dir)


def test_settings_come_from_files_and_variables(tmp_path: Path) -> None:
    """JSON, TOML and the environment say the same."""
    (tmp_path / "a.json").write_text('{"driver": "d", "roots": {"/w": "/x"}, "semantics": "0.2"}')
    (tmp_path / "a.toml").write_text('driver = "d"\nsemantics = "0.2"\nroots = { "/w" = "/x" }\n')
    environ = {
        "MCP_SANDBOX_MCS_DRIVER": "d",
        "MCP_SANDBOX_MCS_SEMANTICS": "0.2",
        "MCP_SANDBOX_MCS_ROOTS": '{"/w": "/x"}',
    }

    wanted = DriverSettings(driver="d", roots={"/w": "/x"}, semantics="0.2")
    assert [wanted] * 3 == [
        DriverSettings.from_file(tmp_path / "a.json"),
        DriverSettings.from_file(str(tmp_path / "a.toml")),
        DriverSettings.from_env(environ),
    ]


@pytest.mark.parametrize(
    "values",
    [
        {"drivr": "d"},
        {"driver": 1},
        {"driver": "d", "digest": "sha256:x"},
        {"driver": "d", "tenant": ""},
        {"driver": "d", "style": "long"},
        {"driver": "--"},
        {"driver": "d", "unsafe_anything": True},
        [],
    ],
    ids=range(8),
)
def test_wrong_settings_are_refused_with_their_place(values: Any) -> None:
    """Unknown members too: a misspelt narrowing would otherwise widen."""
    with pytest.raises(UsageError, match="MCS-014"):
        DriverSettings.of(values)


@pytest.mark.parametrize("text", ["{", "\ud800".encode("utf-8", "surrogatepass"), b"[1"], ids=range(3))
def test_files_that_are_no_settings_are_refused(text: Any, tmp_path: Path) -> None:
    """With the file's name."""
    (tmp_path / "a.json").write_bytes(text if isinstance(text, bytes) else text.encode())

    with pytest.raises(UsageError, match=r"a\.json"):
        OrchestratorSettings.from_file(tmp_path / "a.json")
    with pytest.raises(UsageError, match="MCS-014"):
        DriverSettings.from_env({"MCP_SANDBOX_MCS_ROOTS": "{"})


def test_the_published_schemas_are_these() -> None:
    """docs/schemas has what the code writes; `python -m sandbox.mcs.published docs/schemas` mends it."""
    for name, text in schemas().items():
        assert text == (ROOT / "docs" / "schemas" / name).read_text(), name
        Draft202012Validator.check_schema(json.loads(text))


def test_what_drivers_say_fits_the_published_schemas() -> None:
    """Metadata, tools and responses of ours, written as JSON; a form can be made from the settings' schema."""
    validator = Draft202012Validator(json.loads(schemas()["mcs-driver.schema.json"]))
    tools = [tool("read", "path"), tool("list")]
    for one in (
        dataclasses.asdict(SandboxedDriver(str(ROOT / "drivers" / "text-mcp")).meta),
        dataclasses.asdict(Orchestrator({"a": Toy("a")}).meta),
        [dataclasses.asdict(made) for made in tools],
        dataclasses.asdict(DriverResponse()),
    ):
        written = json.loads(json.dumps(one))
        assert [] == list(validator.iter_errors(written))
    assert list(validator.iter_errors({"id": "x"}))
    settings = Draft202012Validator(json.loads(schemas()["mcs-settings.schema.json"]))
    assert settings.is_valid({"drivers": {"a": {"driver": "d"}}})
    assert not settings.is_valid({"driver": "d", "root": {}})
