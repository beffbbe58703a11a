"""What is read from /proc and from cgroup files, in both cgroup versions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.launch import procfacts
from sandbox.launch.kernel import CgroupLimits


def write(path: Path, text: str) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_limits_of_cgroup_version_1(tmp_path: Path) -> None:
    """Limits come from the controllers' own files."""
    write(tmp_path / "memory/docker/x/memory.limit_in_bytes", "4096\n")
    write(tmp_path / "memory/docker/x/memory.memsw.limit_in_bytes", "8192\n")
    write(tmp_path / "pids/docker/x/pids.max", "7\n")
    write(tmp_path / "cpu,cpuacct/docker/x/cpu.cfs_quota_us", "50000\n")
    write(tmp_path / "cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n")
    paths = procfacts.parse_cgroup("4:memory:/docker/x\n8:pids:/docker/x\n1:cpu,cpuacct:/docker/x\n0::/\n")

    assert CgroupLimits(4096, 8192, 7, 0.5) == procfacts.cgroup_limits(paths, tmp_path)


def test_no_limit_in_cgroup_version_1(tmp_path: Path) -> None:
    """The huge number and -1 of version 1 mean that there is no limit."""
    write(tmp_path / "memory/x/memory.limit_in_bytes", "9223372036854771712\n")
    write(tmp_path / "memory/x/memory.memsw.limit_in_bytes", "9223372036854771712\n")
    write(tmp_path / "pids/x/pids.max", "max\n")
    write(tmp_path / "cpu/x/cpu.cfs_quota_us", "-1\n")
    write(tmp_path / "cpu/x/cpu.cfs_period_us", "100000\n")
    paths = procfacts.parse_cgroup("4:memory:/x\n8:pids:/x\n1:cpu:/x\n")

    assert CgroupLimits(None, None, None, None) == procfacts.cgroup_limits(paths, tmp_path)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (("4096", "0", "7", "50000 100000"), CgroupLimits(4096, 4096, 7, 0.5)),
        (("max", "max", "max", "max 100000"), CgroupLimits(None, None, None, None)),
        (("4096", "max", "7", "100000 100000"), CgroupLimits(4096, None, 7, 1.0)),
    ],
)
def test_limits_of_cgroup_version_2(tmp_path: Path, files: tuple[str, ...], expected: CgroupLimits) -> None:
    """Memory and swap are limited apart in version 2; together they are what a process can use."""
    for name, text in zip(("memory.max", "memory.swap.max", "pids.max", "cpu.max"), files, strict=True):
        write(tmp_path / "system.slice/docker-x.scope" / name, text + "\n")
    paths = procfacts.parse_cgroup("0::/system.slice/docker-x.scope\n")

    assert expected == procfacts.cgroup_limits(paths, tmp_path)


def test_files_that_are_not_there_are_not_a_limit(tmp_path: Path) -> None:
    """An unreadable cgroup says so instead of looking unlimited or limited."""
    assert CgroupLimits() == procfacts.cgroup_limits({"": "/x"}, tmp_path)
    assert CgroupLimits() == procfacts.cgroup_limits({"memory": "/x"}, tmp_path)


def test_mountinfo_paths_are_unescaped() -> None:
    """A mount point with spaces or line feeds in its name reads as that name."""
    entry = procfacts.parse_mountinfo(r"1 2 8:1 /a\040b /c\012d ro,nosuid shared:1 master:2 - ext4 /dev/x rw,x=y")[0]

    assert ("/a b", "/c\nd", ("shared:1", "master:2")) == (entry.root, entry.target, entry.optional)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/srv/notes", ("254:0", "/srv/notes")),
        ("/home/me/x", ("8:2", "/@home/me/x")),
        ("/home", ("8:2", "/@home")),
        ("/homer", ("254:0", "/homer")),
        ("/home/me/mnt", ("0:9", "/")),
    ],
)
def test_where_a_bind_comes_from(path: str, expected: tuple[str, str]) -> None:
    """The nearest mount above a path tells the file system and the place in it that a bind of it shows."""
    table = procfacts.parse_mountinfo(
        "1 0 254:0 / / rw - ext4 /dev/vda rw\n"
        "2 1 8:2 /@home /home rw - btrfs /dev/sda rw\n"
        "3 2 0:9 / /home/me/mnt rw - tmpfs tmpfs rw\n"
    )

    assert expected == procfacts.bound_from(path, table)


def test_a_process_that_is_gone_is_not_visible() -> None:
    """A pid that nobody has is an error, not an empty status."""
    with pytest.raises(procfacts.NotVisibleError):
        procfacts.gather(2**22 + 1, [], {})


@pytest.mark.anyio
async def test_a_process_of_another_container_is_not_taken_for_ours() -> None:
    """A pid is believed only when its cgroup names the container: ids of processes are used again."""
    with pytest.raises(procfacts.NotVisibleError):
        await procfacts.executed(os.getpid(), "f" * 64)
