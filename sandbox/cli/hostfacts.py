"""What commands ask of this host for a plan; light to import, since every start does it."""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sandbox.cli import options
from sandbox.events import Scope
from sandbox.launch import facts, seccomp
from sandbox.plan.draft import Overrides
from sandbox.plan.model import EngineFacts, HostFacts, SandboxPlan
from sandbox.plan.needs import needs
from sandbox.resources import shipped

if TYPE_CHECKING:
    from sandbox.spec.model import DriverSpec

CA_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
"""Where distributions keep the host's bundle; the first that exists is meant."""

CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "mcp-sandbox" / "plans"
"""Where reviews are kept (XDG Base Directory); verdicts and images lie beside it, and all of it is our own."""

PACKAGE: Final = Path(__file__).resolve().parent.parent
"""The code of this program."""

UNASKED: Final = EngineFacts("", "", "", (), "")
"""Stands for the engine's facts until it has answered."""


def seen(scope: Scope, spec: DriverSpec, plan: SandboxPlan, roots: Mapping[str, str]) -> None:
    """Record what was reviewed."""
    scope.fact("spec.load", version=spec.version, digest=spec.digest, file=spec.file, warnings=len(spec.warnings))
    scope.fact(
        "plan.derive",
        digest=plan.digest(),
        policy=plan.policy_digest,
        image=plan.image_id,
        unsafe=list(plan.unsafe),
        roots=dict(roots),
    )


def overrides_of(arguments: argparse.Namespace) -> Overrides:
    """Return what the command line re-points or narrows."""
    return Overrides(
        roots=options.roots(getattr(arguments, "root", [])),
        runtime=getattr(arguments, "runtime", "") or "",
        memory_bytes=options.memory_bytes(getattr(arguments, "memory", None)),
    )


def own_paths(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the resolved paths of what this command itself relies on, which no server may be granted."""
    named = (getattr(arguments, name, None) for name in ("audit_dir", "policy", "rules", "jobs"))
    places = (PACKAGE, shipped("policies"), options.STATE, options.CONFIG, CACHE.parent, *filter(None, named))
    return tuple(dict.fromkeys(map(os.path.realpath, places)))


def local_facts(spec: DriverSpec, overrides: Overrides, socket_path: str, own: tuple[str, ...]) -> HostFacts:
    """Return the host facts that need no engine; its own are left blank.

    Args:
        spec: the driver.
        overrides: of the command line.
        socket_path: of the engine.
        own: see :func:`own_paths`.
    """
    needed = needs(spec, overrides)
    bundle = next((os.path.realpath(path) for path in CA_BUNDLES if Path(path).exists()), "")
    return HostFacts(
        engine=UNASKED,
        paths=facts.path_facts(needed.paths, Path(spec.folder)),
        home=str(Path("~").expanduser()),
        engine_paths=facts.engine_paths(socket_path),
        passed_env={name: os.environ[name] for name in needed.env if name in os.environ},
        secrets=tuple(secret.slug for secret in spec.secrets),
        seccomp_profiles=profiles(),
        own_paths=own,
        private_paths=(os.path.realpath(options.STATE),),
        ca_bundle=bundle,
        caller=f"{os.getuid()}:{os.getgid()}" if os.getuid() and os.getgid() else "",
    )


@functools.cache
def profiles() -> dict[str, str]:
    """Return the shipped seccomp profiles by name with their digests."""
    return {path.stem: seccomp.load(path.stem).digest for path in sorted(shipped("policies", "seccomp").glob("*.json"))}
