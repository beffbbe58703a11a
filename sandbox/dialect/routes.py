"""What the dialect answers over HTTP, path by path; see :mod:`sandbox.dialect.site` for the list."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Final, TypeVar

from sandbox import jsontext
from sandbox.dialect.bounds import MAX_MESSAGE
from sandbox.dialect.files import FileView, matches
from sandbox.dialect.handshake import Offer, needs
from sandbox.dialect.model import Handshake, Progress, Shape, ToolRequest, ToolResponse, read, to_json
from sandbox.dialect.refusals import DialectRefused, response
from sandbox.dialect.service import Who
from sandbox.dialect.site import Answer, Ask, Site, http_refusal, json_answer, only
from sandbox.dialect.versions import CAPABILITIES, DIALECT, within
from sandbox.errors import SandboxError
from sandbox.serve.http import fields
from sandbox.serve.http.answering import ClientGone
from sandbox.serve.http.bounds import HttpBounds
from sandbox.serve.http.endpoint import read_body
from sandbox.serve.http.refusals import HttpRefused

FILES: Final = {"cache-control": "private, no-cache"}
"""Kept by the client alone, and asked for again each time: 304 while nothing changed."""

EVENTS: Final = {
    "content-type": "text/event-stream",
    "cache-control": "no-store, no-transform",
    "x-accel-buffering": "no",
}

MAX_LISTED: Final = 100
"""Jobs in one answer, the oldest first."""

S = TypeVar("S", bound=Shape)
T = TypeVar("T")


def add_routes(site: Site) -> None:
    """Let a site answer everything of the dialect's core."""
    routes = Routes(site)
    site.routes |= {
        "handshake": routes.handshake,
        "invoke": routes.invoke,
        "jobs": routes.jobs,
        "tools": routes.files,
        "resources": routes.files,
        "metadata": routes.metadata,
    }


class Routes:
    """The routes of one site."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._service = site.service

    async def handshake(self, ask: Ask) -> Answer:
        """Agree with a client."""
        only(ask, "POST")
        identity = ask.arrival.identity
        agreement = self._service.agree(await body_of(ask, Handshake), ask.place, identity, "http")
        await self._site.agreements.keep(agreement, identity.owner, identity.tenant.tenant, ask.place.base)
        return json_answer(to_json(agreement))

    async def invoke(self, ask: Ask) -> Answer | None:
        """Call a tool."""
        only(ask, "POST")
        data = await bytes_of(ask)
        request = read(ToolRequest, data)
        try:
            return await self._invoked(ask, request, data)
        except DialectRefused as refusal:
            refusal.request_id = refusal.request_id or str(request.request_id)
            raise

    async def _invoked(self, ask: Ask, request: ToolRequest, data: bytes) -> Answer | None:
        agreement = await self._site.agreements.find(request.session, ask.arrival.identity.owner, ask.place.base)
        fleet = self._site.fleet
        if fleet is not None and await fleet.invoked(ask.scope, ask.arrival, ask.place.door, request, data):
            return None
        who = Who(ask.place, ask.arrival.identity, agreement.capabilities, "http")
        limit = await self._service.rated(who, request)
        if _wants_events(ask):
            needs("stream", who.capabilities)
            await self._events(ask, who, request, limit)
            return None
        said = await unless_gone(ask, self._service.invoke(who, request, lambda _progress: None))
        if said.job_id is None:
            return json_answer(to_json(said), 200, limit)
        where = {"Location": f"{ask.place.base}/jobs/{said.job_id}"}
        if said.poll_after is None:  # a repeated request, whose job has ended meanwhile
            return json_answer(to_json(said), 200, {**limit, **where})
        return json_answer(to_json(said), 202, {**limit, **where, "Retry-After": f"{said.poll_after:.0f}"})

    async def jobs(self, ask: Ask) -> Answer:
        """Answer for one job, or for all of the caller's."""
        _, _, rest = ask.rest.partition("/")
        job, _, verb = rest.partition("/")
        who = Who(ask.place, ask.arrival.identity, CAPABILITIES, "http")
        if not job:
            only(ask, "GET")
            return json_answer(await self._listed(ask))
        if verb not in ("", "cancel"):
            raise DialectRefused("DIA-010", "there is nothing here", "see docs/dialect.md for the paths")
        only(ask, *(("POST",) if verb else ("GET", "DELETE")))
        found = await (self._service.job if ask.method == "GET" else self._service.cancel)(who, job)
        said = self._service.told(found)
        again = {"Retry-After": f"{said.poll_after:.0f}"} if said.poll_after else {}
        return json_answer(to_json(said), 200, again)

    async def _listed(self, ask: Ask) -> dict[str, Any]:
        if self._service.jobs is None:
            return {"jobs": []}
        found = await self._service.jobs.of(ask.arrival.identity, ask.place.door.path, 0, MAX_LISTED)
        own: list[dict[str, Any]] = [
            {"job_id": job.id, "request_id": job.request_id, "tool_id": job.tool,
             "status": self._service.told(job).status, "created": job.created}
            for _, job in found
        ]  # fmt: skip
        if self._site.fleet is None:
            return {"jobs": own}
        others, whole = await self._site.fleet.listed(ask.scope, ask.arrival, ask.place.door)
        jobs = sorted((*own, *others), key=lambda one: float(one["created"]))[:MAX_LISTED]
        return {"jobs": jobs, **({} if whole else {"incomplete": True})}

    async def files(self, ask: Ask) -> Answer:
        """Serve one file of the caller's view, or say that the client has it."""
        only(ask, "GET", "HEAD")
        view = FileView(await self._service.exposure(ask.place, ask.arrival.identity))
        found = view.read(ask.rest)
        headers = {**FILES, "ETag": found.etag, "content-length": str(len(found.data))}
        if matches(ask.arrival.headers.get("if-none-match", ""), found.etag):
            return Answer(304, b"", headers)
        return Answer(200, b"" if ask.method == "HEAD" else found.data, headers)

    async def metadata(self, ask: Ask) -> Answer:
        """Say how the server is and what it can do (S1-43)."""
        only(ask, "GET")
        offer: Offer = ask.place.offer
        said: dict[str, Any] = {
            "server_id": offer.server_id,
            "version": DIALECT,
            "versions": list(within(DIALECT)),
            "status": "ending" if self._site.app.draining else "ready",
            "capabilities": list(offer.capabilities),
            "transports": ["http", "ws"],
            "limits": to_json(offer.limits),
        }
        try:
            view = FileView(await self._service.exposure(ask.place, ask.arrival.identity))
        except HttpRefused as refusal:
            return json_answer(
                {**said, "status": "unavailable", "error": {"id": refusal.id, "message": refusal.message}}
            )
        tools = [path.removeprefix("tools/").removesuffix(".json") for path in view.files if path.startswith("tools/")]
        return json_answer({**said, "tools": sorted(tools), "tools_digest": view.digest})

    # --- events ------------------------------------------------------------------------------------------------------
    async def _events(self, ask: Ask, who: Who, request: ToolRequest, limit: dict[str, str]) -> None:
        """Answer an invocation with an event stream: progress, then the response."""
        news: asyncio.Queue[ToolResponse] = asyncio.Queue(maxsize=64)

        def hear(progress: Progress) -> None:
            said = ToolResponse(request_id=request.request_id, status="in_progress", progress=progress)
            with contextlib.suppress(asyncio.QueueFull):  # a client that does not read loses progress, never the answer
                news.put_nowait(said)

        answering = asyncio.ensure_future(unless_gone(ask, self._service.invoke(who, request, hear)))
        send = ask.arrival.send
        kind = {
            "content-type": "text/event-stream",
            "cache-control": "no-store, no-transform",
            "x-accel-buffering": "no",
        }
        raw = self._site.raw_headers({**kind, **limit}, None)
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        try:
            async for event in _spoken(answering, news):
                await send({"type": "http.response.body", "body": event, "more_body": True})
            last = _event("response", await _final(answering, request))
            await send({"type": "http.response.body", "body": last, "more_body": False})
        finally:
            answering.cancel()


async def _spoken(answering: asyncio.Future[ToolResponse], news: asyncio.Queue[ToolResponse]) -> AsyncIterator[bytes]:
    heartbeat = HttpBounds().heartbeat
    while True:
        getting = asyncio.ensure_future(news.get())
        await asyncio.wait((getting, answering), timeout=heartbeat, return_when=asyncio.FIRST_COMPLETED)
        if getting.done():
            yield _event("progress", to_json(getting.result()))
            continue
        getting.cancel()
        if answering.done():
            return
        yield b": \n\n"


async def _final(answering: asyncio.Future[ToolResponse], request: ToolRequest) -> dict[str, Any]:
    try:
        return to_json(await answering)
    except ClientGone:
        raise
    except SandboxError as error:
        known = error if isinstance(error, DialectRefused) else http_refusal(error)
        return response(known, str(request.request_id))


def _event(name: str, body: dict[str, Any]) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + jsontext.dump(body) + b"\n\n"


def _wants_events(ask: Ask) -> bool:
    accept = ask.arrival.headers.get("accept", "")
    return "text/event-stream" in accept and "application/json" not in accept


async def body_of(ask: Ask, kind: type[S]) -> S:
    """Return the body of a request as a shape.

    Raises:
        DialectRefused: ``DIA-026`` another type, ``DIA-004`` it does not fit.
        HttpRefused: too large, too slow.
    """
    return read(kind, await bytes_of(ask))


async def bytes_of(ask: Ask) -> bytes:
    """Return the body of a request that says that it is JSON.

    Raises:
        DialectRefused: ``DIA-026``, another type.
        HttpRefused: too large, too slow.
    """
    headers = ask.arrival.headers
    if headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
        raise DialectRefused("DIA-026", "the body is not said to be JSON", "send `Content-Type: application/json`")
    fields.check_post({**headers, "accept": "*/*"})
    return await read_body(ask.arrival, HttpBounds(body=MAX_MESSAGE))


async def unless_gone(ask: Ask, work: Awaitable[T]) -> T:
    """Return what some work gives, unless the client goes away; then the work is cancelled.

    Raises:
        ClientGone: it did.
    """
    working = asyncio.ensure_future(work)
    watching = asyncio.create_task(_gone(ask))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _gone(ask: Ask) -> None:
    while (await ask.arrival.receive())["type"] != "http.disconnect":
        pass
