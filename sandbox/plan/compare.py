"""An order on plans: what one permits beyond another.

``excess(a, b)`` lists every way in which a server under ``a`` could do something that it could not under ``b``;
``a`` is within ``b`` when there is none. Used to show what a change of driver or policy widens, and to test that
tightening never does.

Theory. What a sandbox sees of the host is a function from inside paths to host paths, constant between the points where
something is mounted or masked; two such functions are compared at the points of both. Bounds, destinations and kernel
interfaces are ordered by size or inclusion. What has no order (program, variables, runtime) must be equal; a
difference there is reported as ``different``, for nobody can say which is more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from sandbox.plan.model import EgressRule
from sandbox.plan.paths import below, inside
from sandbox.policy.hosts import narrowed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox.plan.model import SandboxPlan

View = tuple[str, bool] | None
"""What stands at a path inside: host path and whether it can be written; nothing of the host."""

_LIMITS: Final = ("memory_bytes", "cpus", "pids", "nofile", "fsize_bytes", "lifetime", "core_bytes", "call_timeout")
_EQUAL: Final = (
    "image_id",
    "argv",
    "workdir",
    "user",
    "runtime",
    "transport",
    "port",
    "remote_url",
    "hostname",
    "env",
    "headers",
    "auth",
)


@dataclass(frozen=True, slots=True)
class Excess:
    """One difference: ``more`` is permitted by the first plan, or it is ``different`` without an order."""

    field: str
    first: str
    second: str
    kind: Literal["more", "different"] = "more"

    def __str__(self) -> str:
        """Return the difference as a line."""
        return f"{self.field}: {self.second or 'nothing'} → {self.first or 'nothing'}"


def excess(first: SandboxPlan, second: SandboxPlan) -> tuple[Excess, ...]:
    """Return what ``first`` permits beyond ``second``, and what cannot be ordered."""
    return (
        *_files(first, second),
        *_memory_files(first, second),
        *_network(first, second),
        *_bounds(first, second),
        *_kernel(first, second),
        *_unordered(first, second),
    )


def within(first: SandboxPlan, second: SandboxPlan) -> bool:
    """Return whether ``first`` permits nothing beyond ``second``."""
    return not excess(first, second)


def view(plan: SandboxPlan, path: str) -> View:
    """Return what of the host stands at a path inside: the innermost mount decides, a mask hides."""
    if any(inside(path, mask) for mask in plan.masked_paths):
        return None
    holders = [mount for mount in plan.mounts if inside(path, mount.target)]
    if not holders:
        return None
    mount = max(holders, key=lambda holder: len(holder.target))
    return mount.source.rstrip("/") + below(mount.target, path), mount.writable


def _files(first: SandboxPlan, second: SandboxPlan) -> Iterator[Excess]:
    points = {mount.target for plan in (first, second) for mount in plan.mounts}
    points |= {*first.masked_paths, *second.masked_paths}
    for point in sorted(points):
        ours, theirs = view(first, point), view(second, point)
        if ours is None or ours == theirs:
            continue
        if theirs is None or ours[0] != theirs[0] or ours[1] > theirs[1]:
            yield Excess(f"files {point}", _shown(ours), _shown(theirs))


def _shown(view_: View) -> str:
    return f"{view_[0]} ({'read and write' if view_[1] else 'read'})" if view_ else ""


def _memory_files(first: SandboxPlan, second: SandboxPlan) -> Iterator[Excess]:
    theirs = {entry.target: entry for entry in second.tmpfs}
    for entry in first.tmpfs:
        other = theirs.get(entry.target)
        if other is None:
            yield Excess(f"tmpfs {entry.target}", f"{entry.size_bytes} bytes", "")
        elif (entry.size_bytes, entry.inodes, entry.executable) != (other.size_bytes, other.inodes, other.executable):
            larger = entry.size_bytes > other.size_bytes or entry.inodes > other.inodes
            if larger or entry.executable > other.executable:
                yield Excess(f"tmpfs {entry.target}", str(entry), str(other))


def _network(first: SandboxPlan, second: SandboxPlan) -> Iterator[Excess]:
    for rule in first.network.rules:
        if not any(_covers(other, rule) for other in second.network.rules):
            yield Excess("network.rules", f"{rule.host} {rule.ports} {rule.mode}", "")
    for cidr in first.network.allowed_private:
        if cidr not in second.network.allowed_private:
            yield Excess("network.allowed_private", cidr, "")


def _covers(outer: EgressRule, inner: EgressRule) -> bool:
    patterns = [f"{outer.host}:{port}" if ":" not in outer.host else f"[{outer.host}]:{port}" for port in outer.ports]
    return outer.mode in {inner.mode, "tcp"} and narrowed(inner, patterns)


def _bounds(first: SandboxPlan, second: SandboxPlan) -> Iterator[Excess]:
    for name in _LIMITS:
        ours, theirs = getattr(first.limits, name), getattr(second.limits, name)
        if ours > theirs:
            yield Excess(f"limits.{name}", f"{ours:g}", f"{theirs:g}")


def _kernel(first: SandboxPlan, second: SandboxPlan) -> Iterator[Excess]:
    for name in ("masked_paths", "readonly_paths"):
        for path in getattr(second, name):
            if not any(inside(path, covered) for covered in _covered(first, name)) and not _mount_mask(second, path):
                yield Excess(name, "", path)
    net, spawn = first.seccomp.startswith("net"), not first.seccomp.endswith("-nospawn")
    wider = net > second.seccomp.startswith("net") or spawn > (not second.seccomp.endswith("-nospawn"))
    if wider:
        yield Excess("seccomp", first.seccomp, second.seccomp)
    elif first.seccomp == second.seccomp and first.seccomp_digest != second.seccomp_digest:
        yield Excess("seccomp_digest", first.seccomp_digest, second.seccomp_digest, "different")
    for name in first.unsafe:
        if name not in second.unsafe:
            yield Excess("unsafe", name, "")


def _covered(plan: SandboxPlan, name: str) -> tuple[str, ...]:
    """Return what hides or protects a kernel interface; a masked path cannot be written either."""
    return (*plan.masked_paths, *plan.readonly_paths) if name == "readonly_paths" else plan.masked_paths


def _mount_mask(plan: SandboxPlan, path: str) -> bool:
    """Return whether a mask lies in a mount: then the comparison of files has judged it."""
    return any(inside(path, mount.target) for mount in plan.mounts)


def _unordered(first: SandboxPlan, second: SandboxPlan) -> Iterator[Excess]:
    for name in _EQUAL:
        ours, theirs = getattr(first, name), getattr(second, name)
        if ours != theirs:
            yield Excess(name, _text(ours), _text(theirs), "different")


def _text(value: object) -> str:
    """Return a value for a line; of variables only names and secrets, never values."""
    if isinstance(value, tuple):
        return " ".join(str(getattr(item, "name", item)) for item in value)
    return str(value)
