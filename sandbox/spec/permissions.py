"""``network``, ``sandbox``, ``runner`` and ``limits``: what a driver asks to be allowed, in one set of values.

Three AIPs say such things (AIP-29 §sandbox, AIP-36, AIP-17), and none of them is a field of AIP-30 (B0-2). Whatever
maps exactly is honoured; whatever does not is refused with the reason, for a permission block that is half understood
is worse than none (ADR 0013). The same thing said in two places must be the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sandbox.limits import MIB
from sandbox.spec.environ import Inventory, name_of, variables
from sandbox.spec.fields.permissions import Network, OurLimits, Sandbox, SharedLimits
from sandbox.spec.fields.universal import Runner
from sandbox.spec.grants import filesystem
from sandbox.spec.hosts import egress_entries
from sandbox.spec.model import EnvRules, ExecRules, Limits, SandboxRules
from sandbox.spec.report import Source, join
from sandbox.spec.shape import check

_MILLISECONDS: Final = 1000


@dataclass(slots=True)
class Permissions:
    """Everything the driver asks for.

    Attributes:
        injected: variables that AIP-36 ``env.auth.state.env`` asks for: name → ``${secrets.<slug>}``.
    """

    sandbox: SandboxRules = field(default_factory=SandboxRules)
    limits: Limits = field(default_factory=Limits)
    egress: tuple[str, ...] = ()
    ingress: tuple[str, ...] = ()
    injected: dict[str, str] = field(default_factory=dict)


def permissions(source: Source, values: Mapping[str, Any], runner: Any, inventory: Inventory) -> Permissions:
    """Return what the driver asks for; what is wrong is reported.

    Args:
        source: the driver.
        values: its front matter.
        runner: ``runner`` as a block; a path was read by the caller.
        inventory: of SECRETS.md.
    """
    network = check(Network, values["network"], source, "network") if "network" in values else None
    block = check(Sandbox, values["sandbox"], source, "sandbox") if "sandbox" in values else None
    machine = check(Runner, runner, source, "runner") if runner is not None else None
    _runner(source, machine)
    limits = _limits(source, values, block, machine)
    if block is None:
        return Permissions(limits=limits, egress=_network(source, network, None))
    _refuse_foreign(source, block)
    rules = SandboxRules(
        fs=filesystem(source, block),
        exec=_exec(source, block),
        env=_env(source, block, inventory),
        runtime=block.runtime or "",
        trust_host_ca=block.trust_host_ca,
    )
    injected = variables(
        source,
        "sandbox.env.auth.state.env",
        {name: f"${{secrets.{name}}}" for name in block.env.auth.state.env},
        inventory,
    )
    return Permissions(rules, limits, _network(source, network, block.network), (), injected)


# --- network ----------------------------------------------------------------------------------------------------------
def _network(source: Source, top: Network | None, inner: Network | None) -> tuple[str, ...]:
    for path, block in (("network", top), ("sandbox.network", inner)):
        if block is not None and block.ingress:
            source.error(
                "SPEC-120",
                f"{path}.ingress",
                "nothing can be reached inside a sandbox from outside",
                allowed="an empty list",
                mend="remove it; a login that needs a callback is done outside",
            )
    outer = egress_entries(source, "network.egress", top.egress) if top else ()
    nested = egress_entries(source, "sandbox.network.egress", inner.egress) if inner else ()
    if top is not None and inner is not None and set(outer) != set(nested):
        source.error(
            "SPEC-121",
            "sandbox.network.egress",
            "this list and `network.egress` differ, and it is not clear which one was reviewed",
            mend="make them equal, or remove one",
        )
    if top is None:
        source.alias("network.egress", "sandbox.network.egress")
    return outer or nested


# --- process ----------------------------------------------------------------------------------------------------------
def _exec(source: Source, block: Sandbox) -> ExecRules:
    if block.tty.required:
        source.error(
            "SPEC-122",
            "sandbox.tty.required",
            "an MCP server on a terminal would mix its messages with echo and control sequences",
            allowed="false",
            mend="remove it",
        )
    if block.exec is None:
        return ExecRules()
    if block.exec.spawn and not block.exec.allow:
        source.error(
            "SPEC-123",
            "sandbox.exec.spawn",
            "programs are listed although `allow` is false",
            mend="empty the list, or write `allow: true`",
        )
    return ExecRules(allow=block.exec.allow, spawn=tuple(block.exec.spawn))


def _env(source: Source, block: Sandbox, inventory: Inventory) -> EnvRules:
    passed: list[str] = []
    for key, names in (("pass", block.env.passed), ("passthrough", block.env.passthrough)):
        for index, name in enumerate(names):
            place = f"sandbox.env.{key}[{index}]"
            if name_of(source, place, name) and name not in passed:
                passed.append(name)
            if name in block.env.set:
                source.error(
                    "SPEC-124",
                    place,
                    f"`{name}` is both passed from the host and set",
                    mend="keep one of them",
                )
    return EnvRules(passed=tuple(passed), fixed=variables(source, "sandbox.env.set", block.env.set, inventory))


def _refuse_foreign(source: Source, block: Sandbox) -> None:
    """Report keys of AIP-36 that this supervisor does not carry out."""
    if block.provider not in (None, "local"):
        source.error(
            "SPEC-125",
            "sandbox.provider",
            "there is no such sandbox provider here",
            found=block.provider,
            allowed="local",
            mend="remove it",
        )
    if block.read_only:
        source.error(
            "SPEC-126",
            "sandbox.read_only",
            "a sandbox that may not run anything cannot run a server (AIP-36 `sandbox_read_only`)",
            allowed="false",
            mend="remove it; grant directories under `sandbox.fs.read` instead",
        )
    reasons = {
        "config": "it configures another provider",
        "identity": "processes run as an unprivileged user without identity",
        "policy": "policy is the operator's, not the driver's",
    }
    for key, reason in reasons.items():
        if getattr(block, key):
            source.error("SPEC-127", join("sandbox", key), f"`{key}` is not carried out: {reason}", mend="remove it")
    if block.lifecycle:
        source.warn(
            "SPEC-128",
            "sandbox.lifecycle",
            "`lifecycle` is advisory (AIP-36 conformance rule 6) and is ignored",
            mend="use `limits.lifetime_s`",
        )


# --- limits -----------------------------------------------------------------------------------------------------------
def _runner(source: Source, block: Runner | None) -> None:
    if block is None:
        return
    if block.engine == "in-process":
        source.warn(
            "SPEC-129",
            "runner.engine",
            "`in-process` is downgraded: every server runs in a sandbox (AIP-17 §Privilege is host-controlled)",
            mend="write `sandbox`",
        )
    if block.image:
        source.error(
            "SPEC-130",
            "runner.image",
            "there is no registry of sandbox templates here",
            mend="write `server.kind: docker` with an image, or remove it",
        )
    for key in ("native", "npm", "pip"):
        if getattr(block.needs, key):
            source.error(
                "SPEC-131",
                f"runner.needs.{key}",
                "further packages are not added to a server's image",
                mend="list them under `install`",
            )


def _limits(source: Source, values: Mapping[str, Any], block: Sandbox | None, machine: Runner | None) -> Limits:
    """Return one set of limits out of ``limits``, ``runner.limits`` and ``sandbox.limits``."""
    written: dict[str, tuple[str, Any]] = {}
    places: list[tuple[str, type[SharedLimits], Any]] = [
        ("limits", OurLimits, values.get("limits", {})),
        ("runner.limits", SharedLimits, machine.limits if machine else {}),
        ("sandbox.limits", SharedLimits, block.limits if block else {}),
    ]
    for path, model, value in places:
        limits = check(model, value, source, path)
        for key, amount in (limits.model_dump(exclude_none=True) if limits else {}).items():
            place, first = written.setdefault(key, (path, amount))
            if first != amount:
                source.error(
                    "SPEC-132",
                    f"{path}.{key}",
                    f"`{place}.{key}` says {first}",
                    found=amount,
                    mend="make them equal, or remove one",
                )
    if "cpu_ms" in written:
        source.error(
            "SPEC-133",
            f"{written['cpu_ms'][0]}.cpu_ms",
            "the processor time of a server that answers many calls cannot be capped honestly",
            mend="bound each call with `timeout_ms` and the share of processors with `limits.cpus`",
        )
    amounts = {key: amount for key, (_, amount) in written.items()}
    return Limits(
        memory_bytes=_scaled(amounts.get("memory_mb"), MIB),
        cpus=amounts.get("cpus"),
        pids=amounts.get("pids"),
        nofile=amounts.get("nofile"),
        fsize_bytes=_scaled(amounts.get("fsize_mb"), MIB),
        tmp_bytes=_scaled(amounts.get("tmp_mb"), MIB),
        lifetime=amounts.get("lifetime_s"),
        call_timeout=amounts["timeout_ms"] / _MILLISECONDS if "timeout_ms" in amounts else None,
    )


def _scaled(amount: int | None, unit: int) -> int | None:
    return None if amount is None else amount * unit
