"""The dialect at several gateways that share a store: where each request belongs.

=========================  ============================================================================================
``handshake``              anywhere: an agreement is a record in the store, and so is a registration (``registry``)
``jobs/ID``                with the gateway whose file keeps the job, which its id names
``jobs/``                  anywhere; the other keepers of the caller's jobs are asked too
``invoke`` for a job       with who has taken that request already; else as any call
every call, tools, files   at the tenant's home (:mod:`sandbox.serve.http.together`), or anywhere for ``stateless``
=========================  ============================================================================================

What belongs elsewhere is sent there as it came, once, with the caller's own credential, to addresses that the operator
named. The gateway there admits it like any request: a forwarding gateway vouches for nothing. Jobs stay on one disk
(:mod:`sandbox.dialect.jobs.claims`): while their gateway is gone they are told as 503, not as missing, and nobody else
takes them over.

WebSockets stay where they were opened: what belongs elsewhere is refused there, with an id that says so.

Tasks of MCP are jobs too. Where a driver's sessions go on at any gateway (``stateless``), a request that names a task
goes to the task's keeper, and its session with it; elsewhere sessions are at the tenant's home, with their tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from starlette.types import Receive
from starlette.types import Scope as AsgiScope

from sandbox import jsontext
from sandbox.dialect.bounds import MAX_MESSAGE
from sandbox.dialect.jobs.claims import CLAIM, SharedClaims, gone, keeper_of, taken_elsewhere
from sandbox.dialect.jobs.rows import unusable
from sandbox.dialect.model import ToolRequest
from sandbox.dialect.refusals import DialectRefused
from sandbox.errors import SandboxError
from sandbox.serve.http.bounds import RETRY_AFTER, HttpBounds
from sandbox.serve.http.doors import Door
from sandbox.serve.http.endpoint import Arrival, read_body
from sandbox.serve.http.quotas import Quotas
from sandbox.serve.http.refusals import HttpRefused
from sandbox.serve.http.together import MARK, SILENCE, Together
from sandbox.serve.shared.interface import Record, name_of

AT_HOME: Final = frozenset(("tools", "resources", "metadata", "code"))
"""First words of paths that are answered with the help of the tenant's servers, besides ``invoke``."""

LONGEST: Final = 900.0
"""Seconds that a forwarded call may be silent: what is answered whole says nothing before its end."""

KNOWN: Final = CLAIM
"""Seconds after its last word for which the keeper of jobs is known, so that its jobs are told as unreachable."""

TELLING: Final = 60.0
"""Seconds between two words of a keeper; a store that forgot knows it again after that."""

MAX_ASKED: Final = 32
"""Other gateways that one listing of jobs asks."""

TASKS: Final = "tasks/"
METHOD: Final = "mcp-method"
"""Methods about tasks begin so; a field that requests of sessions have not (2026-07-28 has)."""

KEEPERS: Final = name_of("keepers")


class Fleet:
    """Sends requests of the dialect where they belong.

    Args:
        together: sends requests on.
        keeper: name of this gateway's file of jobs.
        quotas: of this gateway; what is sent on is counted where it is answered, and what is refused here is here.
        bounds: of this gateway.

    Attributes:
        claims: for this gateway's jobs.
        store: shared.
    """

    def __init__(self, together: Together, keeper: str, quotas: Quotas, bounds: HttpBounds) -> None:
        self._together = together
        self._keeper = keeper
        self._quotas = quotas
        self._bounds = bounds
        self._task: asyncio.Task[None] | None = None
        self.store = together.team.store
        self.claims = SharedClaims(self.store, keeper)

    # --- life --------------------------------------------------------------------------------------------------------
    async def begin(self) -> None:
        """Tell the others where this gateway's jobs are asked for, again and again.

        Raises:
            PlatformError: ``DIA-019``, another gateway that runs has this very file of jobs, or a copy.
            StateUnavailable: the store does not answer.
        """
        team = self._together.team
        said = await self._said(self._keeper)
        if said is not None and said["address"] != team.address and await self._runs(said):
            raise unusable(f"{said['address']} runs with a copy of it; jobs would be called twice")
        await self._tell()
        self._together.kept = self.of_task
        self._task = asyncio.create_task(self._keep_telling())

    async def close(self) -> None:
        """Tell it no more; the others go on knowing who keeps the jobs."""
        self._together.kept = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _tell(self) -> None:
        team = self._together.team
        value = json.dumps({"gateway": team.id, "address": team.address})
        await self.store.put(Record("keeper", self._keeper, KEEPERS, "", value), KNOWN)

    async def _keep_telling(self) -> None:
        while True:
            await asyncio.sleep(TELLING)
            with contextlib.suppress(HttpRefused):
                await self._tell()

    # --- requests ----------------------------------------------------------------------------------------------------
    async def passed(self, scope: AsgiScope, arrival: Arrival, door: Door, rest: str) -> bool:
        """Answer a request that belongs elsewhere; return whether it did.

        Args:
            scope: of ASGI.
            arrival: admitted; of its body nothing was read.
            door: of the endpoint.
            rest: path below the endpoint's base.

        Raises:
            DialectRefused: ``DIA-080``, ``DIA-081``.
            HttpRefused: ``GATE-060`` … ``GATE-065``.
        """
        word, _, more = rest.partition("/")
        if word == "jobs" and more:
            job = more.partition("/")[0]
            keeper = keeper_of(job)
            return await self._to_keeper(scope, arrival, door, keeper) if await self.elsewhere(job) else False
        return await self._to_home(scope, arrival, door) if word in AT_HOME else False

    async def invoked(self, scope: AsgiScope, arrival: Arrival, door: Door, request: ToolRequest, body: bytes) -> bool:
        """Answer an invocation that belongs elsewhere; return whether it did.

        Raises:
            DialectRefused: ``DIA-080``, ``DIA-081``.
            HttpRefused: ``GATE-060`` … ``GATE-065``.
        """
        whole = replace(arrival, receive=_again(body, arrival.receive))
        if request.mode == "async":
            keeper = await self.claims.keeper(arrival.identity.owner, door.path, str(request.request_id))
            if keeper:
                return keeper != self._keeper and await self._to_keeper(scope, whole, door, keeper)
        return await self._to_home(scope, whole, door)

    async def of_task(self, scope: AsgiScope, arrival: Arrival, door: Door) -> Arrival | None:
        """Answer a request of a session of MCP about a task that another gateway keeps; else return it as it came.

        Raises:
            HttpRefused: as the dialect's own requests.
        """
        if scope["method"] != "POST" or MARK in arrival.headers or METHOD in arrival.headers:
            return arrival
        body = await read_body(arrival, self._bounds)
        task, arrival = _task_in(body), replace(arrival, receive=_again(body, arrival.receive))
        if not await self.elsewhere(task):
            return arrival
        try:
            await self._to_keeper(scope, arrival, door, keeper_of(task))
        except DialectRefused as refusal:
            again = {"Retry-After": str(RETRY_AFTER)}
            raise HttpRefused(refusal.status, refusal.id, refusal.message, refusal.mend, headers=again) from None
        return None

    async def elsewhere(self, job: str) -> bool:
        """Return whether another gateway keeps the job of an id.

        Raises:
            StateUnavailable: nobody can say.
        """
        keeper = keeper_of(job)
        return keeper not in ("", self._keeper) and await self.store.get("keeper", keeper) is not None

    async def listed(self, scope: AsgiScope, arrival: Arrival, door: Door) -> tuple[list[dict[str, Any]], bool]:
        """Return the caller's jobs at other gateways, and whether all of those answered.

        Raises:
            StateUnavailable: nobody can say which they are.
        """
        if MARK in arrival.headers or arrival.identity.anonymous:  # the one that asks adds up; nobody's list is empty
            return [], True
        keepers = sorted(await self.claims.keepers(arrival.identity.owner, door.path) - {self._keeper})
        found = await asyncio.gather(*(self._jobs_of(scope, arrival, one) for one in keepers[:MAX_ASKED]))
        known = [jobs for jobs in found if jobs is not None]
        return [job for jobs in known for job in jobs], len(known) == len(keepers)

    async def _jobs_of(self, scope: AsgiScope, arrival: Arrival, keeper: str) -> list[dict[str, Any]] | None:
        try:
            address = await self._address(keeper)
            if not self._together.may_forward(arrival, address):
                return None
            said: Any = jsontext.parse(await self._together.fetch(scope, arrival, address, MAX_MESSAGE))
            return [dict(one) for one in said["jobs"] if isinstance(one["created"], int | float)]
        except (SandboxError, jsontext.JsonTextError, jsontext.JsonBoundError, KeyError, TypeError):
            return None

    # --- elsewhere ---------------------------------------------------------------------------------------------------
    async def _to_keeper(self, scope: AsgiScope, arrival: Arrival, door: Door, keeper: str) -> bool:
        try:
            address = await self._address(keeper)
            if not self._together.may_forward(arrival, address):
                raise taken_elsewhere()
            await self._together.forward(scope, arrival, address, SILENCE)
        except (DialectRefused, HttpRefused) as refusal:
            await self._quotas.count_by(arrival.identity.tenant.tenant, door)
            if refusal.id == "GATE-062":
                raise gone() from None
            raise
        return True

    async def _address(self, keeper: str) -> str:
        """Return where a keeper is reached.

        Raises:
            DialectRefused: ``DIA-080``, it does not run.
        """
        said = await self._said(keeper)
        if said is None or not await self._runs(said):
            raise gone()
        return said["address"]

    async def _said(self, keeper: str) -> dict[str, str] | None:
        """Return what a keeper said last: its gateway's id and address."""
        record = await self.store.get("keeper", keeper)
        said: dict[str, str] | None = json.loads(record.value) if record is not None else None
        return said

    async def _runs(self, said: Mapping[str, str]) -> bool:
        return await self.store.get("gateway", said["gateway"]) is not None

    async def _to_home(self, scope: AsgiScope, arrival: Arrival, door: Door) -> bool:
        if door.stateless:
            return False
        async with self._together.team.at_home(arrival.identity.tenant.tenant) as home:
            if home.mine:
                return False
        await self._together.forward(scope, arrival, self._together.reachable(arrival, home.address), LONGEST)
        return True


def _task_in(body: bytes) -> str:
    """Return the task that a message names; empty when it names none, or is none."""
    if TASKS.encode() not in body:
        return ""
    try:
        said: Any = jsontext.parse(body)
        return str(said["params"]["taskId"]) if str(said["method"]).startswith(TASKS) else ""
    except (jsontext.JsonTextError, KeyError, TypeError):
        return ""


def _again(body: bytes, receive: Receive) -> Receive:
    """Return what gives a body that was read once more, and then what comes after it."""
    given = False

    async def receiving() -> Any:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receiving
