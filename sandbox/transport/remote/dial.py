"""The connection step: nothing is dialled but an address that was just checked, for a name that the driver declares.

The same numbers in the code:

1. *Rule.* Host and port are named by ``network.egress`` within the operator's ceiling; plain HTTP only where the
   operator allows it for that host.
2. *Intent.* It is recorded; otherwise nothing happens.
3. *Resolution.* The name is resolved now, and every address held against the floor
   (:func:`sandbox.policy.destinations.address_refusal`).
4. *Dial.* One of the addresses just checked, by its number: no name is resolved again, so there is nothing to rebind.
5. *TLS*, verified against the name, with the authorities of this host and those that the operator adds.
6. *Outcome*, when the connection ends, with bytes and duration; in every case that had an intent.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from sandbox.errors import AuditUnavailable, PlanRefused, PlatformError, SandboxError, ServerFault
from sandbox.events import Scope
from sandbox.limits import HTTP_CONNECT_TIMEOUT, KIB
from sandbox.plan.model import NetworkPlan
from sandbox.policy.destinations import address_refusal, canonical_address, is_literal, match, networks
from sandbox.transport.remote.address import Target

READ: Final = 64 * KIB
"""One read."""

_numbers: Final = itertools.count(1)


Resolver = Callable[[str, int], Awaitable[Iterable[str]]]
"""Name and port → addresses."""


async def system_resolver(name: str, port: int) -> Iterable[str]:
    """Return the addresses of a name.

    Raises:
        PlatformError: ``EGR-114``.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise PlatformError("EGR-114", f"{name} does not resolve: {error}", "see the name") from None
    return [str(item[4][0]).partition("%")[0] for item in found]


class Connection:
    """One connection, and the record of it. Made by :meth:`Dialer.open`.

    Attributes:
        up: bytes sent.
        down: bytes received.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, scope: Scope, facts: dict[str, Any]
    ) -> None:
        self.up = self.down = 0
        self._reader, self._writer = reader, writer
        self._scope, self._facts = scope, facts
        self._began = asyncio.get_running_loop().time()
        self._closed = False

    async def read(self) -> bytes:
        """Return the next bytes, empty at the end."""
        try:
            data = await self._reader.read(READ)
        except (OSError, ssl.SSLError) as error:
            raise _lost(error) from None
        self.down += len(data)
        return data

    async def write(self, data: bytes) -> None:
        """Send bytes; returns when there is room for more."""
        self.up += len(data)
        try:
            self._writer.write(data)
            await self._writer.drain()
        except (OSError, ssl.SSLError) as error:
            raise _lost(error) from None

    @property
    def usable(self) -> bool:
        """Whether it can carry another request, as far as is known."""
        return not (self._closed or self._reader.at_eof() or self._writer.is_closing())

    def close(self) -> None:
        """Close at once and record the outcome; idempotent."""
        if self._closed:
            return
        self._closed = True
        self._writer.transport.abort()
        ms = round((asyncio.get_running_loop().time() - self._began) * 1000, 1)
        with contextlib.suppress(AuditUnavailable):  # the next intent fails alike, and is told
            self._scope.outcome("egress.connect", **self._facts, bytes_up=self.up, bytes_down=self.down, duration_ms=ms)


@dataclass(frozen=True, slots=True)
class Dialer:
    """Opens connections of one remote server.

    Attributes:
        network: rules and the operator's open CIDRs.
        plain: hosts to which plain HTTP is allowed (``unsafe_plain_http:HOST``).
        authorities: PEM files of the operator's own certificate authorities.
        scope: where connections are recorded.
        resolve: name and port → addresses; the system's resolver.
        calls: spans of the calls in flight, for the record.
    """

    network: NetworkPlan
    plain: frozenset[str]
    authorities: tuple[str, ...]
    scope: Scope
    resolve: Resolver = system_resolver
    calls: Callable[[], list[str]] = list

    async def open(self, target: Target) -> Connection:
        """Return a connection to a target; steps 1 to 5.

        Raises:
            PlanRefused: ``EGR-060``, ``EGR-061``, ``EGR-113``: it may not be reached.
            PlatformError: ``EGR-114``, ``EGR-115``: it cannot be reached.
            ServerFault: ``EGR-127``: its certificate is not valid for the name.
        """
        # 1
        self.check(target)
        # 2
        facts: dict[str, Any] = {
            "host": target.host,
            "port": target.port,
            "protocol": "tcp",
            "mode": "tls" if target.scheme == "https" else "http",
            "calls": self.calls(),
            "flow": next(_numbers),
            "decision": "allow",
        }
        self.scope.intent("egress.connect", **facts)
        try:
            async with asyncio.timeout(HTTP_CONNECT_TIMEOUT):
                return await self._connect(target, facts)
        except TimeoutError:
            error: SandboxError = PlatformError(
                "EGR-115",
                f"{target.authority} did not answer within {HTTP_CONNECT_TIMEOUT:g} s",
                "see whether it is up",
            )
        except SandboxError as found:
            error = found
        denied = isinstance(error, PlanRefused)
        facts |= {"decision": "deny" if denied else "allow", "reason": error.id, "why": error.message[:400]}
        self.scope.outcome("egress.connect", **facts, bytes_up=0, bytes_down=0)
        raise error

    def check(self, target: Target) -> None:
        """Return when a target is within the rules (step 1).

        Raises:
            PlanRefused: ``EGR-060`` no rule names it; ``EGR-061`` plain HTTP that nobody allowed.
        """
        if match(self.network.rules, target.host, target.port) is None:
            self._refuse(target, "EGR-060", "is not in network.egress", "add it there, if the server may use it")
        if target.scheme == "http" and target.host not in self.plain:
            mend = f'use https, or have the operator allow [[unsafe]] name = "unsafe_plain_http:{target.host}"'
            self._refuse(target, "EGR-061", "would be reached over plain HTTP", mend)

    def _refuse(self, target: Target, number: str, what: str, mend: str) -> None:
        message = f"{target.scheme}://{target.authority} {what}"
        self.scope.fact(
            "egress.connect", host=target.host, port=target.port, protocol="tcp", decision="deny", reason=number,
            why=message, count=1, calls=self.calls(),
        )  # fmt: skip
        raise PlanRefused(number, message, mend)

    async def _connect(self, target: Target, facts: dict[str, Any]) -> Connection:
        """Do steps 3 to 5."""
        # 3
        addresses = await self._checked(target)
        # 4
        failure = ""
        for address in addresses:
            try:
                sock = await _dialled(address, target.port)
                break
            except OSError as error:
                failure = error.strerror or type(error).__name__
        else:
            raise PlatformError("EGR-115", f"{target.authority} cannot be reached: {failure}", "see whether it is up")
        facts["address"] = address
        # 5
        context = _context(self.authorities) if target.scheme == "https" else None
        name = target.host if context is not None else None
        try:
            reader, writer = await asyncio.open_connection(sock=sock, ssl=context, server_hostname=name, limit=READ)
        except ssl.SSLCertVerificationError as error:
            message = f"the certificate of {target.authority} is not valid: {error.verify_message}"
            mend = "repair the server, or have the operator add its authority ([[egress.ca]])"
            raise ServerFault("EGR-127", message, mend) from None
        except (OSError, ssl.SSLError) as error:
            sock.close()
            raise PlatformError(
                "EGR-115", f"{target.authority} does not speak TLS: {error}", "see the server"
            ) from None
        except BaseException:
            sock.close()
            raise
        return Connection(reader, writer, self.scope, facts)

    async def _checked(self, target: Target) -> list[str]:
        """Return the addresses of a target that may be dialled."""
        found = [target.host] if is_literal(target.host) else await self.resolve(target.host, target.port)
        allowed = networks(self.network.allowed_private)
        good, bad = [], []
        for text in found:
            address = canonical_address(text)
            why = address_refusal(address, allowed)
            if why:
                bad.append(f"{address} is {why}")
            elif str(address) not in good:
                good.append(str(address))
        if not good:
            message = f"{target.host} has no address that may be dialled: {'; '.join(bad)[:300]}"
            mend = "an operator may open a private network with [[egress.private]]"
            raise PlanRefused("EGR-113", message, mend)
        return good


@functools.lru_cache(maxsize=8)
def _context(authorities: tuple[str, ...]) -> ssl.SSLContext:
    """Return what verifies servers; made once, since reading a host's authorities takes 20 ms.

    Raises:
        PlanRefused: ``EGR-062``, an authority of the operator cannot be read.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    for path in authorities:
        try:
            context.load_verify_locations(cafile=path)
        except (OSError, ssl.SSLError) as error:
            message = f"the certificate authority {path} cannot be read: {error}"
            raise PlanRefused("EGR-062", message, "correct [[egress.ca]] in the policy") from None
    return context


async def _dialled(address: str, port: int) -> socket.socket:
    """Return a connected, non-blocking socket to a numeric address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return sock


def _lost(error: Exception) -> PlatformError:
    return PlatformError("WIRE-063", f"the connection to the server broke: {error}", "try again")
