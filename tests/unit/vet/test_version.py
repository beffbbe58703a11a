"""Which program a version check runs, and that a version outside the range is a refusal (S0-57)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox.spec.model import NpmServer, VersionCheck
from sandbox.supervisor.version import argv_of
from sandbox.testing.plans import baseline_plan
from tests.unit.serve.builders import contract_of, spec_of


def check(argv: tuple[str, ...], *, of_server: bool) -> VersionCheck:
    """Return a check as the loader makes it."""
    return VersionCheck(cmd=" ".join(argv), parse="v(.*)", range=">=1", argv=argv, of_server=of_server)


@pytest.mark.parametrize(
    ("argv", "of_server", "expected"),
    [
        (("--version",), True, ("/usr/bin/node", "/app/server.js", "--version")),
        (("git", "--version"), False, ("git", "--version")),
    ],
)
def test_the_installed_server_is_asked_without_its_arguments(
    argv: tuple[str, ...], expected: tuple[str, ...], *, of_server: bool
) -> None:
    """``npx PACKAGE --version`` becomes the installed program; another program stays what it is."""
    spec = spec_of(contract_of()).model_copy(
        update={"server": NpmServer(kind="npm", package="p", args=("/workspace",))}
    )
    plan = replace(baseline_plan(), argv=("/usr/bin/node", "/app/server.js", "/workspace"))

    assert expected == argv_of(spec, plan, check(argv, of_server=of_server))
