"""The command line: instant help, one clear line for every error, exit status by whose fault it is."""

from __future__ import annotations

import importlib

import pytest

from sandbox.cli import GROUPS, main, options
from sandbox.errors import UsageError

COMMANDS = [command for _, commands in GROUPS for command in commands]


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """``--help`` names each command with its line of help."""
    status = main(["--help"])

    shown = capsys.readouterr().out
    assert 0 == status
    assert [] == [command.name for command in COMMANDS if command.summary not in shown]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_explains_itself(command: object, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command has help of its own that begins with what it does."""
    with pytest.raises(SystemExit) as ended:
        main([command.name, "--help"])  # type: ignore[attr-defined]

    module = importlib.import_module(f"sandbox.cli.{command.module}")  # type: ignore[attr-defined]
    assert 0 == ended.value.code
    assert (module.__doc__ or "").split("\n")[0] in capsys.readouterr().out


def test_an_unknown_command_names_the_closest(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt command is answered with the one that was meant."""
    status = main(["chek"])

    assert 2 == status
    assert "did you mean `check`?" in capsys.readouterr().err


def test_a_missing_driver_is_one_line_without_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """A path that does not exist is refused with its place."""
    status = main(["check", "/nowhere/DRIVER.md"])

    shown = capsys.readouterr()
    assert 1 == status
    assert "/nowhere" in shown.out + shown.err
    assert "Traceback" not in shown.out + shown.err


@pytest.mark.parametrize("text", ["[", "[1]", '{"a":1,"a":2}', "NaN"])
def test_bad_arguments_are_refused_before_anything_starts(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """``--args`` that is no strict JSON object is the caller's mistake."""
    status = main(["call", "/nowhere", "tool", "--args", text])

    assert 2 == status
    assert "CLI-012" in capsys.readouterr().err


@pytest.mark.parametrize("pair", ["/workspace", "workspace=/x", "/workspace="])
def test_a_malformed_root_is_refused(pair: str) -> None:
    """``--root`` must be AT=PATH with an absolute AT."""
    from sandbox.cli.options import roots
    from sandbox.errors import UsageError

    with pytest.raises(UsageError, match="CLI-010"):
        roots([pair])


@pytest.mark.parametrize(("text", "amount"), [("256", 256), ("256M", 256), ("256MiB", 256), ("1G", 1024)])
def test_sizes_are_mebibytes_unless_they_say_otherwise(text: str, amount: int) -> None:
    """A size is a number of MiB, or has the suffix that says what it is."""
    assert amount == options.mebibytes(text)


@pytest.mark.parametrize("text", ["", "-1", "1.5", "1T", "M", "0x10", "1e9", "256 M"])
def test_a_malformed_size_is_refused(text: str) -> None:
    """What could be read in two ways is not read at all."""
    with pytest.raises(UsageError, match="is no size"):
        options.mebibytes(text)


def test_an_unknown_image_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt image is the person's mistake, and no fault of the installation."""
    assert main(["images", "list", "nosuch"]) == 2

    assert "CLI-017" in capsys.readouterr().err
