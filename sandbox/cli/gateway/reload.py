"""Takes changed drivers, policies, rules and ``gateway.toml`` while clients are connected (ADR 0105).

On SIGHUP, and when files change (looked at every second; a change counts when two looks in a row see the same):

 1. Digests of everything are taken. What changed is read and reviewed, away from the event loop. Then digests are taken
    again: what was written meanwhile is read again, so that nothing half-written is ever taken.
 2. A driver whose own files are broken goes on as it was. One that a changed policy or ``gateway.toml`` refuses is
    served no more: the stricter word counts. Where policy, rules or ``gateway.toml`` cannot be read, nothing changes.
 3. The change is recorded; without the record it does not happen.
 4. At one moment, between two requests: rules, bounds, identity, doors and the pool change. What comes after it is
    decided and carried by what is new, on open sessions too (:mod:`sandbox.serve.http.moving`).
 5. Retired instances end when their calls are done, or their time is over (:mod:`sandbox.supervisor.retiring`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sandbox.cli.gateway import differences, mounts, swapping
from sandbox.cli.gateway.building import Parts, rates_of
from sandbox.cli.gateway.config import GatewayConfig
from sandbox.cli.gateway.differences import Changes
from sandbox.cli.gateway.mounts import Mounted, Refused
from sandbox.cli.gateway.prints import CONFIG, POLICY, RULES, Printer, Prints
from sandbox.cli.gateway.sources import Sources
from sandbox.cli.gateway.swapping import Identity
from sandbox.cli.pipeline import refuse_typos
from sandbox.cli.report import line_of, say
from sandbox.errors import PlatformError, SandboxError
from sandbox.policy.cedar import PolicySet
from sandbox.registry.catalog import Catalog
from sandbox.serve.decide import binding_facts, driver_facts
from sandbox.serve.http.app import App
from sandbox.supervisor.held import Served

LOOK: Final = 1.0
"""Seconds between two looks at the files; a person who saves one waits two of them."""

TRIES: Final = 5
"""Readings of files that change while they are read, until a reload is given up."""


@dataclass(frozen=True, slots=True)
class Wiring:
    """What a reload needs of whoever started the gateway.

    Attributes:
        read: reads the operator's files; blocking.
        review: reviews one driver folder under a configuration; blocking.
        serve: makes what the pool serves of a reviewed driver.
        prepare: has the engine ready for the networks of drivers.
        offer: has servers told from now on what clients can be asked for.
    """

    read: Callable[[], Sources]
    review: Callable[[Path, GatewayConfig], Mounted]
    serve: Callable[[Mounted], Served]
    prepare: Callable[[list[Mounted]], None] = lambda _mounted: None
    offer: Callable[[Mapping[str, Any]], None] = lambda _capabilities: None


@dataclass(slots=True)
class Fresh:
    """What a reload would serve.

    Attributes:
        mounted: every driver.
        refused: what could not be reviewed.
        gone: those of them that were served, and are no more.
        waiting: keys of ``gateway.toml`` that need a start.
    """

    sources: Sources
    prints: Prints
    mounted: list[Mounted] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    waiting: tuple[str, ...] = ()

    def outside(self, before: Mapping[Path, tuple[str, ...]]) -> dict[Path, tuple[str, ...]]:
        """Return the files elsewhere that each folder is served from; a broken one's are those of before."""
        known = {one: before.get(one, ()) for one in self.prints.drivers}
        return known | {one.folder: one.review.files for one in self.mounted}


class Reloader:
    """Reloads one gateway.

    Args:
        parts: what it is made from; changed by a reload.
        app: its application.
        wiring: see :class:`Wiring`.
        printer: takes the digests.
        sources: what the operator's files said at the start.
        begun: the digests of before the start, without files elsewhere.

    Attributes:
        count: reloads that changed something.
    """

    def __init__(
        self, parts: Parts, app: App, wiring: Wiring, printer: Printer, sources: Sources, begun: Prints
    ) -> None:
        self.count = 0
        self._parts = parts
        self._app = app
        self._wiring = wiring
        self._printer = printer
        self._sources = sources
        self._outside = {one.folder: one.review.files for one in parts.mounted}
        changed = printer.take({}) != begun  # while the gateway started: all of it is looked at again
        self._prints = self._seen = Prints() if changed else printer.take(self._outside)
        self._lock = asyncio.Lock()

    async def watch(self) -> None:
        """Reload whenever files have changed and are no longer being written."""
        last: Prints | None = None
        while True:
            await asyncio.sleep(LOOK)
            now = await asyncio.to_thread(self._printer.take, self._outside)
            if now == self._seen:
                last = None
            elif now != last:
                last = now
            else:
                await self.reload("watch")

    async def on_signal(self, asked: asyncio.Event) -> None:
        """Reload whenever it is asked for, every driver reviewed anew."""
        while True:
            await asked.wait()
            asked.clear()
            await self.reload("signal", force=True)

    def own(self, write: Callable[[], None]) -> None:
        """Let the gateway itself write into a driver folder, and do not take that for a change that restarts servers.

        What somebody else changed before, or is changing while files are read, still counts.
        """
        before = None if self._lock.locked() else self._printer.take(self._outside)
        write()
        if before is not None and before == self._seen == self._prints:
            self._seen = self._prints = self._printer.take(self._outside)

    async def reload(self, why: str, *, force: bool = False) -> bool:
        """Take what has changed; return whether anything did.

        Args:
            why: ``signal`` or ``watch``, for the trail.
            force: review every driver, whether its files changed or not.
        """
        async with self._lock:
            try:
                fresh = await self._settled(force)
                return await self._take(fresh, why)
            except Exception as error:  # noqa: BLE001 - what is served goes on, and the next reload is tried
                say(line_of(f"mcp-sandbox: nothing is reloaded: {error}"))
                reason = error.id if isinstance(error, SandboxError) else type(error).__name__
                with contextlib.suppress(SandboxError):
                    digest = self._prints.digest()
                    self._parts.scope.fact("gateway.reload", why=why, before=digest, after=digest, reason=reason)
                return False

    async def _settled(self, force: bool) -> Fresh:
        """Return what would be served, read from files that did not change while they were read (steps 1 and 2)."""
        for _ in range(TRIES):
            self._seen = await asyncio.to_thread(self._printer.take, self._outside)
            fresh: Fresh | SandboxError
            try:
                fresh = await asyncio.to_thread(self._made, self._seen, force)
                outside = fresh.outside(self._outside)
            except SandboxError as error:
                fresh, outside = error, self._outside
            if outside == self._outside and await asyncio.to_thread(self._printer.take, outside) == self._seen:
                if isinstance(fresh, SandboxError):
                    raise fresh
                return fresh
            self._outside = outside
        raise PlatformError("GATE-052", "the files keep changing while they are read", "reload when they are written")

    def _made(self, prints: Prints, force: bool) -> Fresh:
        """Read and review; blocking."""
        sources = self._wiring.read()
        config, waiting = differences.adopted(self._parts.config, sources.config)
        rates_of(config.limits)  # refused here, while nothing has changed
        sources = Sources(config, sources.rules, sources.bounds, sources.capabilities)
        fresh = Fresh(sources, prints, waiting=waiting)
        shared = differences.shared_changes(self._prints.shared, prints.shared)
        before = {one.folder: one for one in self._parts.mounted}
        for folder in prints.drivers:
            self._review(
                folder,
                before.get(folder),
                fresh,
                operators=self._operators(before.get(folder), shared, config),
                force=force,
            )
        if not fresh.mounted:
            mounts.driver_folders(self._printer.folder)  # says what is missing
        mounts.distinct(fresh.mounted)
        if RULES in shared:
            for one in fresh.mounted:
                check_rules(one, sources.rules)
        return fresh

    def _operators(self, was: Mounted | None, shared: tuple[str, ...], config: GatewayConfig) -> bool:
        """Return whether what the operator says about a driver has changed."""
        if POLICY in shared or was is None:
            return POLICY in shared
        old = self._parts.config
        return CONFIG in shared and (
            config.driver.get(was.review.spec.id) != old.driver.get(was.review.spec.id)
            or config.namespace != old.namespace
        )

    def _review(self, folder: Path, was: Mounted | None, fresh: Fresh, *, operators: bool, force: bool) -> None:
        same = self._prints.drivers.get(folder) == fresh.prints.drivers[folder]
        if same and not operators and not force:
            if was is not None:
                fresh.mounted.append(was)
            if was is not None or CONFIG not in differences.shared_changes(self._prints.shared, fresh.prints.shared):
                return
        try:
            one = self._wiring.review(folder, fresh.sources.config)
            check_rules(one, fresh.sources.rules)
            as_before = same and was is not None and differences.identical(was, one)
            fresh.mounted.append(was if as_before and was is not None else one)
        except SandboxError as error:
            fresh.refused.append((folder, error))
            if was is not None and operators:
                fresh.gone.append(was.review.spec.id)
            elif was is not None:
                fresh.mounted.append(was)

    async def _take(self, fresh: Fresh, why: str) -> bool:
        """Steps 3 to 5."""
        shared = differences.shared_changes(self._prints.shared, fresh.prints.shared)
        kept = {folder for folder, _ in fresh.refused}
        touched = differences.touched(self._prints, fresh.prints) - kept
        anew = dict(fresh.sources.capabilities) != dict(self._sources.capabilities)
        found = differences.changes(self._parts.mounted, fresh.mounted, touched, all_anew=anew)
        before, self._prints = self._prints, fresh.prints
        for folder, error in fresh.refused:
            goes = "is not served" if folder not in {one.folder for one in fresh.mounted} else "goes on as it was"
            say(line_of(f"mcp-sandbox: {folder.name} {goes}: {error}"))
        if not shared and found == Changes() and not fresh.refused:
            return False
        scope = self._parts.scope
        said: dict[str, Any] = {
            "why": why, "before": before.digest(), "after": fresh.prints.digest(), "shared": list(shared),
            "added": list(found.added), "removed": list(found.removed), "changed": list(found.restarted),
            "refused": [f"{folder.name}: {error.id}" for folder, error in fresh.refused],
            "waiting": list(fresh.waiting),
        }  # fmt: skip
        try:
            catalog = await asyncio.to_thread(swapping.catalog_for, self._parts, fresh.mounted)
            scope.intent("gateway.reload", **said)  # 3
            self._record(fresh)
            self._wiring.prepare(fresh.mounted)
            identity = swapping.identity_of(self._parts, fresh.sources.config)
        except BaseException:
            self._prints = before
            raise
        ended = self._swap(fresh, found, shared, identity, catalog)  # 4
        scope.outcome("gateway.reload", status="ok", sessions_ended=ended)
        self.count += 1
        _tell(found, shared, fresh.waiting)
        return True

    def _record(self, fresh: Fresh) -> None:
        """Record what was reviewed anew."""
        known = {id(one) for one in self._parts.mounted}
        for one in fresh.mounted:
            if id(one) not in known and not one.separate:
                one.review.record(self._parts.scope.within(driver=one.review.spec.id))

    def _swap(self, fresh: Fresh, found: Changes, shared: tuple[str, ...], identity: Identity, catalog: Catalog) -> int:
        """Change everything, between two requests; return how many sessions end by it."""
        parts, before = self._parts, self._parts.config
        self._sources, self._outside = fresh.sources, fresh.outside(self._outside)
        parts.config, parts.rules, parts.bounds = fresh.sources.config, fresh.sources.rules, fresh.sources.bounds
        parts.mounted[:], parts.catalog = fresh.mounted, catalog
        self._wiring.offer(fresh.sources.capabilities)
        swapping.swap_pool(parts, found, self._wiring.serve, parts.config.limits.drain)
        decided = bool({POLICY, RULES} & set(shared))
        rerouted = before.routing != parts.config.routing
        swapping.swap_doors(parts, self._app, found, everything=decided, rerouted=rerouted)
        swapping.swap_limits(parts, self._app)
        return swapping.swap_identity(parts, self._app, before, identity)


def check_rules(mounted: Mounted, rules: PolicySet) -> None:
    """Hold rules against what a driver's contracts are.

    Raises:
        PolicyError: a rule names an attribute or argument that does not exist.
    """
    spec = mounted.review.spec
    facts = driver_facts(spec)
    refuse_typos(rules, facts, [binding_facts(binding, facts) for binding in spec.bindings])


def _tell(found: Changes, shared: tuple[str, ...], waiting: tuple[str, ...]) -> None:
    parts = [f"{name} is new" for name in shared]
    for word, names in (("added", found.added), ("removed", found.removed), ("changed", found.restarted)):
        parts += [f"{word} {', '.join(names)}"] if names else []
    say(line_of(f"mcp-sandbox: reloaded: {'; '.join(parts) or 'nothing that clients see'}"))
    if waiting:
        say(line_of(f"mcp-sandbox: gateway.toml: {', '.join(f'`{one}`' for one in waiting)} will hold after a restart"))
