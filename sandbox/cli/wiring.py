"""Reviews a driver for the commands: folder, ceiling, image, host facts, plan. Heavy to import."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

from sandbox.cli import options
from sandbox.cli.hostfacts import local_facts, overrides_of, own_paths, profiles, seen
from sandbox.errors import UsageError
from sandbox.events import Scope
from sandbox.launch.images.host import ensure_image
from sandbox.launch.images.progress import Progress
from sandbox.launch.install.ensure import ensure_server_image
from sandbox.mcpkg.intact import check_intact
from sandbox.plan import baseline
from sandbox.plan.derive import Overrides, derive
from sandbox.plan.model import EngineFacts, HostFacts, NetworkPlan, SandboxPlan
from sandbox.policy.ceiling import load_ceiling
from sandbox.policy.ceiling_values import Ceiling
from sandbox.policy.destinations import HTTPS_PORT, EgressRule
from sandbox.resources import shipped
from sandbox.spec.load import load_driver
from sandbox.spec.model import BinaryServer, DriverSpec, RemoteServer

_UNPLANNED: Final = cast("SandboxPlan", None)


@dataclass(slots=True)
class Review:
    """A driver that was read and checked, before the engine's facts are known.

    Attributes:
        files: what it was made from beside the manifests of its folder.
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
    def files(self) -> tuple[str, ...]:
        """Absolute paths of the contracts, which may lie outside the driver folder, and of a program of this host."""
        contracts = tuple(os.path.realpath(binding.contract.origin.file) for binding in self.spec.bindings)
        server = self.spec.server
        if not isinstance(server, BinaryServer) or self.spec.install:
            return contracts
        return (*contracts, os.path.realpath(Path(self.spec.folder) / Path(server.path).expanduser()))

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
        seen(scope, self.spec, self.plan, self.overrides.roots)


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
    arguments: argparse.Namespace,
    socket_path: str,
    progress: Progress | None = None,
    *,
    learning: bool = False,
    scope: Scope | None = None,
) -> Review:
    """Read and check a driver and see to its image; blocking.

    Args:
        arguments: of the command.
        socket_path: of the engine.
        progress: who is told of long steps.
        learning: whether the plan is for learning what the server tries.
        scope: where the network of installs is recorded.

    Raises:
        SandboxError: the driver, the ceiling or the image is not usable.
    """
    check_intact(Path(arguments.driver))
    spec = load_driver(arguments.driver)
    if learning and isinstance(spec.server, RemoteServer):
        raise UsageError(
            "CLI-114", f"{spec.id} is a remote server: what it connects to is not here to be seen", "run `plan` instead"
        )
    ceiling = load_policy(getattr(arguments, "policy", None))
    overrides = overrides_of(arguments)
    told = scope.within(driver=spec.id) if scope is not None else None
    image = ensure_server_image(spec, progress, pull=ceiling.pull, ceiling=ceiling, scope=told)
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
