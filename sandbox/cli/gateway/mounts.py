"""Reviews every driver of a folder and makes its endpoint."""

from __future__ import annotations

import argparse
import copy
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from sandbox.cli import hostfacts, wiring
from sandbox.cli.bench import keep_out, secrets_of
from sandbox.cli.gateway.chains import Chain, review_chain
from sandbox.cli.gateway.config import DriverConfig, GatewayConfig
from sandbox.cli.gateway.entities import manifest_of
from sandbox.cli.gateway.prints import found_folders
from sandbox.cli.wiring import Review
from sandbox.errors import SandboxError, UsageError
from sandbox.events import Recorder
from sandbox.plan.derive import Overrides, derive
from sandbox.plan.model import EngineFacts, SandboxPlan
from sandbox.registry.entity import ServerEntity, entity_of
from sandbox.serve.identity.model import Access
from sandbox.spec.load import load_driver
from sandbox.supervisor.held import Served
from sandbox.tenant import TenantId

NOBODY: Final = TenantId("nobody")
"""Stands for the tenant where a plan is made before there is one."""

_PLAIN: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


@dataclass(slots=True)
class Mounted:
    """One driver as it is served.

    Attributes:
        review: of the driver.
        entity: how it is told of.
        config: what the operator says about it.
        chain: what is served when it is no server but a chain of installed tools.
    """

    folder: Path
    review: Review
    entity: ServerEntity
    config: DriverConfig
    chain: Chain | None = None

    @property
    def separate(self) -> bool:
        """Whether each tenant has folders of its own, so that there is a plan only with a tenant."""
        return any("{tenant}" in path for path in self.config.root.values())

    @property
    def access(self) -> Access:
        """Who may come in."""
        entity = self.entity
        return Access(entity.auth == "none", entity.required_scopes, entity.visibility)

    @property
    def tools(self) -> frozenset[str]:
        """Names of the tools that it binds, as callers see them."""
        own = self.config.names == "server"
        return frozenset(one.tool_name if own else one.contract.id for one in self.review.spec.bindings)


def driver_folders(folder: Path) -> list[Path]:
    """Return the driver folders below a folder, or the folder itself when it is one.

    Raises:
        UsageError: ``CLI-185``, there is none.
    """
    found = found_folders(folder)
    if not found:
        raise UsageError("CLI-185", f"{folder} has no driver folders", "name a folder whose folders have a DRIVER.md")
    return found


def neighbours(mounted: Iterable[Mounted], driver: str) -> dict[str, frozenset[str]]:
    """Return what every other driver exposes, by its id: callers of one endpoint see them side by side."""
    return {one.review.spec.id: one.tools for one in mounted if one.review.spec.id != driver}


def review_one(
    folder: Path,
    arguments: argparse.Namespace,
    config: GatewayConfig,
    socket_path: str,
    engine: EngineFacts,
    progress: Any,
) -> Mounted:
    """Review one driver; blocking.

    Raises:
        SandboxError: it cannot be served.
    """
    chain = review_chain(folder, arguments, config, socket_path)
    if chain is not None:
        entity = entity_of(folder, chain.review.spec, config.namespace, said(chain.config))
        return Mounted(folder, chain.review, entity, chain.config, chain)
    own = copy.copy(arguments)
    own.driver = manifest_of(folder)
    own.memory, own.tenant = None, "local"
    spec_id = load_driver(own.driver).id
    chosen = config.driver.get(spec_id, DriverConfig())
    own.root = [f"{at}={for_tenant(path, NOBODY)}" for at, path in chosen.root.items() if "{tenant}" not in path]
    review = wiring.review(own, socket_path, progress)
    facts = EngineFacts("none", "", "", (), "") if review.spec.server.kind == "remote" else engine
    review.host = replace(review.host, engine=facts)
    if not any("{tenant}" in path for path in chosen.root.values()):
        review.planned(facts)
    entity = entity_of(folder, review.spec, config.namespace, said(chosen))
    return Mounted(folder, review, entity, chosen)


def said(config: DriverConfig) -> dict[str, Any]:
    """Return what the operator's file says about a driver, in the words of an entity."""
    found = {"endpoint_path": config.path, "auth": config.auth, "visibility": config.visibility}
    return {**{name: value for name, value in found.items() if value}, **(
        {"required_scopes": config.scopes} if config.scopes else {}
    )}  # fmt: skip


def for_tenant(path: str, tenant: TenantId) -> str:
    """Return a folder for one tenant: names of tenants never become paths by themselves."""
    safe = tenant if _PLAIN.fullmatch(tenant) else "t-" + hashlib.sha256(tenant.encode()).hexdigest()[:40]
    return path.replace("{tenant}", safe)


def served(mounted: Mounted, own: tuple[str, ...], socket_path: str) -> Served:
    """Return the driver as the pool serves it: plan and secrets of each tenant."""
    review = mounted.review
    separate = mounted.separate

    def plan(tenant: TenantId | None) -> SandboxPlan:
        if not separate:
            return review.plan
        return plan_for(mounted, tenant or NOBODY, own, socket_path)

    def secrets(tenant: TenantId | None) -> Mapping[str, str]:
        return {} if separate and tenant is None else secrets_of(review.spec, plan(tenant))

    # Logins are a tenant's own, so that nothing can be opened before one is there. With folders of each tenant's own,
    # which only servers that run here have, there is no plan yet.
    own_login = not separate and logs_in(review.plan)
    warm = 0 if separate or mounted.chain or own_login else mounted.config.warm
    return Served(review.spec, plan, secrets, warm=warm)


def logs_in(plan: SandboxPlan) -> bool:
    """Return whether somebody has to log in before a server can be used."""
    return plan.auth is not None and plan.auth.grant == "authorization_code"


def kept_out(served: Served, recorder: Recorder) -> Served:
    """Return a driver whose secrets are told to the recorder before a server is given them, to be left out of records.

    Raises (when they are resolved):
        AuditUnavailable: ``CLI-016``, the recorder cannot leave anything out.
    """
    known: set[str] = set()

    def secrets(tenant: TenantId | None) -> Mapping[str, str]:
        found = served.secrets(tenant)
        fresh = set(found.values()) - known
        if fresh:
            getattr(recorder, "add_secrets", keep_out)(*fresh)
            known.update(fresh)
        return found

    return replace(served, secrets=secrets)


def plan_for(mounted: Mounted, tenant: TenantId, own: tuple[str, ...], socket_path: str) -> SandboxPlan:
    """Return the plan of one tenant, whose roots are its own; made when the tenant first comes.

    Raises:
        PlanProblems: it is refused, as when the tenant has no folder.
    """
    review = mounted.review
    roots = {at: str(Path(for_tenant(path, tenant)).absolute()) for at, path in mounted.config.root.items()}
    overrides = Overrides(roots=roots, runtime=review.overrides.runtime, memory_bytes=review.overrides.memory_bytes)
    host = replace(
        hostfacts.local_facts(review.spec, overrides, socket_path, own),
        engine=review.host.engine,
        image=review.host.image,
        egress_available=review.host.egress_available,
        remote_available=review.host.remote_available,
    )
    return derive(review.spec, review.ceiling, host, overrides=overrides)


Refused = tuple[Path, SandboxError]
Review_ = Callable[[Path], Mounted]


def review_all(folders: list[Path], review: Review_) -> tuple[list[Mounted], list[Refused]]:
    """Return what can be served and what cannot, with the reason; one broken driver does not stop the others.

    Raises:
        UsageError: ``CLI-186``, two of them have one id or one path.
    """
    good: list[Mounted] = []
    bad: list[Refused] = []
    for folder in folders:
        try:
            good.append(review(folder))
        except SandboxError as error:
            bad.append((folder, error))
    distinct(good)
    return good, bad


def distinct(mounted: list[Mounted]) -> None:
    """Refuse two drivers of one id or path.

    Raises:
        UsageError: ``CLI-186``.
    """
    _distinct(mounted, [one.review.spec.id for one in mounted])
    _distinct(mounted, [one.entity.endpoint_path for one in mounted])


def _distinct(mounted: list[Mounted], names: list[str]) -> None:
    seen: dict[str, Path] = {}
    for one, name in zip(mounted, names, strict=True):
        if name in seen:
            text = f"{seen[name]} and {one.folder} both are `{name}`"
            raise UsageError("CLI-186", text, "give one of them another id or path")
        seen[name] = one.folder
