"""The watching filter, run by an interpreter of its own, and the reading of what it lets through."""

from __future__ import annotations

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.launch.egress.inside import packets, watching

LOADS = {
    0x30: lambda packet, at, _: packet[at],
    0x28: lambda packet, at, _: struct.unpack_from(">H", packet, at)[0],
    0x20: lambda packet, at, _: struct.unpack_from(">I", packet, at)[0],
    0x50: lambda packet, at, index: packet[index + at],
    0x48: lambda packet, at, index: struct.unpack_from(">H", packet, index + at)[0],
}


def run(program: bytes, packet: bytes) -> int:
    """Return what a classic BPF program returns for a packet (bpf(4)); a load out of range drops it."""
    steps = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    value = index = at = 0
    while steps[at][0] != 0x06:
        code, true, false, k = steps[at]
        at += 1
        try:
            if code in LOADS:
                value = LOADS[code](packet, k, index)
            elif code == 0xB1:
                index = 4 * (packet[k] & 0xF)
        except (IndexError, struct.error):
            return 0
        if code == 0x54:
            value &= k
        elif code in {0x15, 0x45}:
            taken = value == k if code == 0x15 else bool(value & k)
            at += true if taken else false
    return int(steps[at][3])


def ipv4(protocol: int, payload: bytes, to: str = "198.51.100.7", options: int = 0, fragment: int = 0) -> bytes:
    """Return an IPv4 packet."""
    head = struct.pack(
        ">BBHHHBBH4s4s",
        0x45 + options,
        0,
        20 + 4 * options + len(payload),
        0,
        fragment,
        64,
        protocol,
        0,
        ipaddress.IPv4Address("127.0.0.1").packed,
        ipaddress.IPv4Address(to).packed,
    )
    return head + b"\1" * 4 * options + payload


def ipv6(protocol: int, payload: bytes, to: str = "2001:db8::7") -> bytes:
    """Return an IPv6 packet."""
    head = struct.pack(">IHBB", 6 << 28, len(payload), protocol, 64)
    return head + ipaddress.IPv6Address("::1").packed + ipaddress.IPv6Address(to).packed + payload


def tcp(port: int, flags: int) -> bytes:
    """Return a TCP header."""
    return struct.pack(">HHIIBBHHH", 40000, port, 1, 0, 0x50, flags, 512, 0, 0)


def udp(port: int) -> bytes:
    """Return a UDP header with two bytes."""
    return struct.pack(">HHHH", 40000, port, 10, 0) + b"ab"


V4 = watching.assemble(watching._V4)
V6 = watching.assemble(watching._V6)
SYN, ACK, RST = 2, 16, 4


@pytest.mark.parametrize(
    ("program", "packet", "seen"),
    [
        (V4, ipv4(6, tcp(443, SYN)), packets.Attempt("tcp", "198.51.100.7", 443)),
        (V4, ipv4(6, tcp(443, SYN), options=3), packets.Attempt("tcp", "198.51.100.7", 443)),
        (V4, ipv4(6, tcp(443, SYN | 0x40)), packets.Attempt("tcp", "198.51.100.7", 443)),
        (V4, ipv4(17, udp(443)), packets.Attempt("udp", "198.51.100.7", 443)),
        (V4, ipv4(1, b"\x08\0\0\0"), packets.Attempt("icmp", "198.51.100.7", 0)),
        (V4, ipv4(132, b"\0\1\0\2"), packets.Attempt("ip-132", "198.51.100.7", 0)),
        (V6, ipv6(6, tcp(443, SYN)), packets.Attempt("tcp", "2001:db8::7", 443)),
        (V6, ipv6(17, udp(443)), packets.Attempt("udp", "2001:db8::7", 443)),
        (V6, ipv6(58, b"\x80\0\0\0"), packets.Attempt("icmp", "2001:db8::7", 0)),
        (V6, ipv6(6, tcp(443, SYN), "::2"), packets.Attempt("tcp", "::2", 443)),
    ],
)
def test_each_attempt_is_seen_with_its_destination(program: bytes, packet: bytes, seen: packets.Attempt) -> None:
    """First packets of connections, datagrams, echo requests and other protocols show address and port."""
    assert run(program, packet) == watching.SNAP
    assert packets.parse(packet[: watching.SNAP]) == seen


@pytest.mark.parametrize(
    ("program", "packet"),
    [
        (V4, ipv4(6, tcp(443, SYN | ACK))),
        (V4, ipv4(6, tcp(443, ACK))),
        (V4, ipv4(6, tcp(443, RST | ACK))),
        (V4, ipv4(6, tcp(443, SYN), fragment=100)),
        (V4, ipv4(17, udp(53))),
        (V4, ipv4(17, udp(443), fragment=100)),
        (V4, ipv4(1, b"\x03\x03\0\0")),
        (V4, ipv4(6, tcp(443, SYN), "127.0.0.1")),
        (V4, ipv4(17, udp(443), "127.5.5.5")),
        (V6, ipv6(6, tcp(443, ACK))),
        (V6, ipv6(17, udp(53))),
        (V6, ipv6(58, b"\x01\x04\0\0")),
        (V6, ipv6(58, b"\x87\0\0\0", "ff02::1")),
        (V6, ipv6(6, tcp(443, SYN), "::1")),
    ],
)
def test_everything_else_costs_nothing(program: bytes, packet: bytes) -> None:
    """Answers, data, DNS and the namespace's own loopback are dropped in the kernel."""
    assert run(program, packet) == 0


@given(st.binary(max_size=100))
def test_any_bytes_are_an_attempt_or_nothing(data: bytes) -> None:
    """The reader never raises, and both filters end for every packet."""
    found = packets.parse(data)

    assert found is None or 0 <= found.port <= 65535
    assert run(V4, data) in {0, watching.SNAP}
    assert run(V6, data) in {0, watching.SNAP}
