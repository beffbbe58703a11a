"""Where a gateway is made from: the operator's files, the review of a driver folder, and the network of drivers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from sandbox.cli.approved import askable
from sandbox.cli.bench import _egress
from sandbox.cli.bounds import call_bounds
from sandbox.cli.gateway import mounts
from sandbox.cli.gateway.config import GatewayConfig, check_exposure, load_config
from sandbox.cli.gateway.mounts import Mounted
from sandbox.cli.progress import quiet_progress
from sandbox.cli.report import line_of, say
from sandbox.cli.rules import load_rules
from sandbox.errors import PlatformError
from sandbox.events import Recorder
from sandbox.launch.docker import DockerBackend
from sandbox.plan.model import EngineFacts
from sandbox.policy.call_bounds import CallBounds
from sandbox.policy.cedar import PolicySet


@dataclass(frozen=True, slots=True)
class Sources:
    """What the operator's files say at one moment.

    Attributes:
        config: ``gateway.toml`` and the flags that stand for parts of it.
        rules: of Cedar.
        bounds: of calls and instances.
        capabilities: what servers are told that clients can be asked for.
    """

    config: GatewayConfig
    rules: PolicySet
    bounds: CallBounds
    capabilities: Mapping[str, Any] = field(default_factory=dict)


def read_sources(arguments: argparse.Namespace, listen: tuple[str, int]) -> Sources:
    """Read the operator's files; blocking.

    Raises:
        SandboxError: one of them is not valid, or lets strangers in.
    """
    config = load_config(arguments.config)
    if arguments.unsafe_tenant:
        config = msgspec.structs.replace(config, unsafe_tenant=arguments.unsafe_tenant)
    check_exposure(config, listen)
    return Sources(config, load_rules(arguments.rules), call_bounds(arguments), askable(arguments))


class Reviewer(Protocol):
    """Reviews one driver folder; blocking."""

    def __call__(self, folder: Path, config: GatewayConfig) -> Mounted:
        """Return the driver, or raise SandboxError: it cannot be served."""


async def reviewer_of(arguments: argparse.Namespace, backend: DockerBackend) -> Reviewer:
    """Return what reviews driver folders for this host's engine."""
    try:
        facts = await backend.facts()
    except PlatformError as absent:  # remote servers need no engine; the others say what they lack
        say(line_of(f"mcp-sandbox: {absent}"))
        facts = EngineFacts("none", "", "", (), "")
    progress = quiet_progress()

    def review(folder: Path, config: GatewayConfig) -> Mounted:
        return mounts.review_one(folder, arguments, config, backend.engine.socket_path, facts, progress)

    return review


class Network:
    """The network of drivers that have one, made when the first of them comes.

    Args:
        backend: that runs them.
        recorder: where connections are recorded.
    """

    def __init__(self, backend: DockerBackend, recorder: Recorder) -> None:
        self._backend = backend
        self._recorder = recorder
        self._ready = False

    def prepare(self, mounted: list[Mounted]) -> None:
        """Have a network where one of these drivers needs it."""
        images = [one.review.egress_image for one in mounted if one.review.egress_image]
        if images and not self._ready:
            self._ready = True
            self._backend.use_network(_egress(self._backend, images[0], self._recorder, learning=False))
