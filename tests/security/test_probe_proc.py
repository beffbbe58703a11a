"""What a hostile server tries with kernel interfaces (probes P01 to P12), each beside its control."""

# ruff: noqa: ASYNC240 - tests may block
from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.plan.baseline import MASKED
from tests.probe_kit import (
    Answers,
    call,
    on_host,
    plain_container,
    probe_plan,
    sandboxed,
    shipped_image,
    weak_container,
)
from tests.probe_report import report

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.claim("P-LAUNCH-11")]

O_WRONLY = 1
REFUSED = {"EROFS", "EACCES", "EPERM", "ENOENT"}
CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")
LISTED = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
)


async def tells(probe: Answers, path: str) -> bool:
    """Return whether a file has content, or a directory entries."""
    if (await probe.ask("ls", path))["names"]:
        return True
    errno, text = await probe.read(path, 64)
    return errno == "OK" and bool(text)


async def writable(probe: Answers, path: str) -> str:
    """Return the outcome of opening a file for writing; nothing is written."""
    return await probe.errno("open", f"s:{path}", O_WRONLY)


async def test_masked_paths() -> None:
    """P01: what tells about the host or other containers is empty or absent."""
    async with sandboxed() as inside, on_host(None) as control:
        found = [path for path in (*LISTED, *MASKED) if await tells(inside, path)]
        free = [path for path in (*LISTED, *MASKED) if await tells(control, path)]

    assert ([], True) == (found, len(free) > 3)
    report(
        "P01", f"all {len({*LISTED, *MASKED})} empty or absent", f"{len(set(free))} of them tell something on this host"
    )


async def test_read_only_paths() -> None:
    """P02: what changes the host is read-only."""
    paths = (
        "/proc/bus/pci/devices",
        "/proc/fs",
        "/proc/irq/default_smp_affinity",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sysrq-trigger",
    )
    async with (
        sandboxed() as inside,
        plain_container(CapAdd=["SYS_ADMIN"], MaskedPaths=[], ReadonlyPaths=[]) as control,
    ):
        found = {path: await writable(inside, path) for path in paths}
        free = {path: await writable(control, path) for path in paths}
        _, mounts = await inside.read("/proc/self/mountinfo")

    assert REFUSED | {"EISDIR"} >= set(found.values())
    assert "OK" in free.values()
    for path in ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"):
        assert f" {path} ro," in mounts
    report("P02", ", ".join(sorted(set(found.values()))) + "; mounted read-only", "opens for writing without the paths")


async def test_core_pattern() -> None:
    """P03: the host's core pattern, which names a program to run, cannot be set."""
    before = CORE_PATTERN.read_text()
    async with sandboxed() as inside, plain_container(CapAdd=["SYS_ADMIN"], ReadonlyPaths=[]) as control:
        found = (await inside.ask("fill", str(CORE_PATTERN), 1))["errno"]
        free = await writable(control, str(CORE_PATTERN))

    assert (True, "OK", before) == (found in REFUSED, free, CORE_PATTERN.read_text())
    report("P03", f"{found}; the host's pattern is unchanged", "opens for writing as root without read-only paths")


async def test_cgroup_release_agent() -> None:
    """P04: no cgroup hierarchy can be mounted, and the agent that runs as host root cannot be set (CVE-2022-0492)."""
    mount = ("mount", "s:none", "s:/tmp", "s:cgroup", 0, "s:memory")
    async with sandboxed() as inside, weak_container() as control:
        found = await inside.errno(*mount)
        files = {
            await writable(inside, f"/sys/fs/cgroup/{folder}{name}")
            for folder in ("", "memory/", "pids/", "systemd/")
            for name in ("release_agent", "notify_on_release")
        }
        free = await control.errno("mount", "s:none", "s:/tmp", "s:tmpfs", 0, 0)

    assert ("EPERM", set(), "OK") == (found, files - REFUSED, free)
    report("P04", f"mount EPERM; files {', '.join(sorted(files))}", "mounting is OK with CAP_SYS_ADMIN and no filter")


async def test_cgroup_limits() -> None:
    """P05: the own limits cannot be raised, nor cgroups made or joined."""
    names = (
        "memory.max",
        "pids.max",
        "cgroup.procs",
        "memory/memory.limit_in_bytes",
        "pids/pids.max",
        "pids/cgroup.procs",
    )
    async with sandboxed() as inside:
        found = {await writable(inside, f"/sys/fs/cgroup/{name}") for name in names}
        made = {await inside.errno("mkdir", f"s:/sys/fs/cgroup/{name}x", 0o755) for name in ("", "pids/", "memory/")}

    assert (set(), set()) == (found - REFUSED, made - REFUSED)
    report("P05", f"files {', '.join(sorted(found))}; mkdir {', '.join(sorted(made))}")


async def test_programs_that_the_kernel_starts() -> None:
    """P06: the helpers that the kernel runs as root cannot be set."""
    paths = (
        "/sys/kernel/uevent_helper",
        "/proc/sys/fs/binfmt_misc/register",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/kernel/hotplug",
    )
    async with sandboxed() as inside, plain_container(CapAdd=["SYS_ADMIN"], ReadonlyPaths=[]) as control:
        found = {path: await writable(inside, path) for path in paths}
        there = [path for path in paths if (await control.ask("mode", path))["errno"] == "OK"]
        free = {await writable(control, path) for path in there}

    assert (set(), set()) == (set(found.values()) - REFUSED, free - {"OK"})
    named = ", ".join(there) or "none of them exists on this kernel"
    report("P06", ", ".join(sorted(set(found.values()))), f"as root without read-only paths these open: {named}")


async def test_debugging_file_systems() -> None:
    """P07: debug, trace, bpf and security file systems are empty or absent."""
    paths = ("/sys/kernel/debug", "/sys/kernel/tracing", "/sys/fs/bpf", "/sys/kernel/security")
    async with sandboxed() as inside, on_host(None) as control:
        found = [path for path in paths if await tells(inside, path)]
        free = [path for path in paths if await tells(control, path)]

    assert [] == found
    report("P07", "empty or absent", f"on this host not empty: {', '.join(free) or 'none is mounted'}")


async def test_processes_of_the_host() -> None:
    """P08: the server sees its own processes only, below an init that is not the host's."""
    async with sandboxed() as inside, on_host() as control:
        found = [name for name in (await inside.ask("ls", "/proc"))["names"] if name.isdigit()]
        init = (await inside.read("/proc/1/cmdline"))[1].split("\0")[0]
        free = [name for name in (await control.ask("ls", "/proc"))["names"] if name.isdigit()]

    assert (2, "/sbin/docker-init", True) == (len(found), init, len(free) > 10)
    report("P08", "two: the init and the server", f"{'more than 10'} on the host")


async def test_other_processes_through_proc() -> None:
    """P09: /proc/<pid> of the init leads nowhere, and another sandbox's processes are not there."""
    async with sandboxed() as inside, sandboxed(probe_plan(argv=("/probe", "canary-of-another-tenant"))):
        root = await inside.errno("open", "s:/proc/1/root/etc/passwd", 0)
        memory = await inside.errno("open", "s:/proc/1/mem", O_WRONLY)
        lines = [
            (await inside.read(f"/proc/{name}/cmdline"))[1]
            for name in (await inside.ask("ls", "/proc"))["names"]
            if name.isdigit()
        ]

    assert ({"EACCES", "ENOENT"} >= {root}, {"EACCES", "OK"} >= {memory}) == (True, True)
    assert not any("canary" in line for line in lines)
    report("P09", f"/proc/1/root {root}; /proc/1/mem {memory} (its own init); no process of another sandbox")


async def test_kernel_addresses_and_messages() -> None:
    """P10: kernel addresses and messages are not told."""
    async with sandboxed() as inside, weak_container() as control:
        symbols = (await inside.read("/proc/kallsyms", 200))[1]
        log = (await inside.read("/dev/kmsg", 1))[0], await inside.errno("syslog", 10, 0, 0)
        free = await control.errno("syslog", 10, 0, 0)

    assert ("", ("ENOENT", "EPERM"), "OK") == (symbols, log, free)
    report("P10", "kallsyms empty, /dev/kmsg ENOENT, syslog EPERM", "syslog OK with CAP_SYSLOG and no filter")


async def test_clocks_and_load_of_the_host() -> None:
    """P11: uptime, load and processor counters are the host's; this is known and not promised otherwise."""
    async with sandboxed() as inside:
        found = [(await inside.read(path))[0] for path in ("/proc/uptime", "/proc/loadavg", "/proc/stat")]

    assert ["OK"] * 3 == found
    report("P11", "readable and the host's: a known side channel under runc")


async def test_writable_files_in_sysfs() -> None:
    """P12: nothing below /sys is writable."""
    code = (
        "import json,os\n"
        "input()\n"
        "found=[os.path.join(d,f) for d,_,fs in os.walk('/sys') for f in fs if os.access(os.path.join(d,f), os.W_OK)]\n"
        "count=sum(len(fs) for _,_,fs in os.walk('/sys'))\n"
        "print(json.dumps({'found': found[:5], 'count': count}))\ninput()\n"
    )
    plan = probe_plan(image_id=shipped_image("python"), argv=("/usr/bin/python3", "-I", "-c", code))
    async with sandboxed(plan) as inside, sandboxed() as probe:
        found = await inside.ask("go")
        opened = {
            await writable(probe, path)
            for path in ("/sys/power/state", "/sys/devices/system/cpu/cpu0/online", "/sys/kernel/profiling")
        }
    free = [path for path in ("/sys/power/state", "/sys/kernel/profiling", "/sys/block") if os.access(path, os.W_OK)]

    assert ([], True, set()) == (found["found"], found["count"] > 100, opened - REFUSED)
    report(
        "P12",
        f"none of {'more than 100'} files",
        f"writable for the tests' user on this host: {', '.join(free) or 'none'}",
    )


async def test_the_probe_can_open_what_it_may() -> None:
    """Every refusal above comes from a probe that opens an ordinary file for writing."""
    async with sandboxed() as inside:
        made = await inside.errnos(call("open", "s:/tmp/x", O_WRONLY | 0o100, 0o600), call("close", "r:0"))

    assert ["OK", "OK"] == made
