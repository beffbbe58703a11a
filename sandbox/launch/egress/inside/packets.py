"""Reads what the watching socket of a namespace saw (:mod:`.watching`); pure, but for what the kernel dropped."""

from __future__ import annotations

import ipaddress
import socket
import struct
from dataclasses import dataclass
from typing import Final

from sandbox.launch.egress.inside.watching import ICMP, ICMPV6, TCP, UDP

NAMES: Final = {TCP: "tcp", UDP: "udp", ICMP: "icmp", ICMPV6: "icmp"}

_SOL_PACKET: Final = 263
_PACKET_STATISTICS: Final = 6
_V4_HEAD: Final = 20
_V6_HEAD: Final = 40
_PORTS_END: Final = 4


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt: protocol, canonical destination address, port (0 where there is none)."""

    protocol: str
    address: str
    port: int


def dropped(sock: socket.socket) -> int:
    """Return how many attempts the kernel dropped since the last call because nobody read them."""
    return int(struct.unpack("=II", sock.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))[1])


def parse(packet: bytes) -> Attempt | None:
    """Return the attempt that a packet is, ``None`` for what has no whole header.

    Invariant: any bytes give an attempt or ``None``.
    """
    version = packet[0] >> 4 if packet else 0
    if version == 4 and len(packet) >= _V4_HEAD:  # noqa: PLR2004 - IP version
        protocol, at = packet[9], (packet[0] & 0xF) * 4
        address = ipaddress.IPv4Address(packet[16:20])
    elif version == 6 and len(packet) >= _V6_HEAD:  # noqa: PLR2004 - IP version
        protocol, at = packet[6], _V6_HEAD
        address = ipaddress.IPv6Address(packet[24:40])  # type: ignore[assignment]
    else:
        return None
    port = 0
    if protocol in {TCP, UDP} and len(packet) >= at + _PORTS_END:
        port = int.from_bytes(packet[at + 2 : at + 4])
    return Attempt(NAMES.get(protocol, f"ip-{protocol}"), str(address), port)
