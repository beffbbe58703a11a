"""A name server for the egress tests: fixed names, some of them malicious; tells of every question that reaches it.

Standard library and the broker's own codec; runs in ``mcp-sandbox/egress`` as ``python3 zone.py <zone, JSON>``. A zone
is name → list of answers; each answer is a list of addresses, the last answer stays.
"""

# ruff: noqa: T201 - standard output is the record
from __future__ import annotations

import ipaddress
import json
import socket
import struct
import sys

sys.path.insert(0, "/opt/egress")
from sandbox.launch.egress.inside import dns

ZONE: dict[str, list[list[str]]] = json.loads(sys.argv[1])


def answer(data: bytes) -> bytes:
    """Return the answer to one question."""
    question = dns.parse(data)
    known = ZONE.get(question.name)
    kind = 4 if question.type == dns.A else 6
    addresses = []
    if known and question.type in {dns.A, dns.AAAA}:
        # The two questions of one resolution (A, AAAA) see the same answer.
        addresses = known[0]
        if question.type == dns.A and len(known) > 1:
            known.pop(0)
    print(
        json.dumps({"host": "zone", "protocol": "dns", "name": question.name, "type": question.type_name}), flush=True
    )
    if question.type == dns.PTR and known:
        labels = b"".join(bytes([len(label)]) + label.encode() for label in known[0][0].split(".")) + b"\0"
        head = struct.pack(">HHHHHH", question.id, 0x8580, 1, 1, 0, 0)
        return head + question.section + b"\xc0\x0c" + struct.pack(">HHIH", dns.PTR, 1, 0, len(labels)) + labels
    packed = [ipaddress.ip_address(a).packed for a in addresses if ipaddress.ip_address(a).version == kind]
    flags = 0x8580 | (0 if known else 3)
    head = struct.pack(">HHHHHH", question.id, flags, 1, len(packed), 0, 0)
    records = b"".join(b"\xc0\x0c" + struct.pack(">HHIH", question.type, 1, 0, len(p)) + p for p in packed)
    return head + question.section + records


def main() -> None:
    """Serve until killed."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("0.0.0.0", 53))
        print(json.dumps({"host": "zone", "protocol": "ready"}), flush=True)
        while True:
            data, peer = sock.recvfrom(4096)
            try:
                sock.sendto(answer(data), peer)
            except dns.BadQuestion as bad:
                print(json.dumps({"host": "zone", "protocol": "bad", "why": str(bad)}), flush=True)


main()
