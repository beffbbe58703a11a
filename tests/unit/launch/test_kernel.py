"""The kernel's word about the running process is held against the plan; an engine's word alone is not enough."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sandbox.launch import kernel
from sandbox.launch.kernel import CgroupLimits, MountEntry, ProcessFacts, differences
from sandbox.launch.procfacts import parse_mountinfo
from sandbox.launch.translate import Joined
from sandbox.limits import MIB
from sandbox.plan.model import Mount
from sandbox.testing.plans import baseline_plan

PLAN = baseline_plan(mounts=(Mount("/srv/notes", "/data", writable=False),), masked_paths=("/proc/keys", "/proc/acpi"))

MOUNTINFO = """\
72 48 0:39 / / ro,relatime master:2 - overlay overlay rw,lowerdir=/x
73 72 0:42 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw
74 72 0:43 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755
75 74 0:44 / /dev/pts rw,nosuid,noexec,relatime - devpts devpts rw,gid=5,mode=620,ptmxmode=666
76 72 0:45 / /sys ro,nosuid,nodev,noexec,relatime - sysfs sysfs ro
77 76 0:46 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,mode=755
81 77 0:32 /docker/fe /sys/fs/cgroup/memory ro,nosuid,nodev,noexec,relatime - cgroup cgroup rw,memory
87 74 0:41 / /dev/mqueue rw,nosuid,nodev,noexec,relatime - mqueue mqueue rw
88 74 0:47 / /dev/shm rw,nosuid,nodev,noexec,relatime - tmpfs shm rw,size=16384k
89 72 254:0 /usr/bin/tini-static /sbin/docker-init ro,relatime - ext4 /dev/vda rw
90 72 0:48 / /tmp rw,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,size=16384k,nr_inodes=1024
91 72 254:0 /var/lib/docker/containers/fe/resolv.conf /etc/resolv.conf ro,relatime - ext4 /dev/vda rw
92 72 254:0 /var/lib/docker/containers/fe/hostname /etc/hostname ro,relatime - ext4 /dev/vda rw
93 72 254:0 /var/lib/docker/containers/fe/hosts /etc/hosts ro,relatime - ext4 /dev/vda rw
94 72 254:0 /srv/notes /data ro,relatime - ext4 /dev/vda rw
49 73 0:42 /bus /proc/bus ro,nosuid,nodev,noexec,relatime - proc proc rw
53 73 0:49 / /proc/acpi ro,relatime - tmpfs tmpfs ro
55 73 0:43 /null /proc/keys rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755
"""

STATUS = {
    "Uid": "65532\t65532\t65532\t65532",
    "Gid": "65532\t65532\t65532\t65532",
    "Groups": "65532",
    "NSpid": "14162\t1",
    **dict.fromkeys(kernel.CAPABILITY_SETS, "0" * 16),
    "NoNewPrivs": "1",
    "Seccomp": "2",
    "Seccomp_filters": "1",
}
LIMITS = {
    "Max open files": (256, 256),
    "Max file size": (32 * MIB, 32 * MIB),
    "Max core file size": (0, 0),
}
FACTS = ProcessFacts(
    status=STATUS,
    limits=LIMITS,
    mounts=parse_mountinfo(MOUNTINFO),
    shared_namespaces=(),
    sources={"/srv/notes": ("254:0", "/srv/notes")},
    present=frozenset({"/proc/keys", "/proc/acpi", "/proc/bus"}),
    cgroup=CgroupLimits(128 * MIB, 128 * MIB, 64, 1.0),
)


def fields(facts: ProcessFacts) -> list[str]:
    """Return the names of what differs."""
    return [item.field for item in differences(PLAN, Joined(), facts)]


def with_mount(target: str, **parts: Any) -> ProcessFacts:
    """Return the facts with one mount made otherwise."""
    mounts = tuple(dataclasses.replace(item, **parts) if item.target == target else item for item in FACTS.mounts)
    assert mounts != FACTS.mounts
    return dataclasses.replace(FACTS, mounts=mounts)


def test_a_faithful_process_does_not_differ() -> None:
    """The mount table, status and limits of a real container of the plan have no difference."""
    assert [] == fields(FACTS)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("Uid", "0\t0\t0\t0", "kernel.uid"),
        ("Uid", "65532\t0\t65532\t65532", "kernel.uid"),
        ("Gid", "0\t0\t0\t0", "kernel.gid"),
        ("Groups", "65532 0", "kernel.groups"),
        ("CapEff", "00000000a80425fb", "kernel.CapEff"),
        ("CapPrm", "0000000000002000", "kernel.CapPrm"),
        ("CapInh", "0000000000002000", "kernel.CapInh"),
        ("CapBnd", "000001ffffffffff", "kernel.CapBnd"),
        ("CapAmb", "0000000000000001", "kernel.CapAmb"),
        ("NoNewPrivs", "0", "kernel.no_new_privs"),
        ("Seccomp", "0", "kernel.seccomp"),
        ("Seccomp", "1", "kernel.seccomp"),
        ("Seccomp_filters", "0", "kernel.seccomp_filters"),
        ("NSpid", "14162", "kernel.pid namespace"),
    ],
)
def test_every_privilege_counts(name: str, value: str, expected: str) -> None:
    """One bit in one capability set, or a filter that is not in force, is a difference."""
    assert [expected] == fields(dataclasses.replace(FACTS, status={**STATUS, name: value}))


@pytest.mark.parametrize("name", sorted(STATUS))
def test_a_field_that_the_kernel_does_not_tell_is_a_difference(name: str) -> None:
    """What cannot be read is not taken for granted; only what older kernels lack may be missing."""
    status = {key: value for key, value in STATUS.items() if key != name}
    optional = {"Seccomp_filters", "Groups"}

    assert (name in optional) == (fields(dataclasses.replace(FACTS, status=status)) == [])


@pytest.mark.parametrize("name", kernel.NAMESPACES)
def test_a_shared_namespace_is_found(name: str) -> None:
    """A namespace of the host is a difference."""
    assert ["namespaces"] == fields(dataclasses.replace(FACTS, shared_namespaces=(name,)))


@pytest.mark.parametrize(
    ("target", "parts", "expected"),
    [
        ("/", {"options": frozenset({"rw"})}, "kernel.mounts[/].options"),
        ("/data", {"options": frozenset({"rw"})}, "kernel.mounts[/data].writable"),
        ("/data", {"root": "/etc"}, "kernel.mounts[/data].source"),
        ("/data", {"device": "0:99"}, "kernel.mounts[/data].source"),
        ("/data", {"root": "/srv/notes//deleted"}, "kernel.mounts[/data].source"),
        ("/data", {"optional": ("shared:5",)}, "kernel.mounts[/data].propagation"),
        ("/tmp", {"options": frozenset({"rw", "nosuid", "nodev"})}, "kernel.mounts[/tmp].options"),
        ("/tmp", {"options": frozenset({"rw", "noexec", "nodev"})}, "kernel.mounts[/tmp].options"),
        ("/tmp", {"superblock": frozenset({"rw", "nr_inodes=1024"})}, "kernel.mounts[/tmp].size"),
        ("/tmp", {"superblock": frozenset({"rw", "size=1g", "nr_inodes=1024"})}, "kernel.mounts[/tmp].size"),
        ("/tmp", {"superblock": frozenset({"rw", "size=16384k"})}, "kernel.mounts[/tmp].inodes"),
        ("/tmp", {"kind": "ext4"}, "kernel.mounts[/tmp].type"),
        ("/dev/shm", {"superblock": frozenset({"rw"})}, "kernel.mounts[/dev/shm].size"),
        ("/dev", {"kind": "devtmpfs"}, "kernel.mounts[/dev].type"),
        ("/sys", {"options": frozenset({"rw", "nosuid", "nodev", "noexec"})}, "kernel.mounts[/sys].options"),
        ("/sys/fs/cgroup/memory", {"options": frozenset({"rw"})}, "kernel.mounts[/sys/fs/cgroup/memory].options"),
        ("/sys/fs/cgroup", {"kind": "ext4"}, "kernel.mounts[/sys/fs/cgroup].type"),
        ("/etc/hosts", {"options": frozenset({"rw"})}, "kernel.mounts[/etc/hosts].options"),
        ("/sbin/docker-init", {"options": frozenset({"rw"})}, "kernel.mounts[/sbin/docker-init].options"),
        ("/proc/bus", {"options": frozenset({"rw"})}, "kernel.mounts[/proc/bus].options"),
        ("/proc/keys", {"root": "/sys/kernel/core_pattern", "device": "0:42"}, "kernel.mounts[/proc/keys].mask"),
        ("/proc/keys", {"device": "254:0"}, "kernel.mounts[/proc/keys].mask"),
        ("/proc/acpi", {"options": frozenset({"rw"})}, "kernel.mounts[/proc/acpi].mask"),
    ],
)
def test_a_mount_made_otherwise_is_found(target: str, parts: dict[str, Any], expected: str) -> None:
    """Flags, sources, sizes, masks and propagation are compared mount by mount (CVE-2025-31133: redirected masks)."""
    assert expected in fields(with_mount(target, **parts))


@pytest.mark.parametrize(
    "target", ["/host", "/data/inner", "/var/run/docker.sock", "/dev/sda", "/proc/sys/kernel", "/run"]
)
def test_a_mount_too_many_is_found(target: str) -> None:
    """Whatever is mounted beside the plan is a difference, a mount below a planned root too."""
    extra = MountEntry("254:0", "/x", target, frozenset({"ro"}), (), "ext4", frozenset())

    assert [f"kernel.mounts[{target}]"] == fields(dataclasses.replace(FACTS, mounts=(*FACTS.mounts, extra)))


@pytest.mark.parametrize("target", ["/", "/data", "/tmp", "/proc/keys", "/proc/acpi", "/proc/bus"])
def test_a_mount_too_few_is_found(target: str) -> None:
    """A planned mount, mask or read-only path that the kernel does not show is a difference."""
    mounts = tuple(item for item in FACTS.mounts if item.target != target)

    assert [f"kernel.mounts[{target}]"] == fields(dataclasses.replace(FACTS, mounts=mounts))


@pytest.mark.parametrize("name", sorted(LIMITS))
def test_every_process_limit_counts(name: str) -> None:
    """A limit that is higher, or gone, is a difference."""
    higher = dataclasses.replace(FACTS, limits={**LIMITS, name: (LIMITS[name][0], None)})
    gone = dataclasses.replace(FACTS, limits={key: value for key, value in LIMITS.items() if key != name})

    assert [[f"kernel.{name.lower()}"]] * 2 == [fields(higher), fields(gone)]


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        (CgroupLimits(None, 128 * MIB, 64, 1.0), "kernel.memory"),
        (CgroupLimits(128 * MIB, None, 64, 1.0), "kernel.memory and swap"),
        (CgroupLimits(128 * MIB, 256 * MIB, 64, 1.0), "kernel.memory and swap"),
        (CgroupLimits(128 * MIB, 128 * MIB, None, 1.0), "kernel.pids"),
        (CgroupLimits(128 * MIB, 128 * MIB, 64, None), "kernel.cpus"),
        (CgroupLimits(128 * MIB, 128 * MIB, 64, 2.0), "kernel.cpus"),
        (CgroupLimits(128 * MIB, 128 * MIB, 64, -1), "kernel.cpus"),
    ],
)
def test_a_limit_that_the_cgroup_does_not_enforce_is_found(cgroup: CgroupLimits, expected: str) -> None:
    """A limit that the engine repeats and never wrote is a difference."""
    assert [expected] == fields(dataclasses.replace(FACTS, cgroup=cgroup))


def test_an_unreadable_cgroup_is_a_difference_in_everything() -> None:
    """No figures is not the same as the right figures."""
    assert 4 == len(fields(dataclasses.replace(FACTS, cgroup=CgroupLimits())))


def test_a_mask_below_a_root_is_looked_for_in_the_roots_source() -> None:
    """A denied path inside a mounted folder must be masked exactly when the folder has it."""
    plan = dataclasses.replace(PLAN, masked_paths=("/data/.env", "/proc/keys"), readonly_paths=())

    assert {"/data/.env": "/srv/notes/.env", "/proc/keys": "/proc/keys"} == kernel.guarded_paths(plan)
