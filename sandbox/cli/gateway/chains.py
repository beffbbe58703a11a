"""Chains among the drivers of a gateway: no container of their own, each step in one of the tenant's (docs/mcpkg.md).

An installed chain has no DRIVER.md, so it is reviewed here: its driver and its plan, which permits nothing, are made
from its manifest. Its instances answer MCP in this process and belong to one tenant like any others; what a step calls
is planned, started, vetted, decided and recorded for that tenant, as `pkg run` does it for one person.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sandbox.cli.gateway.config import DriverConfig, GatewayConfig
from sandbox.cli.hostfacts import local_facts, own_paths
from sandbox.cli.packages.calling import steps_of
from sandbox.cli.wiring import Review, load_policy
from sandbox.events import Scope
from sandbox.launch.interface import Backend, Instance
from sandbox.mcpkg.chainserver import ChainBackend
from sandbox.mcpkg.chainspec import plan_of, spec_of
from sandbox.mcpkg.model import Manifest
from sandbox.mcpkg.store import Store, chain_at
from sandbox.plan.derive import Overrides
from sandbox.plan.model import EngineFacts, ImageFacts, SandboxPlan


@dataclass(frozen=True, slots=True)
class Chain:
    """An installed chain, and the store that has the tools of its steps."""

    manifest: Manifest
    store: Store
    config: DriverConfig
    review: Review


def review_chain(folder: Path, arguments: argparse.Namespace, config: GatewayConfig, socket_path: str) -> Chain | None:
    """Return a chain as the gateway serves it; ``None`` when the folder holds something else.

    Raises:
        SandboxError: it was changed since it was installed, or the operator's ceiling cannot be read.
    """
    found = chain_at(folder)
    if found is None:
        return None
    store, installed = found
    manifest, _ = installed.read()
    spec = spec_of(manifest, str(installed.folder))
    own = argparse.Namespace(**{**vars(arguments), "driver": installed.folder})
    host = local_facts(spec, Overrides(), socket_path, own_paths(own))
    host = replace(host, engine=EngineFacts("chain", "", "", (), ""))
    review = Review(spec, load_policy(arguments.policy), host, Overrides(), plan_of(spec))
    return Chain(manifest, store, config.driver.get(spec.id, DriverConfig()), review)


class ChainEngine:
    """Starts chains: a :class:`~sandbox.launch.interface.Backend` for one of them.

    Args:
        chain: which.
        arguments: of the command; a step starts under its policy and rules, for the instance's tenant.
    """

    name = "chain"

    def __init__(self, chain: Chain, arguments: argparse.Namespace) -> None:
        self._chain, self._arguments = chain, arguments

    async def facts(self) -> EngineFacts:
        """Return what no engine can do."""
        return EngineFacts("chain", "", "", (), "")

    async def image(self, reference: str) -> ImageFacts | None:
        """Return nothing: a chain has no image."""
        del reference
        return None

    async def launch(self, plan: SandboxPlan, scope: Scope, secrets: Mapping[str, str]) -> Instance:
        """Return the chain, listening; its steps are the tenant's."""
        given: dict[str, Any] = {"tenant": scope.tenant, "user": "", "memory": None, "root": [], "names": "server"}
        own = argparse.Namespace(**{**vars(self._arguments), **given})
        manifest = self._chain.manifest
        call = steps_of(own, scope, self._chain.store)

        async def run(arguments: dict[str, Any]) -> Any:
            return await call(manifest, arguments)

        return await ChainBackend(manifest, run).launch(plan, scope, secrets)

    async def close(self) -> None:
        """Do nothing: every instance is ended by its owner."""


def engine_of(chain: Chain | None, arguments: argparse.Namespace, otherwise: Backend) -> Backend:
    """Return what starts a driver's instances."""
    return otherwise if chain is None else ChainEngine(chain, arguments)
