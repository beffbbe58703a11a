"""One attached namespace: its policy, its sockets, its connections, its evidence."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

from sandbox.launch.egress.inside import packets, passing, reasons, watching
from sandbox.launch.egress.inside.bounds import (
    ACCEPT_BATCH,
    BACKLOG,
    INTENT_TIMEOUT,
    MAX_FLOWS,
    MAX_WAITING,
    PACKET_PAUSE,
    PACKETS_PER_TURN,
    SWEEP_SECONDS,
)
from sandbox.launch.egress.inside.flow import Flow
from sandbox.launch.egress.inside.names import NameTable
from sandbox.launch.egress.inside.reasons import Denied
from sandbox.launch.egress.inside.replacing import Substitutes
from sandbox.launch.egress.inside.resolver import Resolver
from sandbox.launch.egress.inside.server import NameServer
from sandbox.launch.egress.inside.tally import QUESTIONS, Tally
from sandbox.policy.destinations import EgressRule, networks

_RESET: Final = b"\x01\0\0\0\0\0\0\0"
"""SO_LINGER on, zero seconds: close() sends a reset."""

Socket = tuple[list[Any], socket.socket]
"""A socket of the holder's roster with what it is."""

_numbers = itertools.count(1)


class Reporter(Protocol):
    """Where events go."""

    @property
    def congested(self) -> bool:
        """Whether nothing new may happen."""

    def send(self, event: dict[str, Any]) -> None:
        """Send one event."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What one namespace may do.

    Attributes:
        rules: allowed destinations.
        allowed: operator's CIDRs that are open although not public.
        learning: refuse everything, but give every name an address, so that what is tried is seen with its port.
        names: names below wildcards → address, from before the broker was replaced.
        generation: how often the broker was replaced; new names get addresses that none had before.
        connections: at once.
        rate: new connections in a second, averaged; ``burst`` at once.
        idle: seconds without a byte.
        bytes: both directions together, for the life of the namespace.
        substitutes: secrets that are put into requests.
    """

    rules: tuple[EgressRule, ...]
    allowed: tuple[str, ...]
    learning: bool
    names: Mapping[str, str]
    generation: int
    connections: int
    rate: float
    burst: int
    idle: float
    bytes: int
    substitutes: Substitutes | None = None

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Policy:
        """Return the policy of an ``attach`` command; every field must be there."""
        quotas = message["quotas"]
        return cls(
            rules=tuple(EgressRule(host, tuple(ports), mode, source) for host, ports, mode, source in message["rules"]),
            allowed=tuple(message["allowed"]),
            learning=bool(message["learning"]),
            names=dict(message["names"]),
            generation=int(message["generation"]),
            connections=int(quotas["connections"]),
            rate=float(quotas["rate"]),
            burst=int(quotas["burst"]),
            idle=float(quotas["idle"]),
            bytes=int(quotas["bytes"]),
            substitutes=Substitutes.of(message.get("substitutes")),
        )

    def listeners(self, table: NameTable) -> list[tuple[str, int]]:
        """Return the addresses and ports to listen on.

        A port of a wildcard or CIDR is listened on everywhere, because the addresses are not known yet; any other
        port only on the addresses of the names that have it, so that other addresses are refused by the kernel.
        """
        if self.learning:
            return []
        broad4 = {port for rule in self.rules if _broad(rule.host, 4) for port in rule.ports}
        broad6 = {port for rule in self.rules if _broad(rule.host, 6) for port in rule.ports}
        everywhere = [("0.0.0.0", port) for port in sorted(broad4)] + [("::", port) for port in sorted(broad6)]  # noqa: S104
        exact = [
            (table.exact.get(rule.host, rule.host), port)
            for rule in self.rules
            if not (_broad(rule.host, 4) or _broad(rule.host, 6))
            for port in rule.ports
        ]
        closed = {4: broad4, 6: broad6}
        return everywhere + sorted({(a, p) for a, p in exact if p not in closed[6 if ":" in a else 4]})


def _broad(host: str, version: int) -> bool:
    if "/" in host:
        return networks((host,))[0].version == version
    return version == 4 and host.startswith("*.")  # noqa: PLR2004 - names have IPv4 addresses inside


class Guest:
    """One attached namespace.

    Args:
        name: the supervisor's name for it.
        policy: in force from :meth:`open` on.
        reporter: where events go.
        resolver: shared by all namespaces.
    """

    alive: ClassVar[int] = 0
    """Connections of all namespaces together."""

    def __init__(self, name: str, policy: Policy, reporter: Reporter, resolver: Resolver) -> None:
        self.name = name
        self.policy = policy
        self.rules = policy.rules
        self.allowed = networks(policy.allowed)
        self.learning = policy.learning
        self.substitutes = policy.substitutes
        self.table = NameTable(policy.rules, policy.names, policy.generation, everything=policy.learning)
        self.flows: dict[int, Flow] = {}
        self._loop = asyncio.get_running_loop()
        self._reporter = reporter
        self._resolver = resolver
        self._tally = Tally(self.tell, self._loop.time)
        self._answered = Tally(self.tell, self._loop.time, QUESTIONS)
        self._names = NameServer(self.table, self._asked, lambda: reporter.congested)
        self._left = policy.bytes
        self._tokens, self._filled = float(policy.burst), self._loop.time()
        self._idle: dict[int, float] = {}
        self._ears: list[socket.socket] = []
        self._heard: set[tuple[str, int]] = set()
        self._watching: list[socket.socket] = []
        self._waiting: dict[int, asyncio.Future[bool]] = {}
        self._drained: asyncio.Future[None] | None = None
        self._timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    # --- sockets ---
    def open(self, roster: list[Socket]) -> list[tuple[str, int]]:
        """Serve the holder's sockets; from now on the policy is in force.

        Returns:
            What cannot be listened on, because the server has taken it meanwhile; connections there never reach us.
        """
        taken = []
        for what, sock in roster:
            sock.setblocking(False)
            if what[0] == "dns-udp":
                self._names.datagrams(sock)
            elif what[0] == "dns-tcp":
                self._names.streams(sock)
            elif what[0] == "watch":
                self._watching.append(sock)
                self._loop.add_reader(sock, self._watched, sock)
            elif self._listen(sock):
                self._heard.add((what[1], what[2]))
            else:
                taken.append((what[1], what[2]))
        return taken

    def _listen(self, sock: socket.socket) -> bool:
        self._ears.append(sock)
        try:
            sock.listen(BACKLOG)
        except OSError:
            return False
        self._loop.add_reader(sock, self._accept, sock)
        return True

    async def close(self, reason: str) -> None:
        """End every connection, close every socket, tell every outcome and what was counted."""
        self._timer.cancel()
        self._names.close()
        for sock in self._watching:
            self._drain(sock)
        for sock in self._ears + self._watching:
            self._loop.remove_reader(sock)
            passing.deafen(sock)  # the holder has it too: closing alone would leave it open
            sock.close()
        for flow in list(self.flows.values()):
            flow.abort(reason)
        while self.flows:
            self._drained = self._loop.create_future()
            await self._drained
        for tally in (self._tally, self._answered):
            tally.flush()

    def _accept(self, ear: socket.socket) -> None:
        for _ in range(ACCEPT_BATCH):
            try:
                client, _ = ear.accept()
            except OSError:
                return
            client.setblocking(False)
            local = client.getsockname()
            reason = self._inadmissible()
            if reason:
                self.refuse(reason, name=self.table.name(local[0]) or local[0], port=local[1])
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                client.close()
                continue
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            flow = Flow(self, next(_numbers), client, local[0], local[1])
            self.flows[flow.number] = flow
            Guest.alive += 1
            flow.start(self._finished)

    def _inadmissible(self) -> str:
        """Return why no further connection is admitted, empty when one is."""
        if self._reporter.congested:
            return reasons.EVIDENCE
        if len(self.flows) >= self.policy.connections or Guest.alive >= MAX_FLOWS:
            return reasons.CONNECTIONS
        if self._left <= 0:
            return reasons.BYTES
        now = self._loop.time()
        self._tokens = min(self.policy.burst, self._tokens + (now - self._filled) * self.policy.rate)
        self._filled = now
        if self._tokens < 1:
            return reasons.RATE
        self._tokens -= 1
        return ""

    def _finished(self, flow: Flow) -> None:
        del self.flows[flow.number]
        self._idle.pop(flow.number, None)
        Guest.alive -= 1
        if not self.flows and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    # --- what flows ask ---
    def name_of(self, address: str) -> str | None:
        """Return the name whose synthetic address this is."""
        return self.table.name(address)

    def tell(self, event: dict[str, Any]) -> None:
        """Send one event of this namespace."""
        self._reporter.send({"sandbox": self.name, **event})

    def refuse(self, reason: str, **facts: Any) -> None:
        """Tell of a refusal, bounded."""
        event = {"ev": "connect", "phase": "fact", "reason": reason, **{k: v for k, v in facts.items() if v != ""}}
        self._tally.note(tuple(event.items()), event)

    async def intend(self, flow: Flow) -> None:
        """Have the supervisor record an intent.

        Raises:
            Denied: ``EGR-120``, it did not say go in time.
        """
        answer = self._waiting[flow.number] = self._loop.create_future()
        facts = {"name": flow.name, "port": flow.port, "mode": flow.mode, "sni": flow.sni}
        self.tell(
            {"ev": "connect", "phase": "intent", "flow": flow.number, **{k: v for k, v in facts.items() if v != ""}}
        )
        try:
            async with asyncio.timeout(INTENT_TIMEOUT):
                recorded = await answer
        except TimeoutError:
            recorded = False
        finally:
            del self._waiting[flow.number]
        if not recorded:
            raise Denied(reasons.EVIDENCE)

    def answer(self, number: int, *, recorded: bool) -> None:
        """Pass the supervisor's word on an intent to its flow."""
        waiting = self._waiting.get(number)
        if waiting is not None and not waiting.done():
            waiting.set_result(recorded)

    async def resolve(self, name: str, port: int) -> list[str]:
        """Return the addresses of a name."""
        return await self._resolver.addresses(self, name, port)

    def spend(self, size: int) -> bool:
        """Take from the byte quota; when it is used up, end every connection."""
        self._left -= size
        if self._left >= 0:
            return True
        for flow in list(self.flows.values()):
            flow.abort(reasons.BYTES)
        return False

    # --- time ---
    def _sweep(self) -> None:
        """End connections that have been idle for too long, and tell what was counted."""
        for number, flow in list(self.flows.items()):
            if flow.moved():
                self._idle[number] = 0.0
            else:
                self._idle[number] = self._idle.get(number, 0.0) + SWEEP_SECONDS
                if self._idle[number] >= self.policy.idle:
                    flow.abort(reasons.IDLE)
        for tally in (self._tally, self._answered):
            if tally.pending:
                tally.flush()
        self._timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    # --- what was tried beside ---
    def _asked(self, event: dict[str, Any]) -> None:
        tally = self._tally if event["reason"] else self._answered
        tally.note(tuple(event.items()), event)

    def _watched(self, sock: socket.socket) -> None:
        """Tell of refused attempts; after a full turn rest, so that a flood costs bounded time."""
        if self._look(sock, PACKETS_PER_TURN) == PACKETS_PER_TURN:
            self._loop.remove_reader(sock)
            self._loop.call_later(PACKET_PAUSE, self._watch_again, sock)

    def _look(self, sock: socket.socket, most: int) -> int:
        """Take refused attempts that wait and count those that the kernel dropped; return how many were taken."""
        seen = 0
        while seen < most:
            try:
                packet = sock.recv(watching.SNAP)
            except OSError:
                break
            seen += 1
            attempt = packets.parse(packet)
            if attempt is not None:
                self._attempt(attempt)
        self._tally.lost(packets.dropped(sock))
        return seen

    def _drain(self, sock: socket.socket) -> None:
        """Take what waits before a watching socket is closed: nothing that was tried is left untold."""
        self._look(sock, MAX_WAITING)

    def _watch_again(self, sock: socket.socket) -> None:
        if sock.fileno() >= 0:
            self._loop.add_reader(sock, self._watched, sock)

    def _attempt(self, attempt: packets.Attempt) -> None:
        if attempt.protocol == "tcp" and self._served(attempt.address, attempt.port):
            return
        name = self.table.name(attempt.address)
        if attempt.protocol == "udp":
            reason = reasons.UDP
        elif attempt.protocol != "tcp":
            reason = reasons.PROTOCOL
        elif self.learning:
            reason = reasons.LEARNING
        else:
            reason = reasons.PORT if name else reasons.DIRECT
        self.refuse(reason, name=name or attempt.address, port=attempt.port, protocol=attempt.protocol)

    def _served(self, address: str, port: int) -> bool:
        """Return whether a connection there is accepted, and so tells of itself."""
        everywhere = "::" if ":" in address else "0.0.0.0"  # noqa: S104 - compared, not bound
        return port == watching.DNS_PORT or not self._heard.isdisjoint({(address, port), (everywhere, port)})
