"""One connection of one namespace, from accept to outcome.

The steps, the same numbers in the code:

1. *Name.* The address that was connected to says which name was looked up; an address that stands for nothing is
   refused.
2. *Rule.* Name and port find a rule, or the connection is refused.
3. *Held to its name.* ``tls``: the ClientHello's server name. ``http``: the first request's Host. Before anything is
   dialled.
4. *Intent.* The supervisor records what is about to happen and says go; otherwise nothing happens.
5. *Resolution.* The name is resolved now, and every address held against the floor.
6. *Dial.* One of the addresses just checked, by its number; no name is resolved again, so there is nothing to rebind.
7. *Relay*, with what the protocol still needs: the second ClientHello after a retry, every later request of HTTP.
8. *Outcome*, in every case that had an intent; otherwise the refusal.

Refused connections are reset, so that no client waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import struct
from collections.abc import Callable
from typing import Any, Final, Protocol

from sandbox.launch.egress.inside import carry, hello, reasons
from sandbox.launch.egress.inside.bounds import DIAL_EACH, DIAL_TIMEOUT, HELLO_TIMEOUT
from sandbox.launch.egress.inside.reasons import Denied
from sandbox.launch.egress.inside.relay import Pump
from sandbox.launch.egress.inside.replacing import LENGTH, Substitutes
from sandbox.launch.egress.inside.requests import Gate
from sandbox.policy.destinations import (
    HTTPS_PORT,
    EgressRule,
    Network,
    address_refusal,
    canonical_address,
    is_literal,
    match,
)

READ: Final = 64 * 1024
"""Bytes of one read before the relay begins."""

MAX_PIECES: Final = 64
"""Reads until a ClientHello or request head is whole; one byte at a time would cost quadratic time."""

_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER that makes close() send a reset."""


class Host(Protocol):
    """What a flow needs of the namespace it belongs to."""

    rules: tuple[EgressRule, ...]
    allowed: tuple[Network, ...]
    learning: bool
    substitutes: Substitutes | None

    def name_of(self, address: str) -> str | None:
        """Return the name whose synthetic address this is."""

    def refuse(self, reason: str, **facts: Any) -> None:
        """Tell of a refusal that had no intent."""

    def tell(self, event: dict[str, Any]) -> None:
        """Tell of an intent or outcome."""

    async def intend(self, flow: Flow) -> None:
        """Have the intent recorded; raises ``Denied`` when it was not."""

    async def resolve(self, name: str, port: int) -> list[str]:
        """Return the addresses of a name; raises ``Denied`` when there are none."""

    def spend(self, size: int) -> bool:
        """Take from the byte quota; false when it is used up, and then every flow is being ended."""


class Flow:
    """One connection.

    Args:
        host: the namespace.
        number: unique in the broker's life.
        client: accepted, non-blocking.
        address: local address of ``client``: what was connected to.
        port: its port.
    """

    def __init__(self, host: Host, number: int, client: socket.socket, address: str, port: int) -> None:
        self.host, self.number = host, number
        self.client, self.port = client, port
        self.server: socket.socket | None = None
        self.name = address
        self.mode = ""
        self.sni = ""
        self.address = ""
        self.up = self.down = 0
        self.pumps: list[Pump] = []
        self.reason = ""
        self.detail = ""
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._announced = False
        self._task: asyncio.Task[None] | None = None
        self._swept = -1

    def start(self, finished: Callable[[Flow], None]) -> None:
        """Begin; ``finished`` is called once, after the outcome was told."""
        self._task = self._loop.create_task(self._run(finished))

    def abort(self, reason: str) -> None:
        """End this connection with a reset and a reason."""
        self.reason = self.reason or reason
        if self._task is not None:
            self._task.cancel()

    def moved(self) -> bool:
        """Return whether bytes moved since the last call."""
        before, self._swept = self._swept, self.total()[0] + self.total()[1]
        return self._swept != before

    def total(self) -> tuple[int, int]:
        """Return bytes from and to the client so far."""
        return self.up + sum(p.count for p in self.pumps[:1]), self.down + sum(p.count for p in self.pumps[1:])

    async def _run(self, finished: Callable[[Flow], None]) -> None:
        try:
            await self._carry()
        except Denied as denied:
            self.reason, self.detail = self.reason or denied.reason, denied.detail
        except TimeoutError:
            self.reason = self.reason or reasons.SILENT
        except OSError as error:
            self.detail = error.strerror or type(error).__name__
        except asyncio.CancelledError:
            self.reason = self.reason or reasons.DETACHED
        finally:
            # 8
            self._close()
            self._tell()
            finished(self)

    async def _carry(self) -> None:
        """Do steps 1 to 7."""
        # 1
        name = self.host.name_of(self.name)
        if name is None and not any(rule.host == self.name or "/" in rule.host for rule in self.host.rules):
            raise Denied(reasons.DIRECT)
        self.name = name or self.name
        # 2
        rule = match(self.host.rules, self.name, self.port)
        if rule is None:
            raise Denied(reasons.DIRECT if is_literal(self.name) else reasons.PORT)
        self.mode = rule.mode
        # 3
        if rule.mode == "tls":
            first = await self._tls()
            await self._dial()
            await (self._terminate(first) if self._substituted() else carry.tls(self, first))
        elif rule.mode == "http":
            gate = self.gate()
            first = await self._head(gate)
            await self._dial()
            await carry.http(self, gate, first)
        else:
            await self._dial()
            await (carry.raw(self) if rule.mode == "tcp" else carry.watched(self))

    def _substituted(self) -> bool:
        """Return whether secrets are put into requests on this connection."""
        found = self.host.substitutes
        return found is not None and self.name in found.values and self.port == HTTPS_PORT

    async def _terminate(self, first: bytes) -> None:
        from sandbox.launch.egress.inside import terminate  # noqa: PLC0415 - most brokers need no TLS of their own

        await terminate.carry(self, first)

    def guard(self) -> Callable[[bytes], bool] | None:
        """Return what looks for placeholders in the client's bytes and ends the connection at one, if there are any.

        TLS is not looked into: a placeholder is worth nothing to whoever gets it.
        """
        found = self.host.substitutes
        if found is None or self.mode == "tls":
            return None
        known, tail = found, b""

        def look(data: bytes) -> bool:
            nonlocal tail
            seen = tail + data
            tail = seen[-LENGTH + 1 :]
            if known.on_its_way(seen):
                self.abort(reasons.PLACEHOLDER)
                return False
            return True

        return look

    def gate(self) -> Gate:
        """Return what holds this connection's requests to its name, and keeps placeholders out of them."""
        return Gate(self.name, self.port, self.guard())

    async def _tls(self) -> bytes:
        """Return the ClientHello's bytes when its server name is the name (RFC 6066 §3: no name for an address)."""
        data = b""
        async with asyncio.timeout(HELLO_TIMEOUT):
            found = None
            for _ in range(MAX_PIECES):
                data += await self.receive()
                found = hello.read(data)
                if found is not None:
                    break
        if found is None:
            raise Denied(reasons.NOT_TLS, f"a ClientHello in more than {MAX_PIECES} pieces")
        self.hold(found, strict=True)
        return data

    def hold(self, found: hello.Hello, *, strict: bool) -> None:
        """Hold a ClientHello to the name.

        Args:
            found: the ClientHello.
            strict: whether a missing name is refused; an address never has one.

        Raises:
            Denied: ``EGR-106`` … ``EGR-108``.
        """
        self.sni = found.sni
        if found.ech:
            raise Denied(reasons.ECH)
        if not found.sni:
            if strict and not is_literal(self.name):
                raise Denied(reasons.NO_SNI)
        elif found.sni != self.name:
            raise Denied(reasons.SNI, found.sni)

    async def _head(self, gate: Gate) -> bytes:
        """Return the first request, checked and written anew."""
        out = b""
        async with asyncio.timeout(HELLO_TIMEOUT):
            for _ in range(MAX_PIECES):
                out += gate.feed(await self.receive())
                if gate.begun:
                    return out
        raise Denied(reasons.HTTP, f"a request head in more than {MAX_PIECES} pieces")

    async def _dial(self) -> None:
        """Do steps 4 to 6; afterwards ``server`` is connected to an address that was checked."""
        # 4
        self._announced = True
        await self.host.intend(self)
        # 5
        addresses = await self._checked()
        # 6
        failure = ""
        until = self._loop.time() + DIAL_TIMEOUT
        for address in addresses:
            try:
                self.server = await _connect(address, self.port, min(DIAL_EACH, until - self._loop.time()))
            except OSError as error:  # TimeoutError included
                failure = f"{address}: {error.strerror or 'no answer'}"
            else:
                self.address = address
                return
        raise Denied(reasons.UNREACHABLE, failure)

    async def _checked(self) -> list[str]:
        """Return the addresses of the name that may be dialled.

        Raises:
            Denied: ``EGR-113`` none of them may; ``EGR-114`` there are none.
        """
        literal = is_literal(self.name)
        found = [self.name] if literal else await self.host.resolve(self.name, self.port)
        good: list[str] = []
        bad: list[str] = []
        for text in found:
            try:
                address = canonical_address(text)
                why = address_refusal(address, self.host.allowed)
            except ValueError:
                why = "an address with a zone"
            if why:
                bad.append(f"{text} is {why}")
            elif str(address) not in good:
                good.append(str(address))
        if not good:
            raise Denied(reasons.FLOOR, "; ".join(bad)[:400])
        return good

    async def receive(self) -> bytes:
        """Return the client's next bytes.

        Raises:
            Denied: ``EGR-121``, the client has ended before it said what it wants.
        """
        data = await self._loop.sock_recv(self.client, READ)
        if not data:
            raise Denied(reasons.SILENT, "closed before a whole greeting")
        return data

    def _close(self) -> None:
        for pump in self.pumps:
            pump.stop()
        for sock in (self.client, self.server):
            if sock is not None:
                if self.reason or self.detail:
                    with contextlib.suppress(OSError):
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                sock.close()

    def _tell(self) -> None:
        facts: dict[str, Any] = {"name": self.name, "port": self.port, "mode": self.mode}
        if self.sni:
            facts["sni"] = self.sni
        if not self._announced:
            self.host.refuse(self.reason or reasons.SILENT, detail=self.detail, **facts)
            return
        up, down = self.total()
        facts |= {"address": self.address, "up": up, "down": down, "reason": self.reason, "detail": self.detail}
        facts["ms"] = round((self._loop.time() - self._began) * 1000, 1)
        self.host.tell({"ev": "connect", "phase": "outcome", "flow": self.number, **facts})


async def _connect(address: str, port: int, seconds: float) -> socket.socket:
    """Return a connected, non-blocking socket to a numeric address."""
    family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET  # noqa: PLR2004 - IP version
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(seconds):
            await asyncio.get_running_loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return sock
