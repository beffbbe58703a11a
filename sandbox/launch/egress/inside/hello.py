"""The TLS ClientHello, read strictly and only as far as the policy needs it; pure.

Invariant: any bytes give a :class:`Hello`, ``None`` (more is needed) or :class:`~.reasons.Denied`, and nothing else;
whole and byte by byte agree. What one TLS stack might read as one name and another as a second name is refused:
duplicated extensions, several names, a message that does not end where its records end.

Written by hand: no kept library parses a ClientHello without owning the handshake (``ssl`` tells the name only to a
server that has the certificate). Sources: RFC 8446 §4.1.2, §5.1; RFC 6066 §3; draft-ietf-tls-esni (ECH).
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import Final

from sandbox.launch.egress.inside.bounds import MAX_HELLO
from sandbox.launch.egress.inside.reasons import NOT_TLS, Denied

HANDSHAKE: Final = 22
CHANGE_CIPHER_SPEC: Final = 20
APPLICATION_DATA: Final = 23
CLIENT_HELLO: Final = 1
SERVER_HELLO: Final = 2
SERVER_NAME: Final = 0
ECH: Final = frozenset({0xFE0D, 0xFFCE})
"""Encrypted ClientHello and its predecessor ESNI: the name that is asked for is not the one that can be seen."""

RETRY_RANDOM: Final = hashlib.sha256(b"HelloRetryRequest").digest()
"""What a HelloRetryRequest has in place of its random (RFC 8446 §4.1.3)."""

_RECORD_HEAD: Final = 5
_MESSAGE_HEAD: Final = 4
_MAX_RECORD: Final = 16384
_RANDOM: Final = 32
_MAX_SESSION_ID: Final = 32
_U16: Final = struct.Struct(">H")


@dataclass(frozen=True, slots=True)
class Hello:
    """What a ClientHello shows.

    Attributes:
        sni: lower-case server name, empty when there is none.
        ech: whether the real name is encrypted.
        size: bytes of the records that hold the message.
    """

    sni: str
    ech: bool
    size: int


def read(data: bytes) -> Hello | None:
    """Return the ClientHello at the start of a client's bytes, ``None`` while it is incomplete.

    Raises:
        Denied: ``EGR-109``, this is no ClientHello, or none that every TLS stack reads alike.
    """
    message, size, complete = _message(data)
    if message and message[0] != CLIENT_HELLO:
        raise Denied(NOT_TLS, "a handshake message that is no ClientHello")
    if not complete:
        if len(data) > MAX_HELLO:
            raise Denied(NOT_TLS, f"a ClientHello of more than {MAX_HELLO} bytes")
        return None
    return _client_hello(message[_MESSAGE_HEAD:], size)


def second(data: bytes) -> Hello | None:
    """Return the ClientHello that answers a HelloRetryRequest, ``None`` while it is incomplete.

    Before it may come a ChangeCipherSpec (RFC 8446 §D.4) and early data that the server will drop (§4.2.10).

    Raises:
        Denied: ``EGR-109``, something else comes.
    """
    at = 0
    while at < len(data) and data[at] in {CHANGE_CIPHER_SPEC, APPLICATION_DATA}:
        if len(data) - at < _RECORD_HEAD:
            return None
        at += _RECORD_HEAD + int(_U16.unpack_from(data, at + 3)[0])
    if at >= len(data):
        return None
    found = read(data[at:])
    return None if found is None else Hello(found.sni, found.ech, at + found.size)


def is_retry(data: bytes) -> bool | None:
    """Return whether a server's first bytes are a HelloRetryRequest; ``None`` while that cannot be told."""
    if data and data[0] != HANDSHAKE:
        return False
    start = _RECORD_HEAD + _MESSAGE_HEAD + 2
    if len(data) > _RECORD_HEAD and data[_RECORD_HEAD] != SERVER_HELLO:
        return False
    if len(data) < start + _RANDOM:
        return None
    return data[start : start + _RANDOM] == RETRY_RANDOM


def _message(data: bytes) -> tuple[bytes, int, bool]:
    """Return the first handshake message as far as it is there, the bytes of its records, and whether it is whole."""
    message = b""
    at = 0
    while at <= len(data):
        length = _record(data, at)
        if length is None:
            break
        message += data[at + _RECORD_HEAD : at + _RECORD_HEAD + length]
        at += _RECORD_HEAD + length
        if len(message) >= _MESSAGE_HEAD:
            wanted = _MESSAGE_HEAD + int.from_bytes(message[1:_MESSAGE_HEAD])
            if wanted > MAX_HELLO:
                raise Denied(NOT_TLS, f"a ClientHello of more than {MAX_HELLO} bytes")
            if len(message) > wanted:
                raise Denied(NOT_TLS, "bytes after the ClientHello in its record")
            if len(message) == wanted:
                return message, at, True
    return message, 0, False


def _record(data: bytes, at: int) -> int | None:
    """Return the length of the handshake record at ``at``, ``None`` while its head is incomplete."""
    if len(data) > at and data[at] != HANDSHAKE:
        raise Denied(NOT_TLS, "no TLS handshake record")
    if len(data) > at + 1 and data[at + 1] != 3:  # noqa: PLR2004 - major version of SSL 3.0 to TLS 1.3
        raise Denied(NOT_TLS, "no TLS record version")
    if len(data) < at + _RECORD_HEAD:
        return None
    length = int(_U16.unpack_from(data, at + 3)[0])
    if not 0 < length <= _MAX_RECORD:
        raise Denied(NOT_TLS, "a record of impossible length")
    return length


def _client_hello(body: bytes, size: int) -> Hello:
    """Read the message body, every length of which must be exact."""
    try:
        at = 2 + _RANDOM
        if body[at] > _MAX_SESSION_ID:
            raise Denied(NOT_TLS, "a session id that is too long")
        at += 1 + body[at]
        suites = int(_U16.unpack_from(body, at)[0])
        at += 2 + suites
        compressions = body[at]
        at += 1 + compressions
        if suites < 2 or suites % 2 or not compressions or at > len(body):  # noqa: PLR2004 - suites have two bytes
            raise Denied(NOT_TLS, "no cipher suites or compression methods")
        if at == len(body):
            return Hello("", ech=False, size=size)
        extensions = _extensions(body, at)
    except (IndexError, struct.error):
        raise Denied(NOT_TLS, "a ClientHello that is cut off") from None
    name = _server_name(extensions[SERVER_NAME]) if SERVER_NAME in extensions else ""
    return Hello(name, ech=not ECH.isdisjoint(extensions), size=size)


def _extensions(body: bytes, at: int) -> dict[int, bytes]:
    end = at + 2 + int(_U16.unpack_from(body, at)[0])
    if end != len(body):
        raise Denied(NOT_TLS, "extensions that do not fill the message")
    found: dict[int, bytes] = {}
    at += 2
    while at < end:
        kind, length = struct.unpack_from(">HH", body, at)
        at += 4
        if at + length > end:
            raise Denied(NOT_TLS, "an extension that is cut off")
        if kind in found:
            raise Denied(NOT_TLS, "an extension that stands twice")
        found[kind] = body[at : at + length]
        at += length
    return found


def _server_name(value: bytes) -> str:
    """Return the one host name of a server_name extension (RFC 6066 §3)."""
    if len(value) < 5 or _U16.unpack_from(value)[0] != len(value) - 2 or value[2] != 0:  # noqa: PLR2004 - its least form
        raise Denied(NOT_TLS, "a malformed server_name")
    length = int(_U16.unpack_from(value, 3)[0])
    name = value[5:]
    if length != len(name) or not length:
        raise Denied(NOT_TLS, "a server_name with more or less than one name")
    if not name.isascii() or any(byte <= 0x20 or byte == 0x7F for byte in name):  # noqa: PLR2004 - controls and space
        raise Denied(NOT_TLS, "a server_name that is no host name")
    return name.decode("ascii").lower()
