from __future__ import annotations

import re
from pathlib import Path

import pytest

from sandbox.spec.check import check
from sandbox.spec.environ import CODE_NAMES
from sandbox.spec.fields import mcp, permissions, tool, universal
from sandbox.spec.keys import KNOWN
from tests.shared import ROOT

TEXT = (ROOT / "docs" / "driver-md.md").read_text()


def test_the_example_of_the_documentation_loads_without_any_problem(tmp_path: Path) -> None:
    """The complete example for authors is a good folder, warnings included."""
    driver, contract, inventory = re.findall(r"```md\n(.*?)```", TEXT, re.DOTALL)
    folder = tmp_path / "notes-mcp"
    (folder / "tools/note-search").mkdir(parents=True)
    (folder / "DRIVER.md").write_text(driver)
    (folder / "tools/note-search/TOOL.md").write_text(contract)
    (folder / "SECRETS.md").write_text(inventory)

    verdict = check(folder)

    assert () == verdict.problems
    assert verdict.spec is not None
    assert {"tenant": "tenant.id"} == dict(verdict.spec.bindings[0].context)


@pytest.mark.parametrize("key", KNOWN)
def test_every_field_of_the_top_level_is_documented(key: str) -> None:
    """docs/driver-md.md names every key that is read."""
    assert f"`{key}`" in TEXT or f"`{key}." in TEXT or f"`{key}:" in TEXT or f"`{key}[" in TEXT


@pytest.mark.parametrize(
    "model",
    [
        *mcp.SERVERS.values(),
        mcp.PerTool,
        mcp.ConnectionBlock,
        permissions.OurLimits,
        permissions.Sandbox,
        universal.ImplementsEntry,
        universal.VersionCheckBlock,
        tool.Tool,
    ],
)
def test_every_field_of_the_blocks_is_documented(model: type) -> None:
    """The same for the blocks that authors write."""
    words = set(re.findall(r"[A-Za-z_]+", TEXT))

    assert set() == set(model.model_fields) - words  # type: ignore[attr-defined]


def test_the_documented_variables_are_refused() -> None:
    """The variables that the documentation names as refused are in the table."""
    named = {"PATH", "NODE_OPTIONS", "NODE_PATH", "PYTHONPATH", "PYTHONSTARTUP", "BASH_ENV", "ENV", "IFS"}

    assert named <= set(CODE_NAMES)
