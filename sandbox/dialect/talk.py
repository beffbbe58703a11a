"""One conversation over a connection that stays: WebSocket, or a pipe. Messages are JSON objects, one at a time.

The first message is the handshake, answered by the agreement; after it, in any order:

==============================  ========================================================================================
a request (it has ``tool_id``)  answered by responses: ``in_progress`` as it goes (with ``stream``), then the last one;
                                in ``mode: async`` by a handle, and by the job's outcome when it ends (with ``stream``)
``{"resume": JOB_ID}``          answered by what the job says now
``{"cancel": REQUEST_ID}``      ends a call in progress, or a job by its id; the answer is that of the call or job
``{"import": PATH}``            answered by ``{"import": PATH, "etag": …, "file": …}``: one file of the view
==============================  ========================================================================================

A refusal is a response with ``status: error``. The connection ends when the handshake fails, when the credential of the
client counts no more, and on what cannot be answered: messages that are no text, too large, or faster than the bound.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import orjson

from sandbox import jsontext
from sandbox.dialect.bounds import MAX_OPEN_CALLS
from sandbox.dialect.model import Handshake, Progress, ToolRequest, ToolResponse, Transport, convert, to_json
from sandbox.dialect.refusals import DialectRefused, response
from sandbox.dialect.service import Place, Service, Who
from sandbox.dialect.site import http_refusal
from sandbox.errors import SandboxError
from sandbox.serve.identity.model import Identity

Say = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Sends one message; may wait for a client that reads slowly."""

Refusing = Callable[[SandboxError], None]
"""Records a refusal."""

Still = Callable[[], Awaitable[None]]
"""Raises when the client's credential does not count any more."""

_WORDS: Final = frozenset(("resume", "cancel", "import"))


async def _always() -> None:
    """Let a client go on that has no credential to lose: whoever started the process."""


class Talk:
    """Answers one client.

    Args:
        place: whose server it uses.
        identity: verified before anything was read.
        service: answers.
        transport: for the handshake and the record.
        say: sends.
        refusing: records.
        still: is asked before each message after the handshake, and before a job's outcome is pushed.
    """

    def __init__(
        self,
        place: Place,
        identity: Identity,
        service: Service,
        transport: Transport,
        say: Say,
        refusing: Refusing = lambda _error: None,
        still: Still = _always,
    ) -> None:
        self._service = service
        self._transport = transport
        self._say = say
        self._refusing = refusing
        self._still = still
        self._who = Who(place, identity, (), transport)
        self._open = False
        self._calls: dict[uuid.UUID, asyncio.Task[str]] = {}
        self._taking: set[uuid.UUID] = set()
        self._others: set[asyncio.Task[None]] = set()

    async def take(self, data: bytes) -> bool:
        """Take one message; return whether the conversation goes on.

        Args:
            data: of one message, within its bound.
        """
        try:
            if self._open:
                await self._still()
        except SandboxError as error:
            await self._refuse(error)
            return False
        try:
            value = _object(data)
            if not self._open:
                await self._shake(value)
            else:
                await self._sort(value)
        except SandboxError as error:
            await self._refuse(error)
            return self._open
        return True

    async def drained(self, seconds: float) -> None:
        """Return when everything is answered that does not follow a job, or after some seconds."""
        if self._calls:
            await asyncio.wait(list(self._calls.values()), timeout=seconds)

    async def close(self) -> None:
        """Cancel what is in progress; jobs go on."""
        tasks = [*self._calls.values(), *self._others]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- messages ----------------------------------------------------------------------------------------------------
    async def _shake(self, value: dict[str, Any]) -> None:
        said = convert(Handshake, value)
        agreement = self._service.agree(said, self._who.place, self._who.identity, self._transport)
        self._who = replace(self._who, capabilities=agreement.capabilities)
        self._open = True
        await self._say(to_json(agreement))

    async def _sort(self, value: dict[str, Any]) -> None:
        word = next(iter(value)) if len(value) == 1 else ""
        if word not in _WORDS:
            await self._request(convert(ToolRequest, value))
            return
        await self._service.quotas.count_by(self._who.identity.tenant.tenant, self._who.place.door)
        named = value[word]
        if not isinstance(named, str) or len(named) > 1024:  # noqa: PLR2004 - no path is longer
            raise DialectRefused("DIA-004", f"`{word}` is no short string", "send an id or a path")
        match word:
            case "resume":
                await self._say(to_json(self._service.told(await self._service.job(self._who, named))))
            case "cancel":
                await self._cancel(named)
            case _:
                self._room()
                self._begin(self._import(named))

    def _room(self) -> None:
        """Refuse what would wait for its answer beside too many others: each holds memory until the client reads."""
        if len(self._calls) + len(self._others) >= MAX_OPEN_CALLS:
            raise DialectRefused("DIA-020", f"{MAX_OPEN_CALLS} calls wait for their answer", "wait for some")

    async def _request(self, request: ToolRequest) -> None:
        try:
            self._room()
            if request.request_id in self._calls:
                raise DialectRefused("DIA-009", "a request with that `request_id` is in progress", "send a fresh UUID")
            await self._service.rated(self._who, request)
        except SandboxError as error:
            await self._refuse(error, request)
            return
        task = asyncio.create_task(self._carry(request))
        self._calls[request.request_id] = task
        if request.mode == "async":
            self._taking.add(request.request_id)
        task.add_done_callback(lambda _done: self._over(request.request_id))

    def _over(self, request: uuid.UUID) -> None:
        self._calls.pop(request, None)
        self._taking.discard(request)

    async def _carry(self, request: ToolRequest) -> str:
        """Carry one call to its last response; return the id of the job that it became, if any."""
        speaking = asyncio.Lock()
        latest: list[Progress] = []

        async def push() -> None:
            async with speaking:
                if latest:
                    said = ToolResponse(request_id=request.request_id, status="in_progress", progress=latest.pop())
                    latest.clear()
                    await self._say(to_json(said))

        pushes: set[asyncio.Task[None]] = set()

        def hear(progress: Progress) -> None:
            latest.append(progress)  # of what waits only the newest is sent: a slow client loses progress, no answer
            if "stream" in self._who.capabilities and len(pushes) < 2:  # noqa: PLR2004 - one at work, one waiting
                pushes.add(task := asyncio.create_task(push()))
                task.add_done_callback(pushes.discard)

        try:
            said = await self._service.invoke(self._who, request, hear)
            latest.clear()
            async with speaking:
                await self._say(to_json(said))
            if said.job_id is not None and "stream" in self._who.capabilities:
                self._begin(self._follow(str(said.job_id)))
            return str(said.job_id or "")
        except SandboxError as error:
            await self._refuse(error, request)
            return ""
        except asyncio.CancelledError:
            for task in pushes:
                task.cancel()
            raise

    async def _follow(self, job: str) -> None:
        """Push the outcome of a job when it ends."""
        jobs = self._service.jobs
        if jobs is not None:
            found = await self._service.job(self._who, job)
            await jobs.until_ended(found)
            await self._still()
            await self._say(to_json(self._service.told(await self._service.job(self._who, job))))

    async def _cancel(self, named: str) -> None:
        try:
            call = self._calls.get(uuid.UUID(named))
        except ValueError:
            call = None
        if call is not None and uuid.UUID(named) in self._taking:  # it is on disk, or will be: end it as a job
            named, call = await call, None
            if not named:
                return
        if call is None:
            await self._say(to_json(self._service.told(await self._service.cancel(self._who, named))))
            return
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        error = DialectRefused("DIA-016", "the call was cancelled", request_id=str(uuid.UUID(named)))
        await self._say(response(error))

    async def _import(self, path: str) -> None:
        view = await self._service.view(self._who.place, self._who.identity)
        found = view.read(path.removeprefix("/"))
        await self._say({"import": path, "etag": found.etag, "file": orjson.loads(found.data)})

    # --- helpers -----------------------------------------------------------------------------------------------------
    def _begin(self, work: Awaitable[None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except SandboxError as error:
                await self._refuse(error)

        task = asyncio.create_task(guarded())
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    async def _refuse(self, error: SandboxError, request: ToolRequest | None = None) -> None:
        self._refusing(error)
        known = error if isinstance(error, DialectRefused) else http_refusal(error)
        await self._say(response(known, str(request.request_id) if request is not None else None))


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = jsontext.parse(data)
    except jsontext.JsonTextError as error:
        raise DialectRefused("DIA-004", f"no strict JSON: {error}", "send one JSON object") from None
    if not isinstance(value, dict):
        raise DialectRefused("DIA-004", "a message is no object", "send one JSON object")
    return value
