"""Secrets come from where the operator says, never from where a driver says."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.errors import PlanRefused, UsageError
from sandbox.launch.secrets import load_sources, resolve
from sandbox.spec.model import Origin, Secret


def secret(**parts: str) -> Secret:
    """Return an entry of SECRETS.md."""
    return Secret(
        **{
            "slug": "api-key",
            "name": "API_KEY",
            "description": "k",
            "env_names": ("API_KEY",),
            "origin": Origin(file="SECRETS.md"),
            **parts,
        }
    )


def test_the_named_variable_is_the_default_source() -> None:
    """Without an operator's entry the variable that SECRETS.md names is read."""
    assert {"api-key": "v"} == resolve(["api-key"], [secret()], {}, {"API_KEY": "v"})


def test_a_missing_value_is_refused_with_the_variable() -> None:
    """The refusal says what to set."""
    with pytest.raises(PlanRefused, match="API_KEY"):
        resolve(["api-key"], [secret()], {}, {})


def test_a_drivers_backend_is_not_followed(tmp_path: Path) -> None:
    """A driver that names a file of this host as its backend does not get that file."""
    planted = tmp_path / "planted"
    planted.write_text("canary")

    with pytest.raises(PlanRefused, match="SEC-002"):
        resolve(["api-key"], [secret(backend=f"file://{planted}")], {}, {})


def test_a_file_source_must_be_private(tmp_path: Path) -> None:
    """A file that others can read is refused; a private one is read without its last newline."""
    path = tmp_path / "key"
    path.write_text("value\n")
    path.chmod(0o644)
    sources = {"api-key": {"file": str(path)}}

    with pytest.raises(PlanRefused, match="only its owner"):
        resolve(["api-key"], [secret()], sources, {})
    path.chmod(0o600)

    assert {"api-key": "value"} == resolve(["api-key"], [secret()], sources, {})


def test_a_command_source_is_run_without_a_shell() -> None:
    """The words of a command are arguments; shell syntax in them means nothing."""
    sources = {"api-key": {"command": ["printf", "%s\n", "$(id)"]}}

    assert {"api-key": "$(id)"} == resolve(["api-key"], [secret()], sources, {"PATH": "/usr/bin:/bin"})


def test_a_failing_command_does_not_leak_its_output() -> None:
    """The message names the program and nothing that it printed."""
    sources = {"api-key": {"command": ["sh", "-c", "echo s3cret; exit 1"]}}

    with pytest.raises(PlanRefused) as caught:
        resolve(["api-key"], [secret()], sources, {"PATH": "/usr/bin:/bin"})

    assert "s3cret" not in str(caught.value)


def test_a_sources_file_that_others_can_change_is_refused(tmp_path: Path) -> None:
    """Who can change the sources can read this host through them."""
    path = tmp_path / "secrets.toml"
    path.write_text('["api-key"]\nenv = "X"\n')
    path.chmod(0o666)

    with pytest.raises(UsageError, match="SEC-001"):
        load_sources(path)


@pytest.mark.parametrize("text", ["[", '["a"]\nenv="X"\nfile="y"', '["a"]\nother="X"', 'a = "x"'])
def test_malformed_sources_are_refused(tmp_path: Path, text: str) -> None:
    """A sources file is understood whole or not used."""
    path = tmp_path / "secrets.toml"
    path.write_text(text)
    path.chmod(0o600)

    with pytest.raises(UsageError, match="SEC-001"):
        load_sources(path)


@pytest.mark.parametrize("value", ["", "a\0b"])
def test_a_value_that_cannot_be_an_environment_entry_is_refused(value: str) -> None:
    """Empty values and NUL are refused before a container is made."""
    with pytest.raises(PlanRefused, match="SEC-003"):
        resolve(["api-key"], [secret()], {}, {"API_KEY": value})
