"""The four requests with which a holder makes its empty network namespace answer for every address.

*AnyIP*: a ``local`` route for everything makes every address an address of this host, on ``lo``. So no packet ever
has a way out, every destination can be listened on, and what nobody listens on is refused by the kernel at once.

Spoken directly (rtnetlink(7)), because the image has no ``ip`` program and needs none. Runs with CAP_NET_ADMIN,
which is given up afterwards.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import Final

LOOPBACK: Final = "lo"

_NEWLINK: Final = 16
_NEWROUTE: Final = 24
_REQUEST_ACK: Final = 0x5
_CREATE_REPLACE: Final = 0x500
_IFF_UP: Final = 1
_TABLE_LOCAL: Final = 255
_PROTO_KERNEL: Final = 2
_SCOPE_HOST: Final = 254
_SCOPE_UNIVERSE: Final = 0
_TYPE_LOCAL: Final = 2
_TYPE_UNREACHABLE: Final = 7
_DST: Final = 1
_OIF: Final = 4
_PREFSRC: Final = 7
_HEADER: Final = struct.Struct("=IHHII")
_ERROR: Final = struct.Struct("=i")
_ANSWER_BYTES: Final = 8192


def any_address(family: socket.AddressFamily) -> None:
    """Make every address of a family an address of this namespace, with the loopback address as source.

    The fixed source keeps a connection from meeting itself (same address and port on both ends).

    Raises:
        OSError: the kernel refused; without CAP_NET_ADMIN, or the family is off.
    """
    index = socket.if_nametoindex(LOOPBACK)
    source = "127.0.0.1" if family == socket.AF_INET else "::1"
    route = struct.pack("=BBBBBBBBI", family, 0, 0, 0, _TABLE_LOCAL, _PROTO_KERNEL, _SCOPE_HOST, _TYPE_LOCAL, 0)
    route += _attribute(_OIF, struct.pack("=I", index)) + _attribute(_PREFSRC, socket.inet_pton(family, source))
    _request(_NEWROUTE, _CREATE_REPLACE, route)


def loopback_up() -> None:
    """Bring ``lo`` up; container engines do it, but nothing here should depend on that."""
    link = struct.pack("=BBHiII", socket.AF_UNSPEC, 0, 0, socket.if_nametoindex(LOOPBACK), _IFF_UP, _IFF_UP)
    _request(_NEWLINK, 0, link)


def no_multicast() -> None:
    """Refuse IPv4 multicast when it is sent; otherwise it would vanish, and its sender wait for an answer."""
    route = struct.pack(
        "=BBBBBBBBI", socket.AF_INET, 4, 0, 0, _TABLE_LOCAL, _PROTO_KERNEL, _SCOPE_UNIVERSE, _TYPE_UNREACHABLE, 0
    )
    _request(_NEWROUTE, _CREATE_REPLACE, route + _attribute(_DST, socket.inet_aton("224.0.0.0")))


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def _request(kind: int, flags: int, body: bytes) -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as link:
        link.bind((0, 0))
        link.send(_HEADER.pack(_HEADER.size + len(body), kind, flags | _REQUEST_ACK, 1, 0) + body)
        answer = link.recv(_ANSWER_BYTES)
    code = -_ERROR.unpack_from(answer, _HEADER.size)[0]
    if code and code != errno.EEXIST:
        raise OSError(code, os.strerror(code))
