"""Handshake sessions that other gateways know too.

- A session at a door whose servers keep nothing (``stateless``) is a record that ends when nobody has used it anywhere
  for long. A gateway that meets its id for the first time opens it again with what its client said in ``initialize``
  and with its own instance of the tenant. What cannot move: open streams, events to resume, subscriptions, the log
  level, and requests in progress; they stay with the gateway that has them, or end.
- Any other session lives where its tenant's servers run (:mod:`sandbox.serve.http.together`), and ends with them: its
  client is told 404 and opens another (ADR 0101). Its record counts it, and ends with its gateway.

A record holds a digest of the id, never the id; who reads the store cannot use a session.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any, Final

from sandbox.errors import CallRefused, SandboxError
from sandbox.events import Scope
from sandbox.limits import KIB
from sandbox.serve.client_model import SessionOptions
from sandbox.serve.http.bounds import RETRY_AFTER, HttpBounds
from sandbox.serve.http.doors import Door
from sandbox.serve.http.endpoint import failed, no_server
from sandbox.serve.http.refusals import HttpRefused
from sandbox.serve.http.sessions import HttpSession, NotYours, Sessions, noting
from sandbox.serve.identity.model import Identity
from sandbox.serve.shared.interface import Record, name_of
from sandbox.serve.shared.team import Team
from sandbox.tenant import TenantId
from sandbox.wire.jsonrpc import Failure, Notification, Request

MAX_OPENING: Final = 16 * KIB
"""Bytes of what ``initialize`` says that are kept: capabilities and a name, a few hundred bytes with real clients."""

OPENING: Final = ("protocolVersion", "capabilities", "clientInfo")
AGAIN: Final = "opened-again"
"""Id of the request that opens a session again; its answer goes to nobody."""


class SharedSessions(Sessions):
    """Every handshake session of a gateway, and those of others that it may go on with.

    Args:
        bounds: of the gateway; the number of a tenant's sessions is counted over all gateways.
        team: of the gateway.
        scope: where moves are recorded.
    """

    def __init__(self, bounds: HttpBounds, team: Team, scope: Scope) -> None:
        super().__init__(bounds)
        self._team = team
        self._scope = scope
        self._adopting: dict[str, asyncio.Task[HttpSession]] = {}
        self._background: set[asyncio.Task[None]] = set()

    async def open(self, door: Door, identity: Identity, *, one_stream: bool = False) -> HttpSession:
        """Return a fresh session, counted over all gateways.

        Raises:
            HttpRefused: as without sharing; ``GATE-060``.
            SandboxError: there is no server to be had.
        """
        tenant = identity.tenant.tenant
        await self._check_number(tenant, self._bounds.sessions_of_tenant - 1)
        session = await super().open(door, identity, one_stream=one_stream)
        try:
            await self._put(session, {})
            await self._check_number(tenant, self._bounds.sessions_of_tenant)  # after it counts itself: never too many
        except BaseException:
            await self.fail(session)
            raise
        return session

    async def _check_number(self, tenant: TenantId, most: int) -> None:
        if await self._team.store.count("session", name_of("tenant", tenant)) > most:
            text = f"this tenant has {self._bounds.sessions_of_tenant} sessions"
            again = {"Retry-After": str(RETRY_AFTER)}
            raise HttpRefused(429, "GATE-015", text, "delete those that are not used", headers=again)

    def _fresh(self, door: Door, identity: Identity, one_stream: bool) -> HttpSession:
        return HttpSession(door, identity, one_stream=one_stream, tag=secrets.token_hex(4))

    async def opened(self, session: HttpSession, request: Request) -> None:
        """Let other gateways know a session.

        Raises:
            HttpRefused: ``GATE-064`` (413), there is more than is kept; ``GATE-060``.
        """
        said: dict[str, Any] = {name: request.params[name] for name in OPENING if name in request.params}
        try:
            _check_size(said, request)
            await self._put(session, said)
        except BaseException:
            await self.fail(session)
            raise

    async def seek(self, session_id: str, door: Door, identity: Identity) -> HttpSession:
        """Return the session of an id that belongs to a caller and an endpoint, opened again here where need be.

        Raises:
            HttpRefused: as :meth:`find`; ``GATE-060``; or there is no server to be had.
        """
        if not door.stateless:
            return self.find(session_id, door, identity)
        kept = await self._kept(session_id, door, identity)
        session = self._all.get(session_id)
        if session is None or session.over:
            session = await self._adopted(session_id, door, identity, kept)
        return self.find(session.id, door, identity)

    async def remove(self, session_id: str, door: Door, identity: Identity) -> None:
        """End a session for good, at every gateway."""
        if not door.stateless:
            await self.fail(self.find(session_id, door, identity))
            return
        await self._kept(session_id, door, identity)
        await self._team.store.drop("session", name_of("session", session_id))
        if session_id in self._all:
            self.drop(self._all[session_id])

    async def fail(self, session: HttpSession) -> None:
        """End a session and its record."""
        self.drop(session)
        await self._team.store.drop("session", name_of("session", session.id))

    def drop(self, session: HttpSession) -> None:
        """End one session here; what lives here only is then over for all."""
        super().drop(session)
        if not moves(session):
            task = asyncio.create_task(self._forget(session))
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    async def _forget(self, session: HttpSession) -> None:
        try:
            await self._team.store.drop("session", name_of("session", session.id), self._team.id)
        except HttpRefused:  # it ends with the heartbeat's lease at the latest
            return

    # --- records ---------------------------------------------------------------------------------------------------
    async def _put(self, session: HttpSession, opening: dict[str, Any]) -> None:
        about = {"door": session.door.name, "owner": session.identity.owner, "version": session.version}
        value, group = json.dumps({**about, "opening": opening}), name_of("tenant", session.identity.tenant.tenant)
        holder, seconds = ("", self._bounds.session_idle) if moves(session) else (self._team.id, self._team.lease)
        await self._team.store.put(Record("session", name_of("session", session.id), group, holder, value), seconds)

    async def _kept(self, session_id: str, door: Door, identity: Identity) -> dict[str, Any]:
        """Return what is known of a session, which ends no sooner for it."""
        record = await self._team.store.get("session", name_of("session", session_id), self._bounds.session_idle)
        kept: dict[str, Any] = json.loads(record.value) if record is not None and not record.holder else {}
        if not kept.get("opening"):
            if session_id in self._all:  # ended at another gateway
                self.drop(self._all[session_id])
            raise _none()
        if kept["owner"] != identity.owner or kept["door"] != door.name:
            raise NotYours(404, "GATE-017", "there is no such session", "open one with `initialize`")
        return kept

    # --- moving ----------------------------------------------------------------------------------------------------
    async def _adopted(self, session_id: str, door: Door, identity: Identity, kept: dict[str, Any]) -> HttpSession:
        """Return a session that was opened elsewhere; everybody who asks for it meanwhile waits for the same."""
        task = self._adopting.get(session_id)
        if task is None:
            task = asyncio.create_task(self._adopt(session_id, door, identity, kept))
            self._adopting[session_id] = task
            task.add_done_callback(lambda done: self._adopting.pop(session_id, None) and done.exception())
        try:
            return await asyncio.shield(task)
        except HttpRefused:
            raise
        except CallRefused as refusal:
            raise no_server(refusal, Notification("initialize", {})) from None
        except SandboxError as error:
            raise failed(error, Notification("initialize", {})) from None

    async def _adopt(self, session_id: str, door: Door, identity: Identity, kept: dict[str, Any]) -> HttpSession:
        if len(self._all) >= self._bounds.sessions:
            again = {"Retry-After": str(RETRY_AFTER)}
            raise HttpRefused(503, "GATE-014", "this gateway is full", "try again later", headers=again)
        session = HttpSession(door, identity, session_id=session_id, tag=secrets.token_hex(4))
        session.tasks = self.tasks
        await session.open()
        stream = session.stream()
        session.feed(Request(AGAIN, "initialize", kept["opening"]), 0, stream)
        await stream.wait(self._bounds.json_wait)
        answers = stream.take()
        if not answers or isinstance(answers[0].message, Failure) or not _agrees(answers[0].message, kept):
            session.end()
            raise _none()
        session.version = kept["version"]
        session.feed(Notification("notifications/initialized", {}), 0, None)
        self._all[session_id] = session
        digest = noting(SessionOptions(), session_id).noted["session_id"]
        self._scope.within(tenant=identity.tenant.tenant).fact("gateway.adopt", door=door.name, session_id=digest)
        return session


def _check_size(said: dict[str, Any], request: Request) -> None:
    if len(json.dumps(said)) > MAX_OPENING:
        mend = f"send at most {MAX_OPENING} bytes"
        raise HttpRefused(413, "GATE-064", "`initialize` says more than is kept", mend, request_id=request.id)


def moves(session: HttpSession) -> bool:
    """Return whether a session can go on at another gateway."""
    return session.door.stateless and not session.one_stream


def _agrees(message: Any, kept: dict[str, Any]) -> bool:
    return bool(getattr(message, "result", {}).get("protocolVersion") == kept["version"])


def _none() -> HttpRefused:
    return HttpRefused(404, "GATE-016", "there is no such session", "open one with `initialize`")
