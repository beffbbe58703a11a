"""How a session is opened and what each request says about its client.

The rules are those of MCP 2026-07-28, basic/versioning and basic (per-request fields), and of 2025-11-25,
basic/lifecycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.serve.client_model import Envelope
from sandbox.serve.client_replies import ProtocolMisuse, invalid_params
from sandbox.wire import logs, meta
from sandbox.wire.codes import INVALID_PARAMS, UNSUPPORTED_VERSION
from sandbox.wire.states import Event, State
from sandbox.wire.versions import LATEST_HANDSHAKE, STATELESS_VERSIONS, agreed_handshake, era_of

_EVENTS = {"initialize": Event.INITIALIZE, "server/discover": Event.DISCOVER, "ping": Event.PING}


def event_of(method: str, own: Mapping[str, Any]) -> Event:
    """Return what a request means for the state of the session."""
    enveloped = meta.PROTOCOL_VERSION in own
    event = _EVENTS.get(method)
    if event is None or (event is Event.PING and enveloped):
        return Event.ENVELOPED if enveloped else Event.PLAIN
    return event


def misplaced(state: State, event: Event, params: Mapping[str, Any]) -> ProtocolMisuse:
    """Return why a request is not allowed in a state."""
    if event is Event.INITIALIZE and state is State.STATELESS:
        requested = str(params.get("protocolVersion"))[:64]
        return unsupported(requested)
    if state is State.STATELESS and event in (Event.PLAIN, Event.PING):
        return invalid_params(
            "SESS-004", f"the request lacks `_meta[{meta.PROTOCOL_VERSION!r}]`", "send it with every request"
        )
    if event is Event.INITIALIZE:
        return ProtocolMisuse("SESS-002", "the session is initialized already", "initialize once")
    if state in (State.NEW, State.PROBED):
        return ProtocolMisuse(
            "SESS-001",
            "the session is not open",
            f"begin with `initialize`, or send `_meta[{meta.PROTOCOL_VERSION!r}]` with every request",
        )
    return ProtocolMisuse("SESS-003", "the request belongs to another protocol era than the session", "stay in one era")


def unsupported(requested: str) -> ProtocolMisuse:
    """Return the error for a version that we do not speak without a handshake."""
    return ProtocolMisuse(
        "SESS-005",
        "unsupported protocol version",
        f"use {', '.join(STATELESS_VERSIONS)}, or open with `initialize`",
        code=UNSUPPORTED_VERSION,
        data={"supported": list(STATELESS_VERSIONS), "requested": requested},
    )


def stateless_envelope(own: Mapping[str, Any]) -> Envelope:
    """Return what the per-request fields say.

    Raises:
        ProtocolMisuse: ``SESS-005`` unknown version; ``SESS-004`` a required field is missing or malformed.
    """
    version = own.get(meta.PROTOCOL_VERSION)
    if not isinstance(version, str):
        raise invalid_params(
            "SESS-004", f"the request lacks `_meta[{meta.PROTOCOL_VERSION!r}]`", "send it with every request"
        )
    if era_of(version) != "stateless":
        raise unsupported(version[:64])
    if not isinstance(own.get(meta.CLIENT_CAPABILITIES), dict):
        message = f"`_meta[{meta.CLIENT_CAPABILITIES!r}]` is missing or no object"
        raise invalid_params("SESS-004", message, "send an object, empty when there are none")
    level = own.get(meta.LOG_LEVEL, "")
    if level != "" and not logs.is_level(level):
        raise invalid_params("SESS-011", "the log level is not one", f"use one of {', '.join(logs.LEVELS)}")
    info = own.get(meta.CLIENT_INFO)
    return Envelope("stateless", version, info if isinstance(info, dict) else {}, level, own[meta.CLIENT_CAPABILITIES])


def handshake_envelope(params: Mapping[str, Any]) -> Envelope:
    """Return what ``initialize`` says for all requests of its session.

    Raises:
        ProtocolMisuse: ``SESS-004``, a required parameter is missing or malformed.
    """
    info, offered = params.get("clientInfo"), params.get("capabilities")
    if (
        not isinstance(info, dict)
        or not isinstance(offered, dict)
        or not isinstance(params.get("protocolVersion"), str)
    ):
        message = "`initialize` needs `protocolVersion`, `capabilities` and `clientInfo`"
        raise ProtocolMisuse("SESS-004", message, "send all three", code=INVALID_PARAMS)
    return Envelope("handshake", agreed_handshake(params["protocolVersion"]), info, "", offered)


UNOPENED = Envelope("handshake", LATEST_HANDSHAKE, {}, "")
"""What is assumed of a client that has not opened its session, for the form of errors and pings."""
