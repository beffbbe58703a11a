"""A handler in front of another: only tools that are in service are called, and only their results are passed on.

Between a call and its result the server may have changed: a result is passed on only when everything that the server
announced, and everything that was due to be read before the call, has been read and judged, and the tool is still in
service then. What is withheld was carried out; the record says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Protocol

from sandbox.errors import CallRefused
from sandbox.events import Scope
from sandbox.serve.calls import shape
from sandbox.serve.client_model import CallInfo, Handler
from sandbox.vet.model import ExposedTool, Exposure

MEND: Final = "ask who runs this server to look at `mcp-sandbox pins diff`"

UNSETTLED: Final = "the server keeps changing what it offers, and it could not be judged in time"


class Watch(Protocol):
    """Knows what is in service: :class:`sandbox.supervisor.revet.Revetter`."""

    exposure: Exposure

    @property
    def announced(self) -> int:
        """Number of the reading that has to be judged before anything is forwarded."""

    def judged(self, number: int) -> bool:
        """Return whether the reading of a number is judged."""

    async def until(self, number: int) -> None:
        """Return when it is."""

    def ahead_of_call(self) -> int:
        """Have the lists read ahead of a call; return what has to be judged before its result."""

    def after_call(self) -> None:
        """Have the lists read after a call."""


class InService:
    """Carries what is in service through another handler.

    Args:
        inner: carries the requests.
        watch: knows what is in service.
    """

    def __init__(self, inner: Handler, watch: Watch) -> None:
        self._inner = inner
        self._watch = watch

    async def call_tool(self, tool: ExposedTool, arguments: dict[str, Any], call: CallInfo) -> dict[str, Any]:
        """Carry one tool call; raise CallRefused ``VET-140`` before it or ``VET-141`` after it."""
        number = await self._announced(call)
        refuse_held(tool.name, arguments, self._watch.exposure, call.scope)
        result = await self._inner.call_tool(tool, arguments, call)
        await self._judged(number, call)
        why = self._watch.exposure.held.get(tool.name)
        if why is not None:
            call.scope.fact("call.withhold", tool=tool.name, reason="VET-141", why=why)
            message = f"`{tool.name}` went out of service while it was called: {why}; its result is withheld"
            raise CallRefused("VET-141", message, MEND)
        return result

    async def get_prompt(self, name: str, arguments: dict[str, Any], call: CallInfo) -> dict[str, Any]:
        """Fetch a prompt that is still exposed."""
        number = await self._announced(call)
        result = await self._inner.get_prompt(name, arguments, call)
        await self._judged(number, call)
        if name not in self._watch.exposure.prompts:
            raise self._withheld(call, f"prompt `{name[:80]}`")
        return result

    async def read_resource(self, uri: str, call: CallInfo) -> dict[str, Any]:
        """Read a resource of a declaration that is still exposed."""
        number = await self._announced(call)
        declared = self._watch.exposure.resources
        result = await self._inner.read_resource(uri, call)
        await self._judged(number, call)
        if self._watch.exposure.resources != declared:
            raise self._withheld(call, "the resource")
        return result

    async def watch_resource(self, uri: str, call: CallInfo) -> None:
        """Pass on."""
        await self._inner.watch_resource(uri, call)

    async def complete(self, params: dict[str, Any], call: CallInfo) -> dict[str, Any]:
        """Pass on."""
        await self._announced(call)
        return await self._inner.complete(params, call)

    async def _announced(self, call: CallInfo) -> int:
        """Wait for what the server has announced; return what has to be judged before the result."""
        await self._until(self._watch.announced, call)
        return self._watch.ahead_of_call()

    async def _judged(self, number: int, call: CallInfo) -> None:
        """Wait for what has to be judged before a result is passed on."""
        await self._until(max(number, self._watch.announced), call)
        self._watch.after_call()

    async def _until(self, number: int, call: CallInfo) -> None:
        if self._watch.judged(number):  # most calls: a task for waiting would cost them a tenth of their time
            return
        try:
            await asyncio.wait_for(self._watch.until(number), call.remaining())
        except TimeoutError:
            call.scope.fact("call.withhold", tool="", reason="VET-142", why=UNSETTLED)
            raise CallRefused("VET-142", UNSETTLED, MEND) from None

    def _withheld(self, call: CallInfo, what: str) -> CallRefused:
        why = "it is no longer as it was approved"
        call.scope.fact("call.withhold", tool="", reason="VET-141", why=why)
        return CallRefused("VET-141", f"{what} went out of service while it was asked for: {why}", MEND)


def refuse_held(name: str, arguments: Mapping[str, Any], exposure: Exposure, scope: Scope) -> None:
    """Refuse a call of a tool that is out of service, and record it.

    Raises:
        CallRefused: ``VET-140``, it is.
    """
    why = exposure.held.get(name)
    if why is None:
        return
    scope.fact("call.decide", tool=name, decision="deny", reason="VET-140", arguments=shape(arguments))
    raise CallRefused("VET-140", f"`{name}` is out of service: {why}", MEND)
