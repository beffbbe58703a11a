"""Why the broker refused or ended something: id → one short phrase. ``docs/errors/egress.md`` has a line for each."""

from __future__ import annotations

from typing import Final

NAME: Final = "EGR-101"
DIRECT: Final = "EGR-102"
PORT: Final = "EGR-103"
UDP: Final = "EGR-104"
PROTOCOL: Final = "EGR-105"
SNI: Final = "EGR-106"
NO_SNI: Final = "EGR-107"
ECH: Final = "EGR-108"
NOT_TLS: Final = "EGR-109"
HOST: Final = "EGR-110"
HTTP: Final = "EGR-111"
TUNNEL: Final = "EGR-112"
FLOOR: Final = "EGR-113"
UNRESOLVED: Final = "EGR-114"
UNREACHABLE: Final = "EGR-115"
CONNECTIONS: Final = "EGR-116"
RATE: Final = "EGR-117"
BYTES: Final = "EGR-118"
IDLE: Final = "EGR-119"
EVIDENCE: Final = "EGR-120"
SILENT: Final = "EGR-121"
NAMES: Final = "EGR-122"
SECOND_HELLO: Final = "EGR-123"
FLOOD: Final = "EGR-124"
LEARNING: Final = "EGR-125"
PLACEHOLDER: Final = "EGR-126"
CERTIFICATE: Final = "EGR-127"
DETACHED: Final = "EGR-128"
REFLECTED: Final = "EGR-129"

TEXT: Final = {
    NAME: "the name is not in network.egress",
    DIRECT: "the address is not in network.egress",
    PORT: "the name is allowed, this port is not",
    UDP: "UDP is closed",
    PROTOCOL: "only TCP is carried",
    SNI: "the TLS server name differs from the name that was looked up",
    NO_SNI: "TLS without a server name",
    ECH: "TLS with an encrypted server name",
    NOT_TLS: "not a TLS ClientHello",
    HOST: "the HTTP Host differs from the name that was looked up",
    HTTP: "not one unambiguous HTTP/1 request",
    TUNNEL: "HTTP CONNECT, or an upgrade to something other than WebSocket",
    FLOOR: "the name resolves to no public address",
    UNRESOLVED: "the name does not resolve",
    UNREACHABLE: "no address of the name accepted the connection",
    CONNECTIONS: "too many connections at once",
    RATE: "too many new connections",
    BYTES: "the byte quota is used up",
    IDLE: "idle for too long",
    EVIDENCE: "the connection could not be recorded",
    SILENT: "nothing was said in time",
    NAMES: "too many different names",
    SECOND_HELLO: "the second ClientHello differs from the first",
    FLOOD: "more refusals than are written one by one",
    LEARNING: "everything is refused while learning",
    PLACEHOLDER: "a placeholder on its way to a host it is not intended for",
    CERTIFICATE: "the server's certificate is not valid for the name",
    DETACHED: "the sandbox ended",
    REFLECTED: "the server sent a secret back",
}


class Denied(Exception):
    """A connection or request that policy refuses.

    Args:
        reason: an id of this module.
        detail: what was found, for the record.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(reason, TEXT[reason], detail)
