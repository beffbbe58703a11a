"""``mcp-sandbox doctor``: what this host can enforce, what it cannot, and how to mend each; nothing is changed.

Gathering (:mod:`sandbox.launch.survey`) and judging (:func:`judge`) are apart: the second is pure, one small function
for each question, and a missing answer is a failed check rather than a silent pass.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from sandbox.errors import SandboxError
from sandbox.launch import advisories, facts, seccomp
from sandbox.launch.engine import API_OLDEST
from sandbox.launch.survey import Survey, survey
from sandbox.limits import DEFAULT_NOFILE, GIB

Status = Literal["ok", "warn", "fail"]

DISK_FAIL: Final = GIB // 2
"""Free bytes of the engine's data directory below which images cannot be built."""

DISK_WARN: Final = 5 * GIB
"""Free bytes below which a few server images will not fit."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report.

    Attributes:
        id: stable, dotted name.
        status: ``ok``; ``warn``, weaker than it could be; ``fail``, servers cannot be run or not as promised.
        what: what was looked at.
        found: what is there.
        fix: what to do about it, empty when nothing needs doing.
    """

    id: str
    status: Status
    what: str
    found: str
    fix: str = ""


def diagnose(
    environ: Mapping[str, str] | None = None, images: Callable[[], Iterable[Check]] | None = None
) -> list[Check]:
    """Return every check, in the order of a reader's questions; never raises for what it finds.

    Args:
        environ: environment, for ``DOCKER_HOST``; this process's own when left out.
        images: further checks about images, by whoever knows them.
    """
    found = survey(os.environ if environ is None else environ)
    checks = judge(found)
    return checks + list(images() if images is not None else ())


def judge(found: Survey) -> list[Check]:
    """Return the checks for what was found; pure."""
    if not found.socket_path:
        where = found.problem or f"nothing answers at {', '.join(found.tried)}"
        fix = "apt-get install docker.io, or start it; then let this user use its socket (group docker)"
        return [Check("engine", "fail", "a container engine answers", where, fix), *_host_checks(found)]
    checks = [
        _engine(found),
        _api(found),
        _socket(found),
        _local(found),
        *_advisory_checks(found),
        _seccomp(found),
        *_controls(found),
        _cgroup(found),
        _descriptors(found),
        _lsm(found),
        _remap(found),
        *_runtimes(found),
        _disk(found),
        _orphans(found),
    ]
    return checks + _host_checks(found)


# --- judging ----------------------------------------------------------------------------------------------------------
def _engine(found: Survey) -> Check:
    text = f"{_kind(found)} {found.version.get('Version', 'unknown')} at {found.socket_path}"
    return Check("engine", "ok", "a container engine answers", text)


def _kind(found: Survey) -> str:
    names = [str(part.get("Name", "")) for part in found.version.get("Components") or ()]
    return "Podman" if any("Podman" in name for name in names) else "Docker"


def _api(found: Survey) -> Check:
    offered = str(found.version.get("ApiVersion", ""))
    numbers = advisories.parse(offered)
    enough = numbers is not None and numbers[:2] >= API_OLDEST
    fix = "" if enough else "upgrade to Docker 20.10 or later, or Podman 4.3 or later"
    return Check("engine.api", "ok" if enough else "fail", "its API can express the baseline", offered or "none", fix)


def _socket(found: Survey) -> Check:
    what = "the engine's socket is not open to everybody (it is root access to this host)"
    mode = stat.filemode(found.socket_mode)
    if found.socket_mode & stat.S_IWOTH:
        return Check("engine.socket", "fail", what, mode, f"chmod o-w {found.socket_path}")
    return Check("engine.socket", "ok", what, mode)


def _local(found: Survey) -> Check:
    what = "running containers can be read back from the kernel"
    if found.local:
        return Check("engine.local", "ok", what, "the engine runs on this machine")
    fix = "run mcp-sandbox on the engine's own machine, outside containers; without it launches are refused"
    return Check("engine.local", "fail", what, "the engine's processes are not visible from here", fix)


def _advisory_checks(found: Survey) -> list[Check]:
    versions = {"runc": facts.runc_version(found.version), "engine": str(found.version.get("Version", ""))}
    if _kind(found) == "Podman":
        del versions["engine"]  # the engine's advisories are about Docker
    return [
        _advisory(entry, versions[entry.component]) for entry in advisories.ADVISORIES if entry.component in versions
    ]


def _advisory(entry: advisories.Advisory, text: str) -> Check:
    what = f"{entry.component} has {entry.id} fixed ({entry.what})"
    version = advisories.parse(text)
    fixed = ", ".join(entry.fixed)
    if version is None:
        return Check(
            entry.id, "warn", what, f"its version is not known; fixed in {fixed}", f"see whether {entry.id} is fixed"
        )
    if not advisories.affected(entry, version):
        return Check(entry.id, "ok", what, text)
    if text.startswith(entry.backported):
        return Check(entry.id, "ok", what, f"{text}, backported by the distribution")
    if advisories.is_distribution(text):
        told = f"version {text} says not, fixed upstream in {fixed}; the distribution may have backported it"
        fix = f"look {entry.id} up in the distribution's security tracker and upgrade; meanwhile: {entry.here}"
        return Check(entry.id, "warn", what, told, fix)
    return Check(entry.id, "fail", what, f"version {text} has not", f"upgrade to {fixed}; meanwhile: {entry.here}")


def _seccomp(found: Survey) -> Check:
    what = "system calls are filtered (seccomp)"
    if not facts.has_seccomp(found.info):
        return Check("seccomp", "fail", what, "the engine does not support it", "use an engine and kernel with seccomp")
    try:
        names = [seccomp.load(name).name for name in seccomp.PROFILES]
    except SandboxError as error:
        return Check("seccomp", "fail", what, error.message, error.mend)
    return Check("seccomp", "ok", what, f"profiles {', '.join(names)}")


def _controls(found: Survey) -> list[Check]:
    missing = facts.missing_controls(found.info)
    names = {"memory": "memory", "swap": "memory and swap", "pids": "processes", "cpu": "processor time"}
    fixes = {"memory": "cgroup_enable=memory", "swap": "swapaccount=1"}
    checks = []
    for control, words in names.items():
        what = f"{words} can be limited"
        boot = f"boot with {fixes[control]}" if control in fixes else "use a kernel with this cgroup controller"
        there = control not in missing
        found_text = "yes" if there else "no"
        checks.append(Check(f"limits.{control}", "ok" if there else "fail", what, found_text, "" if there else boot))
    return checks


def _cgroup(found: Survey) -> Check:
    version = str(found.info.get("CgroupVersion", "1"))
    what = "cgroup version"
    if version == "2":
        return Check("cgroup", "ok", what, "2")
    return Check("cgroup", "warn", what, version, "version 2 is the maintained one; every limit works with 1 as well")


def _descriptors(found: Survey) -> Check:
    what = "descriptors that a server may have"
    if found.hard_nofile >= DEFAULT_NOFILE:
        return Check("limits.nofile", "ok", what, f"up to {found.hard_nofile}")
    fix = f"raise the engine's LimitNOFILE to {DEFAULT_NOFILE} or more"
    return Check("limits.nofile", "fail", what, f"only {found.hard_nofile}", fix)


def _lsm(found: Survey) -> Check:
    what = "a security module confines containers as a second barrier"
    options = [str(option) for option in found.info.get("SecurityOptions") or ()]
    for name in ("apparmor", "selinux"):
        if any(option.startswith(f"name={name}") for option in options):
            return Check("lsm", "ok", what, name)
    there = f"none in the engine; kernel: {', '.join(found.lsm) or 'none'}"
    return Check("lsm", "warn", what, there, "use a kernel with AppArmor or SELinux enabled")


def _remap(found: Survey) -> Check:
    what = "root inside a container is nobody outside (user namespaces)"
    options = [str(option) for option in found.info.get("SecurityOptions") or ()]
    for name in ("userns", "rootless"):
        if any(option.startswith(f"name={name}") for option in options):
            return Check("userns", "ok", what, name)
    allowed = "" if found.userns < 0 else f"; the kernel allows {found.userns}"
    fix = "set userns-remap in the engine's daemon.json, or run it rootless; servers are never root in any case"
    return Check("userns", "warn", what, f"not used{allowed}", fix)


def _runtimes(found: Survey) -> list[Check]:
    known = sorted(found.info.get("Runtimes") or ())
    checks = [Check("runtimes", "ok" if known else "warn", "OCI runtimes of the engine", ", ".join(known) or "unknown")]
    for name, package in (("runsc", "gVisor: apt-get install runsc"), ("kata", "Kata Containers")):
        what = f"a stronger runtime for servers that ask for it ({name})"
        if any(runtime.startswith(name) for runtime in known):
            checks.append(Check(f"runtimes.{name}", "ok", what, "registered"))
        elif found.programs.get(name):
            fix = (
                f'add "{name}": {{"path": "{found.programs[name]}"}} to "runtimes" in daemon.json and reload the engine'
            )
            checks.append(Check(f"runtimes.{name}", "warn", what, "installed and not registered", fix))
        else:
            checks.append(Check(f"runtimes.{name}", "warn", what, "absent", f"install {package}, and register it"))
    return checks


def _disk(found: Survey) -> Check:
    what = "free space for images"
    place = str(found.info.get("DockerRootDir", ""))
    if found.free_bytes < 0:
        return Check("disk", "warn", what, f"{place} cannot be seen from here", "run doctor as a user who can read it")
    status: Status = "fail" if found.free_bytes < DISK_FAIL else "warn" if found.free_bytes < DISK_WARN else "ok"
    fix = "" if status == "ok" else "free space there; `docker system df` shows what uses it"
    return Check("disk", status, what, f"{found.free_bytes / GIB:.1f} GiB in {place}", fix)


def _orphans(found: Survey) -> Check:
    what = "no container is left of supervisors that are gone"
    if not found.orphans:
        return Check("orphans", "ok", what, "none")
    return Check("orphans", "warn", what, f"{found.orphans} left", "run `mcp-sandbox reap`")


def _host_checks(found: Survey) -> list[Check]:
    what = "the kernel has tmpfs, for bounded scratch space"
    there = "tmpfs" in found.file_systems
    fix = "" if there else "use a kernel with tmpfs"
    return [
        Check("tmpfs", "ok" if there else "fail", what, "yes" if there else "no", fix),
        Check("kernel", "ok", "kernel and architecture", found.kernel),
    ]
