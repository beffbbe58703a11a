"""A socket that sees what a server tries in its namespace besides the connections that are served.

A packet socket on ``lo`` with a kernel filter shows each *attempt* once: the first packet of a TCP connection, UDP
other than DNS, echo requests. It only watches. That the attempts lead nowhere is the namespace's doing
(:mod:`.netlink`); this is where their addresses and ports for the record come from (:mod:`.packets`).

The filter is classic BPF (bpf(4)); offsets count from the network header, because the socket is SOCK_DGRAM. Beside
:mod:`.packets` rather than in it, because a holder has no use, and no memory, for the rest.
"""

from __future__ import annotations

import array
import socket
import struct
from typing import Final

TCP: Final = 6
UDP: Final = 17
ICMP: Final = 1
ICMPV6: Final = 58
DNS_PORT: Final = 53

SNAP: Final = 96
"""Bytes of a packet that are read: the longest headers that matter."""

_ETH_P_IP: Final = 0x0800
_ETH_P_IPV6: Final = 0x86DD
_SO_ATTACH_FILTER: Final = 26
_SO_LOCK_FILTER: Final = 44
_RECEIVE_BUFFER: Final = 256 * 1024

_LD_B: Final = 0x30
_LD_H: Final = 0x28
_LD_W: Final = 0x20
_LD_B_X: Final = 0x50
_LD_H_X: Final = 0x48
_LDX_IP_HEAD: Final = 0xB1
_AND: Final = 0x54
_JEQ: Final = 0x15
_JSET: Final = 0x45
_RET: Final = 0x06

Step = tuple[int, str, str, int]
"""Operation, label when true, label when false, operand; an empty label is the next step."""

_V4: Final[tuple[tuple[str, Step], ...]] = (
    ("", (_LD_B, "", "", 16)),  # own loopback is the server's business
    ("", (_JEQ, "drop", "", 127)),
    ("", (_LD_B, "", "", 9)),
    ("", (_JEQ, "tcp", "", TCP)),
    ("", (_JEQ, "udp", "", UDP)),
    ("", (_JEQ, "icmp", "keep", ICMP)),
    ("tcp", (_LD_H, "", "", 6)),
    ("", (_JSET, "drop", "", 0x1FFF)),  # later fragments
    ("", (_LDX_IP_HEAD, "", "", 0)),
    ("", (_LD_B_X, "", "", 13)),
    ("", (_AND, "", "", 0x12)),
    ("", (_JEQ, "keep", "drop", 0x02)),  # SYN without ACK
    ("udp", (_LD_H, "", "", 6)),
    ("", (_JSET, "drop", "", 0x1FFF)),
    ("", (_LDX_IP_HEAD, "", "", 0)),
    ("", (_LD_H_X, "", "", 2)),
    ("", (_JEQ, "drop", "keep", DNS_PORT)),
    ("icmp", (_LDX_IP_HEAD, "", "", 0)),
    ("", (_LD_B_X, "", "", 0)),
    ("", (_JEQ, "keep", "drop", 8)),  # echo request
)

_V6: Final[tuple[tuple[str, Step], ...]] = (
    ("", (_LD_B, "", "", 24)),  # multicast is the kernel's own
    ("", (_JEQ, "drop", "", 0xFF)),
    ("", (_LD_W, "", "", 24)),
    ("", (_JEQ, "", "proto", 0)),
    ("", (_LD_W, "", "", 28)),
    ("", (_JEQ, "", "proto", 0)),
    ("", (_LD_W, "", "", 32)),
    ("", (_JEQ, "", "proto", 0)),
    ("", (_LD_W, "", "", 36)),
    ("", (_JEQ, "drop", "proto", 1)),  # ::1
    ("proto", (_LD_B, "", "", 6)),
    ("", (_JEQ, "tcp", "", TCP)),
    ("", (_JEQ, "udp", "", UDP)),
    ("", (_JEQ, "icmp", "keep", ICMPV6)),
    ("tcp", (_LD_B, "", "", 53)),
    ("", (_AND, "", "", 0x12)),
    ("", (_JEQ, "keep", "drop", 0x02)),
    ("udp", (_LD_H, "", "", 42)),
    ("", (_JEQ, "drop", "keep", DNS_PORT)),
    ("icmp", (_LD_B, "", "", 40)),
    ("", (_JEQ, "keep", "drop", 128)),
)


def watch(family: socket.AddressFamily) -> socket.socket:
    """Return a watching socket of this namespace; needs CAP_NET_RAW, reading from it does not.

    Raises:
        OSError: the kernel refused.
    """
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    program = assemble(_V4 if family == socket.AF_INET else _V6)
    code = array.array("B", program)
    address, length = code.buffer_info()
    filter_ = struct.pack("@HP", length // 8, address)
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_)
    sock.setsockopt(socket.SOL_SOCKET, _SO_LOCK_FILTER, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
    sock.bind(("lo", _ETH_P_IP if family == socket.AF_INET else _ETH_P_IPV6))
    return sock


def assemble(steps: tuple[tuple[str, Step], ...]) -> bytes:
    """Return the filter program of labelled steps, with its two ends: keep and drop."""
    labels = {label: at for at, (label, _) in enumerate(steps) if label}
    labels |= {"keep": len(steps), "drop": len(steps) + 1}
    code = [
        struct.pack("=HBBI", op, *(labels[way] - at - 1 if way else 0 for way in (true, false)), operand)
        for at, (_, (op, true, false, operand)) in enumerate(steps)
    ]
    return b"".join([*code, struct.pack("=HBBI", _RET, 0, 0, SNAP), struct.pack("=HBBI", _RET, 0, 0, 0)])
