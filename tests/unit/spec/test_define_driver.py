"""A driver said in Python is the same driver as its DRIVER.md, and brings no code with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import UsageError
from sandbox.spec.define import Binary, Docker, McpServer, Npm, Remote, define_driver
from sandbox.spec.frontmatter import parse
from sandbox.spec.load import check_folder, load_driver
from tests.unit.spec.folders import DRIVER, write

FIELDS = {key: value for key, value in DRIVER.items() if key not in {"server", "transport", "kind"}}


def defined(**changes: Any) -> Any:
    """Return the usual driver, said in Python."""
    given = {"server": DRIVER["server"], "transport": DRIVER["transport"], **FIELDS, **changes}
    return define_driver(**given)


def test_the_definition_is_the_same_driver_as_the_file(tmp_path: Path) -> None:
    """The loader finds the same values, field by field, as in a DRIVER.md written by hand."""
    by_hand = load_driver(write(tmp_path / "a"))
    folder = write(tmp_path / "b")
    (folder / "DRIVER.md").unlink()
    made = defined().load(folder)

    for name in ("id", "version", "server", "transport", "egress", "sandbox", "limits", "prompts", "connection"):
        assert getattr(by_hand, name) == getattr(made, name)
    assert [one.tool_name for one in by_hand.bindings] == [one.tool_name for one in made.bindings]


SERVERS: list[tuple[McpServer, dict[str, Any]]] = [
    (Binary("./server", args=("-v",)), {"kind": "binary", "path": "./server", "args": ["-v"]}),
    (Npm("@a/b@1.0.0", env={"A": "1"}), {"kind": "npm", "package": "@a/b@1.0.0", "env": {"A": "1"}}),
    (Docker("a/b:1"), {"kind": "docker", "image": "a/b:1"}),
    (
        Remote("https://x.example", auth={"kind": "bearer"}),
        {"kind": "remote", "url": "https://x.example", "auth": {"kind": "bearer"}},
    ),
]


@pytest.mark.parametrize(("server", "block"), SERVERS)
def test_the_four_kinds_of_server(server: McpServer, block: dict[str, Any]) -> None:
    """Each kind becomes its block; what is empty is left out."""
    assert block == defined(server=server).fields["server"]


def test_both_spellings_mean_the_same() -> None:
    """The specification's camelCase and Python's snake_case give one text."""
    camel = defined(
        protocolVersion="2025-11-25",
        connectionOptions={"timeout_ms": 5000, "maxRetries": 1},
        resources=[{"uriTemplate": "a:{b}", "integrateAs": "raw"}],
    )
    snake = defined(
        protocol_version="2025-11-25",
        connection_options={"timeout_ms": 5000, "max_retries": 1},
        resources=[{"uri_template": "a:{b}", "integrate_as": "raw"}],
    )

    assert parse(camel.markdown().encode()).values == parse(snake.markdown().encode()).values
    with pytest.raises(UsageError, match="CLI-149"):
        defined(protocolVersion="2025-11-25", protocol_version="2025-11-25")


@pytest.mark.claim("P-SPEC-12")
@pytest.mark.parametrize("name", ["build_arguments", "parse_tool_result", "buildArguments", "parseToolResult"])
def test_hooks_are_refused_and_never_called(name: str) -> None:
    """A function in a definition is refused with what to write instead, and is not called."""
    called: list[Any] = []

    with pytest.raises(UsageError, match="CLI-148") as caught:
        defined(**{name: called.append})

    assert "argument_mapping" in caught.value.mend
    assert [] == called


@pytest.mark.claim("P-SPEC-12")
def test_code_in_a_driver_folder_is_not_executed(tmp_path: Path) -> None:
    """An entry module, a conftest and a package beside DRIVER.md are files like any other while the folder is read."""
    folder = write(tmp_path)
    trap = f"open({str(tmp_path / 'ran')!r}, 'w').close()\n"
    for name in ("driver.py", "__init__.py", "conftest.py", "sitecustomize.py", "sandbox.py", "tools/__init__.py"):
        (folder / name).write_text(trap)

    spec, _ = check_folder(folder)

    assert spec is not None
    assert not (tmp_path / "ran").exists()


def test_a_reviewed_file_wins_and_is_never_replaced(tmp_path: Path) -> None:
    """A folder whose DRIVER.md says something else is refused, and stays as it is."""
    folder = write(tmp_path)
    before = (folder / "DRIVER.md").read_bytes()

    for work in (lambda: defined().write(folder), lambda: defined(version="9.9.9").load(folder)):
        with pytest.raises(UsageError, match="CLI-149"):
            work()

    assert before == (folder / "DRIVER.md").read_bytes()
