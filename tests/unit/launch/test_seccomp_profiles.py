"""The shipped profiles deny by default, give a reason for each allow, and differ only where their names say."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from sandbox.errors import PlatformError
from sandbox.launch import seccomp
from tests.shared import ROOT

FOLDER = ROOT / "policies" / "seccomp"
DANGEROUS = (  # noqa: SIM905 - a list of eighty lines says no more
    "add_key bpf chroot clock_settime create_module delete_module execveat fanotify_init finit_module fsconfig fsmount "
    "fsopen fspick get_mempolicy init_module io_setup io_submit io_uring_enter io_uring_register io_uring_setup ioperm "
    "iopl kcmp kexec_file_load kexec_load keyctl lookup_dcookie mbind migrate_pages mknod mknodat modify_ldt mount "
    "mount_setattr move_mount move_pages name_to_handle_at open_by_handle_at open_tree perf_event_open pidfd_getfd "
    "pivot_root process_madvise process_vm_readv process_vm_writev ptrace quotactl quotactl_fd reboot request_key "
    "sched_setattr set_mempolicy setdomainname setfsuid setgid setgroups sethostname setns setresuid settimeofday "
    "setuid "
    "shmget socketcall swapoff swapon syslog umount2 unshare userfaultfd uselib vhangup vmsplice"
).split()


def profile(name: str) -> dict[str, Any]:
    """Return a shipped profile as JSON."""
    return dict(json.loads((FOLDER / f"{name}.json").read_text()))


def allowed(name: str) -> set[str]:
    """Return the calls that a profile allows without looking at their arguments."""
    rules = profile(name)["syscalls"]
    return {
        call for rule in rules if rule["action"] == "SCMP_ACT_ALLOW" and not rule.get("args") for call in rule["names"]
    }


def test_every_profile_file_is_known() -> None:
    """A profile that nobody loads, or a name without a file, does not exist."""
    assert sorted(seccomp.PROFILES) == sorted(path.stem for path in FOLDER.glob("*.json"))


@pytest.mark.parametrize("name", seccomp.PROFILES)
def test_a_shipped_profile_has_no_fault(name: str) -> None:
    """Every rule has a reason, nothing but x86-64 and AArch64 enters, and the default denies."""
    assert () == seccomp.faults(profile(name))


@pytest.mark.parametrize("name", seccomp.PROFILES)
def test_no_dangerous_call_is_allowed(name: str) -> None:
    """Kernel modules, other processes' memory, namespaces, keys, io_uring and their like stay refused."""
    assert set() == allowed(name) & set(DANGEROUS)


@pytest.mark.parametrize("name", seccomp.PROFILES)
def test_calls_whose_arguments_matter_are_never_allowed_whole(name: str) -> None:
    """Sockets, clone and personality are allowed for named arguments only; clone3 hides its own and is absent."""
    assert set() == allowed(name) & {"socket", "socketpair", "clone", "clone3", "personality"}


def test_net_is_nonet_and_inet() -> None:
    """A reviewer reads one profile and six rules."""
    inner, outer = seccomp.groups(profile("nonet")), seccomp.groups(profile("net"))
    extra = {name for name in outer if name not in inner}

    assert inner == {name: rule for name, rule in outer.items() if name in inner}
    assert {f"socket-{family}-{kind}" for family in ("inet", "inet6") for kind in ("default", "tcp", "udp")} == extra


@pytest.mark.parametrize("name", ["nonet", "net"])
def test_nospawn_differs_in_two_rules(name: str) -> None:
    """The profiles without children lack fork and vfork, and clone makes threads only."""
    usual, still = seccomp.groups(profile(name)), seccomp.groups(profile(f"{name}-nospawn"))

    assert {"process", "clone"} == {group for group in usual if usual[group] != still[group]}
    assert {"fork", "vfork"} == set(usual["process"]["names"]) - set(still["process"]["names"])
    assert (0x7E030000, 0x10000) == (still["clone"]["args"][0]["value"], still["clone"]["args"][0]["valueTwo"])


def test_the_digest_is_that_of_the_bytes_the_engine_gets() -> None:
    """Two files that differ in spaces alone have one digest, and any rule changes it."""
    loaded = {seccomp.load(name).digest for name in seccomp.PROFILES}

    assert len(seccomp.PROFILES) == len(loaded)


def broken(**parts: Any) -> dict[str, Any]:
    """Return a profile with parts replaced; ``rule`` replaces parts of the first rule."""
    value = copy.deepcopy(profile("nonet"))
    value["syscalls"][0].update(parts.pop("rule", {}))
    return value | parts


@pytest.mark.parametrize(
    "value",
    [
        broken(defaultAction="SCMP_ACT_ALLOW"),
        broken(defaultAction="SCMP_ACT_LOG"),
        broken(rule={"comment": ""}),
        broken(rule={"comment": "no group"}),
        broken(rule={"comment": "group: short"}),
        broken(rule={"action": "SCMP_ACT_NOTIFY"}),
        broken(rule={"names": []}),
        broken(archMap=[{"architecture": "SCMP_ARCH_X86", "subArchitectures": []}]),
        broken(archMap=[{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X32"]}]),
        broken(architectures=["SCMP_ARCH_X86_64"]),
        [],
        None,
    ],
)
def test_a_profile_that_a_reviewer_could_not_judge_has_a_fault(value: Any) -> None:
    """An allow without a reason, a default that allows, or 32-bit entry is refused."""
    assert seccomp.faults(value)


@pytest.mark.parametrize("name", ["../default", "NONET", "", "a/b", "nonet.json", "x" * 40, "unconfined"])
def test_a_name_is_a_name_and_not_a_path(name: str) -> None:
    """A plan cannot make the loader read another file."""
    with pytest.raises(PlatformError):
        seccomp.load(name)
