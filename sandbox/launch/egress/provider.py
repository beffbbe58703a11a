"""Attachments that enforce ``plan.network``: one broker, holders in a pool, recovery when either dies.

Order and guarantees:

1. A broker and holders are started ahead of need (:meth:`EgressProvider.prepare`); a holder serves one sandbox, once.
2. :meth:`EgressProvider.attach` returns when the policy is in force, before the server's container exists.
3. When the broker dies, every connection ends and nothing new is accepted (the holders see to it). A new broker is
   started and the policies are attached again; the sandboxes live on.
4. When a holder dies, its sandbox has no way out any more. The attachment says so (:attr:`EgressAttachment.lost`), and
   whoever owns the sandbox ends it.
5. :meth:`EgressProvider.close`, or the end of this process in any way, leaves nothing: the broker ends with its
   stream, the holders with the broker, and everything carries the labels of the run for reaping.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import anyio

from sandbox.errors import AuditUnavailable, PlanRefused, PlatformError, SandboxError
from sandbox.events import Scope
from sandbox.launch import owner
from sandbox.launch.egress import containers, evidence
from sandbox.launch.egress.channel import Channel, Event, open_channel
from sandbox.launch.egress.profiles import profile
from sandbox.launch.engine import Engine, EngineError
from sandbox.launch.interface import LABEL_OWNER, LABEL_ROLE, LABEL_RUN
from sandbox.limits import GIB
from sandbox.plan.model import SandboxPlan
from sandbox.policy.hosts import parse_rule

if TYPE_CHECKING:
    from sandbox.launch.egress.substitution import Substitution

IMAGE: Final = "mcp-sandbox/egress"
"""What the image of both containers is called."""

MAX_CALLS: Final = 64
"""Calls in flight named in one fact; the rest is left to the times of the facts."""

LINGER: Final = 0.25
"""Seconds after its end in which a fact still carries a call: a refusal reaches the server before it reaches us."""

RECOVERIES: Final = 5
"""Brokers that may die within one :data:`RECOVERY_WINDOW` before the sandboxes are given up."""

RECOVERY_WINDOW: Final = 60.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Quotas:
    """Bounds of one sandbox.

    Attributes:
        connections: at once. A crawler or a database pool stays below a hundred.
        rate: new connections a second, averaged; ``burst`` at once.
        idle: seconds without a byte. Database pools keep connections for tens of minutes.
        bytes: both directions together, for the life of the sandbox.
    """

    connections: int = 512
    rate: float = 100.0
    burst: int = 1000
    idle: float = 3600.0
    bytes: int = 64 * GIB

    def message(self) -> dict[str, Any]:
        """Return the wire form."""
        return {name: getattr(self, name) for name in ("connections", "rate", "burst", "idle", "bytes")}


@dataclass(slots=True)
class _Holder:
    """A holder's container."""

    token: str
    container: str
    sandbox: str = ""


class EgressAttachment:
    """One sandbox's way out, and the record of it.

    Attributes:
        network_mode: what the server's container joins.
        mounts: none; what resolv.conf says comes from the holder.
        env: none; no program needs to be told of a proxy.
        sandbox: what the broker calls this sandbox.
        lost: done when the way out is gone for good; the sandbox is to be ended.
        carried: bytes up and down of connections that have ended.
    """

    mounts: Mapping[str, str] = MappingProxyType({})
    env: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self,
        provider: EgressProvider,
        holder: _Holder,
        plan: SandboxPlan,
        scope: Scope,
        learning: bool,
        substitution: Substitution | None = None,
    ) -> None:
        self.network_mode = f"container:{holder.container}"
        self.sandbox = holder.token
        self.lost: asyncio.Future[PlatformError] = asyncio.get_running_loop().create_future()
        self.names: dict[str, str] = {}
        self.flows: dict[int, tuple[Scope, dict[str, Any]]] = {}
        self.scope = scope
        self.holder = holder
        self._provider = provider
        self._plan = plan
        self._learning = learning
        self._substitution = substitution
        self.carried = (0, 0)
        self._calls: dict[str, int] = {}
        self._ended: dict[str, float] = {}

    @contextlib.contextmanager
    def during(self, call: str) -> Iterator[None]:
        """Name a tool call that is in flight: facts of the meantime carry it."""
        self._calls[call] = self._calls.get(call, 0) + 1
        try:
            yield
        finally:
            self._calls[call] -= 1
            if not self._calls[call]:
                del self._calls[call]
                self._ended[call] = asyncio.get_running_loop().time()
                if len(self._ended) > MAX_CALLS:
                    del self._ended[next(iter(self._ended))]

    def serves(self, instance: str) -> None:
        """Name the instance that has joined: facts from now on carry it."""
        self.scope = self.scope.within(instance=instance)

    async def until_lost(self) -> PlatformError:
        """Return why the way out is gone for good, once it is."""
        return await asyncio.shield(self.lost)

    def count(self, attributes: Mapping[str, Any]) -> None:
        """Add the bytes of a connection that has ended."""
        up, down = self.carried
        self.carried = (up + (attributes.get("bytes_up") or 0), down + (attributes.get("bytes_down") or 0))

    def calls(self) -> list[str]:
        """Return the calls in flight, oldest first, and those that ended a moment ago."""
        now = asyncio.get_running_loop().time()
        self._ended = {call: at for call, at in self._ended.items() if now - at <= LINGER}
        return list({**self._calls, **self._ended})[:MAX_CALLS]

    async def close(self) -> None:
        """Detach the policy and remove the holder; idempotent."""
        await self._provider.release(self)

    def command(self, generation: int) -> dict[str, Any]:
        """Return the parts of the broker's ``attach`` command."""
        network = self._plan.network
        return {
            "holder": self.holder.token,
            "sandbox": self.sandbox,
            "rules": [[rule.host, list(rule.ports), rule.mode, rule.source] for rule in network.rules],
            "allowed": list(network.allowed_private),
            "learning": self._learning,
            "names": self.names,
            "generation": generation,
            "quotas": self._provider.quotas.message(),
        } | ({"substitutes": self._substitution.message()} if self._substitution else {})

    def give_up(self, error: PlatformError) -> None:
        """Say that the way out is gone for good."""
        if not self.lost.done():
            self.lost.set_result(error)


@dataclass(slots=True)
class _Broker:
    """A broker's container and stream."""

    container: str
    channel: Channel
    ready: asyncio.Future[None]
    over: bool = field(default=False)


_HOLDER_FAILED: Final = "EGR-211"


class EgressProvider:
    """A :class:`~sandbox.launch.interface.NetworkProvider` for Docker's API.

    Args:
        engine: where containers are made.
        run_id: label of everything made here.
        image: id or name of the image of both containers.
        network: the engine's network that the broker dials from.
        resolvers: name servers of the broker; none takes the engine's.
        hosts: names with fixed addresses for the broker.
        quotas: of every sandbox.
        spare: holders kept ready.
        told: is given name and attributes of every fact about what a sandbox did on the network.
        learning: refuse everything and record it (``mcp-sandbox learn``).
    """

    def __init__(
        self,
        engine: Engine,
        run_id: str,
        *,
        image: str = IMAGE,
        network: str = "bridge",
        resolvers: Sequence[str] = (),
        hosts: Mapping[str, str] = MappingProxyType({}),
        quotas: Quotas = Quotas(),
        spare: int = 1,
        told: Callable[[str, Mapping[str, Any]], None] = lambda _name, _attributes: None,
        learning: bool = False,
    ) -> None:
        self.engine, self.run_id, self.quotas = engine, run_id, quotas
        self._image, self._network = image, network
        self._resolvers, self._hosts = tuple(resolvers), dict(hosts)
        self._spare, self._told, self._learning = spare, told, learning
        self._volume = f"mcp-sandbox-egress-{run_id[:16]}"
        self._broker: _Broker | None = None
        self._starting: asyncio.Task[_Broker] | None = None
        self._pool: list[asyncio.Task[_Holder]] = []
        self._attached: dict[str, EgressAttachment] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._deaths: list[float] = []
        self._generation = 0
        self._ipv6 = True
        self._closed = False
        self._volume_made: asyncio.Task[None] | None = None

    # --- NetworkProvider ---
    def prepare(self, holders: int = 1) -> None:
        """Begin to start the broker and holders; returns at once. What fails shows when it is needed."""
        self._broker_task()
        while len(self._pool) < holders:
            self._pool.append(self._spawn(self._start_holder()))

    async def warm(self, holders: int = 1) -> None:
        """Return when the broker serves and so many holders are ready.

        Raises:
            PlatformError: one of them could not be started.
        """
        self.prepare(holders)
        await asyncio.gather(self.start(), *(asyncio.shield(holder) for holder in self._pool))

    async def start(self) -> str:
        """Return the container id of the broker when it serves.

        Raises:
            PlatformError: ``EGR-202``, ``EGR-208``: it could not be started.
        """
        return (await asyncio.shield(self._broker_task())).container

    async def attach(
        self, plan: SandboxPlan, scope: Scope, run_id: str, substitution: Substitution | None = None
    ) -> EgressAttachment:
        """Return an attachment whose policy is in force.

        Steps:

        1. Every rule is in canonical form; otherwise nothing is started.
        2. Broker and holder are there, from the pool if it has one; the pool is filled again.
        3. The broker serves the holder's namespace under the policy; a holder that fails at it is replaced once, for
           nothing else is in its namespace yet.

        Raises:
            PlanRefused: ``EGR-201``, a rule is not canonical.
            PlatformError: ``EGR-202`` … ``EGR-204``, ``EGR-208`` … ``EGR-211``; nothing of this attachment stays.
        """
        del run_id  # everything of this provider carries the run it was made for
        # 1
        check_rules(plan)
        # 2
        broker, holder = await self._both()
        # 3
        try:
            attachment, answer = await self._serve(
                EgressAttachment(self, holder, plan, scope, self._learning, substitution), broker
            )
        except PlatformError as error:
            if error.id != _HOLDER_FAILED:
                raise
            scope.fact("egress.holder", state="replaced", holder=holder.container, why=error.message)
            broker, holder = await self._both()
            attachment, answer = await self._serve(
                EgressAttachment(self, holder, plan, scope, self._learning, substitution), broker
            )
        scope.fact(
            "egress.attach", sandbox=attachment.sandbox, holder=holder.container, missing=answer.get("missing", [])
        )
        return attachment

    async def _both(self) -> tuple[_Broker, _Holder]:
        """Return the broker and a holder for one namespace."""
        self.prepare(1)
        taken = self._pool.pop(0)
        if self._spare:
            self.prepare(self._spare)
        broker = await asyncio.shield(self._broker_task())
        return broker, await taken

    async def _serve(self, attachment: EgressAttachment, broker: _Broker) -> tuple[EgressAttachment, Event]:
        """Put an attachment's policy in force; when that fails, nothing of it stays."""
        self._attached[attachment.sandbox] = attachment
        try:
            answer = await broker.channel.ask("attach", **attachment.command(self._generation))
            _check_served(answer)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.release(attachment)
            raise
        return attachment, answer

    async def release(self, attachment: EgressAttachment) -> None:
        """Detach and remove one sandbox's way out; idempotent."""
        if self._attached.get(attachment.sandbox) is not attachment:
            return
        broker = self._broker
        if broker is not None and not broker.over:
            with contextlib.suppress(PlatformError):  # gone meanwhile: then nothing is served any more
                await broker.channel.ask("detach", sandbox=attachment.sandbox)
        self._attached.pop(attachment.sandbox, None)
        self._close_flows(attachment)
        await self._remove(attachment.holder.container)

    async def close(self) -> None:
        """Remove the broker, every holder and the volume; idempotent.

        Raises:
            PlatformError: the engine does not answer; the watchdog or the next reaping removes what is left.
        """
        self._closed = True
        for attachment in list(self._attached.values()):
            await self.release(attachment)
        pending = [*self._pool, *([self._starting] if self._starting else []), *self._tasks]
        self._pool.clear()
        made = await asyncio.gather(*pending, return_exceptions=True)
        if self._broker is not None:
            self._broker.channel.close()
            await self._remove(self._broker.container)
        for item in made:
            if isinstance(item, _Holder):
                await self._remove(item.container)
        if self._volume_made is not None:
            await self._drop_volume()

    # --- broker ---
    def _broker_task(self) -> asyncio.Task[_Broker]:
        if self._starting is None:
            self._starting = self._spawn(self._start_broker())
        return self._starting

    async def _start_broker(self) -> _Broker:
        """Create, attach to and start a broker; return when it serves holders."""
        await self._need_volume()
        request = containers.broker(
            self._image,
            self._volume,
            self._labels("broker"),
            profile("broker"),
            network=self._network,
            resolvers=self._resolvers,
            hosts=self._hosts,
        )
        name = f"mcp-sandbox-broker-{self.run_id[:12]}-{self._generation}"
        container, _ = await self._create(request, name)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            sock = await self.engine.attach(container)
            box: list[_Broker] = []
            channel = await open_channel(sock, lambda event: self._event(box[0], event), lambda: self._ended(box[0]))
            broker = _Broker(container, channel, ready)
            box.append(broker)
            await self.engine.start(container)
            async with asyncio.timeout(_START_TIMEOUT):
                await ready
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await self._remove(container)
            if isinstance(error, TimeoutError):
                raise _not_started("broker", "it did not become ready") from None
            raise
        self._broker = broker
        return broker

    def _ended(self, broker: _Broker) -> None:
        """The broker's stream is over: nothing gets out until a new one serves."""
        broker.over = True
        if not broker.ready.done():
            broker.ready.set_exception(broker.channel.gone("while starting"))
        if self._broker is not broker or self._closed:
            return
        self._broker = None
        self._spawn(self._recover(broker))

    async def _recover(self, broker: _Broker) -> None:
        """Replace a broker that died and put every policy in force again, or give every sandbox up."""
        error = broker.channel.gone("it is being replaced")
        for attachment in self._attached.values():
            attachment.scope.fact("egress.broker", sandbox=attachment.sandbox, state="lost", why=error.message)
            self._close_flows(attachment)
        await self._remove(broker.container)
        now = asyncio.get_running_loop().time()
        self._deaths = [at for at in self._deaths if now - at < RECOVERY_WINDOW] + [now]
        self._generation += 1
        self._starting = None
        try:
            if len(self._deaths) > RECOVERIES:
                raise error
            fresh = await self._broker_task()
            for attachment in list(self._attached.values()):
                answer = await fresh.channel.ask("attach", **attachment.command(self._generation))
                attachment.scope.fact(
                    "egress.broker",
                    sandbox=attachment.sandbox,
                    state="recovered",
                    missing=answer.get("missing", []),
                )
        except SandboxError as failure:
            lost = failure if isinstance(failure, PlatformError) else error
            for attachment in self._attached.values():
                attachment.give_up(lost)

    # --- holders ---
    async def _start_holder(self) -> _Holder:
        """Create and start a holder; it says hello to the broker by itself."""
        await self._need_volume()
        token = secrets.token_hex(8)
        name = f"mcp-sandbox-holder-{self.run_id[:12]}-{token}"
        for attempt in (1, 2):
            request = containers.holder(
                self._image,
                token,
                self._volume,
                self._labels("holder"),
                profile("holder"),
                hostname=_HOSTNAME,
                ipv6=self._ipv6,
            )
            container, _ = await self._create(request, name)
            try:
                await self.engine.start(container)
            except BaseException as error:
                with anyio.CancelScope(shield=True):
                    await self._remove(container)
                if attempt == 1 and isinstance(error, EngineError) and "ipv6" in error.reason.lower():
                    self._ipv6 = False  # a kernel without IPv6 has no such setting, and no way out over it either
                    continue
                raise
            return _Holder(token, container)
        raise _not_started("holder", "no attempt succeeded")

    # --- events ---
    def _event(self, broker: _Broker, event: Event) -> None:
        kind = event["ev"]
        if kind == "ready":
            if not broker.ready.done():
                broker.ready.set_result(None)
            return
        attachment = self._attached.get(event.get("sandbox", ""))
        if attachment is None:
            return
        try:
            self._record(broker, attachment, kind, event)
        except AuditUnavailable as error:
            # What has happened cannot be recorded, so nothing more may happen.
            attachment.give_up(PlatformError("EGR-206", f"egress cannot be recorded: {error.message}", error.mend))
            self._spawn(self.release(attachment))

    def _record(self, broker: _Broker, attachment: EgressAttachment, kind: str, event: Event) -> None:
        calls = attachment.calls()
        if kind == "lost":
            attachment.give_up(
                PlatformError("EGR-207", "the network namespace's holder has ended", "start the server again")
            )
            attachment.scope.fact("egress.holder", sandbox=attachment.sandbox, state="lost")
        elif kind == "dns":
            if event.get("address"):
                attachment.names[str(event["name"])] = str(event["address"])
            self._tell(attachment, attachment.scope.fact, "egress.dns", evidence.dns_attributes(event, calls))
        elif kind == "flood":
            self._tell(attachment, attachment.scope.fact, "egress.flood", evidence.flood_attributes(event, calls))
        elif event["phase"] == "intent":
            self._intent(broker, attachment, event, calls)
        elif event["phase"] == "outcome":
            scope, _ = attachment.flows.pop(event["flow"], (attachment.scope, {}))
            attributes = evidence.connect_attributes(event, calls)
            attachment.count(attributes)
            self._tell(attachment, scope.outcome, "egress.connect", attributes)
        else:
            self._tell(attachment, attachment.scope.fact, "egress.connect", evidence.connect_attributes(event, calls))

    def _tell(
        self, attachment: EgressAttachment, record: Callable[..., None], name: str, attributes: dict[str, Any]
    ) -> None:
        """Record one fact about what a sandbox did, then tell whoever listens."""
        record(name, sandbox=attachment.sandbox, **attributes)
        self._told(name, attributes)

    def _intent(self, broker: _Broker, attachment: EgressAttachment, event: Event, calls: list[str]) -> None:
        """Record what the broker is about to do and say whether it may: only what is recorded happens."""
        scope = attachment.scope.child()
        attributes = {"sandbox": attachment.sandbox, **evidence.connect_attributes(event, calls)}
        try:
            scope.intent("egress.connect", **attributes)
        except AuditUnavailable:
            broker.channel.tell("go", sandbox=attachment.sandbox, flow=event["flow"], recorded=False)
            raise
        attachment.flows[event["flow"]] = (scope, attributes)
        broker.channel.tell("go", sandbox=attachment.sandbox, flow=event["flow"], recorded=True)

    def _close_flows(self, attachment: EgressAttachment) -> None:
        """Give every connection whose outcome the broker took with it an outcome."""
        for scope, attributes in attachment.flows.values():
            why = {
                "reason": evidence.BROKER_GONE,
                "why": "the egress broker ended",
                "bytes_up": None,
                "bytes_down": None,
            }
            scope.outcome("egress.connect", **attributes, **why)
        attachment.flows.clear()

    # --- engine ---
    def _labels(self, role: str) -> dict[str, str]:
        return {LABEL_RUN: self.run_id, LABEL_OWNER: owner.own(), LABEL_ROLE: role}

    async def _create(self, request: Mapping[str, Any], name: str) -> tuple[str, tuple[str, ...]]:
        try:
            return await self.engine.create(request, name)
        except EngineError as error:
            if error.status == _NOT_FOUND:
                raise PlatformError(
                    "EGR-202",
                    f"the image {self._image} is not there",
                    "run `mcp-sandbox images build`",
                ) from None
            raise

    async def _need_volume(self) -> None:
        if self._volume_made is None:
            self._volume_made = self._spawn(self._make_volume())
        await asyncio.shield(self._volume_made)

    async def _make_volume(self) -> None:
        body = containers.volume(self._volume, self._labels("volume"))
        await self.engine.call("POST", "/volumes/create", what="create a volume", body=body)

    async def _drop_volume(self) -> None:
        """Remove the volume; the last container that held it may still be going."""
        await self._until_gone(lambda: self.engine.remove_volume(self._volume))

    async def _until_gone(self, remove: Callable[[], Awaitable[bool]]) -> None:
        """Ask the engine to remove something until it is not there, as long as others are busy with it."""
        for _ in range(_DROP_ATTEMPTS):
            try:
                if not await remove():
                    return
            except EngineError as error:
                if error.status != _BUSY:
                    raise
                await asyncio.sleep(_DROP_PAUSE)

    async def _remove(self, container: str) -> None:
        """Remove a container that may be going by itself at this moment; return when it is gone."""
        await self._until_gone(lambda: self.engine.remove(container))

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever needs the result sees it; a task nobody waits for has told it in a fact


_NOT_FOUND: Final = 404
_BUSY: Final = 409
_START_TIMEOUT: Final = 30.0
_DROP_ATTEMPTS: Final = 50
_DROP_PAUSE: Final = 0.1
_HOSTNAME: Final = "sandbox"


def check_rules(plan: SandboxPlan) -> None:
    """Refuse a plan whose rules are not in the form that the broker compares.

    Raises:
        PlanRefused: ``EGR-201``.
    """
    for rule in plan.network.rules:
        shown = f"[{rule.host}]" if ":" in rule.host else rule.host
        try:
            same = parse_rule(f"tcp://{shown}:1").host == rule.host
        except SandboxError:
            same = False
        if not same or not rule.ports:
            raise PlanRefused(
                "EGR-201",
                f"{rule.source}: the egress rule {rule.host!a} is not canonical",
                "make it with hosts.parse_rule",
            )


def _check_served(answer: Event) -> None:
    """Refuse an attachment that does not serve everything that it should; nobody else is in the namespace yet."""
    missing = answer.get("missing")
    if missing:
        raise PlatformError(
            "EGR-209",
            f"the namespace does not let these be served: {', '.join(missing[:8])}",
            "see that the engine applies the sysctl net.ipv4.ip_unprivileged_port_start (`mcp-sandbox doctor`)",
        )


def _not_started(role: str, why: str) -> PlatformError:
    return PlatformError(
        "EGR-208", f"the egress {role} could not be started: {why}", "`mcp-sandbox doctor` tries both and shows why"
    )
