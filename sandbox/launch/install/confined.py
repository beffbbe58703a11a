"""Build containers that reach the registry and nothing else: the egress broker under rules made of :class:`Reach`.

The same topology as for servers (:mod:`sandbox.launch.egress`): the build joins a holder's empty namespace, names that
it was not told of do not exist, and every attempt is recorded. Installs are blocking code, so each network has a loop
of its own in a thread; it begins before the build and is gone, with holder, broker and volume, when the build is over.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self, TypeVar, cast
from urllib.parse import urlsplit

from sandbox.errors import InstallRefused, PlanRefused, SpecError
from sandbox.events import Scope, Trace
from sandbox.launch import owner
from sandbox.launch.egress.inside import reasons
from sandbox.launch.egress.provider import EgressAttachment, EgressProvider
from sandbox.launch.engine import Engine
from sandbox.launch.images.progress import Progress, Silent
from sandbox.launch.images.runner import BuildFailed, BuildNetwork
from sandbox.launch.install.exceptions import Exceptions
from sandbox.launch.install.network import DOWNLOAD, Reach
from sandbox.plan.model import NetworkPlan, SandboxPlan
from sandbox.policy.destinations import EgressRule
from sandbox.policy.hosts import parse_rule

T = TypeVar("T")

CONFIGURED: Final = "configured"
"""Entry of ``install.registries`` that stands for what the person's own client configuration names."""

MAX_TOLD: Final = 20
"""Attempts of one build that are named."""

Attempt = Mapping[str, Any]


class Nobody:
    """A recorder of builds whose caller keeps no trail."""

    def record(self, fact: object) -> None:
        """Forget it."""


@dataclass(slots=True)
class Confined:
    """A :class:`~sandbox.launch.install.network.BuildNetworks` that confines.

    Attributes:
        socket_path: of the engine.
        image: returns the id of the broker's image.
        exceptions: of whoever runs installs on this host.
        registries: hosts that the operator's ceiling names; ``configured`` is whatever the client is configured with.
        progress: who is told of attempts.
        scope: where they are recorded.
        options: of :class:`~sandbox.launch.egress.provider.EgressProvider`.
    """

    socket_path: str
    image: Callable[[], str]
    exceptions: Exceptions = field(default_factory=Exceptions)
    registries: tuple[str, ...] = (CONFIGURED,)
    progress: Progress = field(default_factory=Silent)
    scope: Scope = field(default_factory=lambda: Scope(Nobody(), Trace.new()))
    options: Mapping[str, Any] = field(default_factory=dict)
    confined: bool = True

    @contextmanager
    def open(self, reach: Reach) -> Iterator[BuildNetwork]:
        """Return a network that is in force before a build starts and is removed when the context ends.

        Raises:
            InstallRefused: ``INST-090`` the build failed because its registry has no public address, ``INST-091``
                because another host was needed.
            PlanRefused: ``INST-092``, the operator's ceiling does not allow that registry.
            PlatformError: broker or holder could not be started; nothing is left behind.
        """
        rules = self._rules(reach)
        tried: list[Attempt] = []

        def told(name: str, attributes: Attempt) -> None:
            if attributes.get("decision") == "deny" and name in {"egress.dns", "egress.connect"}:
                tried.append(attributes)

        with _Loop() as loop:
            provider = loop.run(self._provider(told))
            try:
                attachment = loop.run(self._attach(provider, rules))
                yield BuildNetwork(attachment.network_mode)
            except BuildFailed as error:
                loop.run(provider.close())  # what the broker has counted is told now
                raise _explained(error, reach, tried) from None
            finally:
                loop.run(provider.close())
        for attempt in _different(tried):
            self.progress.warn(f"the build tried {attempt}, which is not its registry; it was refused")

    def _rules(self, reach: Reach) -> tuple[EgressRule, ...]:
        """Return the rules of what a build has to reach, as far as the ceiling allows it."""
        rules = [_rule(origin) for origin in reach.origins]
        if reach.client == DOWNLOAD:
            return tuple(rules)
        for rule in rules:
            if CONFIGURED not in self.registries and rule.host not in self.registries:
                raise PlanRefused(
                    "INST-092",
                    f"installs from {rule.host} are not allowed; install.registries has {', '.join(self.registries)}",
                    "configure the client for one of these, or have the operator add the host",
                )
        further = [parse_rule(entry, "install.registries") for entry in self.registries if entry != CONFIGURED]
        further += [parse_rule(entry, "install.toml") for entry in self.exceptions.hosts]
        return tuple(dict.fromkeys([*rules, *further]))

    async def _provider(self, told: Callable[[str, Attempt], None]) -> EgressProvider:
        image = await asyncio.to_thread(self.image)
        engine = Engine(self.socket_path)
        options = {"spare": 0, **self.options}
        provider = EgressProvider(engine, owner.new_run_id(), image=image, told=told, **options)
        provider.prepare()
        return provider

    async def _attach(self, provider: EgressProvider, rules: tuple[EgressRule, ...]) -> EgressAttachment:
        plan = cast("SandboxPlan", _Build(NetworkPlan("broker", rules, self.exceptions.private)))
        return await provider.attach(plan, replace(self.scope, instance="build"), provider.run_id)


@dataclass(frozen=True, slots=True)
class _Build:
    """What a provider reads of a plan; a build has no other."""

    network: NetworkPlan


class _Loop:
    """An event loop in a thread, for the time of one build."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="install-network", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work on the loop and return what it gives."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _rule(origin: str) -> EgressRule:
    """Return the rule of one ``https://host[:port]``.

    Raises:
        PlanRefused: ``INST-092``, it is not https or no host.
    """
    try:
        if urlsplit(origin).scheme != "https":
            raise ValueError(origin)  # noqa: TRY301 - one refusal for both
        return parse_rule(origin, "client configuration")
    except (SpecError, ValueError):
        raise PlanRefused(
            "INST-092", f"`{origin}` is no registry that a build may be let to", "configure an https registry"
        ) from None


def _explained(error: BuildFailed, reach: Reach, tried: list[Attempt]) -> Exception:
    """Return why a build failed, as far as the network has to do with it."""
    floor = next((item for item in tried if item.get("reason") == reasons.FLOOR), None)
    if floor is not None:
        return InstallRefused(
            "INST-090",
            f"{floor['host']} is not on a public address: {floor.get('detail', '')}",
            "if it is of your own network, add its address under [[private]] of install.toml (docs/egress.md)"
            if reach.client == DOWNLOAD
            else "if that is your registry, run `mcp-sandbox registries --allow` and look at what it allows",
        )
    others = list(_different(tried))
    if not others or "EINTEGRITY" in error.log or "Hash mismatch" in error.log:
        return error
    return InstallRefused(
        "INST-091",
        f"the build could reach {', '.join(reach.origins)} only, and tried {', '.join(others[:5])}: {error.message}",
        "if the registry keeps files there, add the host to install.toml (docs/egress.md); otherwise do not install it",
    )


def _different(tried: list[Attempt]) -> Iterator[str]:
    """Yield each destination once that was tried and is not the registry, bounded."""
    shown: dict[str, None] = {}
    for item in (item for item in tried if item.get("reason") != reasons.FLOOR):
        port = f":{item['port']}" if item.get("port") else ""
        shown[f"{item['host']}{port}"] = None
    yield from list(shown)[:MAX_TOLD]
