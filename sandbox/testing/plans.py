"""Plans for tests of what lies behind the plan stage: the baseline of design §3, with single fields replaced."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from sandbox import limits
from sandbox.launch import seccomp
from sandbox.limits import MIB
from sandbox.plan import baseline
from sandbox.plan.model import EnvEntry, LimitPlan, NetworkPlan, SandboxPlan, Tmpfs

SMALL: Final = LimitPlan(
    memory_bytes=128 * MIB, cpus=1.0, pids=64, nofile=256, fsize_bytes=32 * MIB, lifetime=limits.DEFAULT_LIFETIME
)
"""Bounds that a test machine can afford many times."""


def baseline_plan(**overrides: Any) -> SandboxPlan:
    """Return the plan that every driver gets at least, for the test program ``/probe``.

    Args:
        **overrides: fields of :class:`SandboxPlan` to replace; ``seccomp`` sets ``seccomp_digest`` as well.
    """
    profile = seccomp.load(overrides.pop("seccomp", "nonet"))
    plan = SandboxPlan(
        driver_id="test-driver",
        driver_version="1.0.0",
        driver_digest="sha256:" + "0" * 64,
        policy_digest="sha256:" + "0" * 64,
        server_kind="binary",
        image_id="sha256:" + "0" * 64,
        image_named="mcp-sandbox/test",
        argv=("/probe",),
        workdir="/",
        user=baseline.USER,
        env=(EnvEntry("PATH", "/usr/local/bin:/usr/bin:/bin"), EnvEntry("HOME", "/tmp")),  # noqa: S108 - a path inside
        mounts=(),
        tmpfs=(Tmpfs("/tmp", 16 * MIB, 1024),),  # noqa: S108 - a path inside
        network=NetworkPlan(),
        limits=SMALL,
        runtime="runc",
        seccomp=profile.name,
        seccomp_digest=profile.digest,
        masked_paths=baseline.MASKED,
        readonly_paths=baseline.READONLY,
    )
    return dataclasses.replace(plan, **overrides)
