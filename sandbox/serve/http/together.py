"""Several gateways behind one address: a request goes to the one where its tenant's servers run.

 1. A door whose servers keep nothing in their process (``stateless``) answers everywhere, but for what is asked of a
    task that another gateway keeps.
 2. Otherwise the tenant's home answers (:class:`~sandbox.serve.shared.team.Team`): this gateway, when nobody else is.
 3. Another home gets the request as it came, with the caller's own credential, which it verifies itself; only
    addresses that the operator names in ``peers`` are asked, so that who writes to the store learns no token.
 4. What cannot be forwarded is refused: a credential that belongs to the connection, a home without a known address.

A forwarded request is never forwarded again.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import httpx2
from starlette.types import Scope as AsgiScope

from sandbox.serve.http.answering import ClientGone
from sandbox.serve.http.bounds import HEARTBEAT, RETRY_AFTER, WRITE_TIMEOUT, HttpBounds
from sandbox.serve.http.doors import Door
from sandbox.serve.http.endpoint import Arrival, Endpoint, read_body
from sandbox.serve.http.legacy import LegacyEndpoint
from sandbox.serve.http.quotas import Quotas
from sandbox.serve.http.refusals import HttpRefused
from sandbox.serve.shared.team import Team
from sandbox.wire.jsonrpc import Notification

MARK: Final = "mcp-sandbox-forwarded-by"
"""Field of a request that another gateway sends on; a client that sends it only forgoes being forwarded."""

HOP: Final = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"),
        *("transfer-encoding", "upgrade", "content-length", "date", "server", "origin", "expect"),
    )
)
"""Fields that are not passed on: those of one connection, those that are made anew, and ``Origin``, judged already."""

CONNECT: Final = 2.0
"""Seconds in which another gateway has to take a connection."""

FETCHING: Final = 5.0
"""Seconds in which another gateway has to answer what is added up here."""

SILENCE: Final = 4 * HEARTBEAT
"""Seconds that an answer may be silent; a living gateway sends a comment every :data:`HEARTBEAT`."""


Kept = Callable[[AsgiScope, Arrival, Door], Awaitable[Arrival | None]]
"""Answers a request about something that another gateway keeps, or returns it as it is to be answered here."""


class Together:
    """Sends each request where it belongs.

    Args:
        team: of this gateway.
        peers: addresses that requests may be forwarded to.
        quotas: of this gateway; what is forwarded is in progress here too. Rates are counted at the home.
        bounds: of this gateway.

    Attributes:
        team: see above.
        kept: for requests at doors that answer everywhere; ``None``: gateways keep nothing that is asked for there.
    """

    def __init__(self, team: Team, peers: Collection[str], quotas: Quotas, bounds: HttpBounds) -> None:
        self.team = team
        self.kept: Kept | None = None
        self._peers = frozenset(peers)
        self._quotas = quotas
        self._bounds = bounds
        self._client: httpx2.AsyncClient | None = None

    async def answer(self, endpoint: Endpoint | LegacyEndpoint, scope: AsgiScope, arrival: Arrival) -> None:
        """Answer one request, here or elsewhere.

        Raises:
            HttpRefused: ``GATE-060`` … ``GATE-062``, ``GATE-065``; or as the endpoint says.
        """
        if endpoint.door.stateless and isinstance(endpoint, Endpoint):  # 1
            own = arrival if self.kept is None else await self.kept(scope, arrival, endpoint.door)
            if own is not None:
                await endpoint.answer(scope, own)
            return
        async with self.team.at_home(arrival.identity.tenant.tenant) as home:  # 2
            if home.mine:
                await endpoint.answer(scope, arrival)
                return
        await self.forward(scope, arrival, self.reachable(arrival, home.address))  # 3

    def reachable(self, arrival: Arrival, address: str) -> str:
        """Return the address of a tenant's home, when a request may be forwarded there.

        Raises:
            HttpRefused: ``GATE-061``, ``GATE-065``.
        """
        if MARK in arrival.headers:
            raise _away("GATE-065", "the servers of this tenant have moved meanwhile", "try again")
        if not self.may_forward(arrival, address):  # 4
            mend = "send requests of one client to one gateway, name the gateways in `peers`, or let the driver's"
            raise _away("GATE-061", "the servers of this tenant run at another gateway", f"{mend} be `stateless`")
        return address

    def may_forward(self, arrival: Arrival, address: str) -> bool:
        """Return whether a request may be sent on: not twice, to a peer, and with a credential that counts there."""
        alone = arrival.identity.bound or not _portable(arrival)
        return MARK not in arrival.headers and address in self._peers and not alone

    async def forward(self, scope: AsgiScope, arrival: Arrival, address: str, silence: float = SILENCE) -> None:
        """Answer a request with what another gateway answers to it.

        Args:
            scope: of ASGI.
            arrival: the request; a body is read from it.
            address: of a gateway to which :meth:`may_forward` says yes.
            silence: seconds that its answer may be silent.

        Raises:
            HttpRefused: ``GATE-062``, it does not answer; too much is in progress here; the body is refused.
            ClientGone: the client went away, or half an answer is out.
        """
        tenant = arrival.identity.tenant.tenant
        with contextlib.ExitStack() as stack:
            body = b""
            if scope["method"] == "POST":
                stack.enter_context(self._quotas.running(tenant, Notification("forward", {})))
                body = await read_body(arrival, self._bounds)
            work = asyncio.create_task(self._exchange(scope, arrival, address, body, silence))
            watch = asyncio.create_task(_gone(arrival))
            try:
                await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    raise ClientGone
                work.result()
            finally:
                for task in (work, watch):
                    task.cancel()
                await asyncio.gather(work, watch, return_exceptions=True)

    async def fetch(self, scope: AsgiScope, arrival: Arrival, address: str, most: int) -> bytes:
        """Return what another gateway answers to a ``GET``, within a number of bytes.

        Raises:
            HttpRefused: ``GATE-062``, it gives no such answer in time.
        """
        found, status = bytearray(), 0
        try:
            asking = self._asked().stream("GET", address + scope["path"], headers=self._headers(arrival))
            async with asyncio.timeout(FETCHING), asking as answer:
                status = answer.status_code
                async for part in answer.aiter_bytes():
                    found += part
                    if len(found) > most:
                        status = 0
                        break
        except (httpx2.HTTPError, OSError) as error:  # which a timeout is too
            text = "another gateway does not answer"
            raise _away("GATE-062", text, "try again", cause=type(error).__name__) from None
        if status != 200:  # noqa: PLR2004 - OK
            raise _away("GATE-062", "another gateway does not answer that", "try again", cause=f"status {status}")
        return bytes(found)

    def _headers(self, arrival: Arrival) -> dict[str, str]:
        headers = {name: value for name, value in arrival.headers.items() if name not in HOP}
        return {**headers, MARK: self.team.id}

    async def _exchange(self, scope: AsgiScope, arrival: Arrival, address: str, body: bytes, silence: float) -> None:
        query = scope["query_string"].decode("latin-1")
        url = address + scope["path"] + (f"?{query}" if query else "")
        begun, headers, asked = False, self._headers(arrival), self._asked()
        timeout = httpx2.Timeout(silence, connect=CONNECT, write=WRITE_TIMEOUT)
        try:
            async with asked.stream(scope["method"], url, headers=headers, content=body, timeout=timeout) as answer:
                begun = True
                kept = [(name.lower(), value) for name, value in answer.headers.raw if name.lower().decode() not in HOP]
                kept += [(b"content-length", size.encode()) for size in answer.headers.get_list("content-length")]
                await arrival.send({"type": "http.response.start", "status": answer.status_code, "headers": kept})
                async for part in answer.aiter_raw():
                    await arrival.send({"type": "http.response.body", "body": part, "more_body": True})
                await arrival.send({"type": "http.response.body", "body": b"", "more_body": False})
        except (httpx2.HTTPError, OSError) as error:
            if begun:
                raise ClientGone from None  # half an answer is out: its connection ends
            text = "the gateway where this tenant's servers run does not answer"
            raise _away("GATE-062", text, "try again soon", cause=type(error).__name__) from None

    def _asked(self) -> httpx2.AsyncClient:
        if self._client is None:
            timeout = httpx2.Timeout(SILENCE, connect=CONNECT, write=WRITE_TIMEOUT)
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
            self._client = httpx2.AsyncClient(
                timeout=timeout, limits=limits, follow_redirects=False, trust_env=False,
                verify=ssl.create_default_context(),
            )  # fmt: skip
        return self._client

    async def close(self) -> None:
        """Close connections to other gateways."""
        if self._client is not None:
            await self._client.aclose()


def _portable(arrival: Arrival) -> bool:
    """Return whether another gateway can verify the caller by the request alone."""
    return arrival.identity.anonymous or arrival.identity.unsafe or "authorization" in arrival.headers


def _away(number: str, text: str, mend: str, cause: str = "") -> HttpRefused:
    return HttpRefused(503, number, text, mend, headers={"Retry-After": str(RETRY_AFTER)}, cause=cause)


async def _gone(arrival: Arrival) -> None:
    while (await arrival.receive())["type"] != "http.disconnect":
        pass
