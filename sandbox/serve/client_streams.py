"""Change notifications to one client, in the terms of its era.

A handshake client hears list changes once it is ready, and updates of the resources it subscribed to. A stateless
client hears what its ``subscriptions/listen`` requests ask for, each notification marked with the id of that request;
the request stays open until the client cancels it or the session ends (2026-07-28, basic/patterns/subscriptions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sandbox.limits import MAX_SUBSCRIPTIONS
from sandbox.serve.client_lasting import Followers, Lasting
from sandbox.serve.client_replies import ProtocolMisuse, invalid_params
from sandbox.transport.watches import is_below
from sandbox.wire import meta, tasks
from sandbox.wire.jsonrpc import Notification, RequestId, Result

FLAGS: Final = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}
"""What a list change concerns → member of a subscription filter."""

UPDATED: Final = "notifications/resources/updated"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"


@dataclass(frozen=True, slots=True)
class Filter:
    """What one subscription asks for, as far as it is honoured."""

    lists: frozenset[str]
    uris: tuple[str, ...]
    tasks: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the MCP ``SubscriptionFilter``."""
        shown: dict[str, Any] = {FLAGS[name]: True for name in sorted(self.lists)}
        shown |= {"resourceSubscriptions": list(self.uris)} if self.uris else {}
        return {**shown, "taskIds": list(self.tasks)} if self.tasks else shown


def read_filter(params: Mapping[str, Any], offered: Mapping[str, Any]) -> Filter:
    """Return what of a filter can be honoured under the offered capabilities.

    Raises:
        ProtocolMisuse: ``SESS-012``, no filter or a malformed one.
    """
    wanted = params.get("notifications")
    if not isinstance(wanted, dict):
        raise invalid_params("SESS-012", "`notifications` is missing or no object", "send a subscription filter")
    uris = wanted.get("resourceSubscriptions", [])
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris) or len(uris) > MAX_SUBSCRIPTIONS:
        message = f"`resourceSubscriptions` is no list of at most {MAX_SUBSCRIPTIONS} URIs"
        raise invalid_params("SESS-012", message, "send a list of strings")
    lists = frozenset(name for name, flag in FLAGS.items() if wanted.get(flag) is True and name in offered)
    may_watch = bool(offered.get("resources", {}).get("subscribe"))
    return Filter(lists, tuple(dict.fromkeys(uris)) if may_watch else ())


class Streams:
    """Everything that one client wants to hear about."""

    def __init__(self) -> None:
        self._listening: dict[RequestId, Filter] = {}
        self._watched: set[str] = set()
        self._followers = Followers()

    def __contains__(self, request_id: RequestId) -> bool:
        return request_id in self._listening

    def __len__(self) -> int:
        return len(self._listening)

    def open(self, request_id: RequestId, wanted: Filter) -> Notification:
        """Open a stream and return its acknowledgement, the first message on it."""
        self._listening[request_id] = wanted
        return _marked(ACKNOWLEDGED, {"notifications": wanted.to_json()}, request_id)

    def follow(self, request_id: RequestId, lasting: Lasting, send: Callable[[Notification], None]) -> None:
        """Tell a stream, from now on, of the tasks that it asks for."""

        def tell(task: dict[str, Any]) -> None:
            send(_marked(tasks.CHANGED, task, request_id))

        self._followers.begin(request_id, lasting, self._listening[request_id].tasks, tell)

    def close(self, request_id: RequestId) -> tuple[str, ...]:
        """Close a stream and return the resources it watched."""
        self._followers.end(request_id)
        wanted = self._listening.pop(request_id, None)
        return wanted.uris if wanted is not None else ()

    def close_all(self) -> Iterator[Result]:
        """Close every stream; yield the answers that tell the client of an orderly end."""
        self._followers.end_all()
        for request_id in list(self._listening):
            del self._listening[request_id]
            own = {meta.SUBSCRIPTION_ID: request_id}
            yield Result(request_id, {"resultType": "complete", "_meta": own})

    def watch(self, uri: str) -> bool:
        """Note a subscription of a handshake client; false when it has it already.

        Raises:
            ProtocolMisuse: ``SESS-013``, too many.
        """
        if uri in self._watched:
            return False
        if len(self._watched) >= MAX_SUBSCRIPTIONS:
            raise ProtocolMisuse("SESS-013", f"more than {MAX_SUBSCRIPTIONS} subscriptions", "unsubscribe from some")
        self._watched.add(uri)
        return True

    def unwatch(self, uri: str) -> bool:
        """Undo :meth:`watch`; false when there was none."""
        if uri not in self._watched:
            return False
        self._watched.remove(uri)
        return True

    def all_watched(self) -> list[str]:
        """Return every resource that is watched for this client, once for each watch."""
        return [*self._watched, *(uri for wanted in self._listening.values() for uri in wanted.uris)]

    def list_changed(self, name: str, *, handshake_ready: bool) -> Iterator[Notification]:
        """Yield the notifications that a list of ``tools``, ``prompts`` or ``resources`` has changed."""
        method = f"notifications/{name}/list_changed"
        if handshake_ready:
            yield Notification(method, {})
        for request_id, wanted in self._listening.items():
            if name in wanted.lists:
                yield _marked(method, {}, request_id)

    def updated(self, params: Mapping[str, Any]) -> Iterator[Notification]:
        """Yield the notifications that a resource has changed, to whoever watches it or what it is a part of."""
        uri = params.get("uri")
        if not isinstance(uri, str):
            return
        if any(is_below(uri, one) for one in self._watched):
            yield Notification(UPDATED, {"uri": uri})
        for request_id, wanted in self._listening.items():
            if any(is_below(uri, one) for one in wanted.uris):
                yield _marked(UPDATED, {"uri": uri}, request_id)


def _marked(method: str, params: dict[str, Any], request_id: RequestId) -> Notification:
    return Notification(method, {**params, "_meta": {meta.SUBSCRIPTION_ID: request_id}})
