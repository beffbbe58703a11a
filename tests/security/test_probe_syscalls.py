"""What a hostile server tries with system calls (probes S01 to S30), each beside its control.

The control is an unprivileged user of the host; where that is refused too, a container with the capabilities and
without a filter. Arguments are chosen so that a call that gets through does no harm.
"""

from __future__ import annotations

import pytest

from tests.probe_kit import (
    Answers,
    call,
    on_host,
    probe_plan,
    sandboxed,
    syscall_numbers,
    weak_container,
)
from tests.probe_report import report

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.claim("P-LAUNCH-09")]

NEWNS, NEWUSER, NEWNET, SIGCHLD = 0x20000, 0x10000000, 0x40000000, 17
MEMBARRIER = ("membarrier", 0, 0)
BAD = 0x7FFFFFFF

# row → calls, each refused with EPERM (ENOSYS for clone3)
REFUSED: dict[str, list[tuple[object, ...]]] = {
    "S01": [("keyctl", 0, -3, 0)],
    "S02": [("add_key", "s:user", "s:x", "s:y", 1, -3)],
    "S03": [("request_key", "s:user", "s:no-such-key", 0, 0)],
    "S04": [("bpf", 0, "z:128", 64), ("bpf", 5, "z:128", 64)],
    "S05": [("userfaultfd", 1)],
    "S06": [("io_uring_setup", 4, "z:128"), ("io_uring_enter", -1, 0, 0, 0, 0, 0), ("io_uring_register", -1, 0, 0, 0)],
    "S07": [("perf_event_open", "i:1,112", 0, -1, -1, 0)],
    "S08": [("unshare", NEWUSER), ("unshare", NEWUSER | NEWNS), ("unshare", NEWUSER | NEWNET), ("unshare", NEWNS)],
    "S09": [("clone", NEWUSER | SIGCHLD, 0, 0, 0, 0), ("clone", NEWNET | SIGCHLD, 0, 0, 0, 0)],
    "S10": [("clone3", 0, 0), ("clone3", "z:88", 88)],
    "S11": [("setns", 0, NEWNET), ("setns", -1, 0)],
    "S12": [
        ("mount", 0, 0, 0, 0, 0),
        ("umount2", "s:/no-such", 0),
        ("pivot_root", "s:/no-such", "s:/no-such"),
        ("move_mount", -1, "s:", -1, "s:", 0),
        ("open_tree", -1, "s:", 0),
        ("fsopen", "s:no-such-fs", 0),
        ("fsmount", -1, 0, 0),
        ("fsconfig", -1, 0, 0, 0, 0),
        ("fspick", -1, "s:", 0),
        ("mount_setattr", -1, "s:", 0, 0, 0),
    ],
    "S13": [("ptrace", 0, 0, 0, 0), ("ptrace", 0x4206, "parent", 0, 0)],
    "S14": [("process_vm_readv", "self", 0, 0, 0, 0, 0), ("process_vm_writev", "self", 0, 0, 0, 0, 0)],
    "S15": [("kcmp", "self", "self", 0, 0, 0), ("pidfd_getfd", -1, 0, 0)],
    "S16": [("kexec_load", 0, 0, 0, BAD), ("kexec_file_load", -1, -1, 0, 0, BAD)],
    "S17": [
        ("reboot", 0, 0, 0, 0),
        ("swapon", "s:/no-such", 0),
        ("swapoff", "s:/no-such"),
        ("acct", "s:/no-such"),
        ("settimeofday", 1, 1),
        ("clock_settime", BAD, 0),
        ("sethostname", 0, -1),
        ("setdomainname", 0, -1),
    ],
    "S18": [("personality", 0x40000), ("personality", 0x400000), ("personality", 8)],
    "S19": [("open_by_handle_at", -1, "z:128", 0), ("name_to_handle_at", -100, "s:/", "z:128", "z:8", 0)],
    "S20": [
        ("quotactl", 0x80000100, 0, 0, 0),
        ("lookup_dcookie", 0, 0, 0),
        ("ustat", 0, "z:128"),
        ("sysfs", 3, 0, 0),
        ("uselib", "s:/x"),
    ],
    "S21": [("fanotify_init", 0, 0), ("fanotify_mark", -1, 0, 0, 0, 0)],
    "S22": [
        ("mbind", 0, 0, 0, 0, 0, 0),
        ("set_mempolicy", 0, 0, 0),
        ("get_mempolicy", 0, 0, 0, 0, 0),
        ("move_pages", 0, 0, 0, 0, 0, 0),
        ("migrate_pages", 0, 0, 0, 0),
    ],
    "S23": [("modify_ldt", 0, "z:16", 16)],
}
HARMLESS_DIFFERENCES = {"lookup_dcookie", "uselib"}
"""Calls that newer kernels no longer have: no control can succeed."""


async def free_outcome(name: str, *arguments: object) -> str:
    """Return the outcome of a call without the sandbox: as nobody, else with capabilities and no filter."""
    async with on_host() as nobody:
        found = await nobody.errno(name, *arguments)
    if found != "EPERM":
        return found
    async with weak_container() as strong:
        return f"{await strong.errno(name, *arguments)} with capabilities"


@pytest.mark.parametrize("row", REFUSED)
async def test_calls_that_no_server_needs(row: str) -> None:
    """S01 to S23: a call that no server needs is refused by the profile, and would be reachable without it."""
    known = [attempt for attempt in REFUSED[row] if attempt[0] in syscall_numbers()]
    async with sandboxed() as inside, sandboxed(probe_plan(seccomp="net")) as networked:
        found = [await inside.errno(*attempt) for attempt in known]
        again = [await networked.errno(*attempt) for attempt in known]
    free = {str(attempt[0]): await free_outcome(*attempt) for attempt in known}

    expected = "ENOSYS" if row == "S10" else "EPERM"
    assert [expected] * len(known) == found == again
    for name, outcome in free.items():
        reachable = not outcome.startswith(("EPERM", expected))
        assert reachable or name in HARMLESS_DIFFERENCES, (name, outcome)
    report(
        row,
        f"{expected}: {', '.join(dict.fromkeys(str(item[0]) for item in known))}",
        ", ".join(f"{n} {o}" for n, o in free.items()),
    )


async def test_a_server_may_confine_itself_further() -> None:
    """S24: seccomp and landlock are there; they can only take away."""
    async with sandboxed() as inside:
        found = [
            await inside.errno("seccomp", 2, 0, "x:0000ff7f"),
            await inside.errno("landlock_create_ruleset", 0, 0, 1),
            await inside.errno("prctl", 22, 2, 0),
        ]

    assert "OK" == found[0]
    assert found[1] in {"OK", "ENOSYS", "EOPNOTSUPP"}
    assert "EFAULT" == found[2]
    report("S24", "allowed, as documented: further filters only tighten")


async def test_execution_from_memory() -> None:
    """S25: memory files are allowed, as documented; executing a descriptor is not."""
    async with sandboxed() as inside, on_host() as control:
        found = await inside.errnos(call("memfd_create", "s:x", 0), call("execveat", "r:0", "s:", 0, 0, 0x1000))
        free = await control.errnos(call("memfd_create", "s:x", 0), call("execveat", "r:0", "s:", 0, 0, 0x1000))

    assert ["OK", "EPERM"] == found
    assert "EPERM" != free[1]
    report(
        "S25",
        "memfd_create OK, execveat EPERM; execve of /proc/self/fd/n is possible: noexec is hygiene, not a promise",
        f"execveat {free[1]} on the host: reachable",
    )


@pytest.mark.skipif("arch_prctl" not in syscall_numbers(), reason="x86-64 only")
@pytest.mark.parametrize(("row", "way"), [("S26", "int80"), ("S27", "x32")])
async def test_other_entries_to_the_kernel(row: str, way: str) -> None:
    """S26, S27: 32-bit and x32 calls end the caller."""
    async with sandboxed() as inside, sandboxed(probe_plan(seccomp="net")) as networked, on_host() as control:
        found, again, free = await inside.ask(way), await networked.ask(way), await control.ask(way)

    assert [(False, 31), (False, 31)] == [(item["answered"], item["signal"]) for item in (found, again)]
    assert True is free["answered"]
    report(row, "killed by SIGSYS", "answered on the host" if free["result"] > 0 else "answered (ENOSYS) on the host")


FAMILIES = {
    "AF_ALG": (38, 5, 0),
    "AF_VSOCK": (40, 1, 0),
    "AF_PACKET": (17, 3, 3),
    "AF_KEY": (15, 3, 2),
    "AF_XDP": (44, 3, 0),
    "AF_BLUETOOTH": (31, 1, 0),
    "AF_CAN": (29, 3, 1),
    "AF_RDS": (21, 5, 0),
    "AF_TIPC": (30, 1, 0),
    "AF_SMC": (43, 1, 0),
    "AF_QIPCRTR": (42, 2, 0),
    "AF_PPPOX": (24, 1, 0),
    "AF_KCM": (41, 2, 0),
    "AF_NFC": (39, 5, 0),
    "AF_NETLINK audit": (16, 3, 9),
    "AF_NETLINK netfilter": (16, 3, 12),
    "AF_NETLINK sock_diag": (16, 3, 4),
    "AF_NETLINK kobject": (16, 3, 15),
    "AF_NETLINK generic": (16, 3, 16),
    "AF_INET raw icmp": (2, 3, 1),
    "AF_INET ping": (2, 2, 1),
    "AF_INET sctp": (2, 1, 132),
    "AF_INET mptcp": (2, 1, 262),
    "AF_INET udplite": (2, 2, 136),
    "AF_INET6 ping": (10, 2, 58),
}
INET = {"tcp": (2, 1, 0), "tcp6": (10, 1, 6), "udp": (2, 2, 17), "udp6": (10, 2, 0)}
LOCAL = {"unix": (1, 1, 0), "unix datagram": (1, 2, 0), "netlink route": (16, 3, 0)}


async def sockets(probe: Answers, wanted: dict[str, tuple[int, int, int]]) -> dict[str, str]:
    """Return the outcome of making each socket."""
    return {name: await probe.errno("socket", *numbers) for name, numbers in wanted.items()}


async def test_socket_families() -> None:
    """S28: only UNIX and route sockets without network, TCP and UDP besides with it; no way to the hypervisor."""
    async with sandboxed() as inside, sandboxed(probe_plan(seccomp="net")) as networked, on_host() as control:
        refused = [await sockets(probe, FAMILIES) for probe in (inside, networked)]
        local = [await sockets(probe, LOCAL) for probe in (inside, networked)]
        inet = [await sockets(probe, INET) for probe in (inside, networked)]
        pair = await inside.errno("socketpair", 1, 1, 0, "z:8"), await inside.errno("socketpair", 30, 1, 0, "z:8")
        free = await sockets(control, FAMILIES)

    assert [{"EPERM"}, {"EPERM"}] == [set(found.values()) for found in refused]
    assert [{"OK"}, {"OK"}] == [set(found.values()) for found in local]
    assert [{"EPERM"}, {"OK"}] == [set(found.values()) for found in inet]
    assert ("OK", "EPERM") == pair
    possible = [name for name, outcome in free.items() if outcome == "OK"]
    assert possible
    report(
        "S28",
        f"EPERM for {len(FAMILIES)} families and protocols; without network INET too",
        f"OK for nobody on this host: {', '.join(possible)}",
    )


async def test_typing_into_a_terminal() -> None:
    """S29: there is no terminal to type into."""
    async with sandboxed() as inside:
        found = [await inside.errno("ioctl", fd, number, "s:x") for fd in (0, 1, 2) for number in (0x5412, 0x541C)]
        tty = (await inside.read("/dev/tty", 1))[0]

    assert ({"ENOTTY", "EINVAL"} >= set(found), "ENXIO") == (True, tty)
    report("S29", "ENOTTY on pipes, /dev/tty ENXIO")


async def test_every_thread_is_filtered() -> None:
    """S30: the filter is in force in every thread and child."""
    async with sandboxed() as inside, on_host() as control:
        found, free = (await inside.ask("threads"))["modes"], (await control.ask("threads"))["modes"]
        status = await inside.status()
        child = await inside.errno("ptrace", 0, 0, 0, 0)

    assert ([2, 2], [0, 0], "EPERM") == (found, free, child)
    report("S30", f"mode 2 in every thread, {status.get('Seccomp_filters', '1')} filter", "0 on the host")


async def test_the_probe_can_call_what_it_may() -> None:
    """Every refusal above comes from a probe whose ordinary calls work."""
    async with sandboxed() as inside:
        found = [await inside.errno(*attempt) for attempt in (("getpid",), MEMBARRIER, ("personality", 0xFFFFFFFF))]

    assert ["OK"] * 3 == found


# group of the profile → a call of it that works, a neighbour that is refused
NEIGHBOURS: dict[str, tuple[tuple[object, ...], tuple[object, ...]]] = {
    "process": (("wait4", -1, 0, 1, 0), ("execveat", -1, "s:", 0, 0, 0)),
    "thread": (("futex", "z:8", 1, 1, 0, 0, 0), ("get_robust_list", 0, "z:8", "z:8")),
    "clone": (("clone", SIGCHLD, 0, 0, 0, 0), ("clone", NEWNS | SIGCHLD, 0, 0, 0, 0)),
    "signal": (("kill", "self", 0), ("ptrace", 0, 0, 0, 0)),
    "memory": (("memfd_create", "s:x", 0), ("memfd_secret", 0)),
    "file-read": (("openat", -100, "s:/probe", 0), ("name_to_handle_at", -100, "s:/", "z:128", "z:8", 0)),
    "file-write": (("mkdirat", -100, "s:/tmp/neighbour", 0o700), ("mknodat", -100, "s:/tmp/n", 0o010600, 0)),
    "file-owner": (("fchmodat", -100, "s:/tmp", 0o1777), ("chroot", "s:/tmp")),
    "pipe": (("pipe2", "z:8", 0), ("vmsplice", -1, 0, 0, 0)),
    "event": (("epoll_create1", 0), ("io_setup", 1, "z:8")),
    "time": (("clock_gettime", 0, "z:16"), ("clock_settime", 0, "z:16")),
    "identity": (("getuid",), ("setuid", 65532)),
    "session": (("setsid",), ("vhangup",)),
    "limits": (("prlimit64", 0, 7, 0, "z:16"), ("ioprio_set", 1, 0, 0)),
    "sched": (("sched_getaffinity", 0, 128, "z:128"), ("sched_setscheduler", 0, 0, "z:8")),
    "control": (("prctl", 16, "z:32", 0, 0, 0), ("modify_ldt", 0, 0, 0)),
    "tighten": (("seccomp", 2, 0, "x:0000ff7f"), ("bpf", 0, 0, 0)),
    "personality-read": (("personality", 0xFFFFFFFF), ("personality", 0x40000)),
    "personality-linux": (("personality", 0), ("personality", 8)),
    "socket-use": (("getsockname", "r:0", "z:128", "x:80000000"), ("socket", 38, 5, 0)),
    "socketpair-unix": (("socketpair", 1, 1, 0, "z:8"), ("socketpair", 2, 1, 0, "z:8")),
    "socket-unix": (("socket", 1, 1, 0), ("socket", 40, 1, 0)),
    "socket-netlink-route": (("socket", 16, 3, 0), ("socket", 16, 3, 9)),
    "socket-inet-default": (("socket", 2, 1, 0), ("socket", 2, 1, 132)),
    "socket-inet-tcp": (("socket", 2, 1, 6), ("socket", 2, 1, 262)),
    "socket-inet-udp": (("socket", 2, 2, 17), ("socket", 2, 2, 136)),
    "socket-inet6-default": (("socket", 10, 1, 0), ("socket", 10, 1, 132)),
    "socket-inet6-tcp": (("socket", 10, 1, 6), ("socket", 10, 1, 262)),
    "socket-inet6-udp": (("socket", 10, 2, 17), ("socket", 10, 2, 136)),
}


@pytest.mark.parametrize("group", NEIGHBOURS)
async def test_each_rule_is_needed_and_narrow(group: str) -> None:
    """A call of each group works under the profile, and a neighbour that the group could have held is refused."""
    works, refused = NEIGHBOURS[group]
    if works[0] not in syscall_numbers() or refused[0] not in syscall_numbers():
        pytest.skip("not a call of this architecture")
    async with sandboxed(probe_plan(seccomp="net")) as inside:
        before = [call("socket", 1, 1, 0)] if group == "socket-use" else []
        found = (await inside.errnos(*before, call(*works)))[-1]
        neighbour = await inside.errno(*refused)

    # wait4 without children: the call is made and says so
    assert ({"OK", "ECHILD"} >= {found}, "EPERM") == (True, neighbour)


def test_every_rule_has_its_neighbour() -> None:
    """No group of the profile is without such a test."""
    import json

    from sandbox.launch import seccomp

    profile = json.loads(seccomp.load("net").text)
    allowed = {name for name, rule in seccomp.groups(profile).items() if rule["action"] == "SCMP_ACT_ALLOW"}

    assert allowed == set(NEIGHBOURS)


@pytest.mark.parametrize("profile", ["nonet-nospawn", "net-nospawn"])
async def test_a_server_that_may_start_nothing(profile: str) -> None:
    """Under a profile without children fork, vfork and a clone that is no thread fail; threads work."""
    plan = probe_plan(seccomp=profile, init=False)
    async with sandboxed(plan) as inside, sandboxed() as control:
        # the probe forks for every attempt, so its own answer is the attempt
        found = [(await inside.ask("sys", *call("getpid")))["errno"], (await inside.ask("forks", 1))["errno"]]
        threads = (await inside.ask("threads"))["modes"]
        free = (await control.ask("forks", 1))["errno"]

    assert (["EPERM", "EPERM"], [2, 2], "OK") == (found, threads, free)
