"""Fixtures of every test, and the rule that a skipped engine test is never silent."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples at every run of CI: what it finds can be told from what a change broke. People's runs explore.
settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("MCP_SANDBOX_REQUIRE_ENGINE") == "1":
    settings.load_profile("ci")

ENGINE_SOCKET = Path(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://"))


def engine_answers() -> bool:
    """Return whether a container engine listens where the tests look for one."""
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(5)
            probe.connect(str(ENGINE_SOCKET))
    except OSError:
        return False
    return True


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    """Keep together what shares a start or a network, where `--dist loadfile` is asked for."""
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.by_lab import ByLab

    return ByLab(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip engine tests where no engine answers; with MCP_SANDBOX_REQUIRE_ENGINE=1, as in CI, fail instead."""
    if not any(item.get_closest_marker("engine") for item in items) or engine_answers():
        return
    if os.environ.get("MCP_SANDBOX_REQUIRE_ENGINE") == "1":
        raise pytest.UsageError(f"engine tests must run, and no container engine answers at {ENGINE_SOCKET}")
    skip = pytest.mark.skip(reason=f"no container engine answers at {ENGINE_SOCKET}")
    for item in items:
        if item.get_closest_marker("engine"):
            item.add_marker(skip)


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Name bytes by their number: what is drawn anew in each process has another name in each worker otherwise."""
    return f"{argname}-{len(val)}" if isinstance(val, bytes) else None


@pytest.fixture
def anyio_backend() -> str:
    """The product runs on asyncio only: the attached socket needs its transports."""
    return "asyncio"


@pytest.fixture(scope="session")
def node_available() -> bool:
    """Whether Node.js is on this host, for peers that tests run outside the sandbox."""
    return shutil.which("node") is not None
