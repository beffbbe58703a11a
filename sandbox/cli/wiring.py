"""Reviews a driver for the commands: folder, ceiling, image, host facts, plan. Heavy to import."""

from __future__ import annotations

import argparse
import functools
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

from sandbox.cli import options
from sandbox.cli.prepared import CACHE
from sandbox.events import Scope
from sandbox.launch import facts, seccomp
from sandbox.launch.images.host import ensure_image
from sandbox.launch.images.progress import Progress
from sandbox.launch.install.ensure import ensure_server_image
from sandbox.launch.secrets import load_sources, resolve
from sandbox.plan import baseline
from sandbox.plan.derive import Overrides, derive
from sandbox.plan.model import EngineFacts, HostFacts, NetworkPlan, SandboxPlan
from sandbox.plan.needs import needs
from sandbox.policy.ceiling import load_ceiling
from sandbox.policy.ceiling_values import Ceiling
from sandbox.policy.destinations import HTTPS_PORT, EgressRule
from sandbox.resources import shipped
from sandbox.spec.load import load_driver
from sandbox.spec.model import DriverSpec

CA_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
"""Where distributions keep the host's bundle; the first that exists is meant."""

PACKAGE: Final = Path(__file__).resolve().parent.parent
"""The code of this program."""

_UNPLANNED: Final = cast("SandboxPlan", None)


@dataclass(slots=True)
class Review:
    """A driver that was read and checked, before the engine's facts are known.

    Attributes:
        manifests: files that it was made from.
        plan: set by :meth:`planned`.
        egress_image: image of holder and broker, when the driver has a network.
        learning: the plan is for finding out what the server tries; everything will be refused.
    """

    spec: DriverSpec
    ceiling: Ceiling
    host: HostFacts
    overrides: Overrides
    plan: SandboxPlan
    egress_image: str = ""
    learning: bool = False

    @property
    def manifests(self) -> tuple[str, ...]:
        """Absolute paths of the contracts, which may lie outside the driver folder."""
        return tuple(os.path.realpath(binding.contract.origin.file) for binding in self.spec.bindings)

    def planned(self, engine: EngineFacts) -> Review:
        """Derive the plan for this engine.

        Raises:
            PlanProblems: it is refused.
        """
        self.host = replace(self.host, engine=engine)
        self.plan = derive(self.spec, self.ceiling, self.host, overrides=self.overrides)
        if self.learning:
            self.plan = for_learning(self.plan)
        return self

    def record(self, scope: Scope) -> None:
        """Record what was reviewed."""
        spec, plan = self.spec, self.plan
        scope.fact("spec.load", version=spec.version, digest=spec.digest, file=spec.file, warnings=len(spec.warnings))
        scope.fact(
            "plan.derive",
            digest=plan.digest(),
            policy=self.ceiling.digest,
            image=plan.image_id,
            unsafe=list(plan.unsafe),
            roots=dict(self.overrides.roots),
        )

    def secrets(self) -> dict[str, str]:
        """Return slug → value of the plan's secret variables."""
        slugs = [entry.secret for entry in (*self.plan.env, *self.plan.headers) if entry.secret]
        if not slugs:
            return {}
        return resolve(slugs, self.spec.secrets, load_sources(options.CONFIG / "secrets.toml"), os.environ)


def for_learning(plan: SandboxPlan) -> SandboxPlan:
    """Return a plan with a network in which a server can try things; its only rule names nobody (RFC 2606 §2)."""
    if plan.network.mode == "broker":
        return plan
    seccomp_name = plan.seccomp.replace("nonet", "net")
    network = NetworkPlan("broker", (EgressRule("learning.invalid", (HTTPS_PORT,), "tls", "mcp-sandbox learn"),))
    fresh = replace(plan, network=network, seccomp=seccomp_name, seccomp_digest=profiles()[seccomp_name])
    baseline.check(fresh)
    return fresh


def review(
    arguments: argparse.Namespace, socket_path: str, progress: Progress | None = None, *, learning: bool = False
) -> Review:
    """Read and check a driver and see to its image; blocking.

    Args:
        arguments: of the command.
        socket_path: of the engine.
        progress: who is told of long steps.
        learning: whether the plan is for learning what the server tries.

    Raises:
        SandboxError: the driver, the ceiling or the image is not usable.
    """
    spec = load_driver(arguments.driver)
    ceiling = load_policy(getattr(arguments, "policy", None))
    overrides = overrides_of(arguments)
    image = ensure_server_image(spec, progress, pull=ceiling.pull)
    remote = spec.server.kind == "remote"
    egress = ensure_image("egress", progress).id if (spec.egress and not remote) or learning else ""
    host = replace(
        local_facts(spec, overrides, socket_path, own_paths(arguments)),
        image=image,
        egress_available=bool(egress),
        remote_available=remote,
    )
    return Review(spec, ceiling, host, overrides, _UNPLANNED, egress, learning)


def load_policy(path: Path | None) -> Ceiling:
    """Return the operator's ceiling: ``--policy``, else ``policy.toml`` of this person, else the shipped one.

    Raises:
        CeilingError: a file is not valid.
        UsageError: ``CLI-011``, the named file cannot be read.
    """
    base = load_ceiling(shipped("policies", "default.toml").read_bytes(), "policies/default.toml")
    own = path or (options.CONFIG / "policy.toml")
    if path is None and not own.exists():
        return base
    return load_ceiling(options.read_file(own), str(own), base)


def overrides_of(arguments: argparse.Namespace) -> Overrides:
    """Return what the command line re-points or narrows."""
    return Overrides(
        roots=options.roots(getattr(arguments, "root", [])),
        runtime=getattr(arguments, "runtime", "") or "",
        memory_bytes=options.memory_bytes(getattr(arguments, "memory", None)),
    )


def own_paths(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the resolved paths of what this command itself relies on, which no server may be granted."""
    named = (getattr(arguments, name, None) for name in ("audit_dir", "policy", "rules"))
    places = (PACKAGE, shipped("policies"), options.STATE, options.CONFIG, CACHE, *filter(None, named))
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
        engine=EngineFacts("", "", "", (), ""),
        paths=facts.path_facts(needed.paths, Path(spec.folder)),
        home=str(Path("~").expanduser()),
        engine_paths=facts.engine_paths(socket_path),
        passed_env={name: os.environ[name] for name in needed.env if name in os.environ},
        secrets=tuple(secret.slug for secret in spec.secrets),
        seccomp_profiles=profiles(),
        own_paths=own,
        ca_bundle=bundle,
        caller=f"{os.getuid()}:{os.getgid()}" if os.getuid() and os.getgid() else "",
    )


@functools.cache
def profiles() -> dict[str, str]:
    """Return the shipped seccomp profiles by name with their digests."""
    return {path.stem: seccomp.load(path.stem).digest for path in sorted(shipped("policies", "seccomp").glob("*.json"))}
