"""DriverSpec x Ceiling x HostFacts -> SandboxPlan: the numbered steps.

Pure: values in, one value or one refusal out; no file, socket, environment or clock. What a step cannot give whole it
refuses; every refusal names the place in the driver and, where the operator decides, in the policy; all are raised
together.

Invariants (tests/properties): equal inputs give equal plans; a tighter ceiling never gives more; a further denial never
gives more; what is misspelt is never granted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sandbox.plan import baseline, demands, remote
from sandbox.plan.bounds import bounds
from sandbox.plan.draft import Draft, Overrides
from sandbox.plan.environment import environment
from sandbox.plan.grants import mounts
from sandbox.plan.handing import secret_files, substitutes
from sandbox.plan.model import Mount, SandboxPlan
from sandbox.plan.network import authorities, network

if TYPE_CHECKING:
    from sandbox.plan.model import HostFacts, ImageFacts, LimitPlan, NetworkPlan, Tmpfs
    from sandbox.policy.ceiling_values import Ceiling
    from sandbox.spec.model import DriverSpec

__all__ = ["Overrides", "derive"]


def derive(
    spec: DriverSpec,
    ceiling: Ceiling,
    host: HostFacts,
    *,
    overrides: Overrides | None = None,
) -> SandboxPlan:
    """Return what one server will be able to do on this host.

    Steps:

    1. server kind, installation, transport and ingress are allowed and can be carried; a remote server goes on in
       :mod:`sandbox.plan.remote`;
    2. the image is present, fixed, and starts a program without secrets in its arguments;
    3. the host has every control, the runtime and the system call profile;
    4. bounds lie within ceiling and host;
    5. the host meets the driver's requirements;
    6. host folders are mountable, and denials can be masked;
    7. destinations are enforceable and within the ceiling;
    8. the environment is complete, and every secret has a way to the server;
    9. all refusals are raised together;
    10. the finished plan satisfies the baseline.

    Args:
        spec: the reviewed driver.
        ceiling: what the operator allows at most.
        host: everything there is to know about this host; :func:`sandbox.plan.needs.needs` says what is needed.
        overrides: what the command line re-points or narrows.

    Raises:
        PlanProblems: ``PLAN-001`` … ``PLAN-059``, everything that may not or cannot be given.
        PlanRefused: ``PLAN-1nn``, the derived plan broke a rule of the baseline; a defect of ours.
    """
    draft = Draft(spec, ceiling, host, overrides or Overrides())
    demands.server(draft)  # 1
    if spec.server.kind == "remote":
        return remote.finish(draft)
    image = demands.image(draft)  # 2
    demands.controls(draft)  # 3
    runtime = demands.runtime(draft)
    profile = demands.seccomp(draft)
    limits, tmpfs = bounds(draft)  # 4
    demands.requires(draft, limits.memory_bytes)  # 5
    draft.weaken("unsafe_admit_undecided")  # vetting asks the plan whether undecided contracts are admitted
    found, masks = mounts(draft)  # 6
    destinations = network(draft)  # 7
    found = _trusted(draft, found, destinations)
    env = environment(draft)  # 8
    handed = (secret_files(draft), substitutes(draft, destinations))
    draft.finish()  # 9
    plan = _assemble(draft, image, runtime, profile, limits, tmpfs, (found, masks), destinations, env)
    plan = replace(plan, secret_files=handed[0], substitutes=handed[1], reasons=tuple(draft.reasons))
    baseline.check(plan)  # 10
    return plan


def _trusted(draft: Draft, found: tuple[Mount, ...], destinations: NetworkPlan) -> tuple[Mount, ...]:
    """Return the mounts with the host's CA bundle, when the driver asks to trust it."""
    if not draft.spec.sandbox.trust_host_ca:
        return found
    field = "sandbox.trust_host_ca"
    if not draft.ceiling.host_ca:
        allowed = f"false ({draft.ceiling.where('host_ca')})"
        mend = "remove it, or have the operator allow it"
        draft.refuse("PLAN-057", field, "the host's CAs may not be trusted", found="true", allowed=allowed, mend=mend)
        return found
    if not draft.host.ca_bundle:
        draft.refuse("PLAN-057", field, "this host has no CA bundle", mend="install ca-certificates, or remove it")
        return found
    if destinations.mode == "none":
        draft.refuse("PLAN-057", field, "there is no network to trust anything in", mend="remove it")
        return found
    draft.because("mounts", f"{baseline.CA_TARGET} (read)", "the host's CA bundle", draft.at(field))
    return tuple(
        sorted((*found, Mount(draft.host.ca_bundle, baseline.CA_TARGET, writable=False)), key=lambda item: item.target)
    )


def _assemble(
    draft: Draft,
    image: ImageFacts | None,
    runtime: str,
    profile: tuple[str, str, bool],
    limits: LimitPlan,
    tmpfs: tuple[Tmpfs, ...],
    files: tuple[tuple[Mount, ...], tuple[str, ...]],
    destinations: NetworkPlan,
    env: tuple[object, ...],
) -> SandboxPlan:
    """Return the plan of accepted parts."""
    spec, args = draft.spec, tuple(getattr(draft.spec.server, "args", ()))
    _constants(draft, image, args)
    return SandboxPlan(
        driver_id=spec.id,
        driver_version=spec.version,
        driver_digest=spec.digest,
        policy_digest=draft.ceiling.digest,
        server_kind=spec.server.kind,
        image_id=image.id if image else "",
        image_named=image.named if image else "",
        argv=(*image.argv, *args) if image else (),
        workdir=image.workdir if image else "/",
        user=_user(draft, files[0]),
        env=env,  # type: ignore[arg-type]
        mounts=files[0],
        tmpfs=tmpfs,
        network=destinations,
        limits=limits,
        runtime=runtime,
        seccomp=profile[0],
        seccomp_digest=profile[1],
        masked_paths=tuple(dict.fromkeys((*baseline.MASKED, *files[1]))),
        readonly_paths=baseline.READONLY,
        init=profile[2],
        transport=spec.transport,
        port=getattr(spec.server, "port", 0),
        authorities=authorities(draft) if destinations.mode != "none" else (),
        unsafe=tuple(draft.unsafe),
        reasons=tuple(draft.reasons),
    )


def _user(draft: Draft, found: tuple[Mount, ...]) -> str:
    """Return who the server runs as: whoever starts it when it is granted folders of theirs, else nobody's id.

    Files of a person are usually theirs alone to write, so a server that works on them needs their id; it gets no more
    than they have, and only when the driver grants folders (ADR 0015). Root's id is never given.
    """
    if draft.host.caller and any(mount.target != baseline.CA_TARGET for mount in found):
        why = "whoever starts it, since it works on granted folders; never root"
        draft.because("user", draft.host.caller, why, "baseline")
        return draft.host.caller
    draft.because("user", baseline.USER, "neither root nor the owner of anything on the host", "baseline")
    return baseline.USER


def _constants(draft: Draft, image: ImageFacts | None, args: tuple[str, ...]) -> None:
    """Note why the remaining fields have their values."""
    program = " ".join((*image.argv, *args)) if image else ""
    draft.because("argv", program, "the image's program and the driver's arguments; no shell", draft.at("server"))
    draft.because("workdir", image.workdir if image else "/", "from the image", draft.at("server"))
    draft.because("readonly_paths", ", ".join(baseline.READONLY), "writing there changes the host", "baseline")
    draft.because("masked_paths", f"{len(baseline.MASKED)} kernel interfaces", "they tell about the host", "baseline")
    draft.because("hostname", "sandbox", "the host's name is not told", "baseline")
    draft.because("driver_digest", draft.spec.digest, "the reviewed files", draft.spec.file)
    draft.because("policy_digest", draft.ceiling.digest, "the ceiling", f"policy {draft.ceiling.name}")
