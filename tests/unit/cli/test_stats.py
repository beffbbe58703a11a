"""Live figures: what is shown of engine, kernel, processes and trail."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sandbox.audit.recorder import open_recorder
from sandbox.cli import main, stats
from sandbox.errors import PlatformError
from sandbox.events import Scope, Trace
from sandbox.launch import usage
from sandbox.launch.interface import LABEL_OWNER

pytestmark = pytest.mark.anyio


class ScriptedEngine:
    """Three running servers, of which two end while they are looked at, and one that has ended."""

    def __init__(self, *cpu: int) -> None:
        self.cpu = list(cpu)

    async def labelled(self, kind: str, label: str) -> list[dict[str, Any]]:
        assert (kind, label) == ("containers", stats.SERVERS)
        labels = {LABEL_OWNER: f"boot:{os.getpid()}:1:1"}
        return [
            {"Id": "one", "State": "running", "Created": 1, "Labels": labels},
            {"Id": "gone", "State": "running", "Created": 1},
            {"Id": "going", "State": "running", "Created": 1},
            {"Id": "old", "State": "exited", "Created": 1},
        ]

    async def stats(self, container: str) -> dict[str, Any]:
        if container == "gone":
            raise PlatformError("LAUNCH-001", "it has ended")
        if container == "going":
            return {}
        return {
            "memory_stats": {"usage": 3 << 20, "max_usage": 5 << 20, "limit": 64 << 20},
            "cpu_stats": {"cpu_usage": {"total_usage": self.cpu.pop(0) * 10**9}},
            "pids_stats": {"current": 4},
        }

    async def inspect(self, container: str) -> dict[str, Any]:
        return {"State": {"Pid": 0}}


async def test_a_look_joins_engine_trail_and_processes(tmp_path: Path) -> None:
    """Figures of the engine, driver, tenant, calls and bytes of the trail, the supervisor of the operating system."""
    recorder = open_recorder(tmp_path, "run")
    scope = Scope(recorder, Trace.new(), driver="files", tenant="ada", instance="one")
    scope.intent("call.forward", tool="\x1b[2Jread")
    scope.outcome("egress.connect", host="a.test", bytes_up=1000, bytes_down=2048)
    recorder.close()
    engine: Any = ScriptedEngine(2, 3)
    first = await stats.look(engine, tmp_path, {}, 2.0)
    second = await stats.look(engine, tmp_path, first, 2.0)

    assert ["one"] == list(first)
    assert (None, 50.0) == (first["one"].cpu_percent, second["one"].cpu_percent)
    row = second["one"]
    assert ("files", "ada", 1, 1000, 2048) == (row.driver, row.tenant, row.calls, row.bytes_up, row.bytes_down)
    assert row.supervisor is not None
    assert (os.getpid(), True) == (row.supervisor["pid"], row.supervisor["rss_bytes"] > 0)
    shown = stats.text(second)
    assert ["3.0 MiB", "5.0 MiB", "64.0 MiB"] == [word for word in shown.split("  ") if "MiB" in word]
    assert "50 %" in shown
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(stats.table(second))
    assert "files" in console.export_text()


@pytest.mark.parametrize(
    ("number", "shown"), [(None, "-"), (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1 << 50, "1024.0 TiB")]
)
def test_sizes_for_people(number: int | None, shown: str) -> None:
    """Units of 1024, and a dash where nobody knows."""
    assert shown == stats.size(number)


def test_peak_of_cgroup_version_two(tmp_path: Path) -> None:
    """The kernel's own file of the process's cgroup; None where it does not say."""
    (tmp_path / "proc" / "7").mkdir(parents=True)
    (tmp_path / "proc" / "7" / "cgroup").write_text("0::/docker/abc\n")
    (tmp_path / "cgroup" / "docker" / "abc").mkdir(parents=True)
    (tmp_path / "cgroup" / "docker" / "abc" / "memory.peak").write_text("12345\n")

    assert 12345 == usage.peak_of(7, tmp_path / "proc", tmp_path / "cgroup")
    assert None is usage.peak_of(8, tmp_path / "proc", tmp_path / "cgroup")
    assert None is usage.peak_of(0)


def test_processes_below_one_are_counted() -> None:
    """Figures of a process and its children; nothing of one that is gone."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = usage.processes(os.getpid())
        child.communicate(b"\n")

    assert found["processes"] >= 2
    assert {} == usage.processes(child.pid)


def test_interval_is_bounded(capfd: pytest.CaptureFixture[str]) -> None:
    """An interval that is none is a usage error."""
    assert 2 == main(["stats", "--interval", "0"])
    assert capfd.readouterr().err.startswith("CLI-161")
