"""What a session works with while what is behind it may move: its handler, its server, what it watches and is asked.

Each looks up where the session is (:class:`sandbox.serve.http.moving.Mover`) when it is used, not when it is made.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from sandbox.errors import CallRefused, SandboxError
from sandbox.serve.asking import Question
from sandbox.serve.calls import Caller
from sandbox.serve.client_model import CallInfo
from sandbox.serve.inservice import refuse_held
from sandbox.vet.model import ExposedTool

if TYPE_CHECKING:
    from sandbox.serve.http.moving import Mover, Place
    from sandbox.transport.peer import PeerListener, ServerPeer

UNWATCHING: Final = 2.0
"""Seconds in which a server that is left has to take note that it is not watched any more."""


class MovingHandler:
    """Carries each request where the session belongs when it begins; implements ``Handler``.

    Args:
        mover: of the session.
    """

    def __init__(self, mover: Mover) -> None:
        self._mover = mover

    async def call_tool(self, tool: ExposedTool, arguments: dict[str, Any], call: CallInfo) -> dict[str, Any]:
        """Carry one tool call."""
        place = await self._mover.current()
        own = place.exposure.tools.get(tool.name)
        if own is None:
            refuse_held(tool.name, arguments, place.exposure, call.scope)
            raise _withdrawn(f"`{tool.name}`", call)
        with place.used():
            return await place.behind.handler.call_tool(own, arguments, _there(call, place))

    async def get_prompt(self, name: str, arguments: dict[str, Any], call: CallInfo) -> dict[str, Any]:
        """Fetch one prompt."""
        place = await self._mover.current()
        if name not in place.exposure.prompts:
            raise _withdrawn(f"prompt `{name[:80]}`", call)
        with place.used():
            return await place.behind.handler.get_prompt(name, arguments, _there(call, place))

    async def read_resource(self, uri: str, call: CallInfo) -> dict[str, Any]:
        """Read one resource."""
        place = await self._mover.current()
        if not place.exposure.resources:
            raise _withdrawn("the resource", call)
        with place.used():
            return await place.behind.handler.read_resource(uri, _there(call, place))

    async def watch_resource(self, uri: str, call: CallInfo) -> None:
        """Decide whether a resource may be watched."""
        place = await self._mover.current()
        if not place.exposure.resources:
            raise _withdrawn("the resource", call)
        with place.used():
            await place.behind.handler.watch_resource(uri, _there(call, place))
        self._mover.watches.decided(uri, call)

    async def complete(self, params: dict[str, Any], call: CallInfo) -> dict[str, Any]:
        """Complete an argument."""
        place = await self._mover.current()
        with place.used():
            return await place.behind.handler.complete(params, _there(call, place))


def _there(call: CallInfo, place: Place) -> CallInfo:
    return call.towards(place.behind.peer, place.behind.scope)


def _withdrawn(what: str, call: CallInfo) -> CallRefused:
    call.scope.fact("call.decide", tool=what[:200], decision="deny", reason="GATE-051")
    return CallRefused("GATE-051", f"{what} is no longer offered here", "list what is offered again")


class MovingWatches:
    """What a session watches, wherever its server is now.

    Args:
        mover: of the session.
    """

    def __init__(self, mover: Mover) -> None:
        self._mover = mover
        self._calls: dict[str, CallInfo] = {}
        self._uris: set[str] = set()
        self._leaving: set[asyncio.Task[None]] = set()

    def decided(self, uri: str, call: CallInfo) -> None:
        """Remember by which request a resource may be watched."""
        self._calls[uri] = call

    async def watch(self, uri: str, *, timeout: float) -> None:  # noqa: ASYNC109 - the server is told of it
        """Watch a resource on the server that is there now."""
        place = await self._mover.current()
        await place.behind.peer.watches.watch(uri, timeout=timeout)
        self._uris.add(uri)

    async def unwatch(self, uri: str, *, timeout: float) -> None:  # noqa: ASYNC109 - the server is told of it
        """Watch it no more."""
        self._uris.discard(uri)
        self._calls.pop(uri, None)
        if not self._mover.last.left:
            await self._mover.last.behind.peer.watches.unwatch(uri, timeout=timeout)

    def leave(self, place: Place) -> None:
        """Watch nothing more on a server that the session leaves."""
        if self._uris:
            leaving = asyncio.create_task(self._unwatch(place, sorted(self._uris)))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def _unwatch(self, place: Place, uris: list[str]) -> None:
        with place.used(), contextlib.suppress(SandboxError):
            for uri in uris:
                await place.behind.peer.watches.unwatch(uri, timeout=UNWATCHING)

    async def again(self, place: Place) -> None:
        """Watch on a fresh server what policy still lets the session watch; the rest ends, and is recorded."""
        for uri in sorted(self._uris):
            call = self._calls[uri]
            try:
                await place.behind.handler.watch_resource(uri, _there(call, place))
                await place.behind.peer.watches.watch(uri, timeout=place.behind.options.call_timeout)
            except SandboxError as error:
                place.behind.scope.fact("session.unwatch", uri=uri, reason=error.id)
                self._uris.discard(uri)


class MovingPeer:
    """The server of a session as the session sees it: what it offers, and its end when it ends by itself.

    Args:
        mover: of the session.
    """

    def __init__(self, mover: Mover) -> None:
        self._mover = mover
        self.watches = mover.watches

    @property
    def era(self) -> str:
        """Of the server that is there now."""
        return self._peer.era

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What it offers."""
        return self._peer.capabilities

    @property
    def fault(self) -> SandboxError | None:
        """Why it is gone, if it is."""
        return self._peer.fault

    @property
    def _peer(self) -> ServerPeer:
        return self._mover.last.behind.peer

    def add_listener(self, listener: PeerListener) -> None:
        """Hear it, and each that follows."""
        self._mover.listeners.append(listener)
        self._peer.add_listener(listener)

    def remove_listener(self, listener: PeerListener) -> None:
        """Undo that."""
        self._mover.listeners.remove(listener)
        if not self._mover.last.left:
            self._peer.remove_listener(listener)

    def pause(self) -> None:
        """Nothing: streams over HTTP are bounded by themselves."""

    def resume(self) -> None:
        """Nothing."""

    async def wait_closed(self) -> SandboxError | None:
        """Return when it has ended by itself."""
        return await self._mover.gone()


class MovingAsking:
    """Judges what servers ask of the session's client by what holds now.

    Args:
        mover: of the session.
    """

    def __init__(self, mover: Mover) -> None:
        self._mover = mover

    def judge(self, method: str, params: Mapping[str, Any], caller: Caller) -> Question:
        """Return the question as it may reach the client; see :meth:`sandbox.serve.asking.Asking.judge`."""
        asking = self._mover.last.behind.options.asking
        if asking is None:
            raise CallRefused("GATE-051", f"`{method[:40]}` is not passed on any more", "do without")
        return asking.judge(method, params, caller)
