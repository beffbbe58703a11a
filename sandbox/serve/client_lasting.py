"""Tasks of the extension of 2026-07-28 as clients see them: a call that lasts is answered with a task, asked for later.

Offered only where whoever serves keeps them (:class:`Lasting`); elsewhere the methods do not exist, and nothing is said
of the extension. Whether a call becomes a task is ours to say, and only one whose own request declares the extension
does (:mod:`sandbox.serve.http.lasting` says when). The server behind is never asked for a task: its call is an ordinary
one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from sandbox.errors import SandboxError
from sandbox.serve.client_replies import ProtocolMisuse, invalid_params
from sandbox.wire import tasks
from sandbox.wire.codes import INTERNAL_ERROR, MISSING_CLIENT_CAPABILITY
from sandbox.wire.versions import V2026_07_28

if TYPE_CHECKING:
    from sandbox.serve.http.lasting import Going

MAX_FOLLOWED: Final = 256
"""Tasks of one subscription: as many as a tenant may have unfinished."""


class Lasting(Protocol):
    """Keeps the tasks of one caller at one endpoint. Every method may raise ``SandboxError``.

    Attributes:
        after: seconds that a call may last until it becomes a task.
    """

    @property
    def after(self) -> float:
        """See above."""

    async def keep(self, going: Going) -> dict[str, Any]:
        """Take over a call that goes on and return its ``Task``, durably made; when it raises, it has taken nothing."""

    async def told(self, task: str) -> dict[str, Any]:
        """Return a ``DetailedTask``."""

    async def update(self, task: str, responses: Mapping[str, Any]) -> None:
        """Take answers to what a task asks; those to anything else are not looked at."""

    async def cancel(self, task: str) -> None:
        """Cancel a task if it has not ended."""

    async def known(self, wanted: Sequence[str]) -> tuple[str, ...]:
        """Return those that are tasks of the caller."""

    def news(self, task: str) -> AsyncGenerator[dict[str, Any], None]:
        """Yield a ``DetailedTask`` now and with every change until the task has ended."""

    def refused(self, method: str, error: SandboxError) -> None:
        """Record that a request was refused."""


def offered(version: str, lasting: Lasting | None) -> dict[str, Any]:
    """Return what the capabilities of a version say of the extension."""
    return dict(tasks.CAPABILITY) if lasting is not None and version == V2026_07_28 else {}


def require(capabilities: Any) -> None:
    """Refuse whoever has not declared the extension with this very request.

    Raises:
        ProtocolMisuse: ``SESS-023`` (−32021).
    """
    if not tasks.declared(capabilities):
        text = f"the request does not declare the extension {tasks.EXTENSION}"
        raise ProtocolMisuse(
            "SESS-023", text, "declare it in the request's client capabilities", code=MISSING_CLIENT_CAPABILITY,
            data={"requiredCapabilities": dict(tasks.CAPABILITY)},
        )  # fmt: skip


async def answered(method: str, params: Mapping[str, Any], capabilities: Any, lasting: Lasting) -> dict[str, Any]:
    """Return the neutral answer to one of the extension's methods.

    Raises:
        ProtocolMisuse: the extension was not declared, malformed parameters, no such task, or it cannot be looked at.
    """
    require(capabilities)
    task = params.get("taskId")
    if not isinstance(task, str):
        raise invalid_params("SESS-017", "`taskId` is missing or no string", "send `taskId`")
    responses = params.get("inputResponses")
    if method == tasks.UPDATE and not isinstance(responses, dict):
        raise invalid_params("SESS-017", "`inputResponses` is missing or no object", "send answers by key")
    with _plain():
        if method == tasks.GET:
            return await lasting.told(task)
        if method == tasks.CANCEL:
            await lasting.cancel(task)
        elif isinstance(responses, dict):
            await lasting.update(task, responses)
    return {}


@contextlib.contextmanager
def _plain() -> Iterator[None]:
    """Tell what fails on our side as an internal error (−32603), without its text, which is for the operator."""
    try:
        yield
    except ProtocolMisuse:
        raise
    except SandboxError as error:
        text = "tasks cannot be looked at now"
        raise ProtocolMisuse(error.id, text, "try again later", code=INTERNAL_ERROR) from None


async def followed(params: Mapping[str, Any], capabilities: Any, lasting: Lasting | None) -> tuple[str, ...]:
    """Return the tasks of a subscription filter that its client may hear of.

    Raises:
        ProtocolMisuse: ``SESS-012``, malformed; ``SESS-023``, the extension was not declared.
    """
    wanted = params.get("notifications")
    if lasting is None or not isinstance(wanted, dict) or "taskIds" not in wanted:
        return ()
    require(capabilities)
    ids = wanted["taskIds"]
    if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids) or len(ids) > MAX_FOLLOWED:
        raise invalid_params("SESS-012", f"`taskIds` is no list of at most {MAX_FOLLOWED} strings", "send a list")
    with _plain():
        return await lasting.known(list(dict.fromkeys(ids)))


class Followers:
    """What tells streams of their tasks."""

    def __init__(self) -> None:
        self._all: dict[Any, list[asyncio.Task[None]]] = {}

    def begin(self, key: Any, lasting: Lasting, ids: Sequence[str], tell: Callable[[dict[str, Any]], None]) -> None:
        """Begin to tell a stream."""
        self._all[key] = [asyncio.create_task(_tell(lasting, one, tell)) for one in ids]

    def end(self, key: Any) -> None:
        """Tell it no more."""
        for task in self._all.pop(key, ()):
            task.cancel()

    def end_all(self) -> None:
        """Tell nobody any more."""
        for key in list(self._all):
            self.end(key)


async def _tell(lasting: Lasting, task: str, tell: Callable[[dict[str, Any]], None]) -> None:
    with contextlib.suppress(SandboxError):  # its time is over, or the store cannot be read: asking says so
        async with contextlib.aclosing(lasting.news(task)) as news:
            async for one in news:
                tell(one)
