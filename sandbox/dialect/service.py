"""What a client of the dialect can ask for once it came in, the same on every transport.

For an invocation, in this order: the rate of tenant and tool; the tool is one of the endpoint's; its id is not in use;
then the call (:mod:`sandbox.dialect.invoke`), or a job when ``mode`` is ``async`` and that was agreed.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from sandbox import jsontext
from sandbox.dialect.bounds import JobBounds
from sandbox.dialect.files import FileView
from sandbox.dialect.handshake import Offer, agree, needs
from sandbox.dialect.invoke import Hear, carry, message_of, respond
from sandbox.dialect.jobs.claims import taken_elsewhere
from sandbox.dialect.jobs.desk import Jobs
from sandbox.dialect.jobs.model import Asked, Job
from sandbox.dialect.model import Agreement, Handshake, ToolRequest, ToolResponse, Transport
from sandbox.dialect.refusals import DialectRefused
from sandbox.errors import CallRefused, SandboxError
from sandbox.events import Scope
from sandbox.serve.http import endpoint
from sandbox.serve.http.bounds import RETRY_AFTER
from sandbox.serve.http.doors import Door
from sandbox.serve.http.quotas import Quotas
from sandbox.serve.http.refusals import HttpRefused
from sandbox.serve.identity.model import Identity
from sandbox.vet.model import Exposure
from sandbox.wire.jsonrpc import Request


@dataclass(frozen=True, slots=True)
class Place:
    """One endpoint of the dialect.

    Attributes:
        door: whose server it uses.
        base: path that everything of it is below, without a trailing slash.
        offer: what it brings to a handshake.
    """

    door: Door
    base: str
    offer: Offer


@dataclass(frozen=True, slots=True)
class Who:
    """An admitted client at one endpoint.

    Attributes:
        capabilities: that were agreed.
        transport: ``http``, ``ws`` or ``stdio``.
    """

    place: Place
    identity: Identity
    capabilities: tuple[str, ...]
    transport: str


class Service:
    """Answers admitted clients.

    Args:
        quotas: of the gateway.
        jobs: of the gateway; without them no job is taken.
        scope: where agreements are recorded.
        bounds: of jobs.
        ending: whether no new work is taken.
        elsewhere: whether another gateway keeps the job of an id.
    """

    def __init__(
        self,
        quotas: Quotas,
        jobs: Jobs | None,
        scope: Scope,
        bounds: JobBounds | None = None,
        ending: Callable[[], bool] = lambda: False,
        elsewhere: Callable[[str], Awaitable[bool]] | None = None,
    ) -> None:
        self.quotas = quotas
        self._ending = ending
        self._elsewhere = elsewhere
        self._scope = scope
        self.jobs = jobs
        self.bounds = bounds or JobBounds()
        self._in_use: set[tuple[str, str, uuid.UUID]] = set()

    def agree(self, said: Handshake, place: Place, identity: Identity, transport: Transport) -> Agreement:
        """Return what is agreed with a client, recorded.

        Raises:
            DialectRefused: as :func:`~sandbox.dialect.handshake.agree` says.
        """
        agreed = agree(said, place.offer, transport)
        self._scope.child().within(driver=place.door.name, tenant=identity.tenant.tenant).fact(
            "dialect.agree",
            client=agreed.client_id[:128],
            version=agreed.version,
            how=agreed.how,
            capabilities=list(agreed.capabilities),
            transport=transport,
        )
        return agreed

    async def exposure(self, place: Place, identity: Identity) -> Exposure:
        """Return what a caller may use now.

        Raises:
            HttpRefused: there is no server to be had.
        """
        message = Request("0", "tools/list", {})
        try:
            async with place.door.open(identity, message) as behind:
                return behind.exposure
        except CallRefused as refusal:
            raise endpoint.no_server(refusal, message) from None
        except HttpRefused:
            raise
        except SandboxError as error:
            raise endpoint.failed(error, message) from None

    async def view(self, place: Place, identity: Identity) -> FileView:
        """Return what a caller may use as files."""
        return FileView(await self.exposure(place, identity))

    async def rated(self, who: Who, request: ToolRequest) -> dict[str, str]:
        """Count an invocation and return the header fields that say where its tenant stands.

        Raises:
            DialectRefused: ``DIA-012``, there is no such tool; ``DIA-008``, jobs were not agreed.
            HttpRefused: ``GATE-012``, too fast; ``GATE-035``, no new work is taken.
        """
        if self._ending():
            again = {"Retry-After": str(RETRY_AFTER)}
            raise HttpRefused(503, "GATE-035", "this gateway is ending", "connect again", headers=again)
        if request.mode == "async":
            needs("async", who.capabilities)
        limit = await self.quotas.count(who.identity.tenant.tenant, who.place.door, message_of(request))
        if not who.place.door.limited(
            request.tool_id
        ):  # after it was counted: asking in vain is no way around the rate
            raise DialectRefused("DIA-012", f"unknown tool {request.tool_id[:80]!r}", "use one of `tools/`")
        return limit

    async def invoke(self, who: Who, request: ToolRequest, hear: Hear) -> ToolResponse:
        """Carry one invocation, whose rate was counted, to its response or to a handle.

        Raises:
            SandboxError: it was refused before any server saw it.
        """
        if request.mode == "async":
            return self.told(await self._taken(who, request))
        message, tenant = message_of(request), who.identity.tenant.tenant
        with self._used(who, request), self.quotas.running(tenant, message):
            outcome = await carry(who.place.door, who.identity, message, who.transport, hear)
        return respond(request.request_id, outcome, request.arguments)

    async def job(self, who: Who, job: str) -> Job:
        """Return a job of the caller's.

        Raises:
            DialectRefused: ``DIA-013``; ``DIA-081``, another gateway keeps it.
        """
        with_id = _uuid(job)
        try:
            return await self._jobs().find(with_id, who.identity, who.place.door.path)
        except DialectRefused:
            if self._elsewhere is not None and await self._elsewhere(with_id):
                raise taken_elsewhere() from None
            raise

    async def cancel(self, who: Who, job: str) -> Job:
        """Cancel a job of the caller's; one that has ended stays as it is.

        Raises:
            DialectRefused: as :meth:`job`.
        """
        await self.job(who, job)
        found, _ = await self._jobs().cancel(_uuid(job), who.identity, who.place.door.path)
        return found

    def told(self, job: Job) -> ToolResponse:
        """Return what a job says when it is asked for."""
        request_id = uuid.UUID(job.request_id)
        if job.outcome is not None:
            said = respond(request_id, job.outcome, {})
            return _with_job(said, job)
        progress = self.jobs.progress(job.id) if self.jobs is not None else None
        return ToolResponse(
            request_id=request_id, status="in_progress", progress=progress, job_id=uuid.UUID(job.id),
            poll_after=self.bounds.poll_after,
        )  # fmt: skip

    async def _taken(self, who: Who, request: ToolRequest) -> Job:
        message = message_of(request)
        asked = Asked(
            kind="dialect",
            request_id=str(request.request_id),
            door=who.place.door.path,
            tool=request.tool_id,
            identity=who.identity,
            params=message.params,
            digest=jsontext.digest([request.tool_id, request.arguments]),
            ttl=self.bounds.ttl,
        )
        return await self._jobs().take(asked)

    def _jobs(self) -> Jobs:
        if self.jobs is None:
            raise DialectRefused("DIA-013", "there are no jobs here", "call with `mode: sync`")
        return self.jobs

    @contextlib.contextmanager
    def _used(self, who: Who, request: ToolRequest) -> Iterator[None]:
        """Hold the id of a request while it is in progress."""
        key = (who.identity.owner, who.place.base, request.request_id)
        if key in self._in_use:
            raise DialectRefused("DIA-009", "a request with that `request_id` is in progress", "send a fresh UUID")
        self._in_use.add(key)
        try:
            yield
        finally:
            self._in_use.discard(key)


def _with_job(said: ToolResponse, job: Job) -> ToolResponse:
    return ToolResponse(
        request_id=said.request_id, status=said.status, result=said.result, error=said.error,
        job_id=uuid.UUID(job.id), metadata=said.metadata,
    )  # fmt: skip


def _uuid(text: str) -> str:
    """Return the canonical form of a job's id; what is none names no job."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise DialectRefused("DIA-013", "there is no such job", "call the tool again") from None
