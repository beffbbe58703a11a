"""Host facts: what an engine says about itself, what an image declares, and where paths really lead."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from sandbox.launch import facts, usage
from sandbox.launch.interface import Usage

INFO = {
    "MemoryLimit": True,
    "SwapLimit": True,
    "PidsLimit": True,
    "CpuCfsQuota": True,
    "SecurityOptions": ["name=apparmor", "name=seccomp,profile=default"],
}


@pytest.mark.parametrize(
    ("member", "value", "missing"),
    [
        ("MemoryLimit", False, "memory"),
        ("SwapLimit", None, "swap"),
        ("PidsLimit", False, "pids"),
        ("CpuCfsQuota", False, "cpu"),
        ("SecurityOptions", ["name=apparmor"], "seccomp"),
        ("SecurityOptions", None, "seccomp"),
    ],
)
def test_a_control_that_the_engine_lacks_is_named(member: str, value: object, missing: str) -> None:
    """What cannot be enforced has a machine-readable name; what the engine does not mention counts as missing."""
    assert ((), (missing,)) == (facts.missing_controls(INFO), facts.missing_controls({**INFO, member: value}))


@pytest.mark.parametrize(
    ("component", "expected"),
    [
        (
            {"Name": "runc", "Version": "1.1.5+ds1", "Details": {"GitCommit": "1.1.5+ds1-1+deb12u1"}},
            "1.1.5+ds1-1+deb12u1",
        ),
        ({"Name": "runc", "Version": "1.2.8", "Details": {"GitCommit": "v1.2.8-0-geeb7e602"}}, "1.2.8"),
        ({"Name": "containerd", "Version": "1.7"}, ""),
    ],
)
def test_the_runc_version_keeps_a_distributions_revision(component: dict[str, object], expected: str) -> None:
    """A distribution's revision tells whether a fix was backported; a commit hash does not."""
    assert expected == facts.runc_version({"Components": [component]})


def test_an_image_declares_what_it_does_not_get() -> None:
    """Entry point and command make the argument vector; the rest is recorded as declared."""
    described = {
        "Id": "sha256:x",
        "Config": {"Entrypoint": ["/a"], "Cmd": ["b"], "Env": ["A=1=2", "B"], "User": "root", "Volumes": {"/v": {}}},
    }
    found = facts.image_facts("name", described)

    assert (("/a", "b"), {"A": "1=2", "B": ""}) == (found.argv, dict(found.env))
    assert {"User": "root", "Volumes": {"/v": {}}} == dict(found.declared)


def test_links_are_resolved_the_way_the_kernel_goes(tmp_path: Path) -> None:
    """``link/..`` leads to the parent of what the link points to, not to the folder that holds the link."""
    (tmp_path / "far" / "inner").mkdir(parents=True)
    (tmp_path / "near").mkdir()
    (tmp_path / "near" / "link").symlink_to(tmp_path / "far" / "inner")
    found = facts.path_facts(["near/link/.."], tmp_path)["near/link/.."]

    assert (str(tmp_path / "near"), str(tmp_path / "far"), "dir") == (found.asked, found.real, found.kind)


def test_kinds_of_paths(tmp_path: Path) -> None:
    """A folder, a file, a socket, a pipe and nothing are told apart; none of them is opened."""
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    found = facts.path_facts(["dir", "file", "fifo", "socket", "none"], tmp_path)

    assert ["dir", "file", "other", "other", "other"] == [found[name].kind for name in found]
    assert [True, True, True, True, False] == [found[name].exists for name in found]


def test_mounts_below_a_path_are_listed() -> None:
    """A root that holds another mount says so: a bind would not show it, and a reviewer should know."""
    found = facts.path_facts(["/"], Path("/"))["/"]

    assert "/proc" in found.mounts_below


def test_the_engines_own_paths_include_what_they_link_to(tmp_path: Path) -> None:
    """A socket that is reached through a link is protected under both names."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    found = facts.engine_paths(str(tmp_path / "link"), str(tmp_path / "data"))

    assert {str(tmp_path / "link"), str(tmp_path / "real"), str(tmp_path / "data"), "/var/lib/docker"} <= set(found)


def test_descriptors_are_bounded_by_who_listens(tmp_path: Path) -> None:
    """The bound comes from the engine's process, and is never zero."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        assert 0 < facts.hard_nofile(str(path))


@pytest.mark.parametrize(
    ("stats", "expected"),
    [
        (
            {
                "memory_stats": {"usage": 100, "max_usage": 300, "stats": {"total_inactive_file": 40}},
                "cpu_stats": {"cpu_usage": {"total_usage": 2_000_000_000}},
                "pids_stats": {"current": 3},
            },
            Usage(60, 300, 2.0, 3),
        ),
        ({"memory_stats": {"usage": 100, "stats": {"inactive_file": 40}}}, Usage(60, None, None, None)),
        ({}, Usage()),
        ({"memory_stats": {}, "pids_stats": None}, Usage()),
    ],
)
def test_figures_of_both_cgroup_versions(stats: dict[str, object], expected: Usage) -> None:
    """Cache that the kernel would give back is not counted, and what the engine does not say is None."""
    assert expected == usage.from_stats(stats)
