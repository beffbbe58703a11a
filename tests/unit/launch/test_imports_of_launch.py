"""Nothing heavy stands between a person and the start of a container."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.shared import ROOT


@pytest.mark.parametrize("module", ["sandbox.launch.docker", "sandbox.launch.reap", "sandbox.launch.discover"])
def test_the_start_path_does_not_import_the_docker_package(module: str) -> None:
    """Importing the docker package costs two thirds of a container's start (ADR 0030)."""
    code = f"import sys, {module}; print(*sorted({{'docker', 'requests', 'urllib3'}} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert [] == found


def test_the_watchdog_imports_nothing_while_it_waits() -> None:
    """The watchdog is one small process of every session: until it is needed it holds the bare interpreter."""
    code = "import sys; before = set(sys.modules); import runpy; sys.argv = ['w']; bare = set(sys.modules)\n"
    code += "from sandbox.launch import watchdog\n"
    code += "print(*sorted({'json', 'socket', 'http.client', 'asyncio'} & (set(sys.modules) - bare)))"
    found = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout

    assert [] == found.split()
