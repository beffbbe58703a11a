# ruff: noqa: ASYNC109 - the deadline of a request is part of the protocol: the server is told when it passes
"""Change notifications of a server, in the terms of its era.

A handshake server sends list changes unasked and resource updates after ``resources/subscribe``. A stateless one sends
nothing unasked: each ``subscriptions/listen`` opens a stream that is known by the id of its request. Towards the rest
of the program both look the same: list changes arrive when the server offers them, updates of a resource after
:meth:`watch`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from sandbox.errors import SandboxError, ServerTimeout
from sandbox.wire import meta

if TYPE_CHECKING:
    from sandbox.transport.peer import ServerPeer

LISTEN: Final = "subscriptions/listen"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"

FOREVER: Final = 10 * 365 * 24 * 3600.0
"""A subscription is a request that is meant to stay unanswered; ten years."""

ACKNOWLEDGE_TIMEOUT: Final = 10.0
"""Seconds until a subscription must be acknowledged; it is the first thing a server sends on one."""

_LIST_CHANGES: Final = {
    "tools": ("toolsListChanged", "notifications/tools/list_changed"),
    "prompts": ("promptsListChanged", "notifications/prompts/list_changed"),
    "resources": ("resourcesListChanged", "notifications/resources/list_changed"),
}


class _Stream:
    """One open ``subscriptions/listen`` request."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self.wanted = wanted
        self.acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[Any] | None = None

    def carries(self, method: str, params: Mapping[str, Any]) -> bool:
        """Return whether the stream was asked for this notification and has been acknowledged."""
        if not self.acknowledged.done():
            return False
        if method == "notifications/resources/updated":
            uri = params.get("uri")
            return isinstance(uri, str) and any(
                is_below(uri, one) for one in self.wanted.get("resourceSubscriptions", ())
            )
        return any(method == name and self.wanted.get(key) for key, name in _LIST_CHANGES.values())


class Watches:
    """What is watched on one server."""

    def __init__(self, peer: ServerPeer) -> None:
        self._peer = peer
        self._streams: dict[str | int, _Stream] = {}
        self._watched: dict[str, int] = {}
        self._stream_of: dict[str, str | int] = {}

    async def open_lists(self) -> None:
        """Ask a stateless server for the list changes that it offers."""
        if self._peer.era != "stateless":
            return
        wanted = {
            key: True
            for name, (key, _) in _LIST_CHANGES.items()
            if isinstance(offer := self._peer.capabilities.get(name), Mapping) and offer.get("listChanged")
        }
        if wanted:
            with contextlib.suppress(
                ServerTimeout
            ):  # it offers changes and does not speak of them: then we poll nothing
                await self._open(wanted)

    async def watch(self, uri: str, *, timeout: float) -> None:
        """Ask for updates of a resource; each call needs one :meth:`unwatch`."""
        self._watched[uri] = self._watched.get(uri, 0) + 1
        if self._watched[uri] > 1:
            return
        try:
            if self._peer.era == "handshake":
                await self._peer.request("resources/subscribe", {"uri": uri}, timeout=timeout)
            else:
                self._stream_of[uri] = await self._open({"resourceSubscriptions": [uri]})
        except BaseException:
            del self._watched[uri]
            raise

    async def unwatch(self, uri: str, *, timeout: float) -> None:
        """Undo one :meth:`watch`."""
        count = self._watched.get(uri, 0) - 1
        if count > 0:
            self._watched[uri] = count
            return
        if self._watched.pop(uri, None) is None or self._peer.fault is not None:
            return
        if self._peer.era == "handshake":
            await self._peer.request("resources/unsubscribe", {"uri": uri}, timeout=timeout)
        elif (stream := self._streams.get(self._stream_of.pop(uri, ""))) is not None and stream.task is not None:
            stream.task.cancel()

    def consume(self, method: str, params: Mapping[str, Any]) -> bool:
        """Return whether a stateless server's notification stops here: it is about a stream, or nobody asked for it."""
        if not self._peer.agreement.version or self._peer.era != "stateless":
            return False
        if method == "notifications/cancelled":
            self._end(params.get("requestId"))
            return True
        stream = self._stream(meta.of(params).get(meta.SUBSCRIPTION_ID))
        if method == ACKNOWLEDGED:
            if stream is not None and not stream.acknowledged.done():
                stream.acknowledged.set_result(None)
            return True
        if method == "notifications/message":
            return False
        return stream is None or not stream.carries(method, params)

    async def _open(self, wanted: Mapping[str, Any]) -> str | int:
        """Open a stream and wait until it is acknowledged; return its id."""
        stream = _Stream(wanted)
        request_id = self._peer.own_id()
        self._streams[request_id] = stream
        stream.task = asyncio.ensure_future(self._hold(request_id, wanted))
        stream.task.add_done_callback(lambda _: self._streams.pop(request_id, None))
        await asyncio.wait(
            (stream.task, stream.acknowledged), timeout=ACKNOWLEDGE_TIMEOUT, return_when=asyncio.FIRST_COMPLETED
        )
        if not stream.acknowledged.done():
            stream.task.cancel()
            message = "the server did not acknowledge a subscription"
            raise ServerTimeout("WIRE-049", message, "report it to the server's author")
        return request_id

    async def _hold(self, request_id: str | int, wanted: Mapping[str, Any]) -> None:
        """Keep the request open; its answer, an error and the end of the server all mean that the stream is over."""
        with contextlib.suppress(SandboxError):
            await self._peer.request(LISTEN, {"notifications": dict(wanted)}, timeout=FOREVER, id=request_id)

    def _end(self, request_id: Any) -> None:
        stream = self._stream(request_id)
        if stream is not None and stream.task is not None:
            stream.task.cancel()

    def _stream(self, request_id: Any) -> _Stream | None:
        return self._streams.get(request_id) if type(request_id) in (str, int) else None


def is_below(uri: str, watched: str) -> bool:
    """Return whether an update concerns a watched resource: the resource itself or a part of it (MCP, resources)."""
    return uri == watched or uri.startswith(watched if watched.endswith("/") else watched + "/")
