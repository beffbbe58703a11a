"""Every method of every version that we speak, as one table.

A row says who sends the method, in which versions it exists, which capability of the *server* it needs, and how the
client session treats it. Methods that are not in the table are refused in either direction. The table is written by
hand from the specification and held against its published schemas by a test; what the schemas have and we do not is in
``EXCLUDED``.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from sandbox.wire.versions import V2024_11_05, V2025_06_18, V2025_11_25, V2026_07_28, VERSIONS

Sender: TypeAlias = Literal["client", "server", "both"]

_ALWAYS: Final = (V2024_11_05, V2026_07_28)
_HANDSHAKE: Final = (V2024_11_05, V2025_11_25)
_STATELESS: Final = (V2026_07_28, V2026_07_28)


@dataclass(frozen=True, slots=True)
class Method:
    """One method.

    Attributes:
        name: on the wire.
        kind: whether it expects an answer.
        sender: who sends it.
        since: first version that has it.
        until: last version that has it.
        capability: server capability without which a client must not use it; empty for none.
        answer: for requests of clients: ``own`` is answered by us, ``forward`` needs the server.
    """

    name: str
    kind: Literal["request", "notification"]
    sender: Sender
    since: str
    until: str
    capability: str = ""
    answer: Literal["own", "forward", ""] = ""

    def exists_in(self, version: str) -> bool:
        """Return whether a version has the method."""
        return self.since <= version <= self.until


def _request(name: str, span: tuple[str, str], answer: Literal["own", "forward"], capability: str = "") -> Method:
    return Method(name, "request", "client", *span, capability, answer)


def _note(name: str, span: tuple[str, str], sender: Sender, capability: str = "") -> Method:
    return Method(name, "notification", sender, *span, capability)


TABLE: Final = (
    # requests of clients
    _request("initialize", _HANDSHAKE, "own"),
    _request("server/discover", _STATELESS, "own"),
    _request("tools/list", _ALWAYS, "own", "tools"),
    _request("tools/call", _ALWAYS, "forward", "tools"),
    _request("prompts/list", _ALWAYS, "own", "prompts"),
    _request("prompts/get", _ALWAYS, "forward", "prompts"),
    _request("resources/list", _ALWAYS, "own", "resources"),
    _request("resources/templates/list", _ALWAYS, "own", "resources"),
    _request("resources/read", _ALWAYS, "forward", "resources"),
    _request("resources/subscribe", _HANDSHAKE, "forward", "resources"),
    _request("resources/unsubscribe", _HANDSHAKE, "forward", "resources"),
    _request("subscriptions/listen", _STATELESS, "own"),
    _request("completion/complete", _ALWAYS, "forward", "completions"),
    _request("logging/setLevel", _HANDSHAKE, "own", "logging"),
    # requests of either or of servers
    Method("ping", "request", "both", *_HANDSHAKE, "", "own"),
    Method("roots/list", "request", "server", *_HANDSHAKE),
    Method("sampling/createMessage", "request", "server", *_HANDSHAKE),
    Method("elicitation/create", "request", "server", V2025_06_18, V2025_11_25),
    # notifications of clients
    _note("notifications/initialized", _HANDSHAKE, "client"),
    _note("notifications/roots/list_changed", _HANDSHAKE, "client"),
    # notifications of either: in the stateless era a server cancels only a subscription, and only servers report
    # progress
    _note("notifications/cancelled", _ALWAYS, "both"),
    _note("notifications/progress", _HANDSHAKE, "both"),
    _note("notifications/progress", _STATELESS, "server"),
    # notifications of servers
    _note("notifications/message", _ALWAYS, "server", "logging"),
    _note("notifications/tools/list_changed", _ALWAYS, "server", "tools"),
    _note("notifications/prompts/list_changed", _ALWAYS, "server", "prompts"),
    _note("notifications/resources/list_changed", _ALWAYS, "server", "resources"),
    _note("notifications/resources/updated", _ALWAYS, "server", "resources"),
    _note("notifications/subscriptions/acknowledged", _STATELESS, "server"),
)

EXCLUDED: Final = MappingProxyType(
    {
        "tasks/get": "tasks were an experiment of 2025-11-25; only gateways that keep jobs answer "
        "(serve.client_tasks); the extension of 2026-07-28 has methods of its own (wire.tasks)",
        "tasks/result": "as tasks/get",
        "tasks/list": "as tasks/get",
        "tasks/cancel": "as tasks/get",
        "notifications/tasks/status": "as tasks/get",
        "notifications/elicitation/complete": "a client learns the end of its call from the call's answer",
    }
)
"""Methods of the published schemas that we refuse on purpose, with the reason."""


def of(version: str, sender: Literal["client", "server"]) -> dict[str, Method]:
    """Return the methods that a sender may use in a version, by name."""
    return {row.name: row for row in TABLE if row.exists_in(version) and row.sender in (sender, "both")}


FROM_CLIENT: Final = MappingProxyType({version: MappingProxyType(of(version, "client")) for version in VERSIONS})
"""Version → methods of clients."""

FROM_SERVER: Final = MappingProxyType({version: MappingProxyType(of(version, "server")) for version in VERSIONS})
"""Version → methods of servers."""
