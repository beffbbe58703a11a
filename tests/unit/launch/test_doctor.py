"""The doctor tells what this host lacks, with the fix, and never takes a missing answer for a good one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from sandbox.launch import advisories, doctor
from sandbox.launch.advisories import ADVISORIES, Advisory
from sandbox.launch.doctor import Check, judge
from sandbox.launch.survey import Survey
from sandbox.limits import GIB

INFO = {
    "MemoryLimit": True,
    "SwapLimit": True,
    "PidsLimit": True,
    "CpuCfsQuota": True,
    "CgroupVersion": "2",
    "SecurityOptions": ["name=apparmor", "name=seccomp,profile=builtin", "name=userns"],
    "Runtimes": {"runc": {}, "runsc": {}, "kata-qemu": {}},
    "DockerRootDir": "/var/lib/docker",
}


def version(engine: str = "28.5.1", runc: str = "1.3.6", api: str = "1.51") -> dict[str, Any]:
    """Return an engine's ``/version``."""
    parts = [{"Name": "Engine", "Version": engine}, {"Name": "runc", "Version": runc, "Details": {"GitCommit": "v1"}}]
    return {"Version": engine, "ApiVersion": api, "Components": parts}


GOOD = Survey(
    tried=("/var/run/docker.sock",),
    socket_path="/var/run/docker.sock",
    info=INFO,
    version=version(),
    socket_mode=0o140660,
    hard_nofile=1024 * 1024,
    free_bytes=100 * GIB,
    local=True,
    file_systems=frozenset({"tmpfs", "ext4"}),
    lsm=("apparmor",),
    userns=1000,
    kernel="Linux 6.12 x86_64",
)


def verdicts(**parts: Any) -> dict[str, Check]:
    """Return the checks of the good host with parts replaced, by id."""
    return {check.id: check for check in judge(dataclasses.replace(GOOD, **parts))}


def test_a_good_host_has_nothing_to_mend() -> None:
    """Every check of a host that lacks nothing is ok and asks for nothing."""
    found = verdicts()

    assert {("ok", "")} == {(check.status, check.fix) for check in found.values()}


@pytest.mark.parametrize(
    ("parts", "name", "status"),
    [
        ({"version": version(api="1.40")}, "engine.api", "fail"),
        ({"version": {}}, "engine.api", "fail"),
        ({"socket_mode": 0o140666}, "engine.socket", "fail"),
        ({"local": False}, "engine.local", "fail"),
        ({"info": {**INFO, "SecurityOptions": []}}, "seccomp", "fail"),
        ({"info": {**INFO, "SecurityOptions": []}}, "lsm", "warn"),
        ({"info": {**INFO, "SecurityOptions": []}}, "userns", "warn"),
        ({"info": {**INFO, "MemoryLimit": False}}, "limits.memory", "fail"),
        ({"info": {**INFO, "SwapLimit": False}}, "limits.swap", "fail"),
        ({"info": {**INFO, "PidsLimit": False}}, "limits.pids", "fail"),
        ({"info": {**INFO, "CpuCfsQuota": False}}, "limits.cpu", "fail"),
        ({"info": {**INFO, "CgroupVersion": "1"}}, "cgroup", "warn"),
        ({"info": {**INFO, "Runtimes": {"runc": {}}}}, "runtimes.runsc", "warn"),
        ({"info": {**INFO, "Runtimes": {"runc": {}}}}, "runtimes.kata", "warn"),
        ({"info": {}}, "limits.memory", "fail"),
        ({"hard_nofile": 512}, "limits.nofile", "fail"),
        ({"free_bytes": GIB // 4}, "disk", "fail"),
        ({"free_bytes": 2 * GIB}, "disk", "warn"),
        ({"free_bytes": -1}, "disk", "warn"),
        ({"orphans": 2}, "orphans", "warn"),
        ({"file_systems": frozenset({"ext4"})}, "tmpfs", "fail"),
        ({"version": version(runc="1.1.11")}, "CVE-2024-21626", "fail"),
        ({"version": version(runc="")}, "CVE-2024-21626", "warn"),
        ({"version": version(engine="24.0.9")}, "CVE-2024-29018", "fail"),
    ],
)
def test_each_lack_is_found_and_has_a_fix(parts: dict[str, Any], name: str, status: str) -> None:
    """A host that lacks one thing is told which, and what to do."""
    check = verdicts(**parts)[name]

    assert (status, True) == (check.status, bool(check.fix))


def test_no_engine_is_one_failure_and_not_many() -> None:
    """Without an engine the reader is told that, and where it was looked for."""
    checks = judge(Survey(tried=("/a.sock", "/b.sock"), file_systems=frozenset({"tmpfs"}), kernel="Linux"))

    assert [("engine", "fail"), ("tmpfs", "ok"), ("kernel", "ok")] == [(check.id, check.status) for check in checks]
    assert "/a.sock, /b.sock" in checks[0].found


def test_a_registered_runtime_that_is_only_installed_gets_its_line_of_configuration() -> None:
    """An installed runtime that the engine does not know comes with the line to add."""
    check = verdicts(info={**INFO, "Runtimes": {"runc": {}}}, programs={"runsc": "/usr/bin/runsc"})["runtimes.runsc"]

    assert '"runsc": {"path": "/usr/bin/runsc"}' in check.fix


def test_a_distributions_version_is_not_called_vulnerable_for_its_number() -> None:
    """Debian's package may carry the fix under the old number: a warning, and honest about it."""
    found = verdicts(version=version(runc="1.1.5+ds1-1+deb12u1", engine="20.10.24+dfsg1"))

    assert ("ok", "warn", "warn") == tuple(
        found[name].status for name in ("CVE-2024-21626", "CVE-2025-31133", "CVE-2024-29018")
    )
    assert "may have backported" in found["CVE-2025-31133"].found


@pytest.mark.parametrize(
    ("text", "hit"),
    [
        ("1.0.0", True),
        ("1.1.15", True),
        ("1.2.7", True),
        ("1.2.8", False),
        ("1.2.9", False),
        ("1.3.0", True),
        ("1.3.2", True),
        ("1.3.3", False),
        ("v1.3.3-0-gabc", False),
        ("1.4.0-rc.2", True),
        ("1.4.0-rc.3", False),
        ("1.4.0", False),
        ("1.5.0", False),
        ("2.0.0", False),
    ],
)
def test_every_branch_is_judged_by_its_own_fix(text: str, hit: bool) -> None:
    """A fix in a newer branch does not make an older one vulnerable, nor the reverse."""
    entry = next(item for item in ADVISORIES if item.id == "CVE-2025-31133")
    number = advisories.parse(text)

    assert number is not None
    assert hit == advisories.affected(entry, number)


@pytest.mark.parametrize("entry", ADVISORIES, ids=lambda entry: entry.id)
def test_every_advisory_is_complete(entry: Advisory) -> None:
    """An advisory says what is gained, what stands in the way, and where it is fixed, branches ascending."""
    numbers = [advisories.parse(text) for text in entry.fixed]

    assert None not in numbers
    assert (sorted(numbers), True, True) == (numbers, bool(entry.what), bool(entry.here))


def test_nothing_found_raises(tmp_path: Path) -> None:
    """The doctor reports a host without an engine instead of failing on it, and asks the images' checks too."""
    extra = Check("images", "warn", "images are built", "none", "run it")
    found = doctor.diagnose({"DOCKER_HOST": f"unix://{tmp_path}/none"}, lambda: [extra])

    assert ("engine", extra) == (found[0].id, found[-1])
    assert "fail" == doctor.diagnose({"DOCKER_HOST": "tcp://127.0.0.1:1"})[0].status
