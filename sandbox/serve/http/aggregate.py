"""One endpoint with the tools of every driver, each named ``DRIVER__TOOL``; routed ones once, under their own names.

A caller gets the drivers that its credential covers. A driver that cannot be had now is left out and recorded; the
others go on. A request that names a tool lends only that tool's server; listing lends all of them. Resources are listed
and read, not watched: a subscription belongs to one server. What a server asks while it carries a call is judged as at
its own endpoint, and its answer goes to that server alone (:mod:`sandbox.serve.http.questions`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

from sandbox.errors import CallRefused, SandboxError
from sandbox.events import Scope
from sandbox.serve.calls import Caller
from sandbox.serve.client_lists import declared_for
from sandbox.serve.client_model import CallInfo, SessionOptions
from sandbox.serve.client_replies import Clean
from sandbox.serve.http.bounds import REFUSALS_AT_ONCE, REFUSALS_PER_SECOND
from sandbox.serve.http.doors import Behind, Door
from sandbox.serve.http.questions import AllAsking, towards
from sandbox.serve.http.routing import Choice, Router, picked
from sandbox.serve.http.turns import Turn
from sandbox.serve.identity.model import Access, Identity
from sandbox.transport.limiter import TokenBucket
from sandbox.transport.peer import PeerListener, ServerPeer
from sandbox.vet.model import ExposedTool, Exposure
from sandbox.wire.jsonrpc import Request

if TYPE_CHECKING:
    from sandbox.serve.asking import Asking

SEPARATOR: Final = "__"
"""Between driver and tool; ids of drivers and contracts have single hyphens, never this."""

INFO: Final = {"name": "mcp-sandbox", "title": "All servers of this gateway", "version": "1"}


class AggregateDoor:
    """An endpoint in front of other endpoints.

    Args:
        path: of the endpoint.
        doors: those behind it.
        access: who may come in at all; each door behind it is asked too.
        scope: where what is left out is recorded.
        router: offers tools that several drivers bind once, and chooses; ``None`` names the driver in every tool.
    """

    def __init__(self, path: str, doors: Sequence[Door], scope: Scope, router: Router | None = None) -> None:
        self.name = "all"
        self.legacy = False
        self.info = dict(INFO)
        self.path = path
        self.turn = Turn()
        self._scope = scope
        self._left_out = TokenBucket(REFUSALS_PER_SECOND, REFUSALS_AT_ONCE)
        self._unrecorded = 0
        self._take(doors, router)

    def _take(self, doors: Sequence[Door], router: Router | None) -> None:
        self._router = router
        deciding = frozenset(scope for door in doors for scope in door.access.scopes)
        self.access = Access(anonymous=any(door.access.anonymous for door in doors), deciding=deciding)
        self._doors = {door.name: door for door in doors}
        self.stateless = all(door.stateless for door in doors)

    def renew(self, doors: Sequence[Door], router: Router | None = None) -> None:
        """Stand in front of these doors from now on; sessions go on with what is behind them."""
        self._take(doors, router)
        self.turn.next()

    @contextlib.asynccontextmanager
    async def open(self, identity: Identity, request: Request | None = None) -> AsyncIterator[Behind]:
        """Lend every server that the caller may use; for a request that names a tool, only that tool's."""
        async with contextlib.AsyncExitStack() as stack:
            behind: dict[str, Behind] = {}
            choice = Choice(self._router, identity.tenant.tenant, self._allowed(identity))
            tool = str(request.params.get("name", "")) if request is not None and request.method == "tools/call" else ""
            doors = self._tried(tool, choice) if tool in choice.routed else self._wanted(identity, request)
            for door in doors:
                try:
                    behind[door.name] = await stack.enter_async_context(door.open(identity, request))
                except SandboxError as error:
                    choice.unavailable[door.name] = f"it could not be had ({error.id})"
                    self._leave_out(door.name, identity, error)
                if tool in choice.routed and behind:
                    break
            if tool in choice.routed and not behind:
                picked(self._scope.within(tenant=identity.tenant.tenant), tool, choice.now(tool))
            if not behind:
                text = "no server behind this endpoint can be had"
                raise CallRefused("GATE-038", text, "use the endpoint of one driver, or try again later")
            scope = self._scope.child().within(tenant=identity.tenant.tenant)
            crowd = cast("ServerPeer", Crowd([one.peer for one in behind.values()]))
            timeout = max(one.options.call_timeout for one in behind.values())
            clean = _all_of([one.options.clean for one in behind.values()])
            asking = AllAsking({name: one.options.asking for name, one in behind.items() if one.options.asking})
            options = SessionOptions(
                server_info=self.info, call_timeout=timeout, clean=clean, asking=cast("Asking", asking),
                asker=Caller(identity.tenant),
            )  # fmt: skip
            handler = AllHandler(behind, choice, asking)
            yield Behind(merged(behind, choice), crowd, handler, scope, options, _following(behind, choice))

    def _tried(self, tool: str, choice: Choice) -> Iterator[Door]:
        """Yield the driver that is to carry a routed tool, and the next one when it cannot be had."""
        for _ in choice.routed[tool]:
            best = choice.settle(tool)
            if best is None:
                return
            yield self._doors[best.id]

    def _leave_out(self, driver: str, identity: Identity, error: SandboxError) -> None:
        """Record that the endpoint goes on without a driver; a flood is counted."""
        if not self._left_out.take(time.monotonic()):
            self._unrecorded += 1
            return
        more = {"unrecorded": self._unrecorded} if self._unrecorded else {}
        self._unrecorded = 0
        own = self._scope.within(driver=driver, tenant=identity.tenant.tenant)
        own.fact("gateway.leave_out", reason=error.id, **more)

    def _allowed(self, identity: Identity) -> frozenset[str]:
        return frozenset(door.name for door in self._doors.values() if identity.may_use(door.access))

    def limited(self, tool: str) -> str:
        """Return the key of the tool's own endpoint: both ways count together; routed tools have one of their own."""
        if self._router is not None and tool in self._router.routed:
            return f"/{tool}"
        driver, _, name = tool.partition(SEPARATOR)
        return self._doors[driver].limited(name) if driver in self._doors else ""

    def _wanted(self, identity: Identity, request: Request | None) -> list[Door]:
        allowed = [door for door in self._doors.values() if identity.may_use(door.access)]
        if request is not None and request.method in ("tools/call", "prompts/get"):
            driver = str(request.params.get("name", "")).partition(SEPARATOR)[0]
            return [door for door in allowed if door.name == driver] or allowed[:1]
        return allowed


def merged(behind: Mapping[str, Behind], choice: Choice) -> Exposure:
    """Return what is exposed of several servers: routed tools once, what is left under the names of their drivers."""
    tools: dict[str, ExposedTool] = {}
    prompts: dict[str, Any] = {}
    resources: list[Any] = []
    held: dict[str, str] = {}
    for driver, one in behind.items():
        for name, tool in one.exposure.tools.items():
            if driver in choice.routed.get(name, ()):
                best = choice.now(name, behind)[0].chosen
                if best is not None and best.id == driver:
                    tools[name] = tool
                continue
            full = f"{driver}{SEPARATOR}{name}"
            tools[full] = replace(tool, name=full, definition={**tool.definition, "name": full})
        prompts |= {f"{driver}{SEPARATOR}{name}": prompt for name, prompt in one.exposure.prompts.items()}
        held |= {f"{driver}{SEPARATOR}{name}": why for name, why in one.exposure.held.items()}
        resources += one.exposure.resources
    return Exposure(tools, prompts, tuple(resources), held=held)


def _all_of(cleaners: Sequence[Clean]) -> Clean:
    """Return what removes the secrets of every server from what any of them says: which one spoke is not known here."""

    def clean(said: dict[str, Any]) -> dict[str, Any]:
        for one in cleaners:
            said = one(said)
        return said

    return clean


def _following(behind: dict[str, Behind], choice: Choice) -> Callable[[Callable[[Exposure], None]], Callable[[], None]]:
    """Return what calls a session with the merged exposure whenever one of its parts changes, in ``behind`` too."""

    def follow(hear: Callable[[Exposure], None]) -> Callable[[], None]:
        def changed(driver: str) -> Callable[[Exposure], None]:
            def take(exposure: Exposure) -> None:
                behind[driver] = replace(behind[driver], exposure=exposure)
                hear(merged(behind, choice))

            return take

        ends = [one.follow(changed(driver)) for driver, one in behind.items()]

        def unfollow() -> None:
            for end in ends:
                end()

        return unfollow

    return follow


@dataclass(frozen=True, slots=True)
class AllHandler:
    """Hands each request to the handler of its driver, under the driver's own names."""

    behind: Mapping[str, Behind]
    choice: Choice
    asking: AllAsking

    async def call_tool(self, tool: ExposedTool, arguments: dict[str, Any], call: CallInfo) -> dict[str, Any]:
        """Carry one tool call; the driver of a routed one is chosen now, and stays."""
        if tool.name in self.choice.routed:
            driver, name = picked(call.scope, tool.name, self.choice.now(tool.name, self.behind)), tool.name
        else:
            driver, name = _named(tool.name)
        one = self.behind[driver]
        inner = one.exposure.tools.get(name)
        own = replace(tool, name=name, definition={**tool.definition, "name": name}) if inner is None else inner
        return await one.handler.call_tool(own, arguments, self._to(driver, call))

    async def get_prompt(self, name: str, arguments: dict[str, Any], call: CallInfo) -> dict[str, Any]:
        """Fetch one prompt."""
        driver, own = _named(name)
        return await self.behind[driver].handler.get_prompt(own, arguments, self._to(driver, call))

    async def read_resource(self, uri: str, call: CallInfo) -> dict[str, Any]:
        """Read one resource, from the first driver that declares it."""
        driver = next(name for name, one in self.behind.items() if declared_for(one.exposure, uri) is not None)
        return await self.behind[driver].handler.read_resource(uri, self._to(driver, call))

    async def watch_resource(self, uri: str, call: CallInfo) -> None:  # noqa: ARG002 - the handler's form
        """Refuse: nothing is watched here."""
        raise CallRefused("GATE-039", "resources are not watched here", "use the endpoint of the driver")

    async def complete(self, params: dict[str, Any], call: CallInfo) -> dict[str, Any]:
        """Complete an argument of a prompt, or of a template."""
        ref = dict(params.get("ref", {}))
        if ref.get("type") == "ref/prompt":
            driver, ref["name"] = _named(str(ref.get("name")))
        else:
            template = str(ref.get("uri"))
            found = (d for d, b in self.behind.items() if any(r.uri_template == template for r in b.exposure.resources))
            driver = next(found)
        return await self.behind[driver].handler.complete({**params, "ref": ref}, self._to(driver, call))

    def _to(self, driver: str, call: CallInfo) -> CallInfo:
        return towards(call, driver, self.behind[driver], self.asking)


def _named(name: str) -> tuple[str, str]:
    """Return driver and own name of a tool or prompt."""
    driver, _, own = name.partition(SEPARATOR)
    return driver, own


class Crowd:
    """Several servers as one session sees them: what they offer together, and an end when one of them ends."""

    def __init__(self, peers: Sequence[ServerPeer]) -> None:
        self._peers = peers
        self.era = "handshake"

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What any of them offers, without subscriptions."""
        found: dict[str, Any] = {}
        for peer in self._peers:
            found |= {name: {} for name in peer.capabilities}
        return found

    @property
    def fault(self) -> SandboxError | None:
        """Why one of them is gone."""
        return next((peer.fault for peer in self._peers if peer.fault is not None), None)

    def add_listener(self, listener: PeerListener) -> None:
        """Hear all of them."""
        for peer in self._peers:
            peer.add_listener(listener)

    def remove_listener(self, listener: PeerListener) -> None:
        """Undo that."""
        for peer in self._peers:
            peer.remove_listener(listener)

    def pause(self) -> None:
        """Nothing: streams over HTTP are bounded by themselves."""

    def resume(self) -> None:
        """Nothing."""

    async def wait_closed(self) -> SandboxError | None:
        """Return when one of them is gone."""
        tasks = [asyncio.ensure_future(peer.wait_closed()) for peer in self._peers]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return next(iter(done)).result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
