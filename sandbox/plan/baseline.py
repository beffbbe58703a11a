"""What every plan satisfies, whatever driver, policy or command line say (design §3).

The rules are checked on the finished plan, again from scratch and without looking at how it came about: a mistake
in any step of the derivation that would weaken a sandbox ends here, with the number of the rule. A rule that fails
is a defect of mcp-sandbox, not of the driver.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import TYPE_CHECKING, Final

from sandbox.errors import PlanRefused
from sandbox.plan.oauth import covers
from sandbox.plan.paths import inside, tidy
from sandbox.plan.targets import EXACT, RESERVED

if TYPE_CHECKING:
    from sandbox.plan.model import SandboxPlan

NOT_OURS: Final = frozenset({0, 65534})
"""Ids that no server runs as: root, and nobody, whose id many systems use for what has no owner."""

USER: Final = "65532:65532"
"""uid and gid of a server without folders of a person: not root; not 65534, which file systems use for reserved
blocks and unmapped owners."""

MASKED: Final = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/config.gz",
    "/proc/interrupts",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/keys",
    "/proc/kmsg",
    "/proc/latency_stats",
    "/proc/modules",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/dmi",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/fs/bpf",
    "/sys/kernel/debug",
    "/sys/kernel/security",
    "/sys/kernel/tracing",
)
"""Covered by an empty entry: what tells about the host or other containers (probes P01, P07, P10, F18). Set
explicitly, for engines' own lists differ by version; what a kernel lacks is skipped by the runtime."""

READONLY: Final = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys")
"""Read only: what changes the host when written (probes P02, P03). ``/proc/sysrq-trigger`` is masked."""

PROFILES: Final = ("nonet", "net", "nonet-nospawn", "net-nospawn")
"""System call profiles; those with ``nonet`` have no INET sockets, those with ``-nospawn`` start no child process."""

CA_TARGET: Final = "/etc/mcp-sandbox/ca-certificates.crt"
"""The one target in a reserved place: the host's CA bundle, read only."""


def _user(plan: SandboxPlan) -> bool:
    uid, _, gid = plan.user.partition(":")
    return uid.isdigit() and gid.isdigit() and not {int(uid), int(gid)} & NOT_OURS


def _content_addressed(plan: SandboxPlan) -> bool:
    return plan.image_id.startswith("sha256:") and bool(plan.argv) and all("\0" not in word for word in plan.argv)


def _targets(plan: SandboxPlan) -> bool:
    return all(
        tidy(mount.target)
        and tidy(mount.source)
        and mount.source != "/"
        and mount.target not in EXACT
        and (
            not any(inside(mount.target, place) for place in RESERVED)
            or (mount.target == CA_TARGET and not mount.writable)
        )
        for mount in plan.mounts
    )


def _ordered(plan: SandboxPlan) -> bool:
    targets = [mount.target for mount in plan.mounts]
    return targets == sorted(set(targets))


def _tmpfs(plan: SandboxPlan) -> bool:
    bounded = all(entry.size_bytes > 0 and entry.inodes > 0 and not entry.executable for entry in plan.tmpfs)
    return bounded and [entry.target for entry in plan.tmpfs] == ["/tmp"]  # noqa: S108 - a path inside the sandbox


def _limits(plan: SandboxPlan) -> bool:
    limits = plan.limits
    amounts = (limits.memory_bytes, limits.cpus, limits.pids, limits.nofile, limits.fsize_bytes, limits.lifetime)
    return all(isfinite(amount) and amount > 0 for amount in (*amounts, limits.call_timeout)) and limits.core_bytes == 0


def _masked(plan: SandboxPlan) -> bool:
    return set(MASKED) <= set(plan.masked_paths) and set(READONLY) <= set(plan.readonly_paths)


def _network(plan: SandboxPlan) -> bool:
    if plan.network.mode == "remote":
        return False
    if plan.network.mode == "none":
        return not plan.network.rules and plan.seccomp.startswith("nonet")
    return bool(plan.network.rules)


def _seccomp(plan: SandboxPlan) -> bool:
    return plan.seccomp in PROFILES and plan.seccomp_digest.startswith("sha256:")


def _init(plan: SandboxPlan) -> bool:
    return plan.init or plan.seccomp.endswith("-nospawn")


def _env(plan: SandboxPlan) -> bool:
    names = [entry.name for entry in plan.env]
    whole = all("\0" not in entry.value and not (entry.value and entry.secret) for entry in plan.env)
    return whole and names == sorted(set(names)) and not any(name.startswith("LD_") for name in names)


def _no_secret_in_argv(plan: SandboxPlan) -> bool:
    return not any("${" in word and "secrets." in word for word in plan.argv)


def _secret_files(plan: SandboxPlan) -> bool:
    targets = [entry.target for entry in plan.secret_files]
    return len(set(targets)) == len(targets) and all(
        inside(target, "/run/secrets") and tidy(target) for target in targets
    )


def _substitutes(plan: SandboxPlan) -> bool:
    if not plan.substitutes:
        return True
    bound = any(mount.target == CA_TARGET for mount in plan.mounts)
    return plan.network.mode == "broker" and not bound and all(entry.hosts for entry in plan.substitutes)


def _runtime(plan: SandboxPlan) -> bool:
    return bool(plan.runtime)


def _workdir(plan: SandboxPlan) -> bool:
    return tidy(plan.workdir) and not any(inside(plan.workdir, place) for place in ("/proc", "/sys", "/dev"))


RULES: Final[tuple[tuple[str, str, Callable[[SandboxPlan], bool]], ...]] = (
    ("PLAN-101", "the server runs neither as root nor as nobody", _user),
    ("PLAN-102", "image and program are fixed", _content_addressed),
    ("PLAN-103", "no mount covers the root, /tmp or a reserved place", _targets),
    ("PLAN-104", "mounts are ordered, parents first, each place once", _ordered),
    ("PLAN-105", "/tmp is the only tmpfs: bounded in bytes and files, without programs", _tmpfs),  # noqa: S108 - a path inside the sandbox
    ("PLAN-106", "every bound is finite and above zero, and core dumps are off", _limits),
    ("PLAN-107", "kernel interfaces are masked or read only", _masked),
    ("PLAN-108", "no destination means no network and a profile without INET", _network),
    ("PLAN-109", "a system call profile of ours is fixed by digest", _seccomp),
    ("PLAN-110", "an init process reaps, unless no child can be started", _init),
    ("PLAN-111", "each variable is set once, and none loads code into programs", _env),
    ("PLAN-112", "no secret stands in an argument", _no_secret_in_argv),
    ("PLAN-113", "the runtime is named", _runtime),
    ("PLAN-118", "secret files lie in /run/secrets, each place once", _secret_files),
    ("PLAN-119", "a placeholder is for named hosts that the egress broker serves", _substitutes),
    ("PLAN-114", "the program starts in a plain folder", _workdir),
)
"""Number, promise and check of every rule. Read-only root, no capabilities, no-new-privileges, private namespaces
and swap off are not fields of a plan: no plan can say otherwise, and ``launch.translate`` sets them always."""


def check(plan: SandboxPlan) -> None:
    """Hold a finished plan to every rule.

    Raises:
        PlanRefused: ``PLAN-1nn``, the first rule that does not hold.
    """
    for id_, promise, holds in RULES:
        if not holds(plan):
            mend = "report this: the driver is not at fault"
            raise PlanRefused(id_, f"the derived plan breaks the baseline: {promise}", mend)


def _nothing_runs(plan: SandboxPlan) -> bool:
    local = (plan.image_id, plan.argv, plan.env, plan.mounts, plan.tmpfs, plan.user, plan.runtime, plan.seccomp)
    return plan.server_kind == "remote" and not any(local) and plan.transport in {"http", "sse"}


def _reachable(plan: SandboxPlan) -> bool:
    plain = plan.remote_url.startswith("http://") and any(name.startswith("unsafe_plain_http:") for name in plan.unsafe)
    return (
        plan.network.mode == "remote" and bool(plan.network.rules) and (plan.remote_url.startswith("https://") or plain)
    )


def _fields(plan: SandboxPlan) -> bool:
    names = [entry.name.lower() for entry in plan.headers]
    return len(set(names)) == len(names) and not any(
        "\n" in entry.value or "\r" in entry.value for entry in plan.headers
    )


def _tokens(plan: SandboxPlan) -> bool:
    auth = plan.auth
    if auth is None:
        return True
    within = covers(auth.resource, plan.remote_url)
    return plan.remote_url.startswith("https://") and within and (bool(auth.issuer) or not auth.client_secret)


REMOTE_RULES: Final[tuple[tuple[str, str, Callable[[SandboxPlan], bool]], ...]] = (
    ("PLAN-106", "every bound is finite and above zero, and core dumps are off", _limits),
    ("PLAN-115", "for a remote server nothing runs and nothing is mounted here", _nothing_runs),
    (
        "PLAN-116",
        "a remote server is among its own destinations, over TLS unless the operator says otherwise",
        _reachable,
    ),
    ("PLAN-117", "each header field is set once, on one line", _fields),
    ("PLAN-120", "tokens are for the server, go over TLS, and a secret goes to an issuer that is named", _tokens),
)
"""The rules of a plan without a container."""


def check_remote(plan: SandboxPlan) -> None:
    """Hold the finished plan of a remote server to every rule.

    Raises:
        PlanRefused: ``PLAN-1nn``.
    """
    for id_, promise, holds in REMOTE_RULES:
        if not holds(plan):
            mend = "report this: the driver is not at fault"
            raise PlanRefused(id_, f"the derived plan breaks the baseline: {promise}", mend)
