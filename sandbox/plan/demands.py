"""What the driver demands of this host besides files, bounds and variables: each is given whole, or refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sandbox.plan.bounds import CONTROLS
from sandbox.plan.paths import tidy
from sandbox.policy.ceiling_values import listed, show, star

if TYPE_CHECKING:
    from sandbox.plan.draft import Draft
    from sandbox.plan.model import ImageFacts

ARCH: Final = {"amd64": "x64", "x86_64": "x64", "arm64": "arm64", "aarch64": "arm64", "386": "x86", "arm": "arm"}
"""Engine's word for the processor → AIP-30's (``requires.arch``)."""

REQUIRES: Final = ("os", "arch", "min_memory_mb", "min_disk_mb")
"""Members of ``requires`` that are understood."""

MEBI: Final = 1024 * 1024


def server(draft: Draft) -> None:
    """Judge what kind of server it is, how it is installed, and how its bytes travel."""
    spec, ceiling, host = draft.spec, draft.ceiling, draft.host
    kind = spec.server.kind
    entry = listed(ceiling.servers, kind)
    if entry is None:
        _unlisted(
            draft, "PLAN-001", "server.kind", "this kind of server is not allowed", kind, "servers", ceiling.servers
        )
    else:
        draft.because("server_kind", kind, entry.reason, draft.at("server.kind"))
    if kind == "remote" and not host.remote_available:
        mend = "use a local server until remote servers can be reached through the egress broker"
        draft.refuse("PLAN-004", "server.kind", "a remote server is not yet enforceable here", found=kind, mend=mend)
    for index, step in enumerate(spec.install):
        if listed(ceiling.methods, step.method) is None:
            path = f"install[{index}].method"
            message = "this way to install is not allowed"
            _unlisted(draft, "PLAN-007", path, message, step.method, "install.methods", ceiling.methods)
    if listed(ceiling.transports, spec.transport) is None:
        message = "this transport is not allowed"
        _unlisted(draft, "PLAN-005", "transport", message, spec.transport, "transports", ceiling.transports)
    elif kind != "remote" and spec.transport not in host.transports:
        allowed = ", ".join(host.transports)
        mend = "use transport: stdio"
        message = "a local server's transport cannot be carried here"
        draft.refuse("PLAN-005", "transport", message, found=spec.transport, allowed=allowed, mend=mend)
    else:
        draft.because("transport", spec.transport, "declared by the driver", draft.at("transport"))
    for index, origin in enumerate(spec.ingress):
        mend = "remove network.ingress"
        draft.refuse("PLAN-006", f"network.ingress[{index}]", "nothing reaches into a sandbox", found=origin, mend=mend)


def image(draft: Draft) -> ImageFacts | None:
    """Return the image to run, judged: present, content-addressed, named by something that was reviewed."""
    facts, spec = draft.host.image, draft.spec
    if spec.server.kind == "remote":
        return None
    if facts is None:
        mend = "install the driver, or load its image, first"
        draft.refuse("PLAN-002", "server", "there is no image for this server", mend=mend)
        return None
    if not facts.id.startswith("sha256:"):
        draft.refuse("PLAN-002", "server", "the image has no content address", found=facts.id, mend="load it anew")
    reference = getattr(spec.server, "image", "")
    pinned = facts.pinned or "@sha256:" in reference or reference.startswith("sha256:")
    if spec.server.kind == "docker" and not pinned and not draft.weaken("unsafe_unpinned_image"):
        mend = "write name@sha256:…, or record the image id in driver.lock"
        draft.refuse("PLAN-003", "server.image", "the image may change without review", found=reference, mend=mend)
    for number, word in enumerate((*facts.argv, *spec.server.args)):
        _argument(draft, number - len(facts.argv), word)
    if not facts.argv and not spec.server.args:
        draft.refuse("PLAN-002", "server", "nothing says which program to start", mend="name it in server.args")
    if not tidy(facts.workdir) or facts.workdir.split("/")[1] in {"proc", "sys", "dev"}:
        message = "the image starts its program in a place that is not a plain folder"
        draft.refuse(
            "PLAN-058", "server", message, found=ascii(facts.workdir), mend="set WORKDIR of the image to a folder"
        )
    draft.because("image_id", facts.id, f"{facts.named}, present in the engine", draft.at("server"))
    for name, value in sorted(facts.declared.items()):
        if value:
            draft.because(f"image.{name}", "ignored", "what an image asks for itself is not given", "baseline")
    return facts


def _argument(draft: Draft, number: int, word: str) -> None:
    """Refuse secrets and NUL in the argument vector: every process of the host can read it."""
    field = f"server.args[{number}]" if number >= 0 else "server"
    if "${secrets." in word:
        mend = "pass it as server.env"
        draft.refuse("PLAN-047", field, "a secret in an argument can be read by every process", found=word, mend=mend)
    if "\0" in word:
        draft.refuse("PLAN-059", field, "an argument contains NUL", found=ascii(word), mend="remove it")


def runtime(draft: Draft) -> str:
    """Return the OCI runtime: the command line's, the driver's or the engine's; asked for and absent is refused.

    Steps: 1 which one is meant; 2 the engine has it; 3 the ceiling allows it; 4 it is not weaker than driver and
    operator ask for.
    """
    engine, ceiling = draft.host.engine, draft.ceiling
    flag = f"--runtime {draft.overrides.runtime}" if draft.overrides.runtime else ""
    # 1. which one
    asked = draft.spec.sandbox.runtime
    name = draft.overrides.runtime or asked or engine.default_runtime
    why = "asked for on the command line" if flag else "asked for by the driver" if asked else "the engine's default"
    draft.because(
        "runtime", name, why, flag or (draft.at("sandbox.runtime") if asked else f"{engine.kind} {engine.version}")
    )
    # 2. the engine has it
    if name not in engine.runtimes:
        allowed = f"{', '.join(engine.runtimes) or 'none'} in {engine.kind} {engine.version}"
        mend = f"install {name} and register it with the engine; another runtime is never used instead"
        message = "the runtime asked for is not there"
        draft.refuse("PLAN-015", "sandbox.runtime", message, found=name, allowed=allowed, mend=mend, flag=flag)
    # 3. the ceiling allows it
    strength = _strength(draft, name)
    if strength == 0:
        allowed = f"{', '.join(entry.name for entry in ceiling.runtimes) or 'none'} ({ceiling.where('runtimes')})"
        mend = "ask for a listed runtime, or have the operator list it"
        message = "the runtime is not allowed"
        draft.refuse("PLAN-014", "sandbox.runtime", message, found=name, allowed=allowed, mend=mend, flag=flag)
    # 4. not weaker
    elif strength < max(ceiling.min_strength, _strength(draft, asked) if asked else 0):
        least = (
            f"the driver's {asked}" if asked else f"strength {ceiling.min_strength} ({ceiling.where('runtime_floor')})"
        )
        mend = "use a runtime at least that strong"
        message = "the runtime isolates less than is asked for"
        draft.refuse("PLAN-016", "sandbox.runtime", message, found=name, allowed=least, mend=mend, flag=flag)
    return name


def _strength(draft: Draft, name: str) -> int:
    return max((entry.strength for entry in draft.ceiling.runtimes if star(entry.name, name)), default=0)


def controls(draft: Draft) -> None:
    """Refuse a host that lacks a control the plan relies on; each may be waived by the operator, seccomp never."""
    missing = list(draft.host.engine.missing)
    if not draft.host.engine.seccomp and "seccomp" not in missing:
        missing.append("seccomp")
    names = {control: bound for bound, control in CONTROLS.items()}
    for control in missing:
        if control in names and draft.weaken(f"unsafe_missing_{control}"):
            continue
        field = f"limits.{names[control]}" if control in names else "sandbox"
        mend = "see `mcp-sandbox doctor`"
        draft.refuse("PLAN-013", field, f"this host cannot enforce `{control}`", found=control, mend=mend)


def seccomp(draft: Draft) -> tuple[str, str, bool]:
    """Return the profile's name and digest, and whether the server may start programs.

    ``exec.allow: false`` (AIP-29: "may not spawn child processes") is the ``-nospawn`` variant of the profile:
    fork, vfork and every clone that is not a thread fail, and no init process runs beside the server, for it would
    need fork itself. A list of programs (``exec.spawn``) cannot be enforced by system call number and is refused.
    """
    rules, profiles = draft.spec.sandbox.exec, draft.host.seccomp_profiles
    name = ("net" if draft.spec.egress else "nonet") + ("" if rules.allow else "-nospawn")
    if name not in profiles:
        field = "sandbox.exec.allow" if not rules.allow else "sandbox"
        mend = "install mcp-sandbox again; its policies/seccomp is incomplete"
        allowed = ", ".join(sorted(profiles)) or "none is installed"
        draft.refuse(
            "PLAN-018", field, "the system call profile is not installed", found=name, allowed=allowed, mend=mend
        )
    if rules.allow and rules.spawn and not draft.weaken("unsafe_spawn_list_unenforced"):
        mend = "write exec.allow: false, or allow: true without a list; the image decides what programs there are"
        found = ", ".join(rules.spawn)
        draft.refuse("PLAN-055", "sandbox.exec.spawn", "a list of programs cannot be enforced", found=found, mend=mend)
    why = "programs of the image may be started" if rules.allow else "no child process can be started"
    draft.because("seccomp", name, why, draft.at("sandbox.exec.allow"))
    draft.because(
        "init", rules.allow, "an init process reaps children" if rules.allow else "it could not fork", "baseline"
    )
    return name, profiles.get(name, ""), rules.allow


def requires(draft: Draft, memory_bytes: int) -> None:
    """Refuse when the host does not meet what the driver requires of it (AIP-30 ``requires``)."""
    wanted, engine = draft.spec.requires, draft.host.engine
    for name in sorted(set(wanted) - set(REQUIRES)):
        allowed = ", ".join(REQUIRES)
        draft.refuse(
            "PLAN-017", f"requires.{name}", "this requirement is not understood", allowed=allowed, mend="remove it"
        )
    arch = ARCH.get(engine.arch, engine.arch)
    _one_of(draft, "os", wanted.get("os"), "linux")
    _one_of(draft, "arch", wanted.get("arch"), arch)
    _at_least(draft, "min_memory_mb", wanted.get("min_memory_mb"), memory_bytes, "this plan's memory")
    _at_least(draft, "min_disk_mb", wanted.get("min_disk_mb"), draft.host.disk_free_bytes, "free disk")


def _one_of(draft: Draft, name: str, accepted: Any, here: str) -> None:
    if accepted and here not in accepted:
        found = ", ".join(accepted)
        mend = "run it on another host"
        draft.refuse(
            "PLAN-017", f"requires.{name}", "the driver is not for this host", found=found, allowed=here, mend=mend
        )


def _at_least(draft: Draft, name: str, wanted: int | None, here: int | None, what: str) -> None:
    if wanted is None or (here is not None and wanted * MEBI <= here):
        return
    allowed = f"{what} is {'unknown' if here is None else show('memory', here)}"
    mend = "provide more, or lower the requirement"
    draft.refuse("PLAN-017", f"requires.{name}", "not met here", found=f"{wanted} MiB", allowed=allowed, mend=mend)


def _unlisted(draft: Draft, id_: str, field: str, message: str, found: str, section: str, entries: Any) -> None:
    allowed = f"{', '.join(entry.value for entry in entries) or 'none'} ({draft.ceiling.where(section)})"
    draft.refuse(
        id_, field, message, found=found, allowed=allowed, mend="use an allowed one, or have the operator allow it"
    )
