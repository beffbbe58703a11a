"""Bounds: what the driver asks for, held against the ceiling and against the host. Nothing is clamped."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Final

from sandbox.limits import MIB
from sandbox.plan.model import LimitPlan, Tmpfs
from sandbox.policy.ceiling_values import show

if TYPE_CHECKING:
    from sandbox.plan.draft import Draft

MIN_MEMORY_BYTES: Final = 8 * MIB
"""Below 6 MiB engines refuse; below 8 the init process of the runtime does not start."""

MIN_CPUS: Final = 0.01
"""Smallest share of a core that engines accept."""

MIN_PIDS: Final = 8
"""Threads of the runtime's own init process count before it becomes the server: below 5 a start fails now and then on a
machine of two cores under load (3 % of starts with 4), and more cores mean more of them."""

_ASKED: Final = {
    "memory": "memory_bytes",
    "cpus": "cpus",
    "pids": "pids",
    "nofile": "nofile",
    "fsize": "fsize_bytes",
    "tmp": "tmp_bytes",
    "lifetime": "lifetime",
    "call_timeout": "call_timeout",
}
"""Bound → field of the driver's ``limits``."""

CONTROLS: Final = {"memory": "memory", "pids": "pids", "cpus": "cpu"}
"""Bound → the control of the engine that enforces it (``EngineFacts.missing``)."""


def bounds(draft: Draft) -> tuple[LimitPlan, tuple[Tmpfs, ...]]:
    """Return the bounds and the one tmpfs.

    Steps: 1 asked or default, within the ceiling; 2 the command line narrows; 3 the host can keep it; 4 /tmp fits
    the memory.
    """
    # 1. asked or default
    amount = {name: _amount(draft, name) for name in _ASKED}
    # 2. the command line
    amount["memory"] = _narrowed(draft, amount["memory"])
    # 3. the host
    _host(draft, amount)
    # 4. /tmp is memory
    tmp = amount["tmp"]
    if tmp > amount["memory"]:
        if draft.spec.limits.tmp_bytes is not None:
            memory = show("memory", amount["memory"])
            message = "/tmp is memory and cannot be larger than all of it"  # noqa: S108 - a path inside the sandbox
            mend = "ask for more memory or a smaller /tmp"
            draft.refuse(
                "PLAN-012", "limits.tmp", message, found=show("tmp", tmp), allowed=f"at most {memory}", mend=mend
            )
        tmp = amount["memory"]
        draft.because("tmpfs./tmp", show("tmp", tmp), "the default is more than the memory asked for", "baseline")
    inodes = draft.ceiling.bounds["tmp_inodes"]
    draft.because("tmpfs./tmp.inodes", int(inodes.default), inodes.reason, inodes.source)
    limits = LimitPlan(
        memory_bytes=int(amount["memory"]),
        cpus=float(amount["cpus"]),
        pids=int(amount["pids"]),
        nofile=int(amount["nofile"]),
        fsize_bytes=int(amount["fsize"]),
        lifetime=float(amount["lifetime"]),
        call_timeout=float(amount["call_timeout"]),
    )
    _calls(draft)
    return limits, (Tmpfs("/tmp", int(tmp), int(inodes.default)),)  # noqa: S108 - a path inside the sandbox


def _amount(draft: Draft, name: str) -> float:
    """Return one bound; refuse what is above the ceiling, and what an engine would read as "no limit"."""
    asked = getattr(draft.spec.limits, _ASKED[name])
    bound, path = draft.ceiling.bounds[name], _written(draft, name)
    if asked is None:
        draft.because(f"limits.{name}", show(name, bound.default), f"the default: {bound.reason}", bound.source)
        return bound.default
    if not isfinite(asked) or asked <= 0:
        mend = "ask for a positive amount, or leave it out for the default"
        draft.refuse("PLAN-011", path, "engines read this as no limit", found=asked, allowed="above zero", mend=mend)
        return bound.default
    if asked > bound.max:
        allowed = f"at most {show(name, bound.max)} ({bound.source}: {bound.reason})"
        mend = "ask for less, or have the operator raise the ceiling"
        draft.refuse("PLAN-010", path, "more than the ceiling", found=show(name, asked), allowed=allowed, mend=mend)
    draft.because(f"limits.{name}", show(name, asked), "asked for by the driver, within the ceiling", draft.at(path))
    return float(asked)


def _written(draft: Draft, name: str) -> str:
    """Return the field a bound was asked for with; manifests spell it with its unit (``memory_mb``)."""
    stems = (f"limits.{name}", f"runner.limits.{name}")
    return next((path for path in draft.spec.lines if path.startswith(stems)), f"limits.{name}")


def _narrowed(draft: Draft, memory: float) -> float:
    """Return the memory after ``--memory``, which may only be less."""
    override = draft.overrides.memory_bytes
    if override is None:
        return memory
    flag = f"--memory {override}"
    if override > memory:
        allowed = f"at most {show('memory', memory)}"
        mend = "the command line narrows; to widen, change DRIVER.md"
        message = "the command line asks for more than the driver"
        found = show("memory", override)
        draft.refuse("PLAN-016", "limits.memory", message, found=found, allowed=allowed, mend=mend, flag=flag)
        return memory
    draft.because("limits.memory", show("memory", override), "narrowed on the command line", flag)
    return float(override)


def _host(draft: Draft, amount: dict[str, float]) -> None:
    """Refuse bounds that this host cannot keep or that no server could start under."""
    engine = draft.host.engine
    at_most = (("cpus", engine.cpus), ("nofile", engine.hard_nofile), ("memory", engine.memory_bytes))
    for name, most in at_most:
        if 0 < most < amount[name]:
            found, allowed = show(name, amount[name]), f"at most {show(name, most)} on this host"
            draft.refuse(
                "PLAN-012",
                _written(draft, name),
                "more than the host has",
                found=found,
                allowed=allowed,
                mend="ask for less",
            )
    for name, least in (("memory", MIN_MEMORY_BYTES), ("cpus", MIN_CPUS), ("pids", MIN_PIDS)):
        if amount[name] < least:
            found, allowed = show(name, amount[name]), f"at least {show(name, least)}"
            draft.refuse(
                "PLAN-012", f"limits.{name}", "too little to start", found=found, allowed=allowed, mend="ask for more"
            )


def _calls(draft: Draft) -> None:
    """Refuse a binding that waits longer than one call may take."""
    bound = draft.ceiling.bounds["call_timeout"]
    for index, binding in enumerate(draft.spec.bindings):
        if binding.timeout_ms / 1000 > bound.max:
            found = f"{binding.contract.id}: {binding.timeout_ms} ms"
            allowed = f"at most {show('call_timeout', bound.max)} ({bound.source}: {bound.reason})"
            mend = "lower timeout_ms, or have the operator raise the ceiling"
            path = f"implements[{index}]"
            draft.refuse(
                "PLAN-010", path, "one call may take longer than the ceiling", found=found, allowed=allowed, mend=mend
            )
